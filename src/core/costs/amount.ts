import { formatDecimal, parseDecimal } from '#base/money.ts';

/**
 * Money exactly: quantities are milliseconds, prices and conversion rates whole numbers of 10⁻¹⁰, so that the price of
 * a quantity is a sum of products over one denominator. It is rounded once, where it is shown.
 */

/** Decimal places of prices, of conversion rates and of `amount_exact`. */
const DECIMALS = 10;
const decimalScale = 10n ** BigInt(DECIMALS);
const hourMs = 3_600_000n;

/** A price or a conversion rate, in 10⁻¹⁰ of a unit. */
export type Scaled = bigint;

/** Below this numbers fit a `numeric(20,10)`. */
const scaledEnd = 10n ** 20n;

/** Reads a plain decimal of at most ten places, not negative. @returns null for anything else */
export function parsePrice(text: string): Scaled | null {
  const value = parseDecimal(text, DECIMALS);
  return value !== null && value >= 0n && value < scaledEnd ? value : null;
}

/** The shortest exact decimal: "32.5". */
export function formatPrice(price: Scaled): string {
  return formatDecimal(price, DECIMALS);
}

/** An amount of money: whole numbers of 1 / 3.6 × 10²⁶ of the currency's unit. Exact, also after a conversion. */
export type Exact = bigint;

const exactScale = hourMs * decimalScale * decimalScale;

/** Time that was held, in milliseconds times how many. */
export interface Quantity {
  readonly nodeMs: bigint;
  readonly gpuMs: bigint;
}

/** Prices of one hour; null where the card has none, which then costs nothing. */
export interface HourPrices {
  readonly nodeHour: Scaled | null;
  readonly gpuHour: Scaled | null;
}

export function priceOf({ nodeMs, gpuMs }: Quantity, { nodeHour, gpuHour }: HourPrices): Exact {
  return (nodeMs * (nodeHour ?? 0n) + gpuMs * (gpuHour ?? 0n)) * decimalScale;
}

/** @param native as `priceOf` made it: a multiple of 10¹⁰, hence nothing is lost */
export function convert(native: Exact, rate: Scaled): Exact {
  return (native / decimalScale) * rate;
}

/** The whole number nearest to a fraction, halves away from zero: as Postgres' round(numeric) does. */
export function roundHalfAway(numerator: bigint, denominator: bigint): bigint {
  const doubled = (numerator < 0n ? -numerator : numerator) * 2n + denominator;
  const rounded = doubled / (denominator * 2n);
  return numerator < 0n ? -rounded : rounded;
}

/** An amount in units of 10^-digits. */
export function roundExact(exact: Exact, digits: number): bigint {
  return roundHalfAway(exact * 10n ** BigInt(digits), exactScale);
}

/** Exactly ten places: "0.0005555556". */
export function formatExact(exact: Exact): string {
  return formatFixed(roundExact(exact, DECIMALS), DECIMALS);
}

/** A number of 10^-digits with all its places: 13000 of 2 is "130.00", 2161 of 0 is "2161". */
export function formatFixed(value: bigint, digits: number): string {
  if (digits === 0) return value.toString();
  const text = (value < 0n ? -value : value).toString().padStart(digits + 1, '0');
  return `${value < 0n ? '-' : ''}${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

const MICRO_HOURS = 1_000_000n;

/** Milliseconds as hours of six places, in millionths of an hour. */
export function toMicroHours(ms: bigint): bigint {
  return roundHalfAway(ms * MICRO_HOURS, hourMs);
}

/** As JSON carries it: exact for fewer than nine thousand million hours. */
export function hoursOf(microHours: bigint): number {
  return Number(microHours) / Number(MICRO_HOURS);
}
