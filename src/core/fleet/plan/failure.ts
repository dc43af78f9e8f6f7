import { type FailureCause, isLasting } from '#core/fleet/drivers/drivers.ts';
import { waitsForNeighbours } from './memory-neighbours.ts';
import { type Draft, noteEvent } from './draft.ts';
import { type EngineState, hasFallback, isOutdated, isRefused, type ReplicaState } from './state.ts';

/**
 * Decides the consequences of a failure: the next try, which requests are answered, and whether a changed file is
 * rejected.
 */

/**
 * Applies a replica's end, failed check or timeout to its engine. Too little memory beside others is no failure: the
 * engine is retried when there is room. A failed start answers all waiting requests. A replica that was ready is
 * restarted automatically. A new spec that fails is rejected if an old spec serves or is known.
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

/** Records a start that could not be requested at all. The start is retried for as long as it is wanted. */
export function failRequest(draft: Draft, engine: EngineState, cause: FailureCause): void {
  engine.crashes = Math.min(engine.crashes + 1, draft.policy.crashesMax - 1);
  failStart(draft, engine, cause, false);
}

/**
 * Records a failed start: its cause and the time of the next try. All failed starts pass through here.
 * @param quiet waiting requests keep waiting: the engine was ready and restarts by itself, unless it crashed too often
 */
function failStart(draft: Draft, engine: EngineState, cause: FailureCause, quiet: boolean): void {
  const { nowMs } = draft.facts;
  const { crashesMax, failedMs, backoffFirstMs, backoffMaxMs } = draft.policy;
  const lasts = !quiet && isLasting(cause);
  const givenUp = lasts || engine.crashes >= crashesMax;
  const backoffMs = Math.min(backoffFirstMs * 2 ** Math.max(0, engine.crashes - 1), backoffMaxMs);
  engine.failure = { cause, retryAtMs: nowMs + (givenUp ? failedMs : backoffMs) };
  engine.claim = null;
  engine.blocked = null;
  if (givenUp) engine.recovering = false;
  if (!engine.recovering) engine.startRequested = false;
  if (quiet && !givenUp) return;
  engine.failedStarts += 1;
  noteEvent(draft, engine, eventText(givenUp, lasts), { cause });
}

function eventText(givenUp: boolean, lasts: boolean): string {
  if (!givenUp) return 'an engine could not be started; the gateway retries while the engine is needed';
  const why = lasts
    ? 'an engine could not be started, and a retry would not help'
    : 'an engine failed too often, and the gateway gave up';
  return `${why}: requests for it get 503. Fix the cause, then run "headgate engines reset"`;
}

/** True for the first replica of a new spec, or of a restart, while no other current replica serves. */
function isTrial(engine: EngineState, replica: ReplicaState): boolean {
  if (replica.readyAtMs !== null || isOutdated(engine, replica)) return false;
  // With no serving replica there is no rollout: the file changed while the engine was stopped, or the leader that
  // began the rollout has ended.
  const isTried = engine.rollout?.state === 'checking' || (hasFallback(engine) && !isRefused(engine));
  if (!isTried) return false;
  return !engine.replicas.some((one) => one.phase === 'ready' && !isOutdated(engine, one));
}

/** Refuses the file's spec. Running replicas stay; if none runs, the last good spec is started. */
export function refuseRollout(draft: Draft, engine: EngineState, cause: FailureCause): void {
  const fullText = cause.detail === undefined ? cause.publicText : `${cause.publicText} ${cause.detail}`;
  engine.rollout = { specHash: engine.spec.hash, state: 'refused', text: fullText };
  engine.claim = null;
  // If there was no room for both versions, the last serving replica may have ended.
  if (!engine.replicas.some(({ phase }) => phase === 'ready')) engine.recovering = true;
  noteEvent(
    draft,
    engine,
    'the new version of an engine failed its checks and was rejected; the old version stays in use. Correct the engine file',
    { cause },
  );
}
