import { AppError } from '#base/errors.ts';
import type { JsonMember } from '#base/json-scan.ts';
import type { AllowableField } from '#core/catalog/catalog.ts';
import { integerOf } from './body-reader.ts';
import { type FieldRule, notSupported, refuse, type RuleRequest } from './field-rule.ts';
import { isNull, parseMember, valueText } from './member.ts';
import { halfPair } from './surrogates.ts';

/**
 * Bounds of single fields, each with what vLLM 0.29 does beyond it. Three of them end the whole engine on a GPU: its
 * model runner refuses them only where nothing catches it (v1/worker/gpu/sample).
 */

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });

/** Refused where the engine file does not name it. */
export function unlessAllowed(what: AllowableField): FieldRule {
  return ({ engine }, { key }) => {
    if (!engine.allow.includes(what)) throw notSupported(key);
  };
}

/** As `unlessAllowed`, but a value that asks for nothing passes: some programs send every field that they know. */
export function unlessAllowedOr(idle: string, what: AllowableField): FieldRule {
  const rule = unlessAllowed(what);
  return (request, member) => {
    if (isLong(member) || !isSame(valueText(request.fields.text, member), idle)) rule(request, member);
  };
}

/** `1.0` asks for what `1` asks for. */
function isSame(value: string, idle: string): boolean {
  return value === idle || (integerOf(idle) !== null && integerOf(value) === integerOf(idle));
}

/** None of the fields here is as long; a longer one is refused without being parsed. */
const shortBytesMax = 65_536;

function isLong({ valueStart, valueEnd }: JsonMember): boolean {
  return valueEnd - valueStart > shortBytesMax;
}

function parseShort({ fields }: RuleRequest, member: JsonMember): unknown {
  if (!isLong(member)) return parseMember(fields.text, member);
  throw refuse(member.key, `"${member.key}" may be at most ${shortBytesMax} bytes long.`);
}

/** A list, or an object, with at most so many members. */
export function atMost(membersMax: number): FieldRule {
  return (request, member) => {
    const value = isLong(member) ? null : parseShort(request, member);
    const count = typeof value === 'object' && value !== null ? Object.keys(value).length : 0;
    if (isLong(member) || count > membersMax)
      throw refuse(member.key, `"${member.key}" may have at most ${membersMax} members.`);
  };
}

/** JSON can name the halves of a surrogate pair apart. vLLM answers 500 to one, as if that were its own fault. */
function refuseHalves({ key }: JsonMember, texts: readonly unknown[]): void {
  if (texts.every((text) => typeof text !== 'string' || text.isWellFormed())) return;
  throw invalid(key, `"${key}" ${halfPair}`);
}

const stopCharsMax = 256;

/** Text is held back for as long as it may become a stop string: with it the counts by which a stream is billed. */
export const checkStop: FieldRule = (request, member) => {
  const value = isLong(member) ? null : parseShort(request, member);
  const texts: readonly unknown[] = Array.isArray(value) ? value : [value];
  if (isLong(member) || texts.some((text) => typeof text === 'string' && text.length > stopCharsMax)) {
    throw refuse(member.key, `A "${member.key}" string may be at most ${stopCharsMax} characters long.`);
  }
  refuseHalves(member, texts);
};

/**
 * Each word counts twice, with and without a blank before it, and no token is shorter than a byte: so vLLM's own bounds
 * (128 words, 1,024 tokens) hold, the second of which ends the engine on a GPU.
 */
const badWordsBytesMax = 448;
const badWordsMax = 64;

export const checkBadWords: FieldRule = (request, member) => {
  const value = isLong(member) ? null : parseShort(request, member);
  const words = Array.isArray(value) ? value.filter((word) => typeof word === 'string') : [];
  const bytes = words.reduce((sum, word) => sum + Buffer.byteLength(word), 0);
  if (isLong(member) || words.length > badWordsMax || bytes > badWordsBytesMax) {
    const bounds = `at most ${badWordsMax} words of together ${badWordsBytesMax} bytes`;
    throw refuse('bad_words', `"bad_words" may have ${bounds}.`);
  }
  refuseHalves(member, words);
};

const notInteger = (param: string): AppError => invalid(param, `"${param}" must be an integer.`);

/**
 * vLLM reads "16_000" as 16000, so that only what is written as a number can be held against a bound.
 * @throws AppError invalid_value
 */
function readInteger(request: RuleRequest, member: JsonMember): number {
  const value = parseShort(request, member);
  if (!Number.isInteger(value)) throw notInteger(member.key);
  return Number(value);
}

/** A number of 32 bits, in which the model runner keeps it. */
export const checkInt32: FieldRule = (request, member) => {
  if (Math.abs(readInteger(request, member)) > 2_147_483_647)
    throw invalid(member.key, `"${member.key}" may be at most 2147483647.`);
};

/** A number of 64 bits is what vLLM can hand to its engine: 500 answers a larger one, of one replica after the other. */
export const checkInt64: FieldRule = (request, member) => {
  const value = parseShort(request, member);
  if (Math.abs(Number(value)) >= 2 ** 63) throw invalid(member.key, `"${member.key}" must be less than 2^63.`);
};

/** The scheduler compares by every length of a pattern, after every token, while all others wait. */
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

/** The name, plain or with a letter of it as an escape. */
const templateSign = /chat_template|\\u00[5-7]/;

/** A template is a program, and here it could hide. */
export const checkTemplateArguments: FieldRule = (request, member) => {
  if (request.engine.allow.includes('chat_template')) return;
  if (!isLong(member) && !templateSign.test(valueText(request.fields.text, member))) return;
  const value = parseShort(request, member);
  if (typeof value !== 'object' || value === null) return;
  const template: unknown = Reflect.get(value, 'chat_template') ?? null;
  if (template !== null) throw notSupported(`${member.key}.chat_template`);
};

/** An echo with the log probabilities of all tokens of a prompt takes megabytes, written while all others wait. */
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

/** `bytes` hides the usage in a header and `bytes_only` has none at all, so neither could be billed. */
export const checkEncodingFormat: FieldRule = (request, member) => {
  if (request.engine.allow.includes('encoding_format')) return;
  const value = parseShort(request, member);
  if (value === 'bytes' || value === 'bytes_only') {
    throw refuse('encoding_format', '"encoding_format" may be "float" or "base64".');
  }
};

const saltCharsMax = 1024;

/** The salt's form is vLLM's. It is checked here because vLLM only gets it mixed with another. */
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

/** Bytes of text that a request may have which cuts its prompts, whatever is left of them. */
const cutFreeBytes = 131_072;
/** Far more than any text has; real ones have 3 to 5. */
const bytesPerTokenMax = 64;

/**
 * All of a text is tokenized before it is cut, with others waiting, and only what is left is billed: 30 MB took 55
 * seconds for 16 tokens.
 */
export const checkCut: FieldRule = (request, member) => refuseLongCut(request, member, readInteger(request, member));

/**
 * vLLM answers most of the odd items with an error of its own: 500, which would be told as its failure. Texts and lists
 * of token ids together it refuses, and would not where they come in parts.
 */
export const checkItems: FieldRule = ({ fields: { oddItem, split }, engine }) => {
  if (engine.kind !== 'vllm') return;
  if (split !== null && split.odd !== null) throw invalid(split.odd.param, split.odd.message);
  if (oddItem === null) return;
  const message = oddItem.endsWith(' is of the type "item_reference"')
    ? `${oddItem}: answers are not stored here. Send the items themselves, as the AI SDK does with "store": false.`
    : `${oddItem}: models here read messages, function_call, function_call_output and reasoning in the clear. Leave it out.`;
  throw new AppError('invalid_value', { message, param: 'input' });
};

/** What responses call it: `auto` cuts to what the context holds. */
export const checkTruncation: FieldRule = (request, member) => {
  if (parseShort(request, member) !== 'disabled') refuseLongCut(request, member, request.engine.contextLength);
};

function refuseLongCut({ fields, engine }: RuleRequest, member: JsonMember, given: number): void {
  const bytes = fields.text.length - fields.media.bytes;
  // 0 cuts nothing of queries and documents.
  if (bytes <= cutFreeBytes || (given === 0 && member.key !== 'truncate_prompt_tokens')) return;
  const cutsAll = member.key !== 'max_tokens_per_query' && given > 0;
  const tokens = cutsAll ? Math.min(given, engine.contextLength) : engine.contextLength;
  const bytesMax = cutFreeBytes + fields.texts * tokens * bytesPerTokenMax;
  if (bytes <= bytesMax) return;
  const value = valueText(fields.text, member);
  const message = `A request with "${member.key}": ${value} may have at most ${bytesMax} bytes here: send less text.`;
  throw new AppError('context_length_exceeded', { message, param: member.key });
}

/** What is longer than any prompt of the model, with room for texts of few bytes a token; real ones have 3 to 5. */
const freeBytesPerToken = 8;

/** Tokenizing takes time from others, and here nothing of it is billed. */
export function checkFree({ fields, engine, endpoint }: RuleRequest): void {
  const bytesMax = cutFreeBytes + engine.contextLength * freeBytesPerToken;
  if (fields.text.length - fields.media.bytes <= bytesMax) return;
  const message = `A request of this kind may have at most ${bytesMax} bytes for this model: send less text.`;
  throw new AppError('context_length_exceeded', {
    message,
    ...(endpoint.promptKey !== null && { param: endpoint.promptKey }),
  });
}
