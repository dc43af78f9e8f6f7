import { createHash } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import { putMembers } from '#base/json/json.ts';
import { formatUsd } from '#base/money.ts';
import type { Admission } from '#core/admission/admission.ts';
import { type InFlightEnd, requestKey, type ResponseCache } from '#core/cache/cache.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { ApiKey } from '#core/keys/keys.ts';
import type { Contents, Idempotency } from '#core/stored-requests/stored-requests.ts';
import type { InferenceCaller } from '#edge/http/http.ts';
import {
  type AnswerText,
  beginningOf,
  completedBy,
  type Outcome,
  showLimits,
  textOf,
  Transcript,
} from '#edge/inference/answer/answer.ts';
import { type Call, type CallReuse, type InferenceRequest, hasRecord } from '#edge/inference/call/call.ts';
import type { Endpoint, RequestFields } from '#edge/inference/request/request.ts';
import { claimKey, endIdempotentRun, hasIdempotencyKey, replayBytesMax } from './idempotent.ts';

export { hasIdempotencyKey, packAnswer, settledClaim } from './idempotent.ts';

/** Stores the request and its answer, for a request with a record whose key stores requests. */
function keepContent(contents: Contents, call: Call, reported: Outcome): void {
  const { found, requestId } = call;
  const { request, reuse } = found;
  if (request === null || !request.caller.key.storeRequests || !hasRecord(found)) return;
  const { caller, fields } = request;
  contents.add({
    requestId,
    organizationId: caller.key.organizationId,
    keyId: caller.key.id,
    request: fields.text,
    // One byte beyond the bound shows that there was more.
    response: (reuse?.transcript.text ?? '') + lastOf(call, reported, contents.bodyBytesMax + 1),
    responseTruncated: reuse?.transcript.whole === false,
  });
}

/**
 * Returns the bytes that were sent at the end: the last frames, a JSON answer, an error in one of two forms, or
 * nothing.
 */
function lastOf({ answer, endpoint, found }: Call, { error, last }: Outcome, bytesMax: number): string {
  if (error === null) return beginningOf(last, bytesMax);
  return answer.frameSent && found.reuse !== null
    ? endpoint.answers.errorFrames(error)
    : endpoint.answers.errorBody(error);
}

/**
 * Parts that find answers of earlier requests, and keep answers for later ones. Only requests whose key or headers ask
 * for it use them; for all others nothing is copied or kept.
 */
export interface ReuseParts {
  readonly admission: Admission;
  readonly clock: Clock;
  readonly cache: ResponseCache;
  readonly contents: Contents;
  readonly idempotency: Idempotency;
}

/** Longest answer, in bytes as sent, that is kept in the cache or given to requests that wait for it. */
const cachedBytesMax = 8_388_608;

function transcriptBytesMax({ contents }: ReuseParts, { incoming }: Call, key: ApiKey): number {
  if (hasIdempotencyKey(incoming)) return replayBytesMax;
  return Math.max(key.cacheResponses ? cachedBytesMax : 0, key.storeRequests ? contents.bodyBytesMax : 0);
}

export function reuses({ incoming }: Call, { key }: InferenceCaller): boolean {
  return key.cacheResponses || key.storeRequests || hasIdempotencyKey(incoming);
}

/**
 * Finds an earlier answer that also serves this request; null if the request must go to an engine.
 * @throws what `throwIfStopped` of the request's stop throws, if the request was stopped meanwhile
 */
export async function findEarlier(parts: ReuseParts, call: Call, request: InferenceRequest): Promise<Outcome | null> {
  const { answer, found, incoming, stop } = call;
  const { caller, fields } = request;
  const transcript = new Transcript(transcriptBytesMax(parts, call, caller.key));
  const none = { cacheEntry: null, cacheHit: false, idempotentRun: null, answer: null, packed: null, durable: null };
  const reuse: CallReuse = { transcript, keptAhead: false, ...none };
  found.reuse = reuse;
  if (fields.stream) answer.record(transcript);
  if (hasIdempotencyKey(incoming)) {
    const claimed = await claimKey(parts.idempotency, call, request, () => showSigns(parts, call, fields));
    if ('text' in claimed) return completedBy(claimed.text);
    reuse.idempotentRun = claimed.run;
    stop.throwIfStopped();
    stop.outliveClient();
  }
  return caller.key.cacheResponses ? askCache(parts, call, request, reuse) : null;
}

async function askCache(
  parts: ReuseParts,
  call: Call,
  { caller, fields, model }: InferenceRequest,
  reuse: CallReuse,
): Promise<Outcome | null> {
  const { answer, endpoint, found, stop } = call;
  const { organizationId } = caller.key;
  const engineHash = hashOf(model.engine);
  const { meaning } = fields;
  if (meaning === null) return null;
  const key = requestKey({ organizationId, model: model.id, engineHash, endpoint: endpoint.path, meaning });
  const onWait = (): void => showSigns(parts, call, fields);
  const take = await stop.untilStopped((signal) => parts.cache.take({ organizationId, key }, { signal, onWait }));
  if (take.kind === 'miss') {
    reuse.cacheEntry = take.entry;
    stop.throwIfStopped();
  }
  answer.setHeader('x-headgate-cache', take.kind);
  if (take.kind === 'miss') return null;
  reuse.cacheHit = true;
  const { storing } = found;
  const text = storing === null ? take.text : putMembers(take.text, storing.shown);
  return completedBy(shapeAnswer(endpoint, text, fields));
}

/** Sends comments in a stream that waits for another request's answer, as while a model starts. */
function showSigns(parts: ReuseParts, call: Call, { stream }: RequestFields): void {
  call.timings.waitedForOther = true;
  if (!stream) return;
  void showLimits(parts, call).then(() => {
    if (!call.answer.clientLeft) call.answer.keepAlive();
  });
}

/** Converts a kept answer to the form that the client asked for. */
function shapeAnswer(
  { answers }: Endpoint,
  text: string,
  { stream, wantsCost, wantsUsage, wantsRunningUsage }: RequestFields,
): string {
  const costText = wantsCost ? formatUsd(0n) : null;
  if (stream) return answers.makeFrames(text, { wantsUsage, wantsRunningUsage, costText }) + answers.streamEnd;
  if (costText === null) return text;
  const shaped = answers.meterJson(text, { rename: null });
  return shaped.ok ? shaped.write({ usage: null, costText }) : text;
}

/** Ends what this request has begun, and leaves its answer for others. Call after the request's end is recorded. */
export function endReuse(parts: ReuseParts, call: Call, reported: Outcome): void {
  const { reuse } = call.found;
  if (reuse === null) return;
  keepContent(parts.contents, call, reported);
  endIdempotentRun(call, reuse, reported);
  reuse.cacheEntry?.end(inFlightEnd(call, reuse, reported));
}

/**
 * Returns what waiting requests may conclude from this request's end. A request that never reached its engine, or was
 * ended from outside, shows nothing about the result of others.
 */
function inFlightEnd({ endpoint, found }: Call, { transcript }: CallReuse, reported: Outcome): InFlightEnd {
  const { grant, request } = found;
  if (grant === null || reported.kind === 'aborted' || reported.kind === 'ended') return 'next';
  // The cache must not serve one model's answer for another, and a fallback's answer does not show the model's own.
  if (found.fallbackFor !== null) return 'each';
  // Another wallet might pay for more of the answer than this one could.
  if (reported.kind !== 'completed' || grant.outputTokensMax !== null || request === null) return 'each';
  const { fields } = request;
  const answer = fields.stream
    ? streamAnswer(endpoint, transcript, fields, reported)
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
  { last, usage, usageSource }: Outcome,
): string | null {
  const end = textOf(last, cachedBytesMax);
  if (!transcript.whole || usageSource !== 'engine' || end === null) return null;
  return answers.mergeFrames(transcript.text, { last: end, usage, choices: choices * prompts });
}

const engineHashes = new WeakMap<EngineDefinition, string>();

/** Hashes all settings of an engine's file. Comments and the location of the file do not change the hash. */
function hashOf(engine: EngineDefinition): string {
  const known = engineHashes.get(engine);
  if (known !== undefined) return known;
  const { file: _file, ...said } = engine;
  const text = JSON.stringify(said, (_key, value: unknown) => (typeof value === 'bigint' ? value.toString() : value));
  const hash = createHash('sha256').update(text).digest('hex');
  engineHashes.set(engine, hash);
  return hash;
}
