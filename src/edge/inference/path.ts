import { AppError } from '#base/errors.ts';
import { formatUsd } from '#base/money.ts';
import type { KeyRef } from '#core/admission/admission.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Lease, Replica } from '#core/fleet/fleet.ts';
import { costOf, noUsage, type StreamMeterOptions, type Usage } from '#core/metering/metering.ts';
import {
  type InferenceCaller,
  ClientGoneError,
  drainBody,
  limitHeaders,
  requireOpenProject,
  toAppError,
} from '#edge/http/http.ts';
import { admitCall, type AdmitJob } from './admit.ts';
import { affinityOf, replicaOutcome } from './affinity.ts';
import { cacheSaltOf } from './cache-salt.ts';
import { stopCall, type Call, type Grant } from './call.ts';
import { chooseModel } from './choose-model.ts';
import { dryRun } from './dry-run.ts';
import { engineBody } from './engine-body.ts';
import { clientLeft, type Outcome, type RelayJob, startRelay, type Stop } from './engine-relay.ts';
import { releaseBody, type RequestFields } from './fields.ts';
import { keepAnswer } from './idempotent.ts';
import { priorityLine, takeLease, waitForOther } from './lease.ts';
import type { PathParts } from './path-parts.ts';
import { refuseUnsupported } from './refused-fields.ts';
import { endReuse, findEarlier, type ReuseRequest, reuses } from './reuse.ts';
import { finish } from './settle.ts';
import { readSpendingOptions } from './spending.ts';

/**
 * THE request path: what happens to an inference request, in this order. Steps throw AppErrors to refuse. One that has
 * nothing to wait for answers at once: a promise and a frame for each would be a tenth of what a request allocates.
 */
async function follow(parts: PathParts, call: Call): Promise<Outcome> {
  const caller = await authenticate(parts, call);
  call.spending = readSpendingOptions(call.incoming);
  const fields = await parts.receiver.receive(call, caller);
  const model = chooseModel(parts.catalog, fields.model, call.endpoint);
  call.model = model;
  refuseUnsupported(fields, model, call.endpoint, parts.limits.choicesMax);
  const price = requirePrice(parts, model, fields);
  requireBooks(parts, call);
  if (call.spending.dryRun) return rehearse(parts, call, { caller, fields, model, price });
  call.fields = fields;
  call.price = price;
  const earlier = reuses(call, caller) ? await reuse(parts, call, { caller, fields, model }) : null;
  if (earlier !== null) return earlier;
  const grant = await admit(parts, call, { caller, fields, model, price });
  await route(parts, call, model, fields);
  // Awaited, since a promise that is returned from here takes two turns more to be seen.
  const outcome = await relay(parts, call, { fields, model, price, grant });
  return outcome;
}

/** Serves one request from its headers to its last byte; never throws. */
export async function serveInference(parts: PathParts, call: Call): Promise<void> {
  call.trace = parts.observer.trace(call.endpoint, call.incoming.headers, call.requestId);
  call.answer.onGone(() => {
    if (!call.runsOn) stopCall(call, clientLeft);
  });
  let outcome: Outcome;
  try {
    outcome = await follow(parts, call);
  } catch (error) {
    outcome = outcomeOf(call, error);
  }
  if (call.grant === null) await showLimits(parts, call);
  if (call.reuse !== null) await keepAnswer(call, outcome);
  endReuse(parts, call, await finish(parts, call, outcome));
  call.bodyHold?.release();
  drainBody(call.incoming);
}

function outcomeOf(call: Call, error: unknown): Outcome {
  const nothing = { last: '', usage: noUsage, usageSource: 'none', retry: false, unreachable: false } as const;
  if (call.stopped !== null) return { ...nothing, ...call.stopped };
  if (error instanceof ClientGoneError) return { ...nothing, ...clientLeft };
  return { ...nothing, kind: 'failed', error: toAppError(error) };
}

/** What an earlier request left for this one. */
function reuse(parts: PathParts, call: Call, request: Omit<ReuseRequest, 'showLimits'>): Promise<Outcome | null> {
  return findEarlier(parts, call, { ...request, showLimits: () => showLimits(parts, call) });
}

/** Ends the path where something already wants the request to end. */
function throwIfStopped(call: Call): void {
  if (call.stopped !== null) throw call.stopped.error ?? new ClientGoneError();
}

function authenticate(parts: PathParts, call: Call): InferenceCaller | Promise<InferenceCaller> {
  const found = parts.authenticator.authenticate(call.incoming);
  return found instanceof Promise ? found.then((caller) => accept(parts, call, caller)) : accept(parts, call, found);
}

function accept(parts: PathParts, call: Call, caller: InferenceCaller): InferenceCaller {
  call.caller = caller;
  call.leave = parts.running.add(caller.key, (stop) => stopCall(call, stop));
  requirePlace(parts, caller);
  parts.shares.requireShare(caller.key.id);
  requireOpenProject(caller);
  return caller;
}

/** The last quarter of the places is for organizations that hold less than a quarter of them. */
function requirePlace({ running, limits: { inFlightMax } }: PathParts, { key }: InferenceCaller): void {
  const quarter = Math.floor(inFlightMax / 4);
  if (running.size <= inFlightMax - quarter) return;
  if (running.size <= inFlightMax && running.countOf(key.organizationId) <= quarter) return;
  throw new AppError('overloaded', { headers: { 'retry-after': '1' } });
}

function requirePrice(parts: PathParts, model: Model, { serviceTier }: RequestFields): PriceVersion {
  const price = parts.catalog.price(model.id, serviceTier);
  if (price === undefined) throw new AppError('pricing_unavailable');
  return price;
}

function requireBooks(parts: PathParts, call: Call): void {
  throwIfStopped(call);
  if (!parts.metering.healthy) throw new AppError('billing_unavailable', { headers: { 'retry-after': '2' } });
}

interface Known {
  readonly fields: RequestFields;
  readonly model: Model;
  readonly price: PriceVersion;
}

type KnownCall = Known & { readonly caller: InferenceCaller };

function admitJob({ requestId, endpoint, spending }: Call, { caller, fields, model, price }: KnownCall): AdmitJob {
  return { requestId, key: keyRefOf(caller), endpoint, fields, model, price, maxCostPicoUsd: spending.maxCostPicoUsd };
}

/** What would happen, in the place of an answer; `call` learns nothing that would make it one of the books. */
async function rehearse(parts: PathParts, call: Call, known: KnownCall): Promise<Outcome> {
  const last = await dryRun(parts.admission, parts.routing, admitJob(call, known));
  const nothing = { usage: noUsage, usageSource: 'none', retry: false, unreachable: false } as const;
  return { ...nothing, kind: 'completed', error: null, last };
}

function admit(parts: PathParts, call: Call, known: KnownCall): Grant | Promise<Grant> {
  const granted = admitCall(parts.admission, admitJob(call, known));
  return granted instanceof Promise ? granted.then((grant) => keepGrant(call, grant)) : keepGrant(call, granted);
}

function keepGrant(call: Call, grant: Grant): Grant {
  call.grant = grant;
  setLimitHeaders(call, limitHeaders(grant.view));
  if (grant.outputTokensMax !== null) call.answer.setHeader('x-headgate-max-tokens', String(grant.outputTokensMax));
  return grant;
}

function keyRefOf({ key }: InferenceCaller): KeyRef {
  return { organizationId: key.organizationId, keyId: key.id, limits: key };
}

function setLimitHeaders(call: Call, headers: Readonly<Record<string, string>>): void {
  for (const [name, value] of Object.entries(headers)) call.answer.setHeader(name, value);
}

/** A request that was refused before its limits were asked shows them as they stand. */
async function showLimits(parts: PathParts, call: Call): Promise<void> {
  if (call.caller === null || call.grant !== null || call.answer.gone) return;
  const view = parts.admission.view(keyRefOf(call.caller));
  setLimitHeaders(call, limitHeaders(view instanceof Promise ? await view : view));
}

/** Finds a replica; where that takes a while, streams show signs of life. */
function route(parts: PathParts, call: Call, model: Model, fields: RequestFields): Lease | Promise<Lease> {
  throwIfStopped(call);
  if (fields.stream) call.answer.keepAlive();
  const taken = takeLease(parts, call, model, fields);
  if (!(taken instanceof Promise)) return keepLease(call, taken);
  return queued(parts, call, taken).then((lease) => keepLease(call, lease));
}

function keepLease(call: Call, lease: Lease): Lease {
  call.lease = lease;
  call.answer.setHeader('x-headgate-start', lease.cold ? 'cold' : 'warm');
  return lease;
}

/** A wait for a replica is the engine's time, the first one and a later one, also where it ends in a refusal. */
async function queued<T>({ clock }: PathParts, call: Call, taking: Promise<T>): Promise<T> {
  const sinceMs = clock.monotonicMs();
  try {
    return await taking;
  } finally {
    call.queuedMs += clock.monotonicMs() - sinceMs;
  }
}

/**
 * Sends the request to its replica; while nothing of an answer has left, another replica is tried once. Where the only
 * one could not be reached, that is the one that is started in its place.
 */
async function relay(parts: PathParts, call: Call, known: Known & { readonly grant: Grant }): Promise<Outcome> {
  const first = await relayOnce(parts, call, known);
  if (!first.retry || call.lease === null || call.stopped !== null) return first;
  const { model, fields } = known;
  const exclude = new Set([call.lease.replica.id]);
  const other = parts.routing.now(model, { exclude, affinity: affinityOf(call, fields) });
  if (other === null && !first.unreachable) return first;
  call.lease.release();
  call.lease = other ?? (await queued(parts, call, waitForOther(parts, call, { model, fields, exclude })));
  if (call.lease === null) return first;
  call.retries += 1;
  return relayOnce(parts, call, known);
}

function relayOnce(parts: PathParts, call: Call, known: Known & { readonly grant: Grant }): Promise<Outcome> {
  const { lease } = call;
  if (lease === null) throw new Error('a request was to be sent without a lease on a replica');
  throwIfStopped(call);
  return new Promise((resolve) => {
    const sentMs = parts.clock.monotonicMs();
    const proxied = startRelay(parts, relayJob(parts, call, { ...known, lease }), (outcome) => {
      parts.routing.report(lease, replicaOutcome(outcome));
      call.engineMs = (call.engineMs ?? 0) + parts.clock.monotonicMs() - sentMs;
      call.trace.engineEnded(outcome);
      resolve(outcome);
    });
    const onStop = (stop: Stop): void => (stop === clientLeft ? proxied.clientGone() : proxied.stop(stop));
    call.onStop = onStop;
  });
}

type Sending = Known & { readonly grant: Grant; readonly lease: Lease };

function relayJob(parts: PathParts, call: Call, { fields, model, price, grant, lease }: Sending): RelayJob {
  const { endpoint, requestId, answer } = call;
  const { replica } = lease;
  const costText = fields.wantsCost ? (usage: Usage) => formatUsd(costOf(usage, price)) : null;
  const trace = call.trace.toEngine(model, replica.id);
  // Somebody else's engine may name another model than the one that it was asked for, such as a path or a date.
  const rename = model.engine.driver.type === 'external' ? model.id : null;
  return {
    requestId,
    endpoint,
    prompts: fields.prompts,
    replica,
    body: engineBody(fields, {
      endpoint,
      replica,
      model: model.id,
      outputTokensMax: grant.outputTokensMax,
      cacheSalt: cacheSaltOf(parts.cacheSalts, call, model, fields),
    }),
    headerLines: engineHeaders(call, trace + priorityLine(model, fields) + replica.headerLines),
    answer,
    runsOn: call.runsOn,
    meter: fields.stream
      ? endpoint.answers.meterStream({ ...meterOptions(call, fields, replica), costText, rename })
      : null,
    hold: grant.streamHold,
    costText,
    rename,
    onFirstByte: () => {
      call.firstByteMs = parts.clock.monotonicMs() - call.startedMs;
    },
    onCommitted: () => {
      if (call.caller?.key.storeRequests === true) return;
      releaseBody(fields);
      call.bodyHold?.release();
    },
    onKept: (bytes) => {
      if (call.caller === null) return;
      call.bodyHold ??= parts.shares.hold(call.caller.key.id);
      call.bodyHold.add(bytes);
    },
    enterRoom: (bytes, onTurn) => {
      const place = parts.answerRoom.enter(call.caller?.key.organizationId ?? '', bytes, onTurn);
      call.answerPlace = place;
      return place;
    },
  };
}

/** Written out: a copy of the fields would keep the body for as long as the stream runs. */
function meterOptions(
  { endpoint }: Call,
  { wantsUsage, wantsRunningUsage, choices, prompts }: RequestFields,
  { forcedUsage }: Replica,
): Omit<StreamMeterOptions, 'costText' | 'rename'> {
  const mayCountOnFinish = !forcedUsage && endpoint.mayCountOnFinish;
  return { wantsUsage, wantsRunningUsage, choices, prompts, mayCountOnFinish };
}

/** Nothing is handed on of a client's own headers. */
function engineHeaders({ requestId }: Call, own: string): string {
  return `Content-Type: application/json\r\nX-Request-Id: ${requestId}\r\n${own}`;
}
