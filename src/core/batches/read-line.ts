import { isUtf8 } from 'node:buffer';
import { type JsonMember, scanDocument, scanObject, type Splice, spliceText } from '#base/json/json.ts';
import type { BatchEndpoint } from './batch.ts';

/** One request of a batch, read from its line. */
export interface RequestLine {
  readonly customId: string;
  readonly model: string;
  /** Offset of the body in the line, in bytes. */
  readonly bodyAt: number;
  readonly bodyBytes: number;
  /** JSON of the body's `tools`, as latin1; null without them. */
  readonly tools: string | null;
}

export interface LineProblem {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
}

export type LineRead = { readonly ok: true; readonly line: RequestLine } | ({ readonly ok: false } & LineProblem);

export const customIdLengthMax = 512;
const modelLengthMax = 512;
/** Longest line that is parsed; only the structure of a longer one is checked, since its engine parses it anyway. */
const parsedBytesMax = 262_144;

const problem = (code: string, message: string, param: string | null = null): LineRead => ({
  ok: false,
  code,
  message,
  param,
});

/**
 * Reads one line of a batch's file.
 * @param bytes without the line end
 */
export function readLine(bytes: Buffer, endpoint: BatchEndpoint): LineRead {
  if (!isUtf8(bytes)) return problem('invalid_json_line', 'This line is not valid UTF-8.');
  // Latin-1 has one character per byte, so that offsets match the file.
  const text = bytes.toString('latin1');
  const scan = scanDocument(text);
  if (!scan.ok || (bytes.length <= parsedBytesMax && !isJson(bytes))) {
    const why = scan.ok ? '' : `: ${scan.reason}`;
    return problem('invalid_json_line', `This line is not a valid JSON object${why}.`);
  }
  const member = (key: string): JsonMember | undefined => scan.members.findLast((one) => one.key === key);
  const customId = stringOf(text, member('custom_id'));
  if (customId === null) return problem('missing_required_parameter', 'custom_id must be a string.', 'custom_id');
  if (!isCustomId(customId)) {
    const message = `custom_id must have 1 to ${customIdLengthMax} characters, and no control characters.`;
    return problem('invalid_custom_id', message, 'custom_id');
  }
  if (stringOf(text, member('method')) !== 'POST') {
    return problem('invalid_method', 'method must be "POST".', 'method');
  }
  if (stringOf(text, member('url')) !== endpoint) {
    return problem('invalid_url', `url must be the endpoint of the batch, "${endpoint}".`, 'url');
  }
  return readBody(text, member('body'), customId);
}

function readBody(text: string, body: JsonMember | undefined, customId: string): LineRead {
  const scan = body === undefined ? null : scanObject(text, body.valueStart);
  if (body === undefined || scan === null || !scan.ok) {
    return problem('missing_required_parameter', 'body must be an object.', 'body');
  }
  const model = stringOf(
    text,
    scan.members.findLast(({ key }) => key === 'model'),
  );
  if (model === null || model === '' || model.length > modelLengthMax) {
    return problem('missing_required_parameter', 'body.model must be the name of a model.', 'body.model');
  }
  const streams = scan.members.some(
    ({ key, valueStart, valueEnd }) => key === 'stream' && text.slice(valueStart, valueEnd) === 'true',
  );
  if (streams)
    return problem('invalid_request', 'body.stream: streaming is not supported in batches. Omit it.', 'body.stream');
  const { valueStart, valueEnd } = body;
  const member = scan.members.findLast(({ key }) => key === 'tools');
  const tools = member === undefined ? null : text.slice(member.valueStart, member.valueEnd);
  return { ok: true, line: { customId, model, bodyAt: valueStart, bodyBytes: valueEnd - valueStart, tools } };
}

function isJson(bytes: Buffer): boolean {
  try {
    JSON.parse(bytes.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

function stringOf(text: string, member: JsonMember | undefined): string | null {
  if (member === undefined || member.valueEnd - member.valueStart > 8 * customIdLengthMax) return null;
  const raw = Buffer.from(text.slice(member.valueStart, member.valueEnd), 'latin1').toString('utf8');
  try {
    const value: unknown = JSON.parse(raw);
    return typeof value === 'string' ? value : null;
  } catch {
    return null;
  }
}

const isCustomId = (text: string): boolean =>
  text !== '' && text.length <= customIdLengthMax && text.isWellFormed() && !/\p{Cc}/u.test(text);

/** Returns the body of a request with the tier `flex`, whatever tier it has itself. */
export function flexBody(body: Buffer): Buffer {
  const text = body.toString('latin1');
  const scan = scanDocument(text);
  const tier = '"service_tier":"flex"';
  if (!scan.ok) return body;
  const [first] = scan.members;
  if (first === undefined) return Buffer.from(`{${tier}}`);
  const tiers = scan.members.filter(({ key }) => key === 'service_tier');
  const splices: Splice[] =
    tiers.length === 0
      ? [{ start: first.keyStart, end: first.keyStart, text: `${tier},` }]
      : tiers.map(({ valueStart, valueEnd }) => ({ start: valueStart, end: valueEnd, text: '"flex"' }));
  return Buffer.from(spliceText(text, splices), 'latin1');
}
