import { AppError } from '#base/errors.ts';
import { type BodyText, type JsonMember, type ScanBounds, scanDocument } from '#base/json/json.ts';
import type { ServiceTier } from '#core/catalog/catalog.ts';
import { parseMember, valueText } from '#edge/inference/json-member.ts';
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
import { type InputItems, readInputItems } from './input-items.ts';
import { checkSequences, countInputs, type InputBounds } from './inputs.ts';
import { type Media, readMedia } from './media.ts';
import type { RequestForm } from './request-form.ts';
import type { SplitInput } from './split-input.ts';
import { readUnread, type Unread } from './unread-bytes.ts';

/**
 * Fields of a request that the gateway needs, with their offsets. Everything else stays bytes. Fields that decide cost
 * or the form of the answer must have their JSON type: engines coerce "true" and "16", and would then do something
 * other than what was reserved.
 */
export interface RequestFields extends Unread, InputItems {
  text: BodyText;
  members: ReadonlyMap<string, JsonMember>;
  /** Name of the model as the client sent it. */
  model: string;
  readonly stream: boolean;
  readonly serviceTier: ServiceTier;
  /** The client asked for a final usage chunk, by OpenAI's or OpenRouter's option. */
  readonly wantsUsage: boolean;
  readonly wantsRunningUsage: boolean;
  /** OpenRouter's `usage: {include: true}`: the answer's usage also contains the cost. */
  readonly wantsCost: boolean;
  readonly choices: number;
  readonly prompts: number;
  /** Texts that engines read and truncate one by one. */
  readonly texts: number;
  /** Division of the texts into parts; null if all are sent at once. */
  readonly split: SplitInput | null;
  /** Output tokens per choice, null without a limit. */
  readonly outputTokensMax: number | null;
  /**
   * True if engines of every kind obey `outputTokensMax`. False for 0, which some read as no limit; for the newer of
   * two names without the older one, which some ignore; and if a field by another name sets another limit.
   */
  readonly isLimitCommon: boolean;
  /** A stream whose frames, with the counts on them, come long after its tokens: the gateway cannot end it in time. */
  readonly countLags: boolean;
  readonly media: Media;
  /** True if the engine's file changed fields of the body, so that `text` is not what the client sent. */
  isChanged: boolean;
  /**
   * Digest of the request's meaning, hexadecimal; null if the response cache is off for the key, or the body is not
   * JSON.
   */
  meaning: string | null;
  /** SHA-256 of route and body, hexadecimal; null without an Idempotency-Key. */
  hash: string | null;
}

const noMembers: ReadonlyMap<string, JsonMember> = new Map();

/**
 * Releases the body. A stream outlives its body by minutes, and prompts with pictures have megabytes. The model's name
 * and the member names were cut out of the body and would keep all of it in memory.
 */
export function releaseBody(fields: RequestFields): void {
  fields.text = '';
  fields.members = noMembers;
  fields.model = '';
}

/** Returns 'flex' or 'default'; the engine interprets any other value. */
function readServiceTier(reader: BodyReader): ServiceTier {
  const member = present(reader, 'service_tier');
  return member !== null && parseMember(reader.text, member) === 'flex' ? 'flex' : 'default';
}

interface UsageOptions {
  readonly includesUsage: boolean;
  readonly isContinuous: boolean;
}

const noUsageOptions: UsageOptions = { includesUsage: false, isContinuous: false };

/**
 * Reads options that must be true or false. Engines also accept 1 and "true", and would send usage that the gateway
 * then cuts as not requested.
 */
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

/** Output limits by other names than OpenAI's. llama.cpp obeys `n_predict` over all others. */
const otherLimitKeys = ['n_predict', 'num_predict', 'max_new_tokens', 'max_length'] as const;

function readIsLimitCommon(reader: BodyReader, { limitKeys: [oldest] }: RequestForm, limit: number | null): boolean {
  if (limit === null || limit === 0 || otherLimitKeys.some((key) => reader.members.has(key))) return false;
  return oldest !== undefined && readInteger(reader, oldest, 0) === limit;
}

/** Most tokens per frame with which a stream still shows in time what it generates. */
const streamIntervalMax = 64;

/** True if the answer may call a tool. */
function mayCallTools(reader: BodyReader): boolean {
  const hasTools = ['tools', 'functions'].some((key) => {
    const list = present(reader, key);
    return (
      list !== null &&
      !/^\[\s*\]$/.test(reader.text.slice(list.valueStart, Math.min(list.valueEnd, list.valueStart + 64)))
    );
  });
  if (!hasTools) return false;
  const choice = present(reader, 'tool_choice') ?? present(reader, 'function_call');
  return choice === null || !/^(?:"none"|\{\s*"type"\s*:\s*"none"\s*\})$/.test(valueText(reader.text, choice));
}

/**
 * True if frames come late: vLLM's `stream_interval` gathers tokens into one frame, hidden reasoning has no frames, and
 * tool parsers may send none before the whole call is known.
 */
function readCountLags(reader: BodyReader): boolean {
  if (mayCallTools(reader)) return true;
  const reasoning = present(reader, 'include_reasoning');
  if (reasoning !== null && valueText(reader.text, reasoning) !== 'true') return true;
  const interval = present(reader, 'stream_interval');
  if (interval === null) return false;
  const tokens = integerOf(valueText(reader.text, interval));
  return tokens === null || tokens < 0 || tokens > streamIntervalMax;
}

/** More members than any engine knows, more in all messages and tools than any context holds, and deeper than any. */
const bodyBounds: ScanBounds = { membersMax: 512, membersInAllMax: 100_000, depthMax: 128 };

function scanBody(text: string): Map<string, JsonMember> {
  if (text === '') {
    throw new AppError('invalid_request_error', { message: 'The request has no body. Send a JSON object.' });
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
        message: `The field "${key}" appears twice in the body.`,
        param: key,
      });
    }
    members.set(member.key, member);
  }
  return members;
}

/**
 * Reads the fields of a body, and rejects a body that exceeds a bound. The time grows with the body's length and with
 * nothing else.
 * @param text the body as latin1
 * @throws AppError invalid_request_error, invalid_value or model_not_found, with the field in `param`
 */
export function readFields(text: string, form: RequestForm, bounds: InputBounds): RequestFields {
  const reader: BodyReader = { text, members: scanBody(text) };
  const model = readString(reader, 'model');
  if (model === null || model === '') {
    throw new AppError('model_not_found', {
      message: 'The field "model" is missing. Use one of the models of GET /v1/models.',
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
    ...readInputItems(reader, form.itemsKey),
    isChanged: false,
    meaning: null,
    hash: null,
  };
}
