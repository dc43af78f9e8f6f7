import type { ObservedReplica, ReplicaExit } from './driver.ts';
import type { Lease, Replica } from './lease.ts';

/** A replica as one engine keeps it: what was observed of it, whether it may be routed to, and who uses it. */
export interface ReplicaSlot {
  readonly replica: Replica;
  readonly leases: number;
  observed: ObservedReplica;
  healthy: boolean;
  probing: boolean;
  /** Monotonic milliseconds before which it is not probed again. */
  probeAtMs: number;
}

export interface ReplicaSet {
  /** Makes the set equal to what the driver found; returns how those ended that nobody had asked to. */
  takeOver(observed: readonly ObservedReplica[]): readonly { replica: Replica; exit: ReplicaExit }[];
  get(replicaId: string): ReplicaSlot | undefined;
  all(): readonly ReplicaSlot[];
  count(state: 'running' | 'stopping'): number;
  hasHealthy(): boolean;
  /** The healthy replica with the fewest leases; undefined when there is none outside `exclude`. */
  pick(exclude: ReadonlySet<string> | undefined): ReplicaSlot | undefined;
  lease(slot: ReplicaSlot, cold: boolean): Lease;
  /** Leases held on all replicas, those included that have ended since. */
  leases(): number;
}

type OwnSlot = { -readonly [Field in keyof ReplicaSlot]: ReplicaSlot[Field] };

/** @param onLeases called with the number of leases after each change */
export function createReplicaSet(onLeases: (leases: number) => void): ReplicaSet {
  const slots = new Map<string, OwnSlot>();
  let leases = 0;

  function takeOver(observed: readonly ObservedReplica[]) {
    const crashes: { replica: Replica; exit: ReplicaExit }[] = [];
    const present = new Set<string>();
    for (const found of observed) {
      const { replica, state, exit } = found;
      if (state === 'exited') {
        if (exit !== null && !exit.asked) crashes.push({ replica, exit });
        continue;
      }
      present.add(replica.id);
      const slot = slots.get(replica.id) ?? newSlot(found);
      slot.observed = found;
      if (state === 'stopping') slot.healthy = false;
      slots.set(replica.id, slot);
    }
    for (const id of slots.keys()) if (!present.has(id)) slots.delete(id);
    return crashes;
  }

  function pick(exclude: ReadonlySet<string> | undefined): ReplicaSlot | undefined {
    let best: OwnSlot | undefined;
    for (const slot of slots.values()) {
      if (!slot.healthy || exclude?.has(slot.replica.id) === true) continue;
      if (best === undefined || slot.leases < best.leases) best = slot;
    }
    return best;
  }

  function change(slot: OwnSlot, by: 1 | -1): void {
    slot.leases += by;
    leases += by;
    onLeases(leases);
  }

  function lease(slot: OwnSlot, cold: boolean): Lease {
    let held = true;
    change(slot, 1);
    return {
      replica: slot.replica,
      cold,
      release() {
        if (!held) return;
        held = false;
        change(slot, -1);
      },
    };
  }

  return {
    takeOver,
    get: (replicaId) => slots.get(replicaId),
    all: () => [...slots.values()],
    count: (state) => [...slots.values()].filter(({ observed }) => observed.state === state).length,
    hasHealthy: () => [...slots.values()].some(({ healthy }) => healthy),
    pick,
    lease,
    leases: () => leases,
  };
}

function newSlot(observed: ObservedReplica): OwnSlot {
  const healthy = observed.health === 'assumed' && observed.state === 'running';
  return { replica: observed.replica, leases: 0, observed, healthy, probing: false, probeAtMs: 0 };
}
