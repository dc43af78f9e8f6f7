import type { Policy } from './rule.ts';

/** Image names: https://github.com/distribution/reference, without IPv6 addresses. */

const host = '[A-Za-z0-9-]+(?:\\.[A-Za-z0-9-]+)*(?::\\d{1,5})?';
const part = '[a-z0-9]+(?:(?:\\.|__?|-+)[a-z0-9]+)*';
const repository = `(?:${host}/)?${part}(?:/${part})*`;
const tag = '[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}';
const digest = 'sha256:[a-f0-9]{64}';
const image = new RegExp(`^(${repository})(?::(${tag}))?(?:@(${digest}))?$`);
const charsMax = 512;

/**
 * True if the policy allows the image. The name needs a tag or a digest. With a digest Docker ignores the tag, so the
 * tag is ignored here too.
 */
export function isAllowedImage({ images }: Policy, text: string): boolean {
  const [, name, itsTag, itsDigest] = (text.length <= charsMax ? image.exec(text) : null) ?? [];
  if (name === undefined || (itsTag === undefined && itsDigest === undefined)) return false;
  const meant = itsDigest === undefined ? `${name}:${itsTag}` : `${name}@${itsDigest}`;
  return images.some((pattern) => pattern === text || matches(meant, pattern));
}

/** Matches a text against a pattern in which `*` stands for any text, slashes included. */
function matches(text: string, pattern: string): boolean {
  const escaped = pattern.split('*').map((words) => words.replace(/[^\w]/g, String.raw`\$&`));
  return new RegExp(`^${escaped.join('.*')}$`).test(text);
}

/** Returns the image that a pull requests; null if its two parameters are ambiguous. */
export function pulledImage(query: URLSearchParams): string | null {
  const name = query.get('fromImage') ?? '';
  const which = query.get('tag') ?? '';
  if (!new RegExp(`^${repository}$`).test(name)) return null;
  if (new RegExp(`^${digest}$`).test(which)) return `${name}@${which}`;
  return new RegExp(`^${tag}$`).test(which) ? `${name}:${which}` : null;
}
