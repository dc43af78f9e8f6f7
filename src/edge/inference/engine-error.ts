import { AppError, type ErrorCode } from '#base/errors.ts';

/**
 * An engine's refusal in our own words. Only numbers and the name of the request's field are taken over; the engine's
 * text quotes prompts, names its modules and paths, and changes from version to version.
 */

interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
}

interface Pattern {
  readonly matches: RegExp;
  readonly say: (found: RegExpExecArray, param: string | null) => Refusal;
}

const unsupported = (message: string, param: string): Refusal => ({ code: 'unsupported_parameter', message, param });

const patterns: readonly Pattern[] = [
  {
    matches:
      /maximum context length is (\d+) tokens\. However, you requested (\d+) output tokens and your prompt contains at least (\d+)/,
    say: ([, limit, output, input]) => ({
      code: 'context_length_exceeded',
      // An embedding asks for none.
      message:
        output === '0'
          ? `This model's context holds ${limit} tokens; the input has at least ${input}. Shorten it.`
          : `This model's context holds ${limit} tokens; the request has at least ${input} input tokens and asks for ${output} output tokens. Shorten the input or ask for less output.`,
    }),
  },
  {
    matches: /max_tokens=(\d+) cannot be greater than \w+=(?:\w+=)?(\d+)/,
    say: ([, asked, limit], param) => ({
      code: 'context_length_exceeded',
      message: `This model's context holds ${limit} tokens; the request asks for ${asked} output tokens.`,
      param: param ?? 'max_tokens',
    }),
  },
  {
    matches: /maximum context length(?: is)? (\d+)/i,
    say: ([, limit]) => ({
      code: 'context_length_exceeded',
      message: `The request is longer than this model's context of ${limit} tokens.`,
    }),
  },
  {
    matches: /tool choice requires|tool-call-parser/,
    say: () => unsupported('This model does not support tool calls.', 'tools'),
  },
  {
    matches: /is not a multimodal model|does not support (?:image|video|audio)|At most 0 \w+/,
    say: () => unsupported('This model reads text only.', 'messages'),
  },
  {
    matches: /does not support Matryoshka/,
    say: () => unsupported('This model has embeddings of one size only; leave "dimensions" out.', 'dimensions'),
  },
  {
    matches: /chat template .*--trust-request-chat-template/,
    say: () => unsupported('"chat_template" is not supported for this model.', 'chat_template'),
  },
  {
    matches: /suffix is not currently supported/,
    say: () => unsupported('"suffix" is not supported for this model.', 'suffix'),
  },
  {
    matches: /empty conversation|pass at least one prompt|prompt cannot be empty/,
    say: () => ({
      code: 'invalid_value',
      message: 'The request has no input: it needs at least one message or prompt.',
    }),
  },
  {
    matches: /^Grammar error|(?:grammar|schema|regex).*(?:invalid|compile|unsupported)/i,
    say: () => ({
      code: 'invalid_value',
      message: 'The schema or grammar of the answer is not valid.',
      param: 'response_format',
    }),
  },
  {
    matches: /'type': 'json_invalid', 'loc': \('body', (\d+)\)/,
    say: ([, offset]) => ({
      code: 'invalid_request_error',
      message: `The request body is not valid JSON at character ${offset}.`,
    }),
  },
  {
    matches: /'type': 'missing'/,
    say: (_, param) => ({
      code: 'invalid_request_error',
      message: param === null ? 'A required field is missing.' : `The field "${param}" is missing.`,
    }),
  },
  {
    matches: /greater than max allowed: (\d+)/,
    say: ([, limit], param) => ({ code: 'invalid_value', message: `${nameOf(param)} may be at most ${limit}.` }),
  },
  {
    matches: /^(n) must be at least (\d+), got (-?\d+)/,
    say: ([, name = 'n', limit]) => ({
      code: 'invalid_value',
      message: `"${name}" must be at least ${limit}.`,
      param: name,
    }),
  },
  {
    matches: /must be (?:at least|greater than or equal to) (-?\d+(?:\.\d+)?), got -?\d/,
    say: ([, limit], param) => ({ code: 'invalid_value', message: `${nameOf(param)} must be at least ${limit}.` }),
  },
  {
    matches: /^n must be 1 when using greedy sampling/,
    say: () => ({ code: 'invalid_value', message: '"n" must be 1 where "temperature" is 0.', param: 'n' }),
  },
  {
    matches: /must be in ([[(])(-?[\d.]+), (-?[\d.]+)\]/,
    say: ([, open, low, high], param) => ({
      code: 'invalid_value',
      message: `${nameOf(param)} must be ${open === '(' ? 'above' : 'at least'} ${low} and at most ${high}.`,
    }),
  },
  {
    matches: /must be greater than zero/,
    say: (_, param) => ({ code: 'invalid_value', message: `${nameOf(param)} must be above 0.` }),
  },
  {
    matches: /^min_tokens must be less than or equal to max_tokens=(\d+)/,
    say: ([, limit]) => ({
      code: 'invalid_value',
      message: `"min_tokens" may be at most the output limit of ${limit}.`,
      param: 'min_tokens',
    }),
  },
  {
    matches: /cannot contain an empty string/,
    say: (_, param) => ({ code: 'invalid_value', message: `${nameOf(param)} must not contain an empty string.` }),
  },
  {
    matches: /must be non-negative, got (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)/,
    say: ([, value], param) => ({
      code: 'invalid_value',
      message: `${nameOf(param)} must not be negative; it is ${value}.`,
    }),
  },
  {
    matches: /Stream options can only be defined/,
    say: () => ({ code: 'invalid_value', message: '"stream_options" needs "stream": true.', param: 'stream_options' }),
  },
];

const nameOf = (param: string | null): string => (param === null ? 'A value' : `"${param}"`);

const safeParam = /^[A-Za-z_][A-Za-z0-9_]{0,63}(?:[.[][A-Za-z0-9_\]]{1,64}){0,8}$/;
/** Names of ours that an engine puts before a field's, or in the place of one. */
const innerParam = /^(?:body|input_tokens|function|value_error)\b/;

interface EngineErrorBody {
  readonly message: string;
  readonly param: string | null;
}

function stringOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

/** vLLM's envelope, and the other shapes in which it and its web server refuse. */
function readErrorBody(text: string): EngineErrorBody {
  try {
    const body: unknown = JSON.parse(Buffer.from(text, 'latin1').toString('utf8'));
    const error: unknown = typeof body === 'object' && body !== null ? Reflect.get(body, 'error') : null;
    if (typeof error !== 'object' || error === null) return { message: '', param: null };
    return {
      message: stringOf(Reflect.get(error, 'message')) ?? '',
      param: fieldName(stringOf(Reflect.get(error, 'param'))),
    };
  } catch {
    return { message: '', param: null };
  }
}

function fieldName(param: string | null): string | null {
  if (param === null) return null;
  const name = param.replace(/^body\./, '');
  return safeParam.test(name) && !innerParam.test(name) ? name : null;
}

/** vLLM's validator lists every variant of a body that failed; the field that is there and wrong is the one meant. */
function literalParam(message: string): string | null {
  const match = /'type': '(?!missing)\w+', 'loc': \('body',(?: '[^']*\)\]?',)* '([A-Za-z_]\w{0,63})'/.exec(message);
  return match?.[1] ?? null;
}

/** vLLM's checks of sampling parameters begin with the name, and most of them say it nowhere else. */
function leadingParam(message: string): string | null {
  return /^([a-z][a-z_]{0,63}) (?:must|cannot)\b/.exec(message)?.[1] ?? null;
}

function refusal({ message, param }: EngineErrorBody): AppError {
  const field = literalParam(message) ?? param ?? leadingParam(message);
  const wrongType = message.includes('validation error') && literalParam(message) !== null;
  if (!wrongType) {
    for (const { matches, say } of patterns) {
      const found = matches.exec(message);
      if (found === null) continue;
      const said = say(found, field);
      const named = said.param ?? field;
      return new AppError(said.code, { message: said.message, ...(named === null ? {} : { param: named }) });
    }
  }
  if (field === null)
    return new AppError('invalid_request_error', { message: 'The model refused this request as not valid.' });
  return new AppError('invalid_value', {
    message: `The value of "${field}" is not valid for this model.`,
    param: field,
  });
}

export interface EngineAnswerVerdict {
  readonly error: AppError;
  /** The fault may be this replica's alone. */
  readonly retry: boolean;
  /** What answered is not the replica. */
  readonly unreachable: boolean;
}

const busyRetryAfterSeconds = 5;

/**
 * What an engine's answer with an error status means for the client.
 * @param status the engine's status, not 200
 * @param text its body as latin1
 * @param retryAfter its Retry-After header
 */
export function engineError(status: number, text: string, retryAfter: string | undefined): EngineAnswerVerdict {
  if (status === 400 || status === 422 || status === 413) {
    return { error: refusal(readErrorBody(text)), retry: false, unreachable: false };
  }
  if (status === 429 || status === 503) {
    const seconds = /^\d{1,5}$/.test(retryAfter ?? '') ? Number(retryAfter) : busyRetryAfterSeconds;
    return { error: upstreamBusy(Math.max(1, seconds)), retry: true, unreachable: false };
  }
  const error = new AppError('upstream_error', { status: status === 504 ? 504 : 502 });
  // Each replica has a key of its own: this is another one, started at the address of one that is gone.
  if (status === 401) return { error, retry: true, unreachable: true };
  return { error, retry: status >= 500, unreachable: false };
}

/** The engine takes nothing at the moment. */
export function upstreamBusy(retryAfterSeconds: number, message?: string): AppError {
  return new AppError('upstream_error', {
    status: 503,
    message: message ?? 'The model is busy at the moment; try again shortly.',
    headers: { 'retry-after': String(retryAfterSeconds) },
  });
}
