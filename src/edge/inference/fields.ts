import type { BodyText } from '#base/body-text.ts';
import { AppError } from '#base/errors.ts';
import { forEachElement, scanDocument, skipSpace, type JsonMember, type ScanBounds } from '#base/json-scan.ts';
import type { ServiceTier } from '#core/catalog/catalog.ts';
import { comparedKeys, readMedia, type Media } from './media.ts';
import { parseMember, valueText } from './member.ts';

/** The inference routes. */
export const inferenceEndpoints = [
  '/v1/chat/completions',
  '/v1/completions',
  '/v1/embeddings',
  '/v1/rerank',
  '/v1/score',
] as const;
export type InferenceEndpoint = (typeof inferenceEndpoints)[number];

/** Whether answers are made token by token, and may be streamed; the others read their input and are done. */
export function generates(endpoint: InferenceEndpoint): boolean {
  return endpoint === '/v1/chat/completions' || endpoint === '/v1/completions';
}

/**
 * What the gateway needs to know of a request, with the offsets at which it stands. Everything else stays bytes.
 * Fields that decide about money or about the form of the answer must have their JSON type: engines coerce "true" and
 * "16", and what they would then do is not what was reserved.
 */
export interface RequestFields {
  text: BodyText;
  members: ReadonlyMap<string, JsonMember>;
  /** As the client calls it. */
  model: string;
  readonly stream: boolean;
  /** Other values of `service_tier` than "flex" are the engine's to understand. */
  readonly serviceTier: ServiceTier;
  /** Final usage chunk asked for, by OpenAI's or OpenRouter's option. */
  readonly wantsUsage: boolean;
  readonly wantsRunningUsage: boolean;
  /** OpenRouter's `usage: {include: true}`: the answer's usage also says what it cost. */
  readonly wantsCost: boolean;
  readonly choices: number;
  readonly prompts: number;
  /** What engines read each for itself, and cut so. */
  readonly texts: number;
  /** Output tokens per choice, null without a limit. */
  readonly outputTokensMax: number | null;
  /** A stream whose frames, and the counts on them, come long after its tokens: it cannot be ended in time. */
  readonly countLags: boolean;
  readonly media: Media;
  /** What it asks for, hexadecimal; null where the response cache is not asked, and for a body that is no JSON. */
  meaning: string | null;
  /** SHA-256 of route and body, hexadecimal; null without an Idempotency-Key. */
  hash: string | null;
}

const noMembers: ReadonlyMap<string, JsonMember> = new Map();

/**
 * Lets the body go. A stream outlives its body by minutes, and prompts with pictures have megabytes; what was cut out
 * of the body, the model's name and those of the members, would keep the whole of it in memory.
 */
export function releaseBody(fields: RequestFields): void {
  fields.text = '';
  fields.members = noMembers;
  fields.model = '';
}

const invalid = (param: string, message: string): AppError => new AppError('invalid_value', { message, param });

/** A string without escapes and beyond-ASCII characters, as nearly all are that must be known: it need not be parsed. */
const plainString = /^"([\x20\x21\x23-\x5b\x5d-\x7e]*)"$/;
const plainBytesMax = 1024;

interface Reader {
  readonly text: string;
  readonly members: ReadonlyMap<string, JsonMember>;
}

function present(reader: Reader, key: string): JsonMember | null {
  const member = reader.members.get(key);
  return member === undefined || valueText(reader.text, member) === 'null' ? null : member;
}

function readString(reader: Reader, key: string): string | null {
  const member = present(reader, key);
  if (member === null) return null;
  const value = valueText(reader.text, member);
  const plain = value.length > plainBytesMax ? null : plainString.exec(value);
  if (plain !== null) return plain[1] ?? '';
  const parsed = parseMember(reader.text, member);
  if (typeof parsed !== 'string') throw invalid(key, `"${key}" must be a string.`);
  return parsed;
}

function readBoolean(reader: Reader, key: string): boolean {
  const member = present(reader, key);
  if (member === null) return false;
  const value = valueText(reader.text, member);
  if (value !== 'true' && value !== 'false') throw invalid(key, `"${key}" must be true or false.`);
  return value === 'true';
}

function readInteger(reader: Reader, key: string, min: number): number | null {
  const member = present(reader, key);
  if (member === null) return null;
  const value = valueText(reader.text, member);
  if (!/^-?\d{1,15}$/.test(value)) throw invalid(key, `"${key}" must be an integer.`);
  if (Number(value) < min) throw invalid(key, `"${key}" must be at least ${min}.`);
  return Number(value);
}

function readServiceTier(reader: Reader): ServiceTier {
  const member = present(reader, 'service_tier');
  return member !== null && parseMember(reader.text, member) === 'flex' ? 'flex' : 'default';
}

/** The members of an option object; what is not an object is left for the engine to refuse. */
function readOptions(reader: Reader, key: string): Readonly<Record<string, unknown>> {
  const member = present(reader, key);
  if (member === null || reader.text.charCodeAt(member.valueStart) !== 0x7b) return {};
  return parseMember(reader.text, member) as Record<string, unknown>;
}

/** Engines take 1 and "true" for true, and would send what is then cut as not asked for. */
function readStreamOptions(reader: Reader): Readonly<Record<string, unknown>> {
  const key = 'stream_options';
  const options = readOptions(reader, key);
  const member = present(reader, key);
  if (member !== null && reader.text.charCodeAt(member.valueStart) !== 0x7b) {
    throw invalid(key, `"${key}" must be an object.`);
  }
  for (const name of ['include_usage', 'continuous_usage_stats']) {
    const value = options[name] ?? false;
    if (typeof value !== 'boolean') throw invalid(`${key}.${name}`, `"${key}.${name}" must be true or false.`);
  }
  return options;
}

/** How many prompts one request may be. */
export interface InputBounds {
  /** Prompts times choices of a request that generates. */
  readonly sequencesMax: number;
  /** Inputs of one that does not: texts of an embedding, pairs that a reranker compares. */
  readonly inputsMax: number;
}

/**
 * The prompts in a member: one, or as many as its list has; a list of numbers is one prompt of token ids.
 * @param max beyond which nobody counts on
 */
function countList(reader: Reader, key: string, max: number): number {
  const member = present(reader, key);
  if (member === null || reader.text.charCodeAt(member.valueStart) !== 0x5b) return 1;
  let count = 0;
  const end = forEachElement(reader.text, member.valueStart, (start) => {
    if (count === 0 && /[-\d]/.test(reader.text.charAt(start))) return false;
    count += 1;
    return count <= max;
  });
  if (end === -1) {
    const message = `The value of "${key}" is not valid JSON.`;
    throw new AppError('invalid_request_error', { message, param: key });
  }
  return Math.max(1, count);
}

function checkSequences(prompts: number, choices: number, { sequencesMax }: InputBounds): void {
  if (prompts * choices <= sequencesMax) return;
  const param = prompts > 1 ? 'prompt' : 'n';
  const asked = prompts > sequencesMax ? '' : `, and ${prompts} times ${choices} are more`;
  throw invalid(param, `A request may ask for ${sequencesMax} answers, prompts times "n"${asked}: send several.`);
}

/**
 * A reranker reads a query with each document: one prompt a pair, one with many or each with its own. The texts of an
 * embedding are bounded, and count as one: their bytes bound them all together.
 */
function countInputs(reader: Reader, endpoint: InferenceEndpoint, { inputsMax, sequencesMax }: InputBounds): Inputs {
  if (endpoint === '/v1/completions') return alike(countList(reader, 'prompt', sequencesMax));
  if (endpoint === '/v1/chat/completions') return alike(1);
  const keys = endpoint === '/v1/embeddings' ? embeddedKeys(reader) : comparedKeys;
  let most = 1;
  for (const key of keys) {
    const count = countList(reader, key, inputsMax);
    if (count > inputsMax) throw invalid(key, `"${key}" may have ${inputsMax} inputs: send several requests.`);
    most = Math.max(most, count);
  }
  return endpoint === '/v1/embeddings' ? { prompts: 1, texts: most } : alike(most);
}

/** Messages are one conversation, or a list of several. */
function embeddedKeys({ text, members }: Reader): readonly string[] {
  const messages = members.get('messages');
  const isSeveral =
    messages !== undefined &&
    text.startsWith('[', messages.valueStart) &&
    text.startsWith('[', skipSpace(text, messages.valueStart + 1));
  return isSeveral ? ['input', 'messages'] : ['input'];
}

type Inputs = Pick<RequestFields, 'prompts' | 'texts'>;

const alike = (count: number): Inputs => ({ prompts: count, texts: count });

/** Tokens per frame up to which a stream still shows in time what it makes. */
const streamIntervalMax = 64;

/** vLLM's `stream_interval` gathers tokens into one frame; hidden reasoning has no frames at all. */
function readCountLags(reader: Reader): boolean {
  const reasoning = present(reader, 'include_reasoning');
  if (reasoning !== null && valueText(reader.text, reasoning) !== 'true') return true;
  const interval = present(reader, 'stream_interval');
  if (interval === null) return false;
  const value = valueText(reader.text, interval);
  return !/^\d{1,3}$/.test(value) || Number(value) > streamIntervalMax;
}

/** More than any engine knows, in all messages and tools together more than any context holds, and deeper than any. */
const bodyBounds: ScanBounds = { membersMax: 512, membersInAllMax: 100_000, depthMax: 128 };

function scanBody(text: string): Map<string, JsonMember> {
  if (text === '') {
    throw new AppError('invalid_request_error', { message: 'The request has no body; send a JSON object.' });
  }
  const scan = scanDocument(text, bodyBounds);
  if (!scan.ok) {
    throw new AppError('invalid_request_error', {
      message: `The request body is not a valid JSON object: ${scan.reason} at byte ${scan.offset}.`,
    });
  }
  const members = new Map<string, JsonMember>();
  for (const member of scan.members) {
    if (members.has(member.key)) {
      const key = member.key.slice(0, 64);
      throw new AppError('invalid_request_error', {
        message: `The field "${key}" stands in the body twice.`,
        param: key,
      });
    }
    members.set(member.key, member);
  }
  return members;
}

/**
 * Reads the fields of a body, and refuses one that has more of anything than it may have. The time that it takes grows
 * with the body's length and with nothing else.
 * @param text the body as latin1
 * @throws AppError invalid_request_error, invalid_value or model_not_found, with the field in `param`
 */
export function readFields(text: string, endpoint: InferenceEndpoint, bounds: InputBounds): RequestFields {
  const reader: Reader = { text, members: scanBody(text) };
  const model = readString(reader, 'model');
  if (model === null || model === '') {
    throw new AppError('model_not_found', {
      message: 'The field "model" is missing: name one of the models of GET /v1/models.',
      param: 'model',
    });
  }
  const isGenerated = generates(endpoint);
  const stream = isGenerated && readBoolean(reader, 'stream');
  const streamOptions = isGenerated ? readStreamOptions(reader) : {};
  const wantsCost = readOptions(reader, 'usage')['include'] === true;
  const includesUsage = streamOptions['include_usage'] === true;
  const maxTokens = isGenerated ? readInteger(reader, 'max_tokens', 0) : null;
  const maxCompletionTokens =
    endpoint === '/v1/chat/completions' ? readInteger(reader, 'max_completion_tokens', 0) : null;
  const choices = isGenerated ? (readInteger(reader, 'n', 1) ?? 1) : 1;
  const { prompts, texts } = countInputs(reader, endpoint, bounds);
  if (isGenerated) checkSequences(prompts, choices, bounds);
  return {
    text,
    members: reader.members,
    model,
    stream,
    serviceTier: readServiceTier(reader),
    wantsUsage: includesUsage || wantsCost,
    wantsRunningUsage: includesUsage && streamOptions['continuous_usage_stats'] === true,
    wantsCost,
    choices,
    prompts,
    texts,
    outputTokensMax: maxCompletionTokens ?? maxTokens,
    countLags: stream && readCountLags(reader),
    media: readMedia(text, reader.members),
    meaning: null,
    hash: null,
  };
}
