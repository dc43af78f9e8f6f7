import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { EngineSpec, HostReport, Placement } from '#core/fleet/drivers/drivers.ts';
import { type Draft, driverType, settings } from './draft.ts';
import { runsKey } from './memory-neighbours.ts';
import type { Occupant, PlaceNeed } from './placement.ts';
import { type EngineState, isLeaving, type ReplicaState, specOf, specToStart } from './state.ts';

/** Lists which replica has which place, and what the next replica of an engine needs. */

const nobody: ReadonlySet<string> = new Set();

/** Returns null if another scheduler places the engine, or nothing is placed at all. */
export function placeNeed({ id, neighbours }: EngineState, { definition: { driver } }: EngineSpec): PlaceNeed | null {
  if (driver.type === 'docker') {
    const { gpus, hosts, placement: strategy } = driver;
    return { engineId: id, gpus, hosts, strategy, memoryBytes: 0, group: null, neighbours: nobody };
  }
  if (driver.type !== 'process') return null;
  const { gpus, group, memoryBytes } = driver;
  return { engineId: id, gpus, group, memoryBytes: memoryBytes ?? 0, neighbours, hosts: [], strategy: 'pack' };
}

export function hostsOf(draft: Draft, engine: EngineState): readonly HostReport[] {
  return draft.facts.hosts.get(driverType(engine)) ?? [];
}

/** Returns all occupants: replicas in any phase, planned or only observed, and resources in use by anything else. */
export function presentOccupants({ engines, facts }: Draft): Occupant[] {
  const own = engines.flatMap((engine) => engine.replicas.map((replica) => occupant(engine, replica)));
  const known = new Set(engines.flatMap(({ replicas }) => replicas.map(({ id }) => id)));
  const seen = [...facts.observed.values()]
    .filter(({ state, replica }) => state !== 'exited' && !known.has(replica.id))
    .map(({ replica, placement }) => ({ engineId: replica.engineId, placement, memoryBytes: 0 }));
  const unknown = { replicaId: null, runs: null, group: null, isClaim: false, isKept: true };
  return [...own, ...[...seen, ...facts.holdings].map((one) => ({ ...one, ...unknown }))];
}

/** Returns the present occupants, other engines' claims and reserved places, without the engine's own claim. */
export function plannedOccupants(draft: Draft, engine: EngineState, isStaying: (replica: ReplicaState) => boolean) {
  const leaving = new Set(
    draft.engines.flatMap(({ replicas }) => replicas.filter((one) => !isStaying(one)).map(({ id }) => id)),
  );
  const claims = draft.engines.flatMap((one) =>
    one === engine || one.claim === null ? [] : [claimOccupant(one, specToStart(one), one.claim.placement)],
  );
  const present = presentOccupants(draft).filter(({ replicaId }) => replicaId === null || !leaving.has(replicaId));
  return [...present, ...claims, ...draft.reserved];
}

export const anyReplica = (): boolean => true;
export const stayingReplica = (replica: ReplicaState): boolean => !isLeaving(replica);

function occupant(engine: EngineState, { id, specHash, placement }: ReplicaState): Occupant {
  const { min, pinned } = settings(engine);
  const takes = takesOf(specOf(engine, specHash).definition);
  const runs = runsKey(engine.id, specHash);
  return { engineId: engine.id, replicaId: id, runs, placement, ...takes, isClaim: false, isKept: pinned || min > 0 };
}

export function claimId({ id }: EngineState): string {
  return `claim of ${id}`;
}

export function claimOccupant(engine: EngineState, spec: EngineSpec, placement: Placement): Occupant {
  const runs = runsKey(engine.id, spec.hash);
  const takes = takesOf(spec.definition);
  return { engineId: engine.id, replicaId: claimId(engine), runs, placement, ...takes, isClaim: true, isKept: false };
}

export function takesOf({ driver }: EngineDefinition): Pick<Occupant, 'memoryBytes' | 'group'> {
  if (driver.type !== 'process') return { memoryBytes: 0, group: null };
  return { memoryBytes: driver.memoryBytes ?? 0, group: driver.group };
}
