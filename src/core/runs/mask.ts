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
  const bytes = Buffer.from(plain, 'utf8');
  return [
    plain,
    json,
    // Of a text inside a text, as Terraform's own lines have it.
    JSON.stringify(json).slice(1, -1),
    encodeURIComponent(plain),
    ...[bytes.toString('base64'), bytes.toString('base64url')].map((text) => text.replace(/=+$/, '')),
    bytes.toString('hex'),
  ];
}
