import type { AnswerHeaders } from './engine-call.ts';

export type Framing =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bodyBytes: number }
  | { readonly kind: 'chunked' }
  | { readonly kind: 'until_close' };

export interface AnswerHead {
  readonly status: number;
  readonly headers: AnswerHeaders;
  readonly framing: Framing;
  /** True if the connection may carry another request after this answer. */
  readonly keepAlive: boolean;
}

// Names are tokens followed directly by the colon; values contain no control characters that could end a line. A line
// that begins with a blank (obs-fold) matches neither.
const headPattern = /^HTTP\/1\.[01] [1-5]\d\d(?: [^\r\n\0]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\0]*\r\n)*\r\n$/;
const lengthPattern = /^\d{1,15}$/;
const connectionNeedle = '\r\nconnection:';
const contentLengthNeedle = '\r\ncontent-length:';
const transferEncodingNeedle = '\r\ntransfer-encoding:';

/**
 * Parses the complete head of an answer, as latin1 text with its closing empty line (RFC 9112 §4 to §6). Returns null
 * for every head that two parsers could interpret differently.
 */
export function parseAnswerHead(text: string): AnswerHead | null {
  if (!headPattern.test(text)) return null;
  const status = Number(text.slice(9, 12));
  const headers = createHeaderText(text);
  const http10 = text[7] === '0';
  const framing = framingOf(status, headers, http10);
  if (framing === null) return null;
  const connection = headers.find(connectionNeedle);
  const keepAlive = framing.kind !== 'until_close' && staysOpen(connection, http10);
  return { status, headers, framing, keepAlive };
}

function framingOf(status: number, headers: HeaderText, http10: boolean): Framing | null {
  const transferEncoding = headers.find(transferEncodingNeedle);
  const contentLength = headers.find(contentLengthNeedle);
  if (transferEncoding !== undefined) {
    if (contentLength !== undefined || http10 || transferEncoding.toLowerCase() !== 'chunked') return null;
  }
  const bodyBytes = contentLength === undefined ? undefined : agreedLength(contentLength);
  if (bodyBytes === null) return null;
  if (status < 200 || status === 204 || status === 304 || bodyBytes === 0) return { kind: 'none' };
  if (transferEncoding !== undefined) return { kind: 'chunked' };
  return bodyBytes === undefined ? { kind: 'until_close' } : { kind: 'length', bodyBytes };
}

/** Returns a length that is given several times only if all values are equal. */
function agreedLength(value: string): number | null {
  if (lengthPattern.test(value)) return Number(value);
  const named = value.split(',').map((part) => trimBlanks(part, 0, part.length));
  const first = named[0];
  if (first === undefined || !lengthPattern.test(first)) return null;
  return named.every((part) => part === first) ? Number(first) : null;
}

function staysOpen(connection: string | undefined, http10: boolean): boolean {
  if (connection === undefined) return !http10;
  const options = connection
    .toLowerCase()
    .split(',')
    .map((option) => option.trim());
  if (options.includes('close')) return false;
  return !http10 || options.includes('keep-alive');
}

interface HeaderText extends AnswerHeaders {
  /** Returns a value as `get` does; the needle is the name with the line break before it and the colon after it. */
  find(needle: string): string | undefined;
}

/** Searches the text itself for names: few are ever requested, so no table is built. */
function createHeaderText(text: string): HeaderText {
  // Every latin1 character has a lower case of one character, so offsets are equal in both texts.
  const lower = text.toLowerCase();

  function find(needle: string): string | undefined {
    let found: string | undefined;
    for (let at = lower.indexOf(needle); at !== -1; at = lower.indexOf(needle, at + needle.length)) {
      const from = at + needle.length;
      const value = trimBlanks(text, from, text.indexOf('\r\n', from));
      found = found === undefined ? value : `${found}, ${value}`;
    }
    return found;
  }

  return { find, get: (name) => find(`\r\n${name}:`) };
}

/** Trims only blanks and tabs: other characters that String.trim() removes could be part of a value. */
function trimBlanks(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isBlank(text.charCodeAt(start))) start += 1;
  while (end > start && isBlank(text.charCodeAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

function isBlank(code: number): boolean {
  return code === 32 || code === 9;
}
