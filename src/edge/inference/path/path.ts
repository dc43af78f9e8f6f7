import { AppError } from '#base/errors.ts';
import { drainBody, type InferenceCaller, requireOpenProject } from '#edge/http/http.ts';
import { nameDropped, type Outcome, readAllowsFallback, showLimits, thrownBy } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { chooseModel } from '#edge/inference/choose-model.ts';
import { endUserOf } from '#edge/inference/end-user.ts';
import { coverCost, raiseWatermark, finish } from '#edge/inference/end/end.ts';
import { admit, type PathParts, relay, relayParts, route } from '#edge/inference/engine/engine.ts';
import { priceOf } from '#edge/inference/request-price.ts';
import { readSpendingOptions } from '#edge/inference/request/request.ts';
import { endReuse, findEarlier, packAnswer, reuses } from '#edge/inference/reuse/reuse.ts';
import { dropUnserved, refuseCappedTurns, refuseUnsupported, turnsOf } from '#edge/inference/rules/rules.ts';
import { keepInput, prepareResponse, readConversation } from '#edge/inference/stored/stored.ts';
import { dryRun } from './dry-run.ts';
import { serveWithFallbacks } from './fall-back.ts';

/**
 * Counts a request among the running ones of its key, whose revocation ends it from now on.
 * @throws AppError overloaded; the errors for an archived project and for too many unread answers
 */
function acceptCaller(parts: PathParts, call: Call, caller: InferenceCaller): void {
  call.held.leave = parts.running.add(caller.key, call);
  requirePlace(parts, caller);
  parts.shares.requireShare(caller.key.id);
  requireOpenProject(caller);
}

/** Reserves the last quarter of the places for organizations that use at most a quarter of all places. */
function requirePlace({ running, limits: { inFlightMax } }: PathParts, { key }: InferenceCaller): void {
  const quarter = Math.floor(inFlightMax / 4);
  if (running.size <= inFlightMax - quarter) return;
  if (running.size <= inFlightMax && running.countOf(key.organizationId) <= quarter) return;
  throw new AppError('overloaded', { headers: { 'retry-after': '1' }, reason: 'HEADGATE_MAX_IN_FLIGHT' });
}

/** Receives a request, with the stored items that it names. */
function receive(parts: PathParts, call: Call, caller: InferenceCaller): ReturnType<PathParts['receiver']['receive']> {
  const received = parts.receiver.receive(call, caller);
  return received instanceof Promise
    ? received.then((fields) => readConversation(parts, call, caller, fields))
    : readConversation(parts, call, caller, received);
}

/**
 * The request path: the steps of an inference request, in order. Steps throw AppErrors to reject, and return what they
 * found. Facts that the end needs, also for a rejected request, are written to the call. A step that has nothing to
 * wait for returns synchronously, and is not awaited then: a promise and an async frame per step would be a tenth of
 * what a request allocates.
 */
async function follow(parts: PathParts, call: Call): Promise<Outcome> {
  const { endpoint, found, stop } = call;
  // Always awaited: a body that came with its head is parsed only after the handler of the request has returned.
  const caller = await parts.authenticator.authenticate(call.incoming);
  found.caller = caller;
  acceptCaller(parts, call, caller);
  const { capPicoUsd, isDry } = readSpendingOptions(call.incoming);
  const allowsFallback = readAllowsFallback(call.incoming);
  const received = receive(parts, call, caller);
  const isAwaited = received instanceof Promise;
  const fields = isAwaited ? await received : received;
  stop.throwIfStopped();
  // The key's allowed models may have changed while the body arrived.
  const { usableModels } = isAwaited ? parts.authenticator.keyNow(call.incoming, caller) : caller.key;
  const model = chooseModel(parts.catalog, fields.model, endpoint, usableModels);
  found.model = model;
  const dropped = dropUnserved({ fields, model, endpoint, unservedTools: caller.key.unservedTools });
  refuseUnsupported({ fields, model, endpoint, dropped }, parts.limits.choicesMax);
  nameDropped(call.answer, dropped);
  const price = priceOf(parts.catalog, model, endpoint, fields);
  if (price === null) throw new AppError('pricing_unavailable', { lasting: true });
  stop.throwIfStopped();
  requireRecording(parts);
  const endUser = endUserOf(parts, caller, call.incoming, fields);
  const turns = turnsOf({ endpoint, fields, engine: model.engine });
  if (capPicoUsd !== null) refuseCappedTurns(turns);
  const request: InferenceRequest = { caller, fields, model, price, capPicoUsd, endUser, turns, dropped };
  if (isDry) return dryRun(parts, call, request, allowsFallback);
  found.request = request;
  const earlier = reuses(call, caller) ? await findEarlier(parts, call, request) : null;
  if (earlier !== null) return earlier;
  const admitted = admit(parts, call, request);
  const grant = admitted instanceof Promise ? await admitted : admitted;
  call.timings.admittedMs = parts.clock.monotonicMs() - call.timings.startedMs;
  stop.throwIfStopped();
  keepInput(call, request);
  if (allowsFallback && model.fallbacks.length > 0) return serveWithFallbacks(parts, call, request, grant);
  const entered = raiseWatermark(parts, call, request);
  if (entered !== undefined) await entered;
  const routed = route(parts, call, request);
  if (routed !== undefined) await routed;
  // Awaited, because a promise returned from here takes two more microtasks to settle.
  const outcome = await (fields.split === null ? relay : relayParts)(parts, call, request, grant);
  return outcome;
}

/** Serves one request from its headers to its last byte; never throws. */
export async function serveInference(parts: PathParts, call: Call): Promise<void> {
  let outcome: Outcome;
  try {
    outcome = await follow(parts, call);
  } catch (error) {
    outcome = thrownBy(call.stop, error);
  }
  if (call.found.grant === null) await showLimits(parts, call);
  const covered = coverCost(parts, call, outcome);
  outcome = covered instanceof Promise ? await covered : covered;
  if (call.found.storing !== null) outcome = prepareResponse(parts, call, outcome);
  if (call.found.reuse !== null) outcome = await packAnswer(call, outcome);
  endReuse(parts, call, await finish(parts, call, outcome));
  call.held.body?.release();
  drainBody(call.incoming);
}

function requireRecording({ metering }: PathParts): void {
  if (!metering.healthy) throw new AppError('billing_unavailable', { headers: { 'retry-after': '2' } });
}
