import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import { type Draft, driverType, noteEvent } from './draft.ts';
import { type EngineState, type ReplicaState, specOf } from './state.ts';

/**
 * Handles processes whose files do not say how much memory they need. A process that finds too little memory while
 * others run has not failed: it waits until one of the others ends, and is not tried beside all of them again.
 */

/** The memory of a killed process may take this long to become free. */
const remainsMs = 5000;
const endsMax = 50;

/** Returns one text for an engine and the spec that it runs. */
export function runsKey(engineId: string, specHash: string): string {
  return `${engineId}\0${specHash}`;
}

export function noteEnd(draft: Draft, engine: EngineState, { specHash, readyAtMs }: ReplicaState): void {
  if (driverType(engine) !== 'process') return;
  const end = { runs: runsKey(engine.id, specHash), atMs: draft.facts.nowMs, wasReady: readyAtMs !== null };
  draft.ends = [...draft.ends, end].slice(-endsMax);
}

/**
 * True if the failure may mean too little memory. A killed process reports nothing itself, and the kernel kills
 * processes when memory is short.
 */
function maySayMemory({ kind }: FailureCause): boolean {
  return kind === 'memory' || kind === 'killed';
}

/** @returns true if the replica's end is attributed to the processes that ran beside it */
export function waitsForNeighbours(
  draft: Draft,
  engine: EngineState,
  replica: ReplicaState,
  cause: FailureCause,
): boolean {
  if (driverType(engine) !== 'process' || !maySayMemory(cause) || replica.readyAtMs !== null) return false;
  const neighbours = neighboursOf(draft, engine, replica);
  engine.failedAlone ||= neighbours.size === 0;
  engine.neighbours = engine.failedAlone ? new Set() : neighbours;
  if (engine.failedAlone) return false;
  engine.claim = null;
  engine.pausedUntilMs = draft.facts.nowMs + draft.policy.backoffFirstMs;
  engine.blocked = failureCause('no_room', cause.detail);
  noteEvent(draft, engine, 'an engine found too little memory beside other engines, and waits until one of them ends', {
    cause,
  });
  return true;
}

/**
 * Returns the other processes that run now and may share devices. If none runs, returns those that ended since this
 * start began, without earlier attempts of this engine that never became ready: their memory is already free.
 */
function neighboursOf(
  { engines, ends, facts }: Draft,
  engine: EngineState,
  replica: ReplicaState,
): ReadonlySet<string> {
  const own = { engine, replica };
  const others = engines
    .filter((one) => driverType(one) === 'process')
    .flatMap((other) => other.replicas.map((one) => ({ engine: other, replica: one })))
    .filter((other) => other.replica !== replica && mayShareDevices(own, other))
    .map((other) => runsKey(other.engine.id, other.replica.specHash));
  if (others.length > 0) return new Set(others);
  const ownKey = runsKey(engine.id, replica.specHash);
  const sinceMs = (replica.startRequestedAtMs ?? facts.nowMs) - remainsMs;
  const ended = ends.filter(({ runs, atMs, wasReady }) => atMs >= sinceMs && (wasReady || runs !== ownKey));
  return new Set(ended.map(({ runs }) => runs));
}

interface Process {
  readonly engine: EngineState;
  readonly replica: ReplicaState;
}

function mayShareDevices(one: Process, other: Process): boolean {
  const [own, theirs] = [devicesOf(one), devicesOf(other)];
  return own === null || theirs === null || own.some((id) => theirs.includes(id));
}

/** Returns the assigned devices, or those that the file makes visible; null: the process may use any. */
function devicesOf({ engine, replica }: Process): readonly string[] | null {
  if (replica.placement.gpuIds.length > 0) return replica.placement.gpuIds;
  const { driver } = specOf(engine, replica.specHash).definition;
  const shown = driver.type === 'process' ? (driver.env['CUDA_VISIBLE_DEVICES'] ?? '') : '';
  // Indexes cannot be compared with UUIDs, nor with other texts in the variable.
  return /^\d+(?:,\d+)*$/.test(shown) ? shown.split(',') : null;
}
