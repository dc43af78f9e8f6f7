import { type Grant, likelyTokens } from '#core/admission/admission.ts';
import type { Model } from '#core/catalog/catalog.ts';
import type { Lease, Replica } from '#core/fleet/fleet.ts';
import type { StreamMeterOptions } from '#core/metering/metering.ts';
import type { ReplicaOutcome } from '#core/routing/routing.ts';
import { clientLeft, type Outcome } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { type InputPart, releaseBody } from '#edge/inference/request/request.ts';
import { affinityOf, replicaOutcome } from './affinity.ts';
import { cacheSaltOf } from './cache-salt.ts';
import { turnsPossible } from './counted-max.ts';
import { engineBody } from './engine-body.ts';
import { type RelayJob, startRelay } from './engine-relay.ts';
import { priorityLine, waitForOther } from './route.ts';
import { SentRequest } from './sent-request.ts';
import type { PathParts } from './path-parts.ts';
import { noteRetried } from './unbilled.ts';

/**
 * Sends the request to its replica. While no part of an answer is sent, another replica is tried once; if the only
 * replica was unreachable or generates nothing, the retry waits for its replacement. When two replicas fail, the cause
 * is the request or something that the replicas share: neither is reported as failed, or one caller could take replicas
 * from all others.
 */
export async function relay(parts: PathParts, call: Call, request: InferenceRequest, grant: Grant): Promise<Outcome> {
  const { held, stop } = call;
  const startedMs = parts.clock.now();
  const first = await attempt(parts, call, request, grant);
  const isOpen = first.outcome.retry && stop.reason === null;
  // Reported before the retry: an unreachable replica is replaced from now on.
  if (!isOpen || first.replicaOutcome !== 'failed') report(parts, first, first.replicaOutcome);
  if (!isOpen) return first.outcome;
  const exclude = new Set([first.lease.replica.id]);
  const other = parts.routing.now(request.model, { exclude, affinity: affinityOf(call, request) });
  if (other === null && first.replicaOutcome === 'failed') report(parts, first, first.replicaOutcome);
  if (other === null && !first.outcome.unreachable && !first.lease.isWedged) return first.outcome;
  noteRetried(parts, call, request, { outcome: first.outcome, startedMs });
  first.lease.release();
  held.lease = other ?? (await waitForOther(parts, call, request, exclude));
  if (held.lease === null) return first.outcome;
  call.timings.retries += 1;
  const second = await attempt(parts, call, request, grant);
  reportBoth(parts, call, first, second);
  return second.outcome;
}

/** Result of one try at a replica, and what it would report about the replica by itself. */
interface Attempt {
  readonly lease: Lease;
  readonly outcome: Outcome;
  readonly replicaOutcome: ReplicaOutcome;
}

const report = ({ routing }: PathParts, { lease }: Attempt, outcome: ReplicaOutcome): void =>
  routing.report(lease, outcome);

function reportBoth(parts: PathParts, { part, stop }: Call, first: Attempt, second: Attempt): void {
  // A part may be ended by another part that failed for the same reason.
  const isEndedByOther = part !== null && stop.reason !== null;
  const isShared = first.replicaOutcome === 'failed' && (second.replicaOutcome === 'failed' || isEndedByOther);
  if (first.replicaOutcome === 'failed') report(parts, first, isShared ? 'unknown' : 'failed');
  report(parts, second, isShared ? 'unknown' : second.replicaOutcome);
}

function attempt(parts: PathParts, call: Call, request: InferenceRequest, grant: Grant): Promise<Attempt> {
  const { held, stop, timings, trace } = call;
  const { lease } = held;
  if (lease === null) throw new Error('a request has no lease on a replica');
  stop.throwIfStopped();
  return new Promise((resolve) => {
    const sentMs = parts.clock.monotonicMs();
    const job = relayJob(parts, call, request, { grant, lease });
    const proxied = startRelay(parts, job, (outcome) => {
      stop.listen(null);
      if (!isOurs(request.model)) noteRefusal(parts, call, lease, outcome);
      timings.engineMs = (timings.engineMs ?? 0) + parts.clock.monotonicMs() - sentMs;
      trace.engineEnded(outcome);
      resolve({ lease, outcome, replicaOutcome: replicaOutcome(outcome) });
    });
    stop.listen((reason) => (reason === clientLeft ? proxied.clientGone() : proxied.stop(reason)));
    lease.describe(job.countTerms.promptTokens, () => proxied.replicaWedged());
  });
}

/** Reports rejections by an external engine, whose log the operator of Headgate cannot see. */
function noteRefusal({ routing }: PathParts, { endpoint }: Call, lease: Lease, { kind, refusedWith }: Outcome): void {
  if (refusedWith !== null) routing.reportRefusal(lease, { status: refusedWith, path: endpoint.path });
  else if (kind === 'completed') routing.reportRefusal(lease, null);
}

const noMembers: ReadonlyMap<string, string> = new Map();

interface Permission {
  readonly grant: Grant;
  readonly lease: Lease;
}

function relayJob(parts: PathParts, call: Call, request: InferenceRequest, { grant, lease }: Permission): RelayJob {
  const { endpoint, requestId, answer, held, stop, timings, part } = call;
  const { caller, fields, model } = request;
  const { key } = caller;
  const { replica } = lease;
  const trace = call.trace.toEngine(model, replica.id);
  const rename = renameOf(request);
  return {
    requestId,
    endpoint,
    prompts: fields.prompts,
    turns: turnsPossible(endpoint, model.engine, request.turns),
    sent: new SentRequest(endpoint, fields, model.adapter !== null, part === null ? null : part.input),
    replica,
    body: engineBody(fields, {
      endpoint,
      requestId,
      replica,
      upstreamModel: upstreamModelOf(model, replica),
      outputTokensMax: grant.outputTokensMax,
      cacheSalt: cacheSaltOf(parts.cacheSalts, request, replica),
      members: request.dropped?.members ?? noMembers,
      part: part === null ? null : part.input,
    }),
    headerLines: engineHeaders(requestId, trace + priorityLine(model, fields) + replica.headerLines),
    answer,
    outlivesClient: stop.outlivesClient,
    meter: fields.stream ? endpoint.answers.meterStream({ ...meterOptions(call, request, replica), rename }) : null,
    collect: part === null ? null : () => part.collect(),
    hold: grant.hold,
    countTerms: countTermsOf(call, grant),
    isOurs: isOurs(model),
    rename,
    onFirstByte: () => {
      timings.firstByteMs = parts.clock.monotonicMs() - timings.startedMs;
      lease.describe(0);
    },
    onCommitted: () => {
      if (key.storeRequests) return;
      releaseBody(fields);
      held.body?.release();
    },
    onKept: (bytes) => {
      held.body ??= parts.shares.hold(key.id);
      held.body.add(bytes);
    },
    enterRoom: (bytes, onTurn) => {
      const place = parts.answerMemory.enter(key.organizationId, bytes, onTurn);
      held.answerPlace = place;
      return place;
    },
  };
}

/** True if Headgate started the engine. */
const isOurs = ({ engine }: Model): boolean => engine.driver.type !== 'external';

/** Likely token counts, used where no count arrives; for a part, estimated from the bytes of its texts. */
function countTermsOf({ endpoint, part }: Call, { size }: Grant): RelayJob['countTerms'] {
  return { generates: endpoint.generates, ...likelyTokens(part === null ? size : sizeOfPart(size, part.input)) };
}

/** Returns the size of a part, which has only its items and not the members beside the list. */
function sizeOfPart(size: Grant['size'], { start, end, count, unreadBytes, tokenIds }: InputPart): Grant['size'] {
  return { ...size, bodyBytes: end - start, unreadBytes, tokenIds, contexts: count };
}

/** Returns the catalog id for answers of external engines, which may name the model by a path or a date; else null. */
export const renameOf = ({ model }: InferenceRequest): RelayJob['rename'] => (isOurs(model) ? null : model.id);

/** Returns the model's name at the engine. An adapter has its own name beside the name of its base. */
const upstreamModelOf = ({ id, adapter }: Model, { upstreamModel }: Replica): string =>
  (adapter === null ? upstreamModel : adapter.upstreamModel) ?? id;

/** Lists the fields one by one: a spread copy of the fields would keep the body in memory while the stream runs. */
function meterOptions(
  { endpoint, found: { storing } }: Call,
  { fields: { wantsUsage, wantsRunningUsage, choices, prompts } }: InferenceRequest,
  { forcedUsage }: Replica,
): Omit<StreamMeterOptions, 'rename'> {
  const mayCountOnFinish = !forcedUsage && endpoint.mayCountOnFinish;
  const shown = storing === null ? {} : { responseMembers: storing.shown };
  return { wantsUsage, wantsRunningUsage, choices, prompts, mayCountOnFinish, ...shown };
}

/** Writes the headers for the engine. None of the client's own headers are forwarded. */
function engineHeaders(requestId: string, own: string): string {
  return `Content-Type: application/json\r\nX-Request-Id: ${requestId}\r\n${own}`;
}
