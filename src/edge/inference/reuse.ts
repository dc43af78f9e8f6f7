import { createHash } from 'node:crypto';
import { formatUsd } from '#base/money.ts';
import { type InFlightEnd, requestKey, type ResponseCache } from '#core/cache/cache.ts';
import type { EngineDefinition, Model } from '#core/catalog/catalog.ts';
import type { ApiKey } from '#core/keys/keys.ts';
import { noUsage } from '#core/metering/metering.ts';
import type { Contents, Idempotency } from '#core/requests/requests.ts';
import { type InferenceCaller, ClientGoneError } from '#edge/http/http.ts';
import type { Call, CallReuse } from './call.ts';
import { keepContent } from './content.ts';
import type { Endpoint } from './endpoints.ts';
import type { Outcome } from './engine-relay.ts';
import type { RequestFields } from './fields.ts';
import { claimKey, hasIdempotencyKey, replayBytesMax, sharedEnd } from './idempotent.ts';
import { textOf, type AnswerText } from './large-answer.ts';
import { Transcript } from './transcript.ts';

/**
 * What earlier requests left for this one, and what this one leaves for later ones. Only requests whose key or headers
 * ask for it come by here; for the others nothing is copied and nothing is kept.
 */
export interface ReuseParts {
  readonly cache: ResponseCache;
  readonly contents: Contents;
  readonly idempotency: Idempotency;
}

export interface ReuseRequest {
  readonly caller: InferenceCaller;
  readonly fields: RequestFields;
  readonly model: Model;
  /** Puts the limits of the key on an answer that may have to begin before anything else is known of it. */
  readonly showLimits: () => Promise<void>;
}

/** An answer longer than this, as it is sent, is not kept in the cache, nor given to those who wait for it. */
const cachedBytesMax = 8_388_608;

function transcriptBytesMax({ contents }: ReuseParts, { incoming }: Call, key: ApiKey): number {
  if (hasIdempotencyKey(incoming)) return replayBytesMax;
  return Math.max(key.cacheResponses ? cachedBytesMax : 0, key.storeRequests ? contents.bodyBytesMax : 0);
}

export function reuses({ incoming }: Call, { key }: InferenceCaller): boolean {
  return key.cacheResponses || key.storeRequests || hasIdempotencyKey(incoming);
}

/**
 * An earlier answer that serves this request as well; null when it goes on to an engine.
 * @throws ClientGoneError when the request was stopped meanwhile
 */
export async function findEarlier(parts: ReuseParts, call: Call, request: ReuseRequest): Promise<Outcome | null> {
  const transcript = new Transcript(transcriptBytesMax(parts, call, request.caller.key));
  const reuse: CallReuse = { transcript, cacheEntry: null, idempotentTurn: null, answer: null };
  call.reuse = reuse;
  if (request.fields.stream) call.answer.record(transcript);
  if (hasIdempotencyKey(call.incoming)) {
    const claimed = await claimKey(parts.idempotency, call, request, () => showSigns(call, request));
    if ('text' in claimed) return completed(claimed.text);
    reuse.idempotentTurn = claimed.turn;
    if (call.stopped !== null) throw new ClientGoneError();
    call.runsOn = true;
  }
  return request.caller.key.cacheResponses ? askCache(parts, call, reuse, request) : null;
}

async function askCache(
  parts: ReuseParts,
  call: Call,
  reuse: CallReuse,
  request: ReuseRequest,
): Promise<Outcome | null> {
  const { fields, model } = request;
  const { organizationId } = request.caller.key;
  const engineHash = hashOf(model.engine);
  const { meaning } = fields;
  if (meaning === null) return null;
  const key = requestKey({ organizationId, model: model.id, engineHash, endpoint: call.endpoint.path, meaning });
  const waiting = new AbortController();
  const abort = (): void => waiting.abort();
  call.onStop = abort;
  if (call.stopped !== null) throw new ClientGoneError();
  const take = await parts.cache.take(
    { organizationId, key },
    { signal: waiting.signal, onWait: () => showSigns(call, request) },
  );
  call.onStop = null;
  if (take.kind === 'miss') {
    reuse.cacheEntry = take.entry;
    if (call.stopped !== null) throw new ClientGoneError();
  }
  call.answer.setHeader('x-headgate-cache', take.kind);
  if (take.kind === 'miss') return null;
  call.cacheHit = true;
  return completed(shapeAnswer(call.endpoint, take.text, fields));
}

/** While a stream waits for another request's answer its client hears of it, as while a model starts. */
function showSigns(call: Call, { fields, showLimits }: ReuseRequest): void {
  call.waitedForOther = true;
  if (!fields.stream) return;
  void showLimits().then(() => {
    if (!call.answer.gone) call.answer.keepAlive();
  });
}

/** An answer that costs nothing and counts nothing. */
function completed(last: string): Outcome {
  return {
    kind: 'completed',
    error: null,
    last,
    usage: noUsage,
    usageSource: 'none',
    retry: false,
    unreachable: false,
  };
}

/** A kept answer in the form that was asked for. */
function shapeAnswer(
  { answers }: Endpoint,
  text: string,
  { stream, wantsCost, wantsUsage, wantsRunningUsage }: RequestFields,
): string {
  const costText = wantsCost ? formatUsd(0n) : null;
  if (stream) return answers.makeFrames(text, { wantsUsage, wantsRunningUsage, costText }) + answers.streamEnd;
  if (costText === null) return text;
  const shaped = answers.meterJson(text, { costText: () => costText, rename: null });
  return shaped.ok ? shaped.text : text;
}

/** Ends what this request has begun, and leaves its answer for others. To be called once its end is in the books. */
export function endReuse(parts: ReuseParts, call: Call, reported: Outcome): void {
  if (call.reuse === null) return;
  keepContent(parts.contents, call, reported);
  call.reuse.idempotentTurn?.end(sharedEnd(call, reported));
  call.reuse.cacheEntry?.end(inFlightEnd(call, reported));
}

/** A request that never came to its engine, or was ended from outside, says nothing about what others would get. */
function inFlightEnd(call: Call, reported: Outcome): InFlightEnd {
  const { endpoint, fields, grant, reuse } = call;
  if (grant === null || reported.kind === 'aborted' || reported.kind === 'ended') return 'next';
  // An answer that one wallet could not pay in full is not what another one would get.
  if (reported.kind !== 'completed' || grant.outputTokensMax !== null) return 'each';
  if (fields === null || reuse === null) return 'each';
  const answer = fields.stream
    ? streamAnswer(endpoint, reuse.transcript, fields, reported)
    : jsonAnswer(endpoint, reported.last, fields);
  return answer === null ? 'each' : { answer };
}

function jsonAnswer({ answers }: Endpoint, last: AnswerText, { wantsCost }: RequestFields): string | null {
  const text = textOf(last, cachedBytesMax);
  return text === null ? null : answers.plainAnswer(text, wantsCost);
}

function streamAnswer(
  { answers }: Endpoint,
  transcript: Transcript,
  { choices, prompts }: RequestFields,
  { usage, usageSource }: Outcome,
): string | null {
  if (!transcript.whole || usageSource !== 'engine') return null;
  return answers.mergeFrames(transcript.text, usage, choices * prompts);
}

const engineHashes = new WeakMap<EngineDefinition, string>();

/** Changes with anything that an engine's file says; not with its comments, nor with where it lies. */
function hashOf(engine: EngineDefinition): string {
  const known = engineHashes.get(engine);
  if (known !== undefined) return known;
  const { file: _file, ...said } = engine;
  const text = JSON.stringify(said, (_key, value: unknown) => (typeof value === 'bigint' ? value.toString() : value));
  const hash = createHash('sha256').update(text).digest('hex');
  engineHashes.set(engine, hash);
  return hash;
}
