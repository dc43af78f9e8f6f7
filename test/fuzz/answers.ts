import { BrokenPromise } from './target.ts';

/** Answers as bytes: whether they are HTTP, and whether their errors say what they may and no more. */

export interface Answer {
  readonly status: number;
  /** By their names in lower case. */
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
  /** False for one that was cut off. */
  readonly whole: boolean;
}

const broken = (what: string, text: string): BrokenPromise =>
  new BrokenPromise(`${what}: ${JSON.stringify(text.slice(0, 600))}`);

/**
 * Reads all answers of a connection.
 * @param text latin1
 * @param mayLackBodies whether some of the requests may have been HEAD
 * @throws BrokenPromise for what is no HTTP/1.1
 */
export function readAnswers(text: string, mayLackBodies: boolean): Answer[] {
  const answers: Answer[] = [];
  let at = 0;
  while (at < text.length) {
    const read = readAnswer(text.slice(at), mayLackBodies);
    answers.push(read.answer);
    at += read.length;
  }
  return answers;
}

const headPattern = /^HTTP\/1\.1 ([1-5]\d\d) [\x20-\x7e]*\r\n/;
const headerPattern = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\x20-\x7e\x80-\xff]*)$/;

function readAnswer(text: string, mayLackBody: boolean): { answer: Answer; length: number } {
  const end = text.indexOf('\r\n\r\n');
  if (end === -1) {
    if (!/^H(?:T(?:T(?:P|$)|$)|$)/.test(text)) throw broken('what was answered is no HTTP', text);
    return { answer: { status: 0, headers: new Map(), body: '', whole: false }, length: text.length };
  }
  const first = headPattern.exec(text);
  if (first === null) throw broken('what was answered is no HTTP', text);
  const status = Number(first[1]);
  const headers = readHeaders(text.slice(first[0].length, Math.max(first[0].length, end)));
  const rest = text.slice(end + 4);
  const body = readBody({ status, headers, rest, mayLackBody });
  return { answer: { status, headers, body: body.text, whole: body.whole }, length: end + 4 + body.length };
}

function readHeaders(text: string): Map<string, string> {
  const headers = new Map<string, string>();
  for (const line of text === '' ? [] : text.split('\r\n')) {
    const match = headerPattern.exec(line);
    const name = match?.[1]?.toLowerCase();
    if (match === null || name === undefined) throw broken('a header of an answer is none', line);
    if (headers.has(name) && name !== 'set-cookie') throw broken('a header of an answer is there twice', text);
    headers.set(name, match[2] ?? '');
  }
  return headers;
}

interface BodyJob {
  readonly status: number;
  readonly headers: ReadonlyMap<string, string>;
  readonly rest: string;
  readonly mayLackBody: boolean;
}

function readBody({ status, headers, rest, mayLackBody }: BodyJob): { text: string; length: number; whole: boolean } {
  const none = { text: '', length: 0, whole: true };
  if (status < 200 || status === 204 || status === 304) return none;
  if (mayLackBody && (rest === '' || rest.startsWith('HTTP/1.1 '))) return none;
  const length = headers.get('content-length');
  if (headers.get('transfer-encoding') === 'chunked') {
    if (length !== undefined) throw broken('an answer has two lengths', rest);
    return readChunks(rest);
  }
  if (length === undefined) return { text: rest, length: rest.length, whole: headers.get('connection') === 'close' };
  if (!/^\d+$/.test(length)) throw broken('the length of an answer is none', length);
  const text = rest.slice(0, Number(length));
  return { text, length: text.length, whole: text.length === Number(length) };
}

function readChunks(rest: string): { text: string; length: number; whole: boolean } {
  const cut = { text: '', length: rest.length, whole: false };
  let text = '';
  let at = 0;
  for (;;) {
    const lineEnd = rest.indexOf('\r\n', at);
    if (lineEnd === -1) return { ...cut, text };
    const size = rest.slice(at, lineEnd);
    if (!/^[0-9a-f]+$/i.test(size)) throw broken('a chunk of an answer is none', rest.slice(at));
    const bytes = Number.parseInt(size, 16);
    const end = lineEnd + 2 + bytes;
    if (rest.length < end + 2) return { ...cut, text: text + rest.slice(lineEnd + 2, end) };
    if (rest.slice(end, end + 2) !== '\r\n') throw broken('a chunk of an answer has another length', rest.slice(at));
    text += rest.slice(lineEnd + 2, end);
    at = end + 2;
    if (bytes === 0) return { text, length: at, whole: true };
  }
}

/** Names of the parts behind the gateway and of its packages; cases hold none of them. */
const inside =
  /node:\w|node_modules|\bat (?:\S+ \()?\S+:\d+:\d+|\/(?:home|root|tmp|var|usr|work|srv|opt)\/|\w\.[tj]s\b|127\.0\.0\.1|localhost:|E(?:CONN|NOENT|PIPE|RR_)[A-Z_]*|HPE_|SQLSTATE|relation "|column "|postgres|drizzle|undici|[Hh]ono\b|zod|vllm(?!_xargs)|uvicorn|pydantic|(?:Type|Range|Syntax|Reference)Error|is not a function|undefined|\[object |in JSON at|Unexpected token|Invalid input|standin|\.sock\b/;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Statuses of our own above 499 that an answer may have: what is not there yet, and too much at once. */
const codesAbove = new Map([
  [501, 'not_implemented'],
  [503, 'overloaded'],
]);

/** The defect of an answer, whatever was asked; null where there is none. */
export function wrongOf(answer: Answer): string | null {
  const { status, headers, body, whole } = answer;
  if (!whole || status < 200) return null;
  const head = [...headers].map(([name, value]) => `${name}: ${value}`).join('\n');
  const shown = `${status}\n${head}\n\n${body.slice(0, 1000)}`;
  if (inside.test(head)) return `an answer's head tells what is inside: ${shown}`;
  if (!/^[0-9a-f-]{36}$/.test(headers.get('x-request-id') ?? '')) return `an answer has no x-request-id: ${shown}`;
  if (status < 400 || body === '') return status >= 500 ? `an answer has the status ${status}` : null;
  const wrong = wrongError(answer);
  return wrong === null ? null : `${wrong}: ${shown}`;
}

function wrongError({ status, headers, body }: Answer): string | null {
  if (!(headers.get('content-type') ?? '').startsWith('application/json')) return 'an error is no JSON';
  if (inside.test(body)) return 'an error tells what is inside';
  const error = readError(body);
  if (error === null) return 'an error has no envelope';
  if (error.message.trim() === '') return 'an error says nothing';
  if (status >= 500 && codesAbove.get(status) !== error.code) return 'an error is the fault of the gateway';
  if (status === 503 && headers.get('retry-after') === undefined && headers.get('x-should-retry') !== 'false') {
    return 'a 503 has no Retry-After';
  }
  return null;
}

const envelopes = ['message,type,code,param', 'code,message,details'];
/** Anthropic's. */
const typedEnvelope = 'type,message,code,param';

/** Reads an error in one of the envelopes; null where the body is none. */
function readError(body: string): { message: string; code: string } | null {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(body, 'latin1').toString('utf8'));
    const members = isObject(parsed) ? Object.keys(parsed).join() : '';
    const error = isObject(parsed) ? parsed['error'] : null;
    const known = { error: envelopes, 'type,error': [typedEnvelope] }[members] ?? [];
    if (!isObject(error) || !known.includes(Object.keys(error).join())) return null;
    const { message, code } = error;
    return typeof message === 'string' && typeof code === 'string' ? { message, code } : null;
  } catch {
    return null;
  }
}
