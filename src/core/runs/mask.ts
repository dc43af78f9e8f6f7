/** What stands in the place of a secret. */
export const masked = '***';

/** Shorter ones would take too much of every log with them. */
const lengthMin = 6;

/** Replaces secrets in a text, in whatever form Terraform and programs print them. */
export type Mask = (text: string) => string;

/**
 * @param secrets what no log may show; of one with several lines each line is a secret too, as a log has lines
 */
export function createMask(secrets: readonly string[]): Mask {
  const forms = new Set(secrets.flatMap((secret) => [secret, ...secret.split('\n')]).flatMap(formsOf));
  // The longest first: a form that is part of another one must not leave the rest of it.
  const found = [...forms].filter((form) => form.length >= lengthMin).toSorted((a, b) => b.length - a.length);
  if (found.length === 0) return (text) => text;
  const pattern = new RegExp(found.map(escaped).join('|'), 'g');
  return (text) => text.replaceAll(pattern, masked);
}

/** What no character of a regular expression means anything in. */
function escaped(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\/-]/g, String.raw`\$&`);
}

function formsOf(secret: string): string[] {
  const plain = secret.trim();
  const json = JSON.stringify(plain).slice(1, -1);
  // As Terraform's jsonencode() and every other program in Go write it.
  const escapedJson = json.replaceAll(/[<>&]/g, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`);
  const bytes = Buffer.from(plain, 'utf8');
  const hex = bytes.toString('hex');
  return [
    plain,
    // Of a text inside a text, as Terraform's own lines have it.
    ...[json, escapedJson].flatMap((text) => [text, JSON.stringify(text).slice(1, -1)]),
    encodeURIComponent(plain),
    new URLSearchParams([['', plain]]).toString().slice(1),
    ...base64Forms(bytes),
    hex,
    hex.toUpperCase(),
  ];
}

/** Characters of base64 that programs put into a line: RFC 2045, RFC 7468. */
const lineChars = [76, 64] as const;

/**
 * What base64 makes of a secret wherever it stands in a text, such as behind the user's name of basic authentication:
 * characters that its neighbours have a part in are left out. And pieces of lines that it is broken into.
 */
function base64Forms(bytes: Buffer): string[] {
  const shifted = [0, 1, 2].map((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString('base64');
    const whole = Math.floor(((before + bytes.length) * 8) / 6);
    return text.slice(Math.ceil((before * 8) / 6), whole);
  });
  const plain = bytes.toString('base64').replace(/=+$/, '');
  const lines = lineChars.flatMap((width) =>
    plain.length > width ? (plain.match(new RegExp(`.{1,${width}}`, 'g')) ?? []) : [],
  );
  return [plain, ...shifted, ...lines].flatMap((text) => [text, text.replaceAll('+', '-').replaceAll('/', '_')]);
}
