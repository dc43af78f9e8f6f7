import type { IncomingHttpHeaders } from 'node:http';

/** A caller's place in a distributed trace, as W3C Trace Context (Level 2) writes it. */
export interface TraceContext {
  /** 32 lower-case hexadecimal digits. */
  readonly traceId: string;
  /** 16 lower-case hexadecimal digits. */
  readonly spanId: string;
  /** One byte; bit 0 says that the caller records. */
  readonly flags: number;
  /** List of `vendor=value`, '' when there is none. */
  readonly state: string;
}

/** Version, trace id, parent id, flags (§3.2.2); later versions may add fields behind a dash. */
const parentPattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;
/** §3.3.1.3: a key, perhaps of a tenant, and a value of printable ASCII that does not end in a blank. */
const memberPattern =
  /^[a-z0-9][a-z0-9_\-*/]{0,255}(?:@[a-z][a-z0-9_\-*/]{0,13})?=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
const membersMax = 32;
const stateBytesMax = 8192;

/**
 * The trace that a request belongs to.
 * @returns null when there is none or it is malformed: then a new trace begins, as §3.2.2 has it, and the request goes
 *   on. Only a malformed `tracestate` is left out.
 */
export function readTraceContext({ traceparent, tracestate }: IncomingHttpHeaders): TraceContext | null {
  if (typeof traceparent !== 'string' || traceparent.length > 512) return null;
  const [, version, traceId, spanId, flags, rest] = parentPattern.exec(traceparent) ?? [];
  if (version === undefined || traceId === undefined || spanId === undefined || flags === undefined) return null;
  if (version === 'ff' || (version === '00' && rest !== undefined)) return null;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  return { traceId, spanId, flags: Number.parseInt(flags, 16), state: readState(tracestate) };
}

function readState(given: string | readonly string[] | undefined): string {
  const text = typeof given === 'string' ? given : (given ?? []).join(',');
  if (text.length > stateBytesMax) return '';
  // Empty members are allowed, and mean nothing.
  const members = text.split(',').flatMap((part) => (part.trim() === '' ? [] : [part.trim()]));
  const keys = new Set(members.map((member) => member.slice(0, member.indexOf('='))));
  const isValid = members.length <= membersMax && keys.size === members.length;
  return isValid && members.every((member) => memberPattern.test(member)) ? members.join(',') : '';
}

/** Header lines for a request that belongs to the trace, each with its CRLF; written as version 00. */
export function traceLines({ traceId, spanId, flags, state }: TraceContext): string {
  const parent = `traceparent: 00-${traceId}-${spanId}-${flags.toString(16).padStart(2, '0')}\r\n`;
  return state === '' ? parent : `${parent}tracestate: ${state}\r\n`;
}
