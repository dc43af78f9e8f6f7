import type { Lease } from '#core/fleet/fleet.ts';
import {
  type Bill,
  billOf,
  noUsage,
  type RequestFacts,
  type UsageRecord,
  type UsageSource,
} from '#core/metering/metering.ts';
import type { Outcome } from '#edge/inference/answer/answer.ts';
import type { Call, CallTimings, InferenceRequest, RequestSummary } from '#edge/inference/call/call.ts';
import { countedMax } from '#edge/inference/engine/engine.ts';
import { settledClaim } from '#edge/inference/reuse/reuse.ts';

/**
 * The end of a request in two forms: a record for the database, and a summary for the log, the metrics and the trace.
 * Both have the same facts, except for facts that only one of them needs.
 */

/** Status shown for a client that left before it got one. */
const clientClosedStatus = 499;

/** Returns the status that the client got, or gets now. */
export function statusOf({ answer }: Call, { error, kind }: Outcome): number {
  if (answer.headSent) return 200;
  if (error !== null) return error.status;
  return kind === 'aborted' ? clientClosedStatus : 200;
}

/** Time of a request's end on two clocks, in milliseconds. */
export interface EndMoment {
  readonly monotonicMs: number;
  readonly sinceEpochMs: number;
}

/** Computes what a request is charged, as far as its hold pays for it by now. */
export function billOfCall(call: Call, request: InferenceRequest, outcome: Outcome): Bill {
  const { answer, endpoint, found, terms } = call;
  return billOf({
    outcome: outcome.kind,
    usage: outcome.usage,
    usageSource: outcome.usageSource,
    isPartSent: answer.frameSent,
    generates: endpoint.generates,
    isAtFault: outcome.error !== null && outcome.error.status < 500,
    isWholeOrFree: terms.isWholeOrFree,
    price: request.price,
    chargeMaxPicoUsd: found.grant?.hold.chargeMaxPicoUsd ?? 0n,
    ceiling: found.grant?.hold.ceiling ?? null,
  });
}

/** Builds the record of a request. */
export function recordOf(call: Call, request: InferenceRequest, outcome: Outcome, now: EndMoment): UsageRecord {
  const { requestId, endpoint, clientRequestId, found, timings } = call;
  const { reuse } = found;
  const { caller, fields, model, price, endUser } = request;
  const { stream } = fields;
  const claim = settledClaim(call);
  const { usage, usageSource, costPicoUsd, writtenOffPicoUsd } = billOfCall(call, request, outcome);
  return {
    id: requestId,
    organizationId: caller.key.organizationId,
    projectId: caller.project.id,
    keyId: caller.key.id,
    model: model.id,
    endpoint: endpoint.path,
    stream,
    serviceTier: price.tier,
    status: statusOf(call, outcome),
    outcome: outcome.kind,
    reason: outcome.error?.code ?? outcome.remark,
    cacheHit: reuse?.cacheHit === true,
    usage,
    usageSource,
    costPicoUsd,
    writtenOffPicoUsd,
    priceVersionId: price.id,
    queuedMs: timings.queuedMs,
    firstByteMs: timings.firstByteMs,
    totalMs: now.monotonicMs - timings.startedMs,
    settledMs: now.monotonicMs,
    clientRequestId,
    facts: factsOf(call, now),
    ...(endUser !== null && { namedUser: endUser.name, ...(endUser.isCounted && { endUser: endUser.name }) }),
    ...(claim !== undefined && { claim }),
    ...(fields.choices > 1 && { choices: fields.choices }),
    ...(isUncounted(call, usageSource) && mostOf(call, request)),
    ...(found.fallbackFor !== null && { fallbackFor: found.fallbackFor }),
  };
}

/** True if an engine had the request and has not reported its final count. */
function isUncounted({ endpoint, timings }: Call, source: UsageSource): boolean {
  return endpoint.isFree !== true && source !== 'engine' && timings.engineMs !== null;
}

function mostOf(call: Call, request: InferenceRequest): Pick<UsageRecord, 'promptTokensMax' | 'completionTokensMax'> {
  const { promptTokens, completionTokens } = countedMax(call, request);
  return { promptTokensMax: promptTokens, completionTokensMax: completionTokens };
}

function factsOf({ found, held, timings }: Call, { monotonicMs, sinceEpochMs }: EndMoment): RequestFacts {
  const { lease } = held;
  const view = found.grant?.view;
  const totalMs = monotonicMs - timings.startedMs;
  return {
    admittedMs: timings.admittedMs ?? totalMs,
    coldMs: timings.coldMs,
    remaining: {
      requests: view?.requests?.remaining ?? null,
      tokens: view?.tokens?.remaining ?? null,
      monthTokens: view?.monthTokensLeft ?? null,
      concurrency: view?.concurrencyLeft ?? null,
    },
    replica: lease === null ? null : { id: lease.replica.id, ageSeconds: ageAt(lease, sinceEpochMs - totalMs) },
  };
}

function ageAt({ readySinceMs }: Lease, atMs: number): number | null {
  return readySinceMs === null ? null : Math.max(0, Math.round((atMs - readySinceMs) / 1000));
}

interface CallerIds {
  readonly keyId: string | null;
  readonly organizationId: string | null;
  readonly projectId: string | null;
}

const noCaller: CallerIds = { keyId: null, organizationId: null, projectId: null };

function callerIdsOf({ found: { caller } }: Call): CallerIds {
  if (caller === null) return noCaller;
  return { keyId: caller.key.id, organizationId: caller.key.organizationId, projectId: caller.project.id };
}

/** Facts that are known only at the end of a request. */
export interface CallEnd {
  /** The outcome that the client gets. */
  readonly reported: Outcome;
  readonly status: number;
  /** Null if the request has no record. */
  readonly record: UsageRecord | null;
}

/** Builds the summary for observers. `nowMs` is on the monotonic clock. */
export function summaryOf(call: Call, { reported, status, record }: CallEnd, nowMs: number): RequestSummary {
  const { requestId, clientRequestId, endpoint, found, held, timings } = call;
  const { lease } = held;
  const callerIds = callerIdsOf(call);
  const usage = record === null ? noUsage : record.usage;
  const totalMs = nowMs - timings.startedMs;
  return {
    requestId,
    clientRequestId,
    route: endpoint.path,
    model: found.model === null ? null : found.model.id,
    fallbackFor: found.fallbackFor,
    keyId: callerIds.keyId,
    organizationId: callerIds.organizationId,
    projectId: callerIds.projectId,
    status,
    code: reported.error === null ? null : reported.error.code,
    param: reported.error === null ? null : reported.error.param,
    reason: reported.error === null ? null : reported.error.reason,
    outcome: reported.kind,
    stream: found.request?.fields.stream === true,
    inputTokens: usage.inputTokens,
    cachedTokens: usage.cachedTokens,
    outputTokens: usage.outputTokens,
    costPicoUsd: record === null ? 0n : record.costPicoUsd,
    cache: cacheOf(call),
    cold: lease?.cold === true,
    queuedMs: timings.queuedMs,
    firstByteMs: timings.firstByteMs,
    totalMs,
    addedMs: addedMs(timings, totalMs),
    replicaId: lease === null ? null : lease.replica.id,
    retries: timings.retries,
    abortedByClient: reported.kind === 'aborted',
  };
}

function cacheOf({ found: { reuse } }: Call): RequestSummary['cache'] {
  if (reuse?.cacheHit === true) return 'hit';
  return reuse === null || reuse.cacheEntry === null ? 'off' : 'miss';
}

function addedMs({ engineMs, bodyMs, queuedMs, waitedForOther }: CallTimings, totalMs: number): number | null {
  // The duration of another request is unknown here.
  if (engineMs === null || waitedForOther) return null;
  return Math.max(0, totalMs - engineMs - bodyMs - queuedMs);
}
