import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { estimateTokens } from '#core/admission/admission.ts';
import { findFlag, type Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, Lease } from '#core/fleet/fleet.ts';
import type { FlexRefusal, FlexRequest, Routing, WaitingRequest } from '#core/routing/routing.ts';
import type { Call, InferenceRequest, RequestObserver } from '#edge/inference/call/call.ts';
import type { RequestFields } from '#edge/inference/request/request.ts';
import { affinityOf } from './affinity.ts';
import { upstreamBusy } from './engine-error.ts';

export interface LeaseParts {
  readonly routing: Routing;
  readonly observer: RequestObserver;
  readonly clock: Clock;
}

/**
 * Takes a lease on a replica, the right to send this request to it. If the model is warm, the lease comes at once; else
 * after a start. Requests of the tier `flex` wait until the engine has room for them. Streams get comments during a
 * longer wait.
 * @throws AppError upstream_error, overloaded, both 503, with Retry-After if waiting may help; an Error when the
 * request is stopped
 */
export function route(parts: LeaseParts, call: Call, request: InferenceRequest): void | Promise<void> {
  const { fields, model } = request;
  if (fields.stream) call.answer.keepAlive(() => parts.routing.downloadText(model));
  const isFlex = fields.serviceTier === 'flex';
  const warm = isFlex ? null : parts.routing.now(model, { affinity: affinityOf(call, request) });
  if (warm !== null) keepLease(call, warm);
  else return waitForLease(parts, call, request);
}

function keepLease({ answer, held }: Call, lease: Lease): void {
  held.lease = lease;
  answer.setHeader('x-headgate-start', lease.cold ? 'cold' : 'warm');
}

async function waitForLease(parts: LeaseParts, call: Call, request: InferenceRequest): Promise<void> {
  const { routing } = parts;
  const { timings } = call;
  const { fields, model } = request;
  const isFlex = fields.serviceTier === 'flex';
  const isWarm = isFlex && routing.coldStartMs(model) === null;
  call.answer.setHeader('x-headgate-start', isWarm ? 'warm' : 'cold');
  const waited = whileWaiting(parts, call, request, async (waiting) => {
    if (isFlex) {
      return takeFlexLease(routing, call, model, { ...waiting, affinity: affinityOf(call, request) });
    }
    return waitForStart(parts, request, waiting);
  });
  let isCold = !isWarm;
  try {
    const lease = await waited;
    isCold = lease.cold;
    keepLease(call, lease);
  } finally {
    if (isCold) timings.coldMs = timings.queuedMs;
  }
}

/** Takes a lease for one part of a request. The request itself had a lease before, so a wait of its tier is over. */
export function routePart(parts: LeaseParts, call: Call, request: InferenceRequest): void | Promise<void> {
  const warm = parts.routing.now(request.model, { affinity: affinityOf(call, request) });
  if (warm === null) return waitForPart(parts, call, request);
  call.held.lease = warm;
}

async function waitForPart(parts: LeaseParts, call: Call, request: InferenceRequest): Promise<void> {
  const { held, timings } = call;
  try {
    held.lease = await whileWaiting(parts, call, request, (waiting) => waitForStart(parts, request, waiting));
  } finally {
    timings.coldMs = timings.queuedMs;
  }
}

async function waitForStart(
  { routing }: LeaseParts,
  { model }: InferenceRequest,
  waiting: WaitingRequest,
): Promise<Lease> {
  const result = await routing.wait(model, waiting);
  if (!result.ok) throw refusalError(result.refusal);
  return result.lease;
}

/**
 * Waits for the replica that replaces an unreachable one, for a request that no engine has seen yet. Returns null if
 * the first replica turns out to be well.
 * @param exclude ids of unreachable replicas
 * @throws as `route`
 */
export async function waitForOther(
  parts: LeaseParts,
  call: Call,
  request: InferenceRequest,
  exclude: ReadonlySet<string>,
): Promise<Lease | null> {
  const { timings } = call;
  const beforeMs = timings.queuedMs;
  try {
    return await whileWaiting(parts, call, request, async (waiting) => {
      const result = await parts.routing.wait(request.model, { ...waiting, exclude });
      if (result.ok) return result.lease;
      if (result.refusal.code === 'no_other_replica') return null;
      throw refusalError(result.refusal);
    });
  } finally {
    timings.coldMs += timings.queuedMs - beforeMs;
  }
}

/**
 * Waits until `take` settles or the request is stopped, and counts the request as waiting. The wait is counted as the
 * engine's time and not the gateway's, also if it ends in a rejection.
 */
async function whileWaiting<T>(
  { observer, clock }: LeaseParts,
  { found, stop, timings, part }: Call,
  request: InferenceRequest,
  take: (waiting: WaitingRequest) => Promise<T>,
): Promise<T> {
  const { caller, model } = request;
  const { grant } = found;
  if (grant === null) throw new Error('a request waits for a replica before its admission');
  const perChoiceMax = grant.outputTokensMax ?? model.contextLength;
  const { size } = grant;
  const bodyBytes = part === null ? size.bodyBytes : part.input.end - part.input.start;
  const tokens = estimateTokens({ ...size, bodyBytes }, perChoiceMax);
  const sinceMs = clock.monotonicMs();
  observer.waiting(model.id, 1);
  try {
    return await stop.untilStopped((signal) => take({ keyId: caller.key.id, tokens, signal }));
  } finally {
    observer.waiting(model.id, -1);
    timings.queuedMs += clock.monotonicMs() - sinceMs;
  }
}

async function takeFlexLease(routing: Routing, call: Call, model: Model, request: FlexRequest): Promise<Lease> {
  const result = await routing.flex(model, request);
  if (!result.ok) throw refusalError(result.refusal);
  call.held.flexLease = result.flexLease;
  return result.flexLease.lease;
}

/** Reason in rejections of the tier `flex`: the setting that bounds its queue. */
export const flexQueueFull = 'HEADGATE_FLEX_QUEUE_MAX';

function refusalError({ code, publicText, retryAfterSeconds }: AcquireRefusal | FlexRefusal): AppError {
  if (retryAfterSeconds === null) {
    return new AppError('upstream_error', { status: 503, message: publicText, lasting: true, reason: code });
  }
  if (code !== 'flex_queue_full') return upstreamBusy(retryAfterSeconds, publicText, code);
  const headers = { 'retry-after': String(retryAfterSeconds) };
  return new AppError('overloaded', { message: publicText, headers, reason: flexQueueFull });
}

/** Lower numbers are served first by vLLM if it schedules by priority, and preempt the others. */
const flexPriorityLine = 'X-Vllm-Priority: 1\r\n';

/** Returns the header with which the engine itself prefers default traffic, or '' if the engine cannot. */
export function priorityLine(model: Model, fields: RequestFields): string {
  if (fields.serviceTier !== 'flex') return '';
  const { driver } = model.engine;
  if (driver.type === 'external') return '';
  const words = driver.type === 'process' ? driver.command : driver.args;
  return findFlag(words, '--scheduling-policy')?.value === 'priority' ? flexPriorityLine : '';
}
