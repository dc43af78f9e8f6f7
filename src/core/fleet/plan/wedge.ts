import type { FailureCause } from '#core/fleet/drivers/drivers.ts';
import { act, type Draft, due, job, leasesOn, longestPromptOn, noteEvent } from './draft.ts';
import { enter, type EngineState, type ReplicaState } from './state.ts';

/**
 * Finds replicas that answer their probes and generate nothing, as after a dead GPU or a deadlock between GPUs. A replica
 * with requests and without progress gets one canary. If it neither answers nor makes progress meanwhile, it is wedged.
 */

/** Assumed time to read one token of a prompt, where a whole prompt is read in one step and shows no progress. */
const readMsPerToken = 2;
const canaryEveryMsMax = 30_000;

/** Watches the progress of a ready replica. @returns why it is wedged, or null */
export function watchProgress(draft: Draft, engine: EngineState, replica: ReplicaState): FailureCause | null {
  const { nowMs } = draft.facts;
  const limitMs = engine.spec.definition.wedgedMs;
  const progress = draft.facts.progress.get(replica.id);
  const { silence } = replica;
  if (limitMs === null || progress === undefined || silence?.progress !== progress) {
    replica.canaryRuns = false;
    replica.silence = progress === undefined ? null : { progress, forMs: 0, atMs: nowMs };
    return null;
  }
  // Only time with requests counts: clients that leave early, one after the other, must not hide the silence.
  const isBusy = leasesOn(draft, engine, replica) > 0;
  const forMs = silence.forMs + (isBusy ? nowMs - silence.atMs : 0);
  replica.silence = { progress, forMs, atMs: nowMs };
  if (!replica.canaryRuns) {
    const leftMs = limitMs + longestPromptOn(draft, engine, replica) * readMsPerToken - forMs;
    if (leftMs <= 0) beginCanary(draft, engine, replica);
    else if (isBusy) due(draft, nowMs + leftMs);
    return null;
  }
  const outcome = canaryOutcome(draft, engine, replica);
  if (outcome === 'answered') replica.silence = { progress, forMs: 0, atMs: nowMs };
  return outcome === 'pending' || outcome === 'answered' ? null : outcome;
}

/** Takes a wedged replica of an external engine out of routing until it answers a canary: nobody can restart it. */
export function watchExternal(draft: Draft, engine: EngineState): void {
  for (const replica of engine.replicas) {
    if (replica.wedged === null) {
      const cause = watchProgress(draft, engine, replica);
      if (cause === null) continue;
      noteEvent(draft, engine, 'an external engine generates nothing: it gets no requests until it answers a canary', {
        replicaId: replica.id,
        cause,
      });
      engine.wedges += 1;
      enter(replica, 'checking', draft.facts.nowMs);
      keepOut(draft, engine, replica, cause);
    } else tryAgain(draft, engine, replica, replica.wedged);
  }
  // An external engine has no other failures.
  if (engine.replicas.every(({ wedged }) => wedged === null)) engine.failure = null;
}

function tryAgain(
  draft: Draft,
  engine: EngineState,
  replica: ReplicaState,
  { canaryAtMs }: { canaryAtMs: number },
): void {
  const { nowMs } = draft.facts;
  if (!replica.canaryRuns) {
    if (nowMs >= canaryAtMs) beginCanary(draft, engine, replica);
    else due(draft, canaryAtMs);
    return;
  }
  const outcome = canaryOutcome(draft, engine, replica);
  if (outcome === 'pending') return;
  if (outcome !== 'answered') {
    keepOut(draft, engine, replica, outcome);
    return;
  }
  replica.wedged = null;
  replica.silence = null;
  enter(replica, 'ready', nowMs);
  noteEvent(draft, engine, 'an external engine generates again', { replicaId: replica.id });
}

function keepOut(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  const everyMs = Math.min(engine.spec.definition.wedgedMs ?? canaryEveryMsMax, canaryEveryMsMax);
  const canaryAtMs = draft.facts.nowMs + everyMs;
  replica.wedged = { canaryAtMs };
  engine.failure = { cause, retryAtMs: canaryAtMs };
  // Requests that wait for the engine are answered.
  engine.failedStarts += 1;
  due(draft, canaryAtMs);
}

function beginCanary(draft: Draft, engine: EngineState, replica: ReplicaState): void {
  act(draft, 'canary', engine, replica.id);
  replica.canaryRuns = true;
}

function canaryOutcome(
  draft: Draft,
  engine: EngineState,
  replica: ReplicaState,
): 'pending' | 'answered' | FailureCause {
  const report = job(draft, 'canary', replica.id);
  if (report === undefined) act(draft, 'canary', engine, replica.id);
  if (report?.state !== 'done') return 'pending';
  replica.canaryRuns = false;
  return report.cause ?? 'answered';
}
