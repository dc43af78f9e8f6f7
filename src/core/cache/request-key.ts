import { createHash } from 'node:crypto';

/** What two requests must have in common for one answer to serve both. */
export interface RequestIdentity {
  readonly organizationId: string;
  /** Catalog id, whatever name the request used. */
  readonly model: string;
  /** Changes when the engine's file does. */
  readonly engineHash: string;
  /** Path such as /v1/chat/completions. */
  readonly endpoint: string;
  /** The request's body as latin1. */
  readonly body: string;
}

/** Fields that say how an answer is sent, or for whom, and nothing of what it says. */
const formFields: ReadonlySet<string> = new Set(['model', 'stream', 'stream_options', 'user', 'metadata', 'usage']);

/** A number in the form in which equal ones are equal; integers too long for a double keep their digits. */
function canonicalNumber(value: number, source: string): string {
  if (/^-?\d+$/.test(source)) return BigInt(source).toString();
  return Number.isFinite(value) ? JSON.stringify(value) : source;
}

/** Stands for a number whose text is already what it should be. */
class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** JSON.parse hands the reviver the source of primitives (ECMAScript 2026), which TypeScript does not know yet. */
type SourceReviver = (this: unknown, key: string, value: unknown, context: { readonly source?: string }) => unknown;

const keepNumbers: SourceReviver = (_key, value, context) =>
  typeof value === 'number' ? new NumberText(canonicalNumber(value, context.source ?? String(value))) : value;

function writeCanonical(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map(writeCanonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${writeCanonical(member)}`).join(',')}}`;
}

/**
 * The key under which an answer is kept: a SHA-256 over the identity, with the body's fields in one order and one
 * notation, and without those that only say how the answer is sent.
 * @returns hexadecimal; null for a body that is no JSON, which an engine will refuse
 */
export function requestKey({ organizationId, model, engineHash, endpoint, body }: RequestIdentity): string | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(
      Buffer.from(body, 'latin1').toString('utf8'),
      keepNumbers as (key: string, value: unknown) => unknown,
    );
  } catch {
    return null;
  }
  if (typeof parsed !== 'object' || parsed === null) return null;
  const meaning = Object.fromEntries(Object.entries(parsed).filter(([key]) => !formFields.has(key)));
  const identity = [organizationId, model, engineHash, endpoint, writeCanonical(meaning)];
  return createHash('sha256').update(JSON.stringify(identity)).digest('hex');
}
