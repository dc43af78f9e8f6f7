import { formatDecimal, parseDecimal } from '#base/money.ts';

/**
 * Exact money. Quantities are milliseconds; prices and conversion rates are integers in 10⁻¹⁰, so the price of a
 * quantity is a sum of products over one denominator. Rounded once, when formatted.
 */

/** Decimal places of prices, of conversion rates and of `amount_exact`. */
const DECIMALS = 10;
const decimalScale = 10n ** BigInt(DECIMALS);
const hourMs = 3_600_000n;

/** A price or a conversion rate, in 10⁻¹⁰ of a unit. */
export type Scaled = bigint;

/** Numbers below this fit a `numeric(20,10)`. */
const scaledEnd = 10n ** 20n;

/** Reads a plain decimal with at most ten decimal places, not negative. @returns null for anything else */
export function parsePrice(text: string): Scaled | null {
  const value = parseDecimal(text, DECIMALS);
  return value !== null && value >= 0n && value < scaledEnd ? value : null;
}

/** Formats the shortest exact decimal: "32.5". */
export function formatPrice(price: Scaled): string {
  return formatDecimal(price, DECIMALS);
}

/** Parts of a card that GPUs are counted in: a MIG slice is less than a card. */
export const gpuShares = 28n;

/** An amount of money, in units of 1 / (28 × 3.6 × 10²⁶) of the currency. Exact, also after a conversion. */
export type Exact = bigint;

const exactScale = gpuShares * hourMs * decimalScale * decimalScale;

/** One unit of 10^-digits of a currency as an exact amount, by digits; each is a whole number. */
const exactUnits = Array.from({ length: 2 * DECIMALS + 1 }, (_, digits) => exactScale / 10n ** BigInt(digits));

/** Used time: milliseconds times nodes, and milliseconds times 28ths of GPUs. */
export interface Quantity {
  readonly nodeMs: bigint;
  readonly gpuShareMs: bigint;
}

/** Prices of one hour; null if the card has none, and then that hour costs nothing. */
export interface HourPrices {
  readonly nodeHour: Scaled | null;
  readonly gpuHour: Scaled | null;
}

export function priceOf({ nodeMs, gpuShareMs }: Quantity, { nodeHour, gpuHour }: HourPrices): Exact {
  return (nodeMs * gpuShares * (nodeHour ?? 0n) + gpuShareMs * (gpuHour ?? 0n)) * decimalScale;
}

/** @param native a result of `priceOf`: a multiple of 10¹⁰, so the division is exact */
export function convert(native: Exact, rate: Scaled): Exact {
  return (native / decimalScale) * rate;
}

/** Rounds a fraction to the nearest integer, halves away from zero, as Postgres' round(numeric) does. */
export function roundHalfAway(numerator: bigint, denominator: bigint): bigint {
  const doubled = (numerator < 0n ? -numerator : numerator) * 2n + denominator;
  const rounded = doubled / (denominator * 2n);
  return numerator < 0n ? -rounded : rounded;
}

/** Rounds an amount to units of 10^-digits. @throws RangeError for more than 20 digits */
export function roundExact(exact: Exact, digits: number): bigint {
  const unit = exactUnits[digits];
  if (unit === undefined) throw new RangeError(`amounts have no ${digits} decimal places`);
  return roundHalfAway(exact, unit);
}

/** Formats exactly ten decimal places: "0.0005555556". */
export function formatExact(exact: Exact): string {
  return formatFixed(roundExact(exact, DECIMALS), DECIMALS);
}

/** Formats a number of 10^-digits with all its decimal places: 13000 with 2 is "130.00", 2161 with 0 is "2161". */
export function formatFixed(value: bigint, digits: number): string {
  if (digits === 0) return value.toString();
  const text = (value < 0n ? -value : value).toString().padStart(digits + 1, '0');
  return `${value < 0n ? '-' : ''}${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

const MICRO_HOURS = 1_000_000n;

/** Converts milliseconds to millionths of an hour. */
export function toMicroHours(ms: bigint): bigint {
  return roundHalfAway(ms * MICRO_HOURS, hourMs);
}

/** Converts milliseconds of 28ths of GPUs to millionths of a GPU-hour. */
export function toMicroGpuHours(gpuShareMs: bigint): bigint {
  return roundHalfAway(gpuShareMs * MICRO_HOURS, gpuShares * hourMs);
}

/** Converts to a JSON number: exact below nine billion hours. */
export function hoursOf(microHours: bigint): number {
  return Number(microHours) / Number(MICRO_HOURS);
}
