import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import { type Draft, driverType, noteEvent } from './draft.ts';
import { type EngineState, type ReplicaState, specOf } from './state.ts';

/**
 * Processes whose files do not say what they need. One that finds too little memory while others are there has not
 * failed: it waits until one of them is gone, and is not tried beside all of them again.
 */

/** The memory of what was killed may take so long to be free. */
const remainsMs = 5000;
const endsMax = 50;

/** One text for an engine and what it runs. */
export function runsKey(engineId: string, specHash: string): string {
  return `${engineId}\0${specHash}`;
}

export function noteEnd(draft: Draft, engine: EngineState, { specHash, readyAtMs }: ReplicaState): void {
  if (driverType(engine) !== 'process') return;
  const end = { runs: runsKey(engine.id, specHash), atMs: draft.facts.nowMs, wasReady: readyAtMs !== null };
  draft.ends = [...draft.ends, end].slice(-endsMax);
}

/** What was killed says nothing itself: the kernel does that when memory is short. */
function maySayMemory({ kind }: FailureCause): boolean {
  return kind === 'memory' || kind === 'killed';
}

/** @returns whether the end of this replica is put down to those that were there meanwhile */
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
  noteEvent(draft, engine, 'an engine found too little memory beside others and waits for room', { cause });
  return true;
}

/**
 * All that is there; where nothing is any more, what was since it was begun. Earlier attempts of its own are gone with
 * their memory.
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

/** What it was given, or what its file shows it; null: it may use any. */
function devicesOf({ engine, replica }: Process): readonly string[] | null {
  if (replica.placement.gpuIds.length > 0) return replica.placement.gpuIds;
  const { driver } = specOf(engine, replica.specHash).definition;
  const shown = driver.type === 'process' ? (driver.env['CUDA_VISIBLE_DEVICES'] ?? '') : '';
  // Indexes are not to be compared with UUIDs, nor what stands in a variable.
  return /^\d+(?:,\d+)*$/.test(shown) ? shown.split(',') : null;
}
