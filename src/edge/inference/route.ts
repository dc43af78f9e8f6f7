import { AppError } from '#base/errors.ts';
import type { Clock } from '#base/clock.ts';
import { estimateTokens } from '#core/admission/admission.ts';
import { findFlag, type Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, Lease } from '#core/fleet/fleet.ts';
import type { FlexRefusal, FlexRequest, Routing, WaitingRequest } from '#core/routing/routing.ts';
import { affinityOf } from './affinity.ts';
import type { Call, InferenceRequest } from './call.ts';
import { upstreamBusy } from './engine-error.ts';
import type { RequestFields } from './fields.ts';
import type { RequestObserver } from './observer.ts';

export interface LeaseParts {
  readonly routing: Routing;
  readonly observer: RequestObserver;
  readonly clock: Clock;
}

/**
 * Takes a lease on a replica, the right to send it this request: at once where the model is warm; else after its start,
 * and for requests of the tier `flex` when the engine has room for them. Where that takes a while, streams show signs of
 * life.
 * @throws AppError upstream_error, overloaded, both 503, with Retry-After where waiting may mend it; an Error when the request is stopped
 */
export function route(parts: LeaseParts, call: Call, request: InferenceRequest): void | Promise<void> {
  const { fields, model } = request;
  if (fields.stream) call.answer.keepAlive();
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

/** Takes a lease for one part of a request, which has had one itself: of a tier that waits, that wait is over. */
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
 * The right to send a request that no engine has seen yet to the replica that is started in the place of one that is
 * gone; null where that one is well after all.
 * @param exclude ids of replicas that could not be reached
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
 * Waits until the request is stopped, and is counted as waiting. The wait is the engine's time and not the gateway's,
 * also where it ends in a refusal.
 */
async function whileWaiting<T>(
  { observer, clock }: LeaseParts,
  { found, stop, timings, part }: Call,
  request: InferenceRequest,
  take: (waiting: WaitingRequest) => Promise<T>,
): Promise<T> {
  const { caller, model } = request;
  const { grant } = found;
  if (grant === null) throw new Error('a request that was not admitted waits for a replica');
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

/** The reason of a refusal of the tier `flex`: the setting that bounds how many wait. */
export const flexQueueFull = 'HEADGATE_FLEX_QUEUE_MAX';

function refusalError({ code, publicText, retryAfterSeconds }: AcquireRefusal | FlexRefusal): AppError {
  if (retryAfterSeconds === null) {
    return new AppError('upstream_error', { status: 503, message: publicText, lasting: true, reason: code });
  }
  if (code !== 'flex_queue_full') return upstreamBusy(retryAfterSeconds, publicText, code);
  const headers = { 'retry-after': String(retryAfterSeconds) };
  return new AppError('overloaded', { message: publicText, headers, reason: flexQueueFull });
}

/** vLLM serves lower numbers first where it was started to schedule by priority, and preempts the others for them. */
const flexPriorityLine = 'X-Vllm-Priority: 1\r\n';

/** The header that lets the engine itself prefer default traffic, where it can. */
export function priorityLine(model: Model, fields: RequestFields): string {
  if (fields.serviceTier !== 'flex') return '';
  const { driver } = model.engine;
  if (driver.type === 'external') return '';
  const words = driver.type === 'process' ? driver.command : driver.args;
  return findFlag(words, '--scheduling-policy')?.value === 'priority' ? flexPriorityLine : '';
}
