import type { PublishedReplica } from './board.ts';
import type { ObservedReplica } from './driver.ts';
import type { Lease, Replica } from './lease.ts';

/** A replica as one gateway keeps it: what was observed and published of it, what its own probes found, who uses it. */
export interface ReplicaSlot {
  readonly replica: Replica;
  readonly leases: number;
  /** It may be given requests. */
  readonly routable: boolean;
  readonly observed: ObservedReplica;
  readonly published: PublishedReplica['state'] | null;
  /** null before the first probe. */
  readonly healthy: boolean | null;
}

export interface ReplicaSet {
  /** Makes the set equal to what the driver found; those that `keep` says stay although they were not found. */
  takeObserved(observed: readonly ObservedReplica[], keep: (slot: ReplicaSlot) => boolean): void;
  takePublished(replicas: readonly PublishedReplica[]): void;
  /** @returns whether it made a difference */
  setHealth(replicaId: string, healthy: boolean): boolean;
  get(replicaId: string): ReplicaSlot | undefined;
  all(): readonly ReplicaSlot[];
  routable(): readonly ReplicaSlot[];
  /** The routable replica with the fewest leases; undefined when there is none outside `exclude`. */
  pick(exclude: ReadonlySet<string> | undefined): ReplicaSlot | undefined;
  /** null when the replica is not routable now. */
  lease(replicaId: string, cold: boolean): Lease | null;
  /** Leases held on all replicas, those included that have ended since. */
  leases(): number;
  /** By replica id, those with none left out. */
  leasesByReplica(): Readonly<Record<string, number>>;
}

type OwnSlot = { -readonly [Field in keyof ReplicaSlot]: ReplicaSlot[Field] };

/** @param onLeases called with the slot after each change of its leases */
export function createReplicaSet(onLeases: (slot: ReplicaSlot) => void): ReplicaSet {
  const slots = new Map<string, OwnSlot>();
  /** Gone, and still in use. */
  const ended = new Set<OwnSlot>();
  let published = new Map<string, PublishedReplica['state']>();
  let routable: readonly OwnSlot[] = [];
  let leases = 0;

  function refresh(): void {
    for (const slot of slots.values()) {
      slot.published = published.get(slot.replica.id) ?? null;
      const isWell = slot.observed.health === 'assumed' || slot.healthy === true;
      slot.routable = slot.published === 'ready' && slot.observed.state === 'running' && isWell;
    }
    routable = [...slots.values()].filter((slot) => slot.routable);
  }

  function takeObserved(observed: readonly ObservedReplica[], keep: (slot: ReplicaSlot) => boolean): void {
    const present = new Set<string>();
    for (const found of observed) {
      if (found.state === 'exited') continue;
      const { replica } = found;
      present.add(replica.id);
      const slot = slots.get(replica.id) ?? newSlot(found);
      slot.observed = found;
      slot.replica = replica;
      slots.set(replica.id, slot);
    }
    for (const [id, slot] of slots) {
      if (present.has(id) || keep(slot)) continue;
      slots.delete(id);
      slot.routable = false;
      if (slot.leases > 0) ended.add(slot);
    }
    refresh();
  }

  function change(slot: OwnSlot, by: 1 | -1): void {
    slot.leases += by;
    leases += by;
    if (slot.leases === 0) ended.delete(slot);
    onLeases(slot);
  }

  function lease(replicaId: string, cold: boolean): Lease | null {
    const slot = slots.get(replicaId);
    if (slot === undefined || !slot.routable) return null;
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
    takeObserved,
    takePublished(replicas) {
      published = new Map(replicas.map(({ id, state }) => [id, state]));
      refresh();
    },
    setHealth(replicaId, healthy) {
      const slot = slots.get(replicaId);
      if (slot === undefined || slot.healthy === healthy) return false;
      slot.healthy = healthy;
      refresh();
      return true;
    },
    get: (replicaId) => slots.get(replicaId),
    all: () => [...slots.values()],
    routable: () => routable,
    pick: (exclude) => fewest(routable, exclude),
    lease,
    leases: () => leases,
    leasesByReplica() {
      const used = [...slots.values(), ...ended].filter((slot) => slot.leases > 0);
      return Object.fromEntries(used.map((slot) => [slot.replica.id, slot.leases]));
    },
  };
}

function fewest(slots: readonly OwnSlot[], exclude: ReadonlySet<string> | undefined): OwnSlot | undefined {
  let best: OwnSlot | undefined;
  for (const slot of slots) {
    if (exclude?.has(slot.replica.id) === true) continue;
    if (best === undefined || slot.leases < best.leases) best = slot;
  }
  return best;
}

function newSlot(observed: ObservedReplica): OwnSlot {
  return { replica: observed.replica, leases: 0, routable: false, observed, published: null, healthy: null };
}
