import { createHash } from 'node:crypto';
import { canonicalJson } from '#base/json-canonical.ts';
import { scanDocument } from '#base/json-scan.ts';

/** What two requests must have in common for one answer to serve both. */
export interface RequestIdentity {
  readonly organizationId: string;
  /** Catalog id, whatever name the request used. */
  readonly model: string;
  /** Changes when the engine's file does. */
  readonly engineHash: string;
  /** Path such as /v1/chat/completions. */
  readonly endpoint: string;
  /** What the body asks for, of `requestMeaning`. */
  readonly meaning: string;
}

/** Fields that say how an answer is sent, or for whom, and nothing of what it says. */
const formFields: ReadonlySet<string> = new Set(['model', 'stream', 'stream_options', 'user', 'metadata', 'usage']);
/** A field longer than this is compared as it was written: to read it again would take as long as a small request. */
const readBytesMax = 65_536;

/**
 * What a body asks for, in a form in which equal ones are equal: a SHA-256 over its fields in one order and one notation,
 * without those that only say how the answer is sent.
 * @param body as latin1
 * @returns hexadecimal; null for a body that is no JSON, which an engine will refuse
 */
export function requestMeaning(body: string): string | null {
  const scan = scanDocument(body);
  if (!scan.ok) return null;
  const asked = scan.members.filter(({ key }) => !formFields.has(key)).sort((a, b) => (a.key < b.key ? -1 : 1));
  const hash = createHash('sha256');
  for (const { key, valueStart, valueEnd } of asked) {
    const value = body.slice(valueStart, valueEnd);
    const text = value.length > readBytesMax ? value : canonicalJson(value);
    if (text === null) return null;
    hash.update(`${JSON.stringify(key)}:${text.length}:`).update(text, 'latin1');
  }
  return hash.digest('hex');
}

/** The key under which an answer is kept: a SHA-256 over the identity, hexadecimal. */
export function requestKey({ organizationId, model, engineHash, endpoint, meaning }: RequestIdentity): string {
  const identity = [organizationId, model, engineHash, endpoint, meaning];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}
