import { AppError } from '#base/errors.ts';
import type { JsonMember } from '#base/json/json.ts';
import type { AllowableField } from '#core/catalog/catalog.ts';
import { isNull, parseMember, valueText } from '#edge/inference/json-member.ts';
import { integerOf } from '#edge/inference/request/request.ts';
import { halfPair } from '#edge/inference/surrogates.ts';
import { servesCustomTools } from './unserved-tools.ts';
import { type FieldRule, notSupported, refuse, type RuleRequest } from './field-rule.ts';

/**
 * Bounds of single fields, each with what vLLM 0.29 does beyond it. Beyond three of them the whole engine ends on a
 * GPU: its model runner rejects the value only where nothing catches the error (v1/worker/gpu/sample).
 */

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });

/** Rejects a field, unless the engine file allows it. */
export function unlessAllowed(what: AllowableField): FieldRule {
  return ({ engine }, { key }) => {
    if (!engine.allow.includes(what)) throw notSupported(key);
  };
}

/**
 * Rejects a field as `unlessAllowed` does, except for a value that asks for nothing: some programs send every field
 * that they know.
 */
export function unlessAllowedOr(idle: string, what: AllowableField): FieldRule {
  const rule = unlessAllowed(what);
  return (request, member) => {
    if (isLong(member) || !isSame(valueText(request.fields.text, member), idle)) rule(request, member);
  };
}

/** True if both values are the same: `1.0` asks for what `1` asks for. */
function isSame(value: string, idle: string): boolean {
  return value === idle || (integerOf(idle) !== null && integerOf(value) === integerOf(idle));
}

/** Longest value of a field here. A longer one is rejected without being parsed. */
const shortBytesMax = 65_536;

function isLong({ valueStart, valueEnd }: JsonMember): boolean {
  return valueEnd - valueStart > shortBytesMax;
}

function parseShort({ fields }: RuleRequest, member: JsonMember): unknown {
  if (!isLong(member)) return parseMember(fields.text, member);
  throw refuse(member.key, `"${member.key}" may be at most ${shortBytesMax} bytes long.`);
}

/** Accepts a list or an object with at most `membersMax` members. */
export function atMost(membersMax: number): FieldRule {
  return (request, member) => {
    const value = isLong(member) ? null : parseShort(request, member);
    const count = typeof value === 'object' && value !== null ? Object.keys(value).length : 0;
    if (isLong(member) || count > membersMax)
      throw refuse(member.key, `"${member.key}" may have at most ${membersMax} members.`);
  };
}

/** Rejects half of a surrogate pair, which JSON can write. vLLM answers 500 to it, as for a fault of its own. */
function refuseHalves({ key }: JsonMember, texts: readonly unknown[]): void {
  if (texts.every((text) => typeof text !== 'string' || text.isWellFormed())) return;
  throw invalid(key, `"${key}" ${halfPair}`);
}

const stopCharsMax = 256;

/** Bounds stop strings. Text that may become one is held back, and with it the counts by which a stream is billed. */
export const checkStop: FieldRule = (request, member) => {
  const value = isLong(member) ? null : parseShort(request, member);
  const texts: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (isLong(member) || texts.some((text) => typeof text === 'string' && text.length > stopCharsMax)) {
    throw refuse(member.key, `A "${member.key}" string may be at most ${stopCharsMax} characters long.`);
  }
  refuseHalves(member, texts);
};

/**
 * Bytes of all words together. Each word counts twice, with and without a blank before it, and no token is shorter than
 * a byte. So vLLM's own bounds are kept: 128 words, and 1,024 tokens, beyond which the engine ends on a GPU.
 */
const badWordsBytesMax = 448;
const badWordsMax = 64;

export const checkBadWords: FieldRule = (request, member) => {
  const value = isLong(member) ? null : parseShort(request, member);
  const words = Array.isArray(value) ? value.filter((word) => typeof word === 'string') : [];
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word), 0);
  if (isLong(member) || words.length > badWordsMax || bytes > badWordsBytesMax) {
    const bounds = `at most ${badWordsMax} words, with ${badWordsBytesMax} bytes in total`;
    throw refuse('bad_words', `"bad_words" may have ${bounds}.`);
  }
  refuseHalves(member, words);
};

const notInteger = (param: string): AppError => invalid(param, `"${param}" must be an integer.`);

/**
 * Reads a value that is written as a number. vLLM reads "16_000" as 16000, and only a number can be compared with a
 * bound.
 * @throws AppError invalid_value
 */
function readInteger(request: RuleRequest, member: JsonMember): number {
  const value = parseShort(request, member);
  if (!Number.isInteger(value)) throw notInteger(member.key);
  return Number(value);
}

/** Requires a number of 32 bits, in which the model runner keeps it. */
export const checkInt32: FieldRule = (request, member) => {
  if (Math.abs(readInteger(request, member)) > 2_147_483_647)
    throw invalid(member.key, `"${member.key}" may be at most 2147483647.`);
};

/**
 * Requires a number of 64 bits. vLLM cannot hand a larger one to its engine and answers 500, on one replica after the
 * other.
 */
export const checkInt64: FieldRule = (request, member) => {
  const value = parseShort(request, member);
  // Anything else has no number: the conversion of an object may call a member of the request named "toString".
  if (typeof value !== 'number' && typeof value !== 'string') return;
  if (Math.abs(Number(value)) >= 2 ** 63) throw invalid(member.key, `"${member.key}" must be less than 2^63.`);
};

/**
 * Largest values of each member. The scheduler compares every pattern length after every token, while all others wait.
 */
const repetitionBounds: Readonly<Record<string, number>> = {
  max_pattern_size: 64,
  min_pattern_size: 64,
  min_count: 16,
};

export const checkRepetitionDetection: FieldRule = (request, member) => {
  const value = parseShort(request, member);
  if (typeof value !== 'object' || value === null) return;
  for (const [name, max] of Object.entries(repetitionBounds)) {
    const given: unknown = Reflect.get(value, name) ?? 0;
    if (!Number.isInteger(given)) throw notInteger(`${member.key}.${name}`);
    if (Number(given) > max) throw refuse(`${member.key}.${name}`, `"${member.key}.${name}" may be at most ${max}.`);
  }
};

/** Matches the name, plain or with one of its letters as an escape. */
const templateSign = /chat_template|\\u00[5-7]/;

/** Rejects a template among the arguments: a template is a program. */
export const checkTemplateArguments: FieldRule = (request, member) => {
  if (request.engine.allow.includes('chat_template')) return;
  if (!isLong(member) && !templateSign.test(valueText(request.fields.text, member))) return;
  const value = parseShort(request, member);
  if (typeof value !== 'object' || value === null) return;
  const template: unknown = Reflect.get(value, 'chat_template') ?? null;
  if (template !== null) throw notSupported(`${member.key}.chat_template`);
};

/** Rejects an echo with log probabilities of all prompt tokens. They take megabytes, written while all others wait. */
export const checkEcho: FieldRule = (request, member) => {
  const { fields, endpoint, engine } = request;
  if (engine.allow.includes('prompt_logprobs') || valueText(fields.text, member) === 'false') return;
  const logprobs = fields.members.get('logprobs');
  const hasLogprobs = logprobs !== undefined && !isNull(fields.text, logprobs);
  const whenAsked = endpoint.echoHasLogprobs === 'when_asked';
  if (whenAsked && !hasLogprobs) return;
  const beside = whenAsked ? ' with "logprobs"' : '';
  throw refuse('echo', `"echo"${beside} is not supported for this model.`);
};

/** Rejects formats that cannot be billed: `bytes` hides the usage in a header, and `bytes_only` has none at all. */
export const checkEncodingFormat: FieldRule = (request, member) => {
  if (request.engine.allow.includes('encoding_format')) return;
  const value = parseShort(request, member);
  if (value === 'bytes' || value === 'bytes_only') {
    throw refuse('encoding_format', '"encoding_format" may be "float" or "base64".');
  }
};

const saltCharsMax = 1024;

/** Checks the form that vLLM requires of a salt. vLLM itself only gets the salt mixed with another. */
export const checkCacheSalt: FieldRule = (request, member) => {
  if (request.engine.kind !== 'vllm') return;
  const value = isLong(member) ? null : parseShort(request, member);
  if (
    typeof value === 'string' &&
    value !== '' &&
    (value.length <= saltCharsMax || Array.from(value).length <= saltCharsMax)
  ) {
    return;
  }
  throw invalid('cache_salt', `"cache_salt" must be a string of 1 to ${saltCharsMax} characters.`);
};

/** Bytes of text that a request may always have if it cuts its prompts, whatever is left of them. */
const cutFreeBytes = 131_072;
/** More bytes than any token of a text has; real texts have 3 to 5. */
const bytesPerTokenMax = 64;

/**
 * Bounds the text of a request that cuts its prompts. All of a text is tokenized before it is cut, while others wait,
 * and only the rest is billed: 30 MB took 55 seconds for 16 tokens.
 */
export const checkCut: FieldRule = (request, member) => refuseLongCut(request, member, readInteger(request, member));

/**
 * Rejects odd items. vLLM answers most of them with 500, which would be reported as its failure. vLLM rejects a list of
 * both texts and token ids, and would accept it in parts.
 */
export const checkItems: FieldRule = ({ fields: { oddItem: odd, customItem, split }, engine, model }) => {
  if (engine.kind !== 'vllm') return;
  if (split !== null && split.odd !== null) throw invalid(split.odd.param, split.odd.message);
  const oddItem = odd ?? (servesCustomTools(model) ? null : customItem);
  if (oddItem === null) return;
  const message = `${oddItem}: only messages, calls of functions with their outputs, since vLLM 0.32 calls of custom tools, and unencrypted reasoning are supported. Omit this item.`;
  throw new AppError('invalid_value', { message, param: 'input' });
};

/** Rejects a response that would be made after its request has ended: nothing limits or bills it. */
export const checkBackground: FieldRule = ({ fields }, member) => {
  if (valueText(fields.text, member) === 'false') return;
  throw refuse(
    'background',
    '"background" is not supported. Send the request without it, or as a line of a batch (POST /v1/batches).',
  );
};

/** Checks the field of /v1/responses for cutting: `auto` cuts to the context. */
export const checkTruncation: FieldRule = (request, member) => {
  if (parseShort(request, member) !== 'disabled') refuseLongCut(request, member, request.engine.contextLength);
};

function refuseLongCut({ fields, engine }: RuleRequest, member: JsonMember, given: number): void {
  const bytes = fields.text.length - fields.media.bytes;
  // 0 does not cut queries and documents.
  if (bytes <= cutFreeBytes || (given === 0 && member.key !== 'truncate_prompt_tokens')) return;
  const cutsAll = member.key !== 'max_tokens_per_query' && given > 0;
  const tokens = cutsAll ? Math.min(given, engine.contextLength) : engine.contextLength;
  const bytesMax = cutFreeBytes + fields.texts * tokens * bytesPerTokenMax;
  if (bytes <= bytesMax) return;
  const value = valueText(fields.text, member);
  const message = `A request with "${member.key}": ${value} may have at most ${bytesMax} bytes. Send less text.`;
  throw new AppError('context_length_exceeded', { message, param: member.key });
}

/**
 * Bytes per token of the context beyond which a text is longer than any prompt of the model; real texts have 3 to 5.
 */
const freeBytesPerToken = 8;

/** Bounds the text of a free request: tokenizing takes time from others, and is not billed here. */
export function checkFree({ fields, engine, endpoint }: RuleRequest): void {
  const bytesMax = cutFreeBytes + engine.contextLength * freeBytesPerToken;
  if (fields.text.length - fields.media.bytes <= bytesMax) return;
  const message = `This request may have at most ${bytesMax} bytes for this model. Send less text.`;
  throw new AppError('context_length_exceeded', {
    message,
    ...(endpoint.promptKey !== null && { param: endpoint.promptKey }),
  });
}
