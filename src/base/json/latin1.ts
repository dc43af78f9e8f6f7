const ascii = /^[\x20-\x7e]*$/;

/** Returns a value as JSON, its UTF-8 bytes as latin1. */
export function latin1Json(value: unknown): string {
  const json = JSON.stringify(value);
  return ascii.test(json) ? json : Buffer.from(json, 'utf8').toString('latin1');
}
