import { AppError } from '#base/errors.ts';
import { findFlag, type Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, Lease } from '#core/fleet/fleet.ts';
import type { FlexRefusal, FlexRequest, Routing, WaitingRequest } from '#core/routing/routing.ts';
import { affinityOf } from './affinity.ts';
import type { Call } from './call.ts';
import { upstreamBusy } from './engine-error.ts';
import type { RequestFields } from './fields.ts';
import type { RequestObserver } from './observer.ts';
import { estimateTokens } from './spending.ts';

export interface LeaseParts {
  readonly routing: Routing;
  readonly observer: RequestObserver;
}

/**
 * The right to send a request to a replica: at once where the model is warm; else after its start, and for requests of
 * the tier `flex` when the engine has room for them.
 * @throws AppError upstream_error, overloaded, both 503 with Retry-After; an Error when the request is stopped
 */
export function takeLease(parts: LeaseParts, call: Call, model: Model, fields: RequestFields): Lease | Promise<Lease> {
  const isFlex = fields.serviceTier === 'flex';
  const warm = isFlex ? null : parts.routing.now(model, { affinity: affinityOf(call, fields) });
  return warm ?? waitForLease(parts, { call, model, fields });
}

function waitForLease({ routing, observer }: LeaseParts, { call, model, fields }: Wanted): Promise<Lease> {
  const isFlex = fields.serviceTier === 'flex';
  const isWarm = isFlex && routing.coldStartMs(model) === null;
  call.answer.setHeader('x-headgate-start', isWarm ? 'warm' : 'cold');
  return whileWaiting(observer, { call, model, fields }, async (request) => {
    if (isFlex) return takeFlexLease(routing, call, model, { ...request, affinity: affinityOf(call, fields) });
    const result = await routing.wait(model, request);
    if (!result.ok) throw refusalError(result.refusal);
    return result.lease;
  });
}

interface Unreached {
  readonly model: Model;
  readonly fields: RequestFields;
  /** Ids of replicas that could not be reached. */
  readonly exclude: ReadonlySet<string>;
}

/**
 * The right to send a request that no engine has seen yet to the replica that is started in the place of one that is
 * gone; null where that one is well after all.
 * @throws as takeLease
 */
export async function waitForOther(
  { routing, observer }: LeaseParts,
  call: Call,
  unreached: Unreached,
): Promise<Lease | null> {
  const { model, fields, exclude } = unreached;
  return whileWaiting(observer, { call, model, fields }, async (request) => {
    const result = await routing.wait(model, { ...request, exclude });
    if (result.ok) return result.lease;
    if (result.refusal.code === 'no_other_replica') return null;
    throw refusalError(result.refusal);
  });
}

interface Wanted {
  readonly call: Call;
  readonly model: Model;
  readonly fields: RequestFields;
}

/** Waits, is counted as waiting, and gives up when the request is stopped. */
async function whileWaiting<T>(
  observer: RequestObserver,
  { call, model, fields }: Wanted,
  take: (request: WaitingRequest) => Promise<T>,
): Promise<T> {
  const waiting = new AbortController();
  const abort = (): void => waiting.abort();
  call.onStop = abort;
  const perChoiceMax = call.grant?.outputTokensMax ?? model.contextLength;
  const tokens = estimateTokens(fields, perChoiceMax);
  observer.waiting(model.id, 1);
  try {
    return await take({ keyId: call.caller?.key.id ?? '', tokens, signal: waiting.signal });
  } finally {
    observer.waiting(model.id, -1);
    call.onStop = null;
  }
}

async function takeFlexLease(routing: Routing, call: Call, model: Model, request: FlexRequest): Promise<Lease> {
  const result = await routing.flex(model, request);
  if (!result.ok) throw refusalError(result.refusal);
  call.flexLease = result.flexLease;
  return result.flexLease.lease;
}

function refusalError({ code, publicText, retryAfterSeconds }: AcquireRefusal | FlexRefusal): AppError {
  if (code !== 'flex_queue_full') return upstreamBusy(retryAfterSeconds, publicText);
  return new AppError('overloaded', { message: publicText, headers: { 'retry-after': String(retryAfterSeconds) } });
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
