import type { StartPhase } from '#core/fleet/store/store.ts';
import type { Draft } from './draft.ts';
import type { EngineState, ReplicaState, StartRecord } from './state.ts';

/** Records the phases of the newest start of each engine, for operators. */

/** Most phases of a record. A download that stops and goes on changes the phase each time. */
const stepsMax = 32;

/** @param requestedMs when a place was chosen; other engines may have had to leave it first */
export function beginRecord(replicaId: string, requestedMs: number, nowMs: number): StartRecord {
  const steps = [
    { phase: 'requested' as const, atMs: requestedMs },
    { phase: 'creating' as const, atMs: nowMs },
  ];
  return { replicaId, steps, cause: null };
}

/** Adds the present phase of the start. Runs after all decisions of a plan. */
export function noteStart(draft: Draft, engine: EngineState): void {
  const record = engine.lastStart;
  const last = record?.steps.at(-1)?.phase;
  if (record === null || last === undefined || ends.has(last)) return;
  const { replicaId, steps } = record;
  const event = draft.events.find((one) => one.replicaId === replicaId && one.cause !== null);
  const phase = event === undefined ? phaseOf(engine.replicas.find(({ id }) => id === replicaId)) : ('failed' as const);
  if (phase === last || (steps.length >= stepsMax && !ends.has(phase))) return;
  const step = { phase, atMs: draft.facts.nowMs };
  engine.lastStart = { replicaId, steps: [...steps, step], cause: event?.cause ?? null };
}

const ends: ReadonlySet<StartPhase> = new Set(['ready', 'failed', 'canceled']);

function phaseOf(replica: ReplicaState | undefined): StartPhase {
  switch (replica?.phase) {
    case 'creating':
      return replica.progress?.startsWith('pulling ') === true ? 'pulling' : 'creating';
    case 'starting':
      return replica.download ? 'downloading' : 'loading';
    case 'checking':
      return 'checking';
    case 'stopping':
    case undefined:
      return 'canceled';
    default:
      return 'ready';
  }
}
