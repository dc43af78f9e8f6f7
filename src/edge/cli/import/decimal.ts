/** Reads decimals of other programs' files, without floating point. */

const decimalPattern = /^\+?(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,3}))?$/;

/**
 * Converts a price per token to USD per million tokens: exactly if 6 decimals suffice, otherwise rounded up.
 * @param text as written in a file, such as `0.00000015` or `1.5e-07`
 * @returns null if the text is not a decimal of 0 or more
 */
export function perMillion(text: string): { value: string; exact: boolean } | null {
  const match = decimalPattern.exec(text.trim());
  if (match === null) return null;
  const [, whole = '', fraction = '', exponent = '0'] = match;
  if (whole === '' && fraction === '') return null;
  // The result is in millionths of a dollar per million tokens: twelve places to the left.
  const shift = 12 - fraction.length + Number(exponent);
  const digits = BigInt(whole + fraction);
  if (shift > 100) return null;
  if (shift >= 0) return { value: format(digits * 10n ** BigInt(shift)), exact: true };
  const divisor = 10n ** BigInt(-shift);
  return { value: format((digits + divisor - 1n) / divisor), exact: digits % divisor === 0n };
}

function format(millionths: bigint): string {
  const fraction = String(millionths % 1_000_000n)
    .padStart(6, '0')
    .replace(/0+$/, '');
  const whole = String(millionths / 1_000_000n);
  return fraction === '' ? whole : `${whole}.${fraction}`;
}
