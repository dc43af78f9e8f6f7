import { dumps, repr } from './python.ts';

/** A refusal as it goes out: status and body bytes. */
export interface Refused {
  status: number;
  body: string;
}

/** vLLM's error object, in the order of its members. */
function errorObject(message: string, type: string, param: string | null, code: number): object {
  return { error: { message, type, param, code } };
}

/** An error answer in vLLM's envelope. */
export function refusal(status: number, type: string, message: string, param: string | null = null): Refused {
  return { status, body: JSON.stringify(errorObject(message, type, param, status)) };
}

/** A 400 that vLLM's own checks raise; `value` joins the message as they join it. */
export function badRequest(message: string, param: string | null = null, value?: string): Refused {
  const suffix = param === null ? '' : ` (parameter=${param}${value === undefined ? '' : `, value=${value}`})`;
  return refusal(400, 'BadRequestError', message + suffix, param);
}

export const ENGINE_DEAD = 'EngineCore encountered an issue. See stack trace (above) for the root cause.';
export const DETAIL_NOT_FOUND = '{"detail":"Not Found"}';
export const DETAIL_METHOD = '{"detail":"Method Not Allowed"}';
export const UNAUTHORIZED = '{"error":"Unauthorized"}';

/** An error that ends a stream. These come from `json.dumps`, unlike every other frame. */
export function errorFrame(message: string, status = 500): string {
  return `data: ${dumps(errorObject(message, 'InternalServerError', null, status))}\n\n`;
}

/** One finding of pydantic's. */
export interface Finding {
  type: string;
  loc: readonly (string | number)[];
  msg: string;
  input: unknown;
  ctx?: Record<string, string | number>;
}

const inputCharsMax = 200;

/** The form in which vLLM shows a value since 0.32, bounded in size. */
function summaryOf(input: unknown): string {
  if (Array.isArray(input)) return `<list of ${input.length} items>`;
  if (typeof input === 'object' && input !== null) return `<dict of ${Object.keys(input).length} items>`;
  const text = typeof input === 'string' ? input : repr(input);
  return text.length > inputCharsMax ? `${text.slice(0, inputCharsMax)}...[truncated]` : text;
}

function printFinding(finding: Finding): string {
  const ctx = finding.ctx === undefined ? '' : `, 'ctx': ${repr(finding.ctx)}`;
  const { type, msg, input } = finding;
  // Since 0.32 the names of pydantic's own wrappers are left out.
  const loc = finding.loc.filter((step) => !/[[\](){}]/.test(String(step))).join('.');
  return `{'type': ${repr(type)}, 'loc': ${repr(loc)}, 'msg': ${repr(msg)}, 'input': ${repr(summaryOf(input))}${ctx}}`;
}

/** Most findings that vLLM lists since 0.32. */
const findingsMax = 10;

/** The 400 that FastAPI's body validation gives; `param` is the first finding's place. */
export function invalidBody(findings: readonly Finding[], param?: string): Refused {
  const count = `${findings.length} validation error${findings.length === 1 ? '' : 's'}`;
  const lines = findings.slice(0, findingsMax).map((finding) => `  ${printFinding(finding)}`);
  const more = findings.length - lines.length;
  if (more > 0) lines.push(`  ...and ${more} more errors`);
  const message = `${count}:\n${lines.join('\n')}`;
  return refusal(400, 'Bad Request', message, param ?? findings[0]?.loc.join('.') ?? null);
}

export const WRONG_MEDIA_TYPE = refusal(
  400,
  'Bad Request',
  "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
);

/** The 400 for a prompt that does not fit; vLLM stops counting one token past the limit. */
export function tooLong(maxModelLen: number, outputTokens: number): Refused {
  const atLeast = maxModelLen - outputTokens + 1;
  return badRequest(
    `This model's maximum context length is ${maxModelLen} tokens. However, you requested ${outputTokens} output ` +
      `tokens and your prompt contains at least ${atLeast} input tokens, for a total of at least ` +
      `${maxModelLen + 1} tokens. Please reduce the length of the input prompt or the number of requested output ` +
      'tokens.',
    'input_tokens',
    String(atLeast),
  );
}

/**
 * The answer of the `status` knob. Its text names things of an engine's inside (a path, an address, a process) so
 * that a test can look whether a gateway lets them out.
 */
export function injected(status: number, message: string | undefined, model: string): Refused {
  if (status === 401 && message === undefined) return { status, body: UNAUTHORIZED };
  const inside = 'EngineCore_DP0 at 10.42.0.17:8000, /root/.cache/huggingface/hub/models--stand-in';
  const known: Record<number, readonly [type: string, message: string, param: string | null]> = {
    400: ['BadRequestError', `The request was rejected by ${inside} (parameter=input, value=7)`, 'input'],
    404: ['NotFoundError', `The model \`${model}\` does not exist.`, 'model'],
    422: ['UnprocessableEntityError', `Failed to load media from http://10.42.0.9/secret.png on ${inside}`, null],
    429: ['TooManyRequestsError', `Queue of ${inside} is full`, null],
    500: ['InternalServerError', `CUDA error: an illegal memory access was encountered in ${inside}`, null],
    503: ['ServiceUnavailableError', `The model is currently scaling on ${inside}. Please try again later.`, null],
  };
  const [type, text, param] = known[status] ?? ['InternalServerError', `Unexpected status from ${inside}`, null];
  return refusal(status, type, message ?? text, param);
}
