import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import { type Draft, due, isHostUnreachable } from './draft.ts';
import type { EngineState, ReplicaState } from './state.ts';

/**
 * Finds starts that make no progress: no line of output and no byte of a download. Such a start is ended once and
 * repeated. The next one has as long as any start, because an engine may be slow and silent.
 */

/** Watches a replica that is being created or started. @returns why it is ended, or null */
export function watchStart(draft: Draft, engine: EngineState, replica: ReplicaState): FailureCause | null {
  const { nowMs, starts } = draft.facts;
  const limitMs = engine.spec.definition.stalledMs;
  const progress = starts.get(replica.id)?.activity;
  const isKnown = progress !== undefined && !isHostUnreachable(draft, engine, replica);
  if (limitMs === null || !isKnown || hasStalled(engine)) {
    replica.silence = null;
    return null;
  }
  if (replica.silence?.progress !== progress) replica.silence = { progress, forMs: 0, atMs: nowMs };
  const overMs = replica.silence.atMs + limitMs;
  if (nowMs >= overMs) return failureCause('stalled', `no log line and no byte for ${Math.round(limitMs / 1000)} s`);
  due(draft, overMs);
  return null;
}

/** True if the last start was ended because it made no progress. */
export function hasStalled({ failure }: EngineState): boolean {
  return failure?.cause.kind === 'stalled';
}
