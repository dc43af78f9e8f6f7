import type { Holding, HostReport } from '#core/fleet/drivers/drivers.ts';
import type { FleetObservation } from './observe-all.ts';

/**
 * Lists who uses devices and memory of machines: replicas, orphans, and engines that other reconcilers placed there.
 */

/** Returns the devices and memory that orphans use. */
export function orphansHold({ orphans }: FleetObservation): Holding[] {
  return orphans.map(({ host, engineId, gpuIds, memoryBytes }) => ({
    engineId,
    placement: { host, gpuIds },
    memoryBytes,
  }));
}

/**
 * Returns everything that uses devices here, for this gateway's other reconcilers, which place engines on the same
 * machines. Memory is 0: other reconcilers only count devices as taken or free.
 */
export function devicesHeld(observation: FleetObservation): Holding[] {
  const replicas = [...observation.observed.values()].flatMap(({ state, replica: { engineId }, placement }) =>
    state === 'exited' ? [] : [{ engineId, placement, memoryBytes: 0 }],
  );
  const orphans = orphansHold(observation).map((one) => ({ ...one, memoryBytes: 0 }));
  return [...replicas, ...orphans].filter(({ placement }) => placement.gpuIds.length > 0);
}

/** A UUID is identical on every host; an index means a different device on each. */
const isUnique = (gpuId: string): boolean => /^(GPU|MIG)-/.test(gpuId);

/** Returns the devices that other reconcilers use, by the ids that these hosts give the same devices. */
export function heldHere(elsewhere: readonly Holding[], hosts: readonly HostReport[]): Holding[] {
  return elsewhere.flatMap(({ engineId, placement }) =>
    hosts.flatMap(({ name: host, gpus }) => {
      const here = new Set(gpus.map(({ id }) => id));
      const gpuIds = placement.gpuIds.filter((id) => here.has(id) && (isUnique(id) || host === placement.host));
      return gpuIds.length === 0 ? [] : [{ engineId, placement: { host, gpuIds }, memoryBytes: 0 }];
    }),
  );
}
