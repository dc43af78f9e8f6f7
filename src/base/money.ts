/**
 * Money is a bigint number of pico-dollars (1e-12 USD). A price is a whole number of micro-dollars per million
 * tokens, so tokens × price is already in pico-dollars: exact, without a rounding anywhere.
 */

/** Decimal places of a pico-dollar. */
export const PICO_DIGITS = 12;
/** Decimal places of a micro-dollar. */
export const MICRO_DIGITS = 6;
export const PICO_PER_MICRO = 1_000_000n;

/**
 * Reads a plain decimal ("12", "0.05", "-3.2"): no exponent, no sign but '-', no blanks, no empty side of the point.
 * @param scale number of decimal places that the result counts in; a `text` with more of them is rejected
 * @returns the value × 10^scale, or null when `text` is not such a decimal
 */
export function parseDecimal(text: string, scale: number): bigint | null {
  const match = /^(-?)(\d{1,40})(?:\.(\d{1,40}))?$/.exec(text);
  if (match === null) return null;
  const [, sign, whole = '', fraction = ''] = match;
  if (fraction.length > scale) return null;
  const value = BigInt(whole + fraction.padEnd(scale, '0'));
  return sign === '-' ? -value : value;
}

/** The shortest exact decimal of value ÷ 10^scale: "0", "0.00042", "-12.5"; never an exponent. */
export function formatDecimal(value: bigint, scale: number): string {
  const negative = value < 0n;
  const digits = (negative ? -value : value).toString().padStart(scale + 1, '0');
  const whole = digits.slice(0, digits.length - scale);
  const fraction = digits.slice(digits.length - scale).replace(/0+$/, '');
  return (negative ? '-' : '') + whole + (fraction === '' ? '' : `.${fraction}`);
}

/** Pico-dollars as a decimal string in USD. */
export function formatUsd(picoUsd: bigint): string {
  return formatDecimal(picoUsd, PICO_DIGITS);
}

/** The next whole micro-dollar at or above an amount of pico-dollars; holds are made of these. */
export function ceilToMicroUsd(picoUsd: bigint): bigint {
  return picoUsd <= 0n ? picoUsd / PICO_PER_MICRO : (picoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
}
