import { createSlotList, type SlotList, type Slotted } from '#base/queues/queues.ts';
import type { ObservedReplica, Replica } from '#core/fleet/drivers/drivers.ts';
import type { PublishedReplica } from '#core/fleet/store/store.ts';
import { type EngineIdentity, kindOf } from './engine-identity.ts';
import type { Lease } from './lease.ts';

/**
 * One gateway's view of a replica: its observed and published state, the result of this gateway's probes, its leases.
 */
export interface ReplicaSlot {
  readonly replica: Replica;
  readonly leases: number;
  /** True if the replica may get requests. */
  readonly routable: boolean;
  readonly observed: ObservedReplica;
  readonly published: PublishedReplica['state'] | null;
  /** null before the first probe. */
  readonly healthy: boolean | null;
  /** How an external server rejected the last finished request; null if it answered. */
  readonly refusal: EngineRefusal | null;
  /** The engine's own report; undefined before it was asked, null if it did not answer. */
  readonly identity: EngineIdentity | null | undefined;
  /** When the replica was last suspected and then found healthy, in monotonic milliseconds; null if never. */
  readonly clearedAtMs: number | null;
}

/** An engine's answer that is not the request's fault, such as 404 for a model that the engine does not have. */
export interface EngineRefusal {
  /** HTTP status. */
  readonly status: number;
  readonly path: string;
}

export interface ReplicaSet {
  /** Makes the set equal to the driver's findings. Replicas that `keep` accepts stay although they were not found. */
  takeObserved(observed: readonly ObservedReplica[], keep: (slot: ReplicaSlot) => boolean): void;
  takePublished(replicas: readonly PublishedReplica[]): void;
  /** @returns true if the health changed */
  setHealth(replicaId: string, healthy: boolean): boolean;
  setCleared(replicaId: string, nowMs: number): void;
  /** Records how the last request ended: rejected, or answered (null). */
  setRefusal(replicaId: string, refusal: EngineRefusal | null): void;
  /** Records the engine's own report. An answer stays in effect while the engine does not answer again. */
  setIdentity(replicaId: string, identity: EngineIdentity | null): void;
  /** Resets the health of external servers to unknown until the next probe. */
  forgetHealth(): void;
  get(replicaId: string): ReplicaSlot | undefined;
  all(): readonly ReplicaSlot[];
  routable(): readonly ReplicaSlot[];
  /** Returns the routable replica with the fewest leases; undefined if there is none outside `exclude`. */
  pick(exclude: ReadonlySet<string> | undefined): ReplicaSlot | undefined;
  /** Returns null if the replica is not routable now. */
  lease(replicaId: string, cold: boolean): Lease | null;
  /** Number of leases on all replicas, including replicas that have ended. */
  leases(): number;
  /** Leases by replica id, without replicas that have none. */
  leasesByReplica(): Readonly<Record<string, number>>;
  /** Tokens of the longest prompt that each replica still reads, by replica id; only long ones. */
  longPrompts(): Readonly<Record<string, number>>;
}

type OwnSlot = { -readonly [Field in keyof ReplicaSlot]: ReplicaSlot[Field] } & {
  readonly holders: SlotList<OwnLease>;
  /** True once the replica was published as wedged. */
  wedged: boolean;
};

/** A shorter prompt is read within seconds. */
const longPromptTokens = 1000;

export interface ReplicaSetListeners {
  /** Called with the slot after each change of its leases. */
  readonly onLeases: (slot: ReplicaSlot) => void;
  /** Called when a replica that was running and healthy no longer is. */
  readonly onLost: (replica: Replica) => void;
}

export function createReplicaSet(listeners: ReplicaSetListeners): ReplicaSet {
  return new Slots(listeners);
}

/**
 * A class, because V8 gives every literal with a getter a shape of its own, which keeps the object in memory until a full
 * collection.
 */
class OwnLease implements Lease, Slotted {
  slot = -1;
  promptTokens = 0;
  onWedged: (() => void) | null = null;
  readonly replica: Replica;
  readonly cold: boolean;
  readonly readySinceMs: number | null;
  readonly #on: OwnSlot;
  readonly #onReleased: () => void;

  constructor(on: OwnSlot, cold: boolean, readySinceMs: number | null, onReleased: () => void) {
    this.replica = on.replica;
    this.cold = cold;
    this.readySinceMs = readySinceMs;
    this.#on = on;
    this.#onReleased = onReleased;
  }

  get isWedged(): boolean {
    return this.#on.wedged;
  }

  describe(promptTokens: number, onWedged?: () => void): void {
    this.promptTokens = promptTokens;
    this.onWedged = onWedged ?? this.onWedged;
    // The wedge was found between the lease and its use.
    if (this.isWedged) onWedged?.();
  }

  release(): void {
    if (this.slot === -1) return;
    this.#on.holders.remove(this);
    this.#onReleased();
  }
}

class Slots implements ReplicaSet {
  readonly #slots = new Map<string, OwnSlot>();
  /** Replicas that have ended and still have leases. */
  readonly #ended = new Set<OwnSlot>();
  readonly #listeners: ReplicaSetListeners;
  /** Replicas that run and are healthy. */
  #sound: ReadonlySet<OwnSlot> = new Set();
  #published: ReadonlyMap<string, PublishedReplica> = new Map();
  #routable: readonly OwnSlot[] = [];
  #leases = 0;

  constructor(listeners: ReplicaSetListeners) {
    this.#listeners = listeners;
  }

  takeObserved(observed: readonly ObservedReplica[], keep: (slot: ReplicaSlot) => boolean): void {
    const present = new Set<string>();
    for (const found of observed) {
      if (found.state === 'exited') continue;
      const { replica } = found;
      present.add(replica.id);
      // When a host returns, its replicas keep their leases.
      const former = [...this.#ended].find((slot) => slot.replica.id === replica.id);
      const slot = this.#slots.get(replica.id) ?? former ?? newSlot(found);
      if (former !== undefined) this.#ended.delete(former);
      // Both applied to another address, name or key.
      if (slot.observed.specHash !== found.specHash) Object.assign(slot, { refusal: null, identity: undefined });
      slot.observed = found;
      this.#slots.set(replica.id, slot);
    }
    for (const [id, slot] of this.#slots) {
      if (present.has(id) || keep(slot)) continue;
      this.#slots.delete(id);
      slot.routable = false;
      if (slot.leases > 0) this.#ended.add(slot);
    }
    this.#refresh();
  }

  takePublished(replicas: readonly PublishedReplica[]): void {
    this.#published = new Map(replicas.map((replica) => [replica.id, replica]));
    this.#refresh();
    for (const slot of this.#slots.values()) this.#noteWedge(slot);
  }

  setHealth(replicaId: string, healthy: boolean): boolean {
    const slot = this.#slots.get(replicaId);
    if (slot === undefined || slot.healthy === healthy) return false;
    slot.healthy = healthy;
    this.#refresh();
    return true;
  }

  setCleared(replicaId: string, nowMs: number): void {
    const slot = this.#slots.get(replicaId);
    if (slot !== undefined) slot.clearedAtMs = nowMs;
  }

  setRefusal(replicaId: string, refusal: EngineRefusal | null): void {
    const slot = this.#slots.get(replicaId);
    if (slot !== undefined) slot.refusal = refusal;
  }

  setIdentity(replicaId: string, identity: EngineIdentity | null): void {
    const slot = this.#slots.get(replicaId);
    if (slot === undefined) return;
    slot.identity = identity ?? slot.identity ?? null;
    this.#refresh();
  }

  forgetHealth(): void {
    for (const slot of this.#slots.values()) if (slot.observed.health === 'watched') slot.healthy = null;
    this.#refresh();
  }

  get(replicaId: string): ReplicaSlot | undefined {
    return this.#slots.get(replicaId);
  }

  all(): readonly ReplicaSlot[] {
    return [...this.#slots.values()];
  }

  routable(): readonly ReplicaSlot[] {
    return this.#routable;
  }

  pick(exclude: ReadonlySet<string> | undefined): ReplicaSlot | undefined {
    return fewest(this.#routable, exclude);
  }

  lease(replicaId: string, cold: boolean): Lease | null {
    const slot = this.#slots.get(replicaId);
    if (slot === undefined || !slot.routable) return null;
    const lease = new OwnLease(slot, cold, this.#published.get(slot.replica.id)?.sinceMs ?? null, () =>
      this.#change(slot, -1),
    );
    slot.holders.add(lease);
    this.#change(slot, 1);
    return lease;
  }

  leases(): number {
    return this.#leases;
  }

  leasesByReplica(): Readonly<Record<string, number>> {
    const used = [...this.#slots.values(), ...this.#ended].filter(({ leases }) => leases > 0);
    return Object.fromEntries(used.map(({ replica, leases }) => [replica.id, leases]));
  }

  longPrompts(): Readonly<Record<string, number>> {
    const longest = [...this.#slots.values()].map(({ replica, holders }) => {
      let tokens = 0;
      holders.forEach(({ promptTokens }) => {
        tokens = Math.max(tokens, promptTokens);
      });
      return [replica.id, tokens] as const;
    });
    return Object.fromEntries(longest.filter(([, tokens]) => tokens >= longPromptTokens));
  }

  /** Notifies the requests on a wedged replica once. An external replica may generate again, and become wedged again. */
  #noteWedge(slot: OwnSlot): void {
    const isWedged = this.#published.get(slot.replica.id)?.wedged === true;
    const isNew = isWedged && !slot.wedged;
    slot.wedged = isWedged;
    if (isNew) slot.holders.forEach(({ onWedged }) => onWedged?.());
  }

  #refresh(): void {
    const sound = new Set<OwnSlot>();
    const isAnyWell = [...this.#slots.values()].some(({ healthy }) => healthy !== false);
    for (const slot of this.#slots.values()) {
      const published = this.#published.get(slot.replica.id);
      slot.published = published?.state ?? null;
      slot.replica = asFound(slot, published?.abortFault ?? null);
      if (isWell(slot, isAnyWell) && slot.observed.state === 'running') sound.add(slot);
      slot.routable = slot.published === 'ready' && sound.has(slot) && !awaitsKind(slot);
    }
    this.#routable = [...this.#slots.values()].filter(({ routable }) => routable);
    const former = this.#sound;
    this.#sound = sound;
    for (const slot of former) if (!sound.has(slot)) this.#listeners.onLost(slot.replica);
  }

  #change(slot: OwnSlot, by: 1 | -1): void {
    slot.leases += by;
    this.#leases += by;
    if (slot.leases === 0) this.#ended.delete(slot);
    this.#listeners.onLeases(slot);
  }
}

/** True if the replica counts as healthy. A silent external server is better than none, and may answer again. */
function isWell({ observed, healthy }: ReplicaSlot, isAnyWell: boolean): boolean {
  if (observed.health === 'probe') return healthy === true;
  return healthy !== false || !isAnyWell;
}

/** Returns the replica with what was found out about its engine: its kind, if the file names none, and its aborts. */
function asFound({ observed, identity }: ReplicaSlot, abortFault: string | null): Replica {
  const { replica, findsKind } = observed;
  const kind = findsKind === true && identity ? kindOf(identity) : replica.kind;
  return kind === replica.kind && abortFault === null ? replica : { ...replica, kind, abortFault };
}

/** True for an external engine of unknown kind that was not asked yet: the kind decides what its requests contain. */
function awaitsKind({ observed, identity }: ReplicaSlot): boolean {
  return observed.findsKind === true && identity === undefined;
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
  return {
    replica: observed.replica,
    leases: 0,
    routable: false,
    observed,
    published: null,
    healthy: null,
    refusal: null,
    identity: undefined,
    clearedAtMs: null,
    holders: createSlotList(),
    wedged: false,
  };
}
