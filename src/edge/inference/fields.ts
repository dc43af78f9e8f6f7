import type { BodyText } from '#base/body-text.ts';
import { AppError } from '#base/errors.ts';
import { scanDocument, type JsonMember, type ScanBounds } from '#base/json-scan.ts';
import type { ServiceTier } from '#core/catalog/catalog.ts';
import {
  type BodyReader,
  integerOf,
  invalidValue,
  present,
  readBoolean,
  readInteger,
  readOptions,
  readString,
  requireOptions,
} from './body-reader.ts';
import { readOddItem } from './input-items.ts';
import { checkSequences, countInputs, type InputBounds } from './inputs.ts';
import { readMedia, type Media } from './media.ts';
import { parseMember, valueText } from './member.ts';
import type { RequestForm } from './request-form.ts';
import type { SplitInput } from './split-input.ts';
import { readUnread, type Unread } from './unread-bytes.ts';

/**
 * What the gateway needs to know of a request, with the offsets at which it stands. Everything else stays bytes.
 * Fields that decide about money or about the form of the answer must have their JSON type: engines coerce "true" and
 * "16", and what they would then do is not what was reserved.
 */
export interface RequestFields extends Unread {
  text: BodyText;
  members: ReadonlyMap<string, JsonMember>;
  /** As the client calls it. */
  model: string;
  readonly stream: boolean;
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
  /** How its texts are sent in parts; null where they are sent all at once. */
  readonly split: SplitInput | null;
  /** Output tokens per choice, null without a limit. */
  readonly outputTokensMax: number | null;
  /**
   * Whether engines of any make keep to that limit: not where it is 0, which some take for none, nor where it has the
   * newer of two names alone, which some pass over, nor where another name has another one.
   */
  readonly isLimitCommon: boolean;
  /** A stream whose frames, and the counts on them, come long after its tokens: it cannot be ended in time. */
  readonly countLags: boolean;
  readonly media: Media;
  /** Of /v1/responses, in words: the first item of the input that vLLM would fail on; null without one. */
  readonly oddItem: string | null;
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

/** Values of `service_tier` that are not "flex" are the engine's to understand. */
function readServiceTier(reader: BodyReader): ServiceTier {
  const member = present(reader, 'service_tier');
  return member !== null && parseMember(reader.text, member) === 'flex' ? 'flex' : 'default';
}

interface UsageOptions {
  readonly includesUsage: boolean;
  readonly isContinuous: boolean;
}

const noUsageOptions: UsageOptions = { includesUsage: false, isContinuous: false };

/** Engines take 1 and "true" for true, and would send what is then cut as not asked for. */
function readUsageOptions(reader: BodyReader, key: string | null): UsageOptions {
  if (key === null || !reader.members.has(key)) return noUsageOptions;
  const options = requireOptions(reader, key);
  for (const name of ['include_usage', 'continuous_usage_stats']) {
    const value = options[name] ?? false;
    if (typeof value !== 'boolean') throw invalidValue(`${key}.${name}`, `"${key}.${name}" must be true or false.`);
  }
  return {
    includesUsage: options['include_usage'] === true,
    isContinuous: options['continuous_usage_stats'] === true,
  };
}

function readOutputLimit(reader: BodyReader, { limitKeys }: RequestForm): number | null {
  let limit: number | null = null;
  for (const key of limitKeys) limit = readInteger(reader, key, 0) ?? limit;
  return limit;
}

/** Limits of the output by other names than OpenAI's: llama.cpp goes by `n_predict` whatever else is said. */
const otherLimitKeys = ['n_predict', 'num_predict', 'max_new_tokens', 'max_length'] as const;

function readIsLimitCommon(reader: BodyReader, { limitKeys: [oldest] }: RequestForm, limit: number | null): boolean {
  if (limit === null || limit === 0 || otherLimitKeys.some((key) => reader.members.has(key))) return false;
  return oldest !== undefined && readInteger(reader, oldest, 0) === limit;
}

/** Tokens per frame up to which a stream still shows in time what it makes. */
const streamIntervalMax = 64;

/** vLLM's `stream_interval` gathers tokens into one frame; hidden reasoning has no frames at all. */
function readCountLags(reader: BodyReader): boolean {
  const reasoning = present(reader, 'include_reasoning');
  if (reasoning !== null && valueText(reader.text, reasoning) !== 'true') return true;
  const interval = present(reader, 'stream_interval');
  if (interval === null) return false;
  const tokens = integerOf(valueText(reader.text, interval));
  return tokens === null || tokens < 0 || tokens > streamIntervalMax;
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
export function readFields(text: string, form: RequestForm, bounds: InputBounds): RequestFields {
  const reader: BodyReader = { text, members: scanBody(text) };
  const model = readString(reader, 'model');
  if (model === null || model === '') {
    throw new AppError('model_not_found', {
      message: 'The field "model" is missing: name one of the models of GET /v1/models.',
      param: 'model',
    });
  }
  const stream = form.generates && readBoolean(reader, 'stream');
  const { includesUsage, isContinuous } = readUsageOptions(reader, form.streamOptionsKey);
  const wantsCost = readOptions(reader, 'usage')['include'] === true;
  const outputTokensMax = readOutputLimit(reader, form);
  const choices = form.choicesKey === null ? 1 : (readInteger(reader, form.choicesKey, 1) ?? 1);
  const { prompts, texts, split } = countInputs(reader, form.inputs, bounds);
  if (form.generates) checkSequences(prompts, choices, bounds);
  const media = readMedia(text, reader.members);
  return {
    text,
    members: reader.members,
    model,
    stream,
    serviceTier: readServiceTier(reader),
    wantsUsage: includesUsage || wantsCost,
    wantsRunningUsage: includesUsage && isContinuous,
    wantsCost,
    choices,
    prompts,
    texts,
    split,
    outputTokensMax,
    isLimitCommon: readIsLimitCommon(reader, form, outputTokensMax),
    countLags: stream && readCountLags(reader),
    media,
    ...readUnread(reader, form.inputs, media),
    oddItem: readOddItem(reader, form.itemsKey),
    meaning: null,
    hash: null,
  };
}
