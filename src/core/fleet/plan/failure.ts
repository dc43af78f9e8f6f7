import type { FailureCause } from '#core/fleet/drivers/drivers.ts';
import { waitsForNeighbours } from './memory-neighbours.ts';
import { type Draft, noteEvent } from './draft.ts';
import { type EngineState, hasFallback, isOutdated, isRefused, type ReplicaState } from './state.ts';

/** What follows from a failure: when the next try is, who is answered, and whether a changed file is refused. */

/**
 * What a replica's end, failed check or lateness means for its engine. Too little memory beside others is no failure:
 * the engine is tried again when there is room. A start that fails answers all who wait. A replica that was ready is
 * started again by itself. A new spec that fails is refused where an old one serves or is known.
 */
export function noteFailure(draft: Draft, engine: EngineState, replica: ReplicaState, cause: FailureCause): void {
  if (waitsForNeighbours(draft, engine, replica, cause)) return;
  if (isTrial(engine, replica)) {
    refuseRollout(draft, engine, cause);
    return;
  }
  const { nowMs } = draft.facts;
  const wasReady = replica.readyAtMs !== null;
  const stable = replica.readyAtMs !== null && nowMs - replica.readyAtMs >= draft.policy.stableMs;
  engine.crashes = stable ? 1 : engine.crashes + 1;
  if (wasReady) engine.recovering = true;
  failStart(draft, engine, cause, wasReady);
}

/** A start that could not be requested at all. It is tried again for as long as somebody wants it. */
export function failRequest(draft: Draft, engine: EngineState, cause: FailureCause): void {
  engine.crashes = Math.min(engine.crashes + 1, draft.policy.crashesMax - 1);
  failStart(draft, engine, cause, false);
}

/**
 * The one place where a failed start becomes what is published: its cause and when the next try is.
 * @param quiet who waits goes on waiting: the engine was ready and comes back by itself, unless it did so too often
 */
function failStart(draft: Draft, engine: EngineState, cause: FailureCause, quiet: boolean): void {
  const { nowMs } = draft.facts;
  const { crashesMax, failedMs, backoffFirstMs, backoffMaxMs } = draft.policy;
  const givenUp = engine.crashes >= crashesMax;
  const backoffMs = Math.min(backoffFirstMs * 2 ** Math.max(0, engine.crashes - 1), backoffMaxMs);
  engine.failure = { cause, retryAtMs: nowMs + (givenUp ? failedMs : backoffMs) };
  engine.claim = null;
  engine.blocked = null;
  if (givenUp) engine.recovering = false;
  if (!engine.recovering) engine.startRequested = false;
  if (quiet && !givenUp) return;
  engine.failedStarts += 1;
  noteEvent(draft, engine, givenUp ? 'an engine failed too often' : 'an engine could not be started', { cause });
}

/** The first of a new spec, or of a restart, before any of its kind has served. */
function isTrial(engine: EngineState, replica: ReplicaState): boolean {
  if (replica.readyAtMs !== null || isOutdated(engine, replica)) return false;
  // With nothing left that serves, there is no rollout to see: the file was changed while the engine was stopped, or
  // the leader that had begun it is gone.
  const isTried = engine.rollout?.state === 'checking' || (hasFallback(engine) && !isRefused(engine));
  if (!isTried) return false;
  return !engine.replicas.some((one) => one.phase === 'ready' && !isOutdated(engine, one));
}

/** What runs stays; where nothing does, what passed its checks before is started. */
export function refuseRollout(draft: Draft, engine: EngineState, cause: FailureCause): void {
  const words = cause.detail === undefined ? cause.publicText : `${cause.publicText} ${cause.detail}`;
  engine.rollout = { specHash: engine.spec.hash, state: 'refused', text: words };
  engine.claim = null;
  // Where there was no room beside, the last that served may be gone by now.
  if (!engine.replicas.some(({ phase }) => phase === 'ready')) engine.recovering = true;
  noteEvent(draft, engine, 'a changed engine did not pass its checks and stays out', { cause });
}
