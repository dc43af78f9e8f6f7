import { AppError } from '#base/errors.ts';
import { type Grant, moveBack, moveHold } from '#core/admission/admission.ts';
import { noUsage } from '#core/metering/metering.ts';
import type { Routing } from '#core/routing/routing.ts';
import { nameDropped, nameFallback, nameNoFallback, type Outcome, outcomeOf } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { mayUse } from '#edge/inference/choose-model.ts';
import { raiseWatermark } from '#edge/inference/end/end.ts';
import {
  demandOf,
  flexQueueFull,
  noteRetried,
  outputLimitHeader,
  type PathParts,
  relay,
  relayParts,
  replicaOutcome,
  route,
  showOutputLimit,
} from '#edge/inference/engine/engine.ts';
import { priceOf } from '#edge/inference/request-price.ts';
import { shareVocabulary, usesTokenIds } from '#edge/inference/request/request.ts';
import { dropUnserved, refuseCappedTurns, refuseUnsupported, turnsOf } from '#edge/inference/rules/rules.ts';

/** Result of one model for a request. */
interface Attempt {
  /** The request as this model got it, at its price. */
  readonly request: InferenceRequest;
  /** The request's grant; the last attempt has the current one. */
  readonly grant: Grant;
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  readonly outcome: Outcome;
}

/**
 * Serves a request whose caller allows another model to answer. The requested model comes first, with all its waits and
 * its retry. If it gives no answer, by no fault of the request, the fallbacks in its file are asked in order, as long
 * as the client is connected and has no byte of an answer. The request keeps its one hold, which is first raised if a
 * fallback is more expensive. The key's limits count the request once; the project's limits per model count it for the
 * model that answers.
 *
 * A fallback is skipped if the key may not use it, if it does not serve such requests or has another vocabulary than
 * the request's token ids, if wallet or cap do not pay for it, or if the project's limits for it are used up. If no
 * model answers, the client gets the error of the requested model.
 */
export async function serveWithFallbacks(
  parts: PathParts,
  call: Call,
  asked: InferenceRequest,
  grant: Grant,
): Promise<Outcome> {
  const first = await ask(parts, call, asked, grant);
  const { lease } = call.held;
  let last = first;
  // If further models fail as well, the cause is the request, or something that the models share.
  let isSuspect = false;
  let isBetweenModels = false;
  let raisedTo = 0n;
  try {
    for (const id of asked.model.fallbacks) {
      if (!isUnserved(last, asked) || call.stop.reason !== null || call.answer.clientLeft) break;
      const request = requestTo(parts, call, asked, id);
      if (request === null) continue;
      const moved = await moveHold(parts.admission, last.grant, demandOf(parts, call, request), raisedTo);
      call.stop.throwIfStopped();
      raisedTo = moved.heldMicroUsd;
      if (!moved.ok) continue;
      leave(parts, call, last);
      isBetweenModels = true;
      putInPlace(call, asked, { request, grant: moved });
      isSuspect ||= replicaOutcome(last.outcome) === 'failed';
      last = await ask(isSuspect ? withoutFailures(parts) : parts, call, request, moved);
      isBetweenModels = false;
    }
  } catch (error) {
    // The request ended before another model got it: no model has answered.
    if (isBetweenModels) giveBack(call);
    else leave(parts, call, last);
    await putBack(parts, call, first);
    throw error;
  }
  if (last === first || !isUnserved(last, asked)) return last.outcome;
  leave(parts, call, last);
  await putBack(parts, call, first);
  call.held.lease = lease;
  // `leave` has already noted what the engine may have counted.
  return { ...first.outcome, usage: noUsage };
}

/** Returns parts that report no replica as failed: one caller could take replicas of many models from all others. */
function withoutFailures(parts: PathParts): PathParts {
  const { routing } = parts;
  const report: Routing['report'] = (lease, said) => routing.report(lease, said === 'failed' ? 'unknown' : said);
  return { ...parts, routing: { ...routing, report } };
}

async function ask(parts: PathParts, call: Call, request: InferenceRequest, grant: Grant): Promise<Attempt> {
  const startedMs = parts.clock.now();
  const outcome = await outcomeOfModel(parts, call, request, grant);
  return { request, grant, startedMs, outcome };
}

async function outcomeOfModel(parts: PathParts, call: Call, request: InferenceRequest, grant: Grant): Promise<Outcome> {
  try {
    await raiseWatermark(parts, call, request);
    await route(parts, call, request);
    const outcome = await (request.fields.split === null ? relay : relayParts)(parts, call, request, grant);
    return outcome;
  } catch (error) {
    if (call.stop.reason !== null || !isOfModel(error)) throw error;
    return outcomeOf({ kind: 'failed', error, unanswered: true, unreachable: true });
  }
}

/** True if the error means that no replica can be started, reached or waited for. */
function isOfModel(error: unknown): error is AppError {
  if (!(error instanceof AppError)) return false;
  return error.code === 'upstream_error' ? error.reason !== 'shutting_down' : error.reason === flexQueueFull;
}

/**
 * True if a further model may be asked. A fallback may reject what the requested model would have accepted: a longer
 * prompt, another field.
 */
function isUnserved({ request, outcome: { unanswered, error } }: Attempt, asked: InferenceRequest): boolean {
  if (unanswered) return true;
  return request !== asked && (error?.type === 'invalid_request_error' || error?.code === 'not_implemented');
}

/** Returns the request for a fallback, or null if the fallback cannot or must not serve it. */
export function requestTo(
  parts: Pick<PathParts, 'authenticator' | 'catalog' | 'limits'>,
  call: Call,
  asked: InferenceRequest,
  id: string,
): InferenceRequest | null {
  const { endpoint, incoming } = call;
  const { fields, caller } = asked;
  const model = parts.catalog.find(id);
  // The key's allowed models may have changed during the wait for the other model.
  const { usableModels } = parts.authenticator.keyNow(incoming, caller);
  if (model === undefined || !mayUse(usableModels, model)) return null;
  const serves: readonly string[] = endpoint.taskTypes;
  if (!serves.includes(model.taskType)) return null;
  if (!shareVocabulary(asked.model.engine, model.engine) && usesTokenIds(fields, endpoint)) return null;
  // A prompt has at least one token.
  if (fields.outputTokensMax !== null && fields.outputTokensMax >= model.contextLength) return null;
  const price = priceOf(parts.catalog, model, endpoint, fields);
  if (price === null) return null;
  try {
    const dropped = dropUnserved({ fields, model, endpoint, unservedTools: caller.key.unservedTools });
    refuseUnsupported({ fields, model, endpoint, dropped }, parts.limits.choicesMax);
    const turns = turnsOf({ endpoint, fields, engine: model.engine });
    if (asked.capPicoUsd !== null) refuseCappedTurns(turns);
    return { ...asked, model, price, turns, dropped };
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
}

/** Releases what the request had of a model, and notes what its engine may have counted. */
function leave(parts: PathParts, call: Call, { request, outcome, startedMs }: Attempt): void {
  noteRetried(parts, call, request, { outcome, startedMs });
  giveBack(call);
}

function giveBack({ held }: Call): void {
  held.lease?.release();
  held.flexLease?.done(0);
  held.lease = null;
  held.flexLease = null;
}

type Served = Pick<Attempt, 'request' | 'grant'>;

function putInPlace(call: Call, asked: InferenceRequest, served: Served): void {
  call.found.fallbackFor = asked.model.id;
  serveAs(call, served);
  nameFallback(call.answer, served.request.model.id);
}

async function putBack(parts: PathParts, call: Call, served: Served): Promise<void> {
  call.found.fallbackFor = null;
  serveAs(call, served);
  nameNoFallback(call.answer);
  await moveBack(parts.admission, demandOf(parts, call, served.request));
}

/** Assigns the request to this model, also in the record. */
function serveAs({ answer, found }: Call, { request, grant }: Served): void {
  found.model = request.model;
  found.request = request;
  found.grant = grant;
  nameDropped(answer, request.dropped);
  answer.dropHeader(outputLimitHeader);
  showOutputLimit(answer, grant);
}
