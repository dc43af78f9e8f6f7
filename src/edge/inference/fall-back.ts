import { AppError } from '#base/errors.ts';
import { type Grant, moveBack, moveHold } from '#core/admission/admission.ts';
import { noUsage } from '#core/metering/metering.ts';
import type { Routing } from '#core/routing/routing.ts';
import { demandOf, outputLimitHeader, showOutputLimit } from './admit.ts';
import { replicaOutcome } from './affinity.ts';
import type { Call, InferenceRequest } from './call.ts';
import { mayUse } from './choose-model.ts';
import { nameFallback, nameNoFallback } from './fallback-header.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import type { PathParts } from './path-parts.ts';
import { refuseUnsupported } from './refused-fields.ts';
import { relay } from './relay.ts';
import { relayParts } from './relay-parts.ts';
import { priceOf } from './request-price.ts';
import { flexQueueFull, route } from './route.ts';
import { shareVocabulary, usesTokenIds } from './token-ids.ts';
import { enterUnderWay } from './under-way.ts';
import { noteRetried } from './unbilled.ts';

/** How a model did with a request. */
interface Attempt {
  /** As this model got it, at its price. */
  readonly request: InferenceRequest;
  /** What the request holds; of the last attempt, what it holds now. */
  readonly grant: Grant;
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  readonly outcome: Outcome;
}

/**
 * Serves a request whose caller lets another model answer. The model that was asked for comes first, with all its waits
 * and its second try. Where it gives nothing, by no fault of the request, the models that its file names are asked one
 * after the other, as long as the client is there and has no byte of an answer. The request keeps its one hold, which is
 * raised to a dearer price beforehand, and the limits of its key have counted it once; those that its project has for a
 * model count it for the one that answers.
 *
 * A model is passed over where the key may not use it, where the request is not for it or has token ids of another
 * vocabulary, where wallet or cap do not pay for it, and where the project's limits for it are used up. Where none
 * answers, the refusal of the one that was asked for stands.
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
  // What a further model fails at as well is the request's fault, or that of what they have in common.
  let isSuspect = false;
  let isLeft = false;
  let raisedTo = 0n;
  try {
    for (const id of asked.model.fallbacks) {
      if (!isUnserved(last, asked) || call.stop.reason !== null || call.answer.gone) break;
      const request = requestTo(parts, call, asked, id);
      if (request === null) continue;
      const moved = await moveHold(parts.admission, last.grant, demandOf(parts, call, request), raisedTo);
      call.stop.throwIfStopped();
      raisedTo = moved.heldMicroUsd;
      if (!moved.ok) continue;
      leave(parts, call, last);
      isLeft = true;
      putInPlace(call, asked, { request, grant: moved });
      isSuspect ||= replicaOutcome(last.outcome) === 'failed';
      last = await ask(isSuspect ? withoutFailures(parts) : parts, call, request, moved);
      isLeft = false;
    }
  } catch (error) {
    // It was ended before another model had it: none has answered.
    if (isLeft) giveBack(call);
    else leave(parts, call, last);
    await putBack(parts, call, first);
    throw error;
  }
  if (last === first || !isUnserved(last, asked)) return last.outcome;
  leave(parts, call, last);
  await putBack(parts, call, first);
  call.held.lease = lease;
  // What its engine may have counted is noted already.
  return { ...first.outcome, usage: noUsage };
}

/** The same, where no replica is told to have failed: one caller could take replicas of many models from all others. */
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
    await enterUnderWay(parts, call, request);
    await route(parts, call, request);
    const outcome = await (request.fields.split === null ? relay : relayParts)(parts, call, request, grant);
    return outcome;
  } catch (error) {
    if (call.stop.reason !== null || !isOfModel(error)) throw error;
    return outcomeOf({ kind: 'failed', error, unanswered: true, unreachable: true });
  }
}

/** There is no replica: none can be started, reached or waited for. */
function isOfModel(error: unknown): error is AppError {
  if (!(error instanceof AppError)) return false;
  return error.code === 'upstream_error' ? error.reason !== 'shutting_down' : error.reason === flexQueueFull;
}

/** What a fallback refuses the model that was asked for might have taken: a longer prompt, another field. */
function isUnserved({ request, outcome: { unanswered, error } }: Attempt, asked: InferenceRequest): boolean {
  if (unanswered) return true;
  return request !== asked && (error?.type === 'invalid_request_error' || error?.code === 'not_implemented');
}

/** The request as a fallback gets it; null where that cannot or must not serve it. */
export function requestTo(
  parts: Pick<PathParts, 'authenticator' | 'catalog' | 'limits'>,
  call: Call,
  asked: InferenceRequest,
  id: string,
): InferenceRequest | null {
  const { endpoint, incoming } = call;
  const { fields, caller } = asked;
  const model = parts.catalog.find(id);
  // What a key may use may have been changed while the other model was waited for.
  const { usableModels } = parts.authenticator.keyNow(incoming, caller);
  if (model === undefined || !mayUse(usableModels, model)) return null;
  const serves: readonly string[] = endpoint.taskTypes;
  if (!serves.includes(model.taskType)) return null;
  if (!shareVocabulary(asked.model.engine, model.engine) && usesTokenIds(fields, endpoint)) return null;
  // A prompt has one token at least.
  if (fields.outputTokensMax !== null && fields.outputTokensMax >= model.contextLength) return null;
  const price = priceOf(parts.catalog, model, endpoint, fields);
  if (price === null) return null;
  try {
    refuseUnsupported(fields, model, endpoint, parts.limits.choicesMax);
  } catch (error) {
    if (error instanceof AppError) return null;
    throw error;
  }
  return { ...asked, model, price };
}

/** Gives back what a model had of a request, and notes what its engine may have counted of it. */
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

/** From now on it is this model's request, in the books as well. */
function serveAs({ answer, found }: Call, { request, grant }: Served): void {
  found.model = request.model;
  found.request = request;
  found.grant = grant;
  answer.dropHeader(outputLimitHeader);
  showOutputLimit(answer, grant);
}
