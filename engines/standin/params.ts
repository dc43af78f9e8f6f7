import type { Options } from './args.ts';
import { badRequest, invalidBody, tooLong, type Finding, type Refused } from './errors.ts';
import { float } from './python.ts';
import { createPromptScanner, type PromptScan } from './tokenizer.ts';
import type { Usage } from './usage.ts';

export type Body = Record<string, unknown>;

/** Fields of a chat or completion request that shape its generation. */
export interface Params {
  stream: boolean;
  usage: Usage;
  n: number;
  /** Output tokens at most; null is the rest of the context. */
  maxTokens: number | null;
  minTokens: number;
  ignoreEos: boolean;
  stop: string[];
  includeStop: boolean;
  temperature: number;
  seed: number | null;
  /** Alternatives to print for each token; null is no logprobs at all. */
  logprobs: number | null;
  streamInterval: number;
  returnTokenIds: boolean;
  /** Separates prefixes: a request uses only blocks with an equal salt; null is a salt of its own. */
  cacheSalt: string | null;
}

type FieldKind = 'float' | 'int' | 'bool' | 'str' | 'list' | 'dict' | 'stop' | 'salt';

const COMMON: Record<string, FieldKind> = {
  model: 'str',
  frequency_penalty: 'float',
  max_tokens: 'int',
  n: 'int',
  presence_penalty: 'float',
  seed: 'int',
  stop: 'stop',
  stream: 'bool',
  stream_options: 'dict',
  temperature: 'float',
  top_p: 'float',
  top_k: 'int',
  min_p: 'float',
  min_tokens: 'int',
  ignore_eos: 'bool',
  include_stop_str_in_output: 'bool',
  return_token_ids: 'bool',
  stream_interval: 'int',
  logit_bias: 'dict',
  cache_salt: 'salt',
};

export const CHAT_FIELDS: Record<string, FieldKind> = {
  messages: 'list',
  ...COMMON,
  logprobs: 'bool',
  top_logprobs: 'int',
  max_completion_tokens: 'int',
  response_format: 'dict',
  tools: 'list',
  include_reasoning: 'bool',
};

export const COMPLETION_FIELDS: Record<string, FieldKind> = { ...COMMON, logprobs: 'int', echo: 'bool', suffix: 'str' };

const TRUTHS = new Map<unknown, boolean>([
  ...['true', 't', 'yes', 'y', 'on', '1'].map((word) => [word, true] as const),
  ...['false', 'f', 'no', 'n', 'off', '0'].map((word) => [word, false] as const),
  [1, true],
  [0, false],
]);

const ONLY_LIST: readonly [string, string] = ['list_type', 'Input should be a valid list'];

function numberFault(kind: 'float' | 'int', value: unknown): readonly [type: string, msg: string] | number {
  const noun = kind === 'float' ? 'number' : 'integer';
  const parsed = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
  if (typeof value === 'string' && (typeof parsed !== 'number' || Number.isNaN(parsed))) {
    return [
      `${kind}_parsing`,
      `Input should be a valid ${noun}, unable to parse string as ${noun === 'number' ? 'a' : 'an'} ${noun}`,
    ];
  }
  if (typeof parsed === 'boolean') return Number(parsed);
  if (typeof parsed !== 'number') return [`${kind}_type`, `Input should be a valid ${noun}`];
  if (kind === 'int' && !Number.isInteger(parsed)) {
    return ['int_from_float', 'Input should be a valid integer, got a number with a fractional part'];
  }
  return parsed;
}

type Coerced = { value: unknown } | readonly [type: string, msg: string, ctx?: Record<string, number>];

function coerceBool(value: unknown): Coerced {
  if (typeof value === 'boolean') return { value };
  const truth = TRUTHS.get(typeof value === 'string' ? value.toLowerCase() : value);
  if (truth !== undefined) return { value: truth };
  return typeof value === 'string'
    ? ['bool_parsing', 'Input should be a valid boolean, unable to interpret input']
    : ['bool_type', 'Input should be a valid boolean'];
}

function coerceNumber(kind: 'float' | 'int', value: unknown): Coerced {
  const read = numberFault(kind, value);
  return typeof read === 'number' ? { value: read } : read;
}

function coerceStop(value: unknown): Coerced {
  if (typeof value === 'string') return { value: [value] };
  const strings = Array.isArray(value) && value.every((item) => typeof item === 'string');
  return strings ? { value } : ONLY_LIST;
}

const SALT_CHARS_MAX = 1024;

function coerceSalt(value: unknown): Coerced {
  if (typeof value !== 'string') return ['string_type', 'Input should be a valid string'];
  if (value === '') return ['string_too_short', 'String should have at least 1 character', { min_length: 1 }];
  if (Array.from(value).length <= SALT_CHARS_MAX) return { value };
  const ctx = { max_length: SALT_CHARS_MAX };
  return ['string_too_long', `String should have at most ${SALT_CHARS_MAX} characters`, ctx];
}

function coerceDict(value: unknown): Coerced {
  const isDict = typeof value === 'object' && !Array.isArray(value);
  return isDict ? { value } : ['dict_type', 'Input should be a valid dictionary'];
}

/** One check for each kind of field, as pydantic's lax mode does it: the value, or why not. */
const COERCE: Record<FieldKind, (value: unknown) => Coerced> = {
  float: (value) => coerceNumber('float', value),
  int: (value) => coerceNumber('int', value),
  bool: coerceBool,
  str: (value) => (typeof value === 'string' ? { value } : ['string_type', 'Input should be a valid string']),
  list: (value) => (Array.isArray(value) ? { value } : ONLY_LIST),
  dict: coerceDict,
  stop: coerceStop,
  salt: coerceSalt,
};

function missing(body: Body, name: string): Finding {
  return body[name] === undefined
    ? { type: 'missing', loc: ['body', name], msg: 'Field required', input: body }
    : { type: 'list_type', loc: ['body', name], msg: ONLY_LIST[1], input: null };
}

/** Checks the types of a body's known fields and coerces them in place. */
export function checkFields(body: Body, fields: Record<string, FieldKind>, required: string): Refused | null {
  const findings: Finding[] = [];
  if (body[required] === undefined || body[required] === null) findings.push(missing(body, required));
  for (const name in fields) {
    const value = body[name];
    const kind = fields[name];
    if (value === undefined || value === null || kind === undefined) continue;
    const read = COERCE[kind](value);
    if ('value' in read) body[name] = read.value;
    else
      findings.push({
        type: read[0],
        loc: ['body', name],
        msg: read[1],
        input: value,
        ...(read[2] && { ctx: read[2] }),
      });
  }
  return findings.length > 0 ? invalidBody(findings) : null;
}

function numberOf(body: Body, name: string): number | null {
  const value = body[name];
  return typeof value === 'number' ? value : null;
}

function outOfRange(body: Body): Refused | null {
  const n = numberOf(body, 'n') ?? 1;
  if (n < 1) return badRequest(`n must be at least 1, got ${n}.`);
  if (n > 16_384)
    return badRequest(
      `n must be at most 16384, got ${n}. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable.`,
    );
  for (const name of ['presence_penalty', 'frequency_penalty']) {
    const value = numberOf(body, name) ?? 0;
    if (value < -2 || value > 2)
      return badRequest(`${name} must be in [-2, 2], got ${float(value)}.`, name, float(value));
  }
  const temperature = numberOf(body, 'temperature') ?? 1;
  if (temperature < 0) {
    return badRequest(
      `temperature must be non-negative, got ${float(temperature)}.`,
      'temperature',
      float(temperature),
    );
  }
  const topP = numberOf(body, 'top_p') ?? 1;
  if (topP <= 0 || topP > 1) return badRequest(`top_p must be in (0, 1], got ${float(topP)}.`, 'top_p', float(topP));
  return null;
}

function wrongLimits(body: Body, maxModelLen: number): Refused | null {
  const maxTokens = numberOf(body, 'max_completion_tokens') ?? numberOf(body, 'max_tokens');
  if (maxTokens !== null && maxTokens < 1) {
    return badRequest(`max_tokens must be at least 1, got ${maxTokens}.`, 'max_tokens', String(maxTokens));
  }
  if (maxTokens !== null && maxTokens > maxModelLen) {
    const limits = `max_tokens=${maxTokens} cannot be greater than max_model_len=max_total_tokens=${maxModelLen}`;
    return badRequest(`${limits}. Please request fewer output tokens.`, 'max_tokens', String(maxTokens));
  }
  const minTokens = numberOf(body, 'min_tokens') ?? 0;
  if (minTokens < 0)
    return badRequest(
      `min_tokens must be greater than or equal to 0, got ${minTokens}.`,
      'min_tokens',
      String(minTokens),
    );
  if (maxTokens !== null && minTokens > maxTokens) {
    return badRequest(
      `min_tokens must be less than or equal to max_tokens=${maxTokens}, got ${minTokens}.`,
      'min_tokens',
      String(minTokens),
    );
  }
  return null;
}

function wrongStop(body: Body): Refused | null {
  const stop = Array.isArray(body.stop) ? body.stop : [];
  if (stop.length > 4) return badRequest(`stop must contain at most 4 strings, got ${stop.length}.`, 'stop');
  if (stop.includes('')) return badRequest('stop cannot contain an empty string.');
  return null;
}

/** Without chance all choices would be the same; vLLM raises temperatures above 0 to at least 0.01. */
function wrongGreedy(body: Body): Refused | null {
  const n = numberOf(body, 'n') ?? 1;
  return numberOf(body, 'temperature') === 0 && n > 1
    ? badRequest(`n must be 1 when using greedy sampling, got ${n}.`)
    : null;
}

function logprobsOf(body: Body): { count: number | null } | Refused {
  const top = numberOf(body, 'top_logprobs');
  const asked = typeof body.logprobs === 'number' ? body.logprobs : top;
  if (asked !== null && asked < 0) return badRequest('`logprobs` must be a positive value.', 'logprobs', String(asked));
  if (typeof body.logprobs !== 'number' && top !== null && top > 0 && body.logprobs !== true) {
    return badRequest('when using `top_logprobs`, `logprobs` must be set to true.', 'top_logprobs');
  }
  if (asked !== null && asked > 20) {
    return badRequest(
      `Requested sample logprobs of ${asked}, which is greater than max allowed: 20`,
      'logprobs',
      String(asked),
    );
  }
  if (typeof body.logprobs === 'number') return { count: body.logprobs };
  return { count: body.logprobs === true ? (top ?? 0) : null };
}

function usageOf(body: Body, forced: boolean): Usage {
  if (forced) return 'continuous';
  const wanted = body.stream_options;
  if (typeof wanted !== 'object' || wanted === null) return 'none';
  const { include_usage: include, continuous_usage_stats: continuous } = wanted as Body;
  if (include !== true) return 'none';
  return continuous === true ? 'continuous' : 'final';
}

/** Rejects options that must not be set without `stream`; checked before the fields are. */
export function checkStreamOptions(body: Body): Refused | null {
  const wanted = body.stream_options;
  if (body.stream === true || typeof wanted !== 'object' || wanted === null || Object.keys(wanted).length === 0)
    return null;
  return badRequest('Stream options can only be defined when `stream=True`.', 'stream_options');
}

/** Reads the sampling parameters of a body whose types are right. */
export function readParams(body: Body, options: Options): Params | Refused {
  const refused = outOfRange(body) ?? wrongLimits(body, options.maxModelLen) ?? wrongStop(body) ?? wrongGreedy(body);
  if (refused !== null) return refused;
  const logprobs = logprobsOf(body);
  if ('status' in logprobs) return logprobs;
  const strings = Array.isArray(body.stop) ? body.stop.filter((item) => typeof item === 'string') : [];
  return {
    stream: body.stream === true,
    usage: usageOf(body, options.forceIncludeUsage),
    n: numberOf(body, 'n') ?? 1,
    maxTokens: numberOf(body, 'max_completion_tokens') ?? numberOf(body, 'max_tokens'),
    minTokens: numberOf(body, 'min_tokens') ?? 0,
    ignoreEos: body.ignore_eos === true,
    stop: strings,
    includeStop: body.include_stop_str_in_output === true,
    temperature: numberOf(body, 'temperature') ?? 1,
    seed: numberOf(body, 'seed'),
    logprobs: logprobs.count,
    streamInterval: Math.max(1, numberOf(body, 'stream_interval') ?? options.streamInterval),
    returnTokenIds: body.return_token_ids === true,
    cacheSalt: saltOf(body, options),
  };
}

/** Refuses a prompt that leaves no room for its output. */
export function checkLength(prompt: PromptScan, maxTokens: number | null, maxModelLen: number): Refused | null {
  const room = maxModelLen - prompt.count;
  return room < (maxTokens ?? 1) ? tooLong(maxModelLen, maxTokens ?? 0) : null;
}

/** The 404 for a model that is not served here; an absent or empty name is the base model's. */
export function checkModel(body: Body, options: Options): string | null {
  const { model } = body;
  if (typeof model !== 'string' || model === '' || options.servedNames.includes(model)) return null;
  return options.adapters.has(model) ? null : model;
}

/** Keeps prompts apart in the prefix cache: blocks computed with one adapter serve no other. */
function saltOf({ cache_salt: given, model }: Body, { adapters }: Options): string | null {
  const salt = typeof given === 'string' ? given : null;
  return typeof model === 'string' && adapters.has(model) ? `${model} ${salt ?? ''}` : salt;
}

/** The name of the model in answers: an adapter's own, for anything else the first name of the base. */
export function answeredModel({ model }: Body, { adapters, servedNames }: Options): string {
  return typeof model === 'string' && adapters.has(model) ? model : (servedNames[0] ?? '');
}

/** Counts and hashes one plain text. */
export function scanText(text: string, blockSize: number): PromptScan {
  const scanner = createPromptScanner(blockSize);
  scanner.text(text);
  return scanner.result();
}
