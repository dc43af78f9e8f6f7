import { createHash, randomBytes } from 'node:crypto';

/** Kinds of records that outsiders name, by the prefix that their ids show. */
export type IdPrefix =
  | 'key'
  | 'org'
  | 'proj'
  | 'svc_acct'
  | 'user'
  | 'session'
  | 'inv'
  | 'le'
  | 'rate'
  | 'conv'
  | 'cluster'
  | 'node'
  | 'stack'
  | 'run'
  | 'wh'
  | 'evt'
  | 'dlv'
  | 'budget'
  | 'file'
  | 'batch';

/** A supply of random hexadecimal digits, each used once. */
let digits = '';
let digitsUsed = 0;
let lastMs = 0;
let sequence = 0;
/** The beginning that all ids of one millisecond share. */
let prefix = '';

function takeDigits(count: number): string {
  if (digitsUsed + count > digits.length) {
    digits = randomBytes(8192).toString('hex');
    digitsUsed = 0;
  }
  digitsUsed += count;
  return digits.slice(digitsUsed - count, digitsUsed);
}

function beginMs(ms: number): void {
  lastMs = ms;
  sequence = 0;
  const time = ms.toString(16).padStart(12, '0');
  prefix = `${time.slice(0, 8)}-${time.slice(8)}-7`;
}

/** A clock that is set back by more than this was wrong before: ids follow it. */
const stepBackMaxMs = 10_000;

/**
 * A UUIDv7 (RFC 9562 §5.7) whose order is the order of the calls in this process: the 12 bits after the version are
 * a counter inside one millisecond (§6.2, method 1), the rest is random.
 * @param nowMs milliseconds since the Unix epoch; a clock that steps back by seconds does not reorder ids
 */
export function uuidv7(nowMs: number = Date.now()): string {
  if (nowMs > lastMs || nowMs < lastMs - stepBackMaxMs) beginMs(nowMs);
  else if (sequence === 0xfff) beginMs(lastMs + 1);
  else sequence += 1;
  const counter = sequence.toString(16).padStart(3, '0');
  const variant = '89ab'[Number.parseInt(takeDigits(1), 16) & 0x3];
  return `${prefix}${counter}-${variant}${takeDigits(3)}-${takeDigits(12)}`;
}

/** Milliseconds since the Unix epoch that a UUIDv7 carries. */
export function uuidTimeMs(uuid: string): number {
  return Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16);
}

/** The lowest UUIDv7 of a moment: a bound for ranges and partitions. */
export function uuidLowerBound(timeMs: number): string {
  const time = Math.max(0, Math.floor(timeMs)).toString(16).padStart(12, '0');
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-000000000000`;
}

/** A UUIDv8 (RFC 9562 §5.8) of bytes: the same for the same ones. */
export function uuidOfBytes(data: Buffer): string {
  const hash = createHash('sha256').update(data).digest('hex');
  const variant = '89ab'[Number.parseInt(hash.charAt(16), 16) & 0x3];
  return `${hash.slice(0, 8)}-${hash.slice(8, 12)}-8${hash.slice(13, 16)}-${variant}${hash.slice(17, 20)}-${hash.slice(20, 32)}`;
}

/** True if a text is a UUID in its usual lower-case form. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/.test(text);
}

/** How an id is shown: "key_" and the UUID's 32 hexadecimal digits. */
export function formatId(prefix: IdPrefix, uuid: string): string {
  return `${prefix}_${uuid.replaceAll('-', '')}`;
}

/** The UUID behind a shown id, or null when the text is not an id of that kind. */
export function parseId(prefix: IdPrefix, text: string): string | null {
  const digits = text.startsWith(`${prefix}_`) ? text.slice(prefix.length + 1) : '';
  if (!/^[0-9a-f]{32}$/.test(digits)) return null;
  return [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)].join(
    '-',
  );
}
