import type { Clock } from '#base/clock.ts';
import type { EngineKind } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';
import type { ReplicaSlot } from './replica-set.ts';
import { askEngine } from './engine-http.ts';

const probeTimeoutMs = 2000;

/**
 * Result of a probe. `busy`: the engine was reached and did not answer in time, which under load means little if it
 * happens once.
 */
type Health = 'well' | 'busy' | 'ill';

/** Requests GET /health once. */
async function probeHealth(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica.endpoint, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  if (answer === 'refused') return 'ill';
  return isHealthy(answer.status, replica.kind) ? 'well' : 'ill';
}

/**
 * Probes that this replica itself answers at its address. GET /health requires no key, but GET /v1/models does: another
 * replica, started at the address of a removed container, rejects this replica's key.
 */
async function probeOwn(replica: Replica): Promise<Health> {
  const health = await probeHealth(replica);
  if (health !== 'well') return health;
  const answer = await askEngine(replica, { method: 'GET', path: '/v1/models', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status === 401 ? 'ill' : 'well';
}

/**
 * Probes an external server. Many of these servers have no GET /health, or require a key for it. A server is ill only
 * if it is unreachable or reports an error of its own.
 */
async function probeServer(replica: Replica): Promise<Health> {
  const answer = await askEngine(replica, { method: 'GET', path: '/health', timeoutMs: probeTimeoutMs });
  if (answer === 'silent') return 'busy';
  return answer === 'refused' || answer.status >= 500 ? 'ill' : 'well';
}

/** vLLM answers 200 once its model is loaded; another engine without this route answers 404 once it listens. */
function isHealthy(status: number, kind: EngineKind): boolean {
  return status === 200 || (kind === 'openai' && status === 404);
}

/** Probes the health of the replicas that this gateway sends requests to, or starts. */
export interface Prober {
  /** Reschedules all probes, after a change of the replicas. */
  kick(): void;
  /** Probes a replica now, because a connection to it failed. */
  suspect(slot: ReplicaSlot): void;
  close(): void;
}

export interface ProberOptions {
  readonly clock: Clock;
  readonly slots: () => Iterable<ReplicaSlot>;
  /** True while this gateway leads: only the leader probes replicas that are starting. */
  readonly leads: () => boolean;
  readonly onHealth: (slot: ReplicaSlot, healthy: boolean) => void;
  /** Called when a suspected replica answered as itself and healthy. */
  readonly onCleared: (slot: ReplicaSlot) => void;
}

/** Probe intervals while a replica starts: quick engines are ready at once, slow ones need fewer probes. */
const earlyMs = 50;
const lateMs = 500;
const earlyForMs = 3000;
const readyMs = 5000;
/** Missed probes in a row that make a replica ill: a busy engine may miss one or two. */
const missesMax = 3;

interface Watch {
  readonly sinceMs: number;
  atMs: number;
  probing: boolean;
  /** True if the replica was suspected since its last probe began. */
  suspected: boolean;
  misses: number;
}

export function createProber(options: ProberOptions): Prober {
  return new SlotProber(options);
}

function probeOf({ observed, replica }: ReplicaSlot, isSuspect: boolean): Promise<Health> {
  if (observed.health === 'watched') return probeServer(replica);
  return isSuspect ? probeOwn(replica) : probeHealth(replica);
}

class SlotProber implements Prober {
  readonly #options: ProberOptions;
  readonly #watches = new Map<string, Watch>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: ProberOptions) {
    this.#options = options;
  }

  kick(): void {
    if (this.#closed) return;
    const nowMs = this.#options.clock.monotonicMs();
    const seen = new Set<string>();
    let nextMs = Infinity;
    for (const slot of this.#options.slots()) {
      if (!this.#isWatched(slot)) continue;
      const { id } = slot.replica;
      seen.add(id);
      const watch = this.#watchOf(id);
      if (watch.probing) continue;
      if (watch.atMs <= nowMs) void this.#probe(slot, watch);
      else nextMs = Math.min(nextMs, watch.atMs);
    }
    for (const [id, watch] of this.#watches) if (!seen.has(id) && !watch.probing) this.#watches.delete(id);
    clearTimeout(this.#timer);
    if (nextMs !== Infinity) this.#timer = setTimeout(() => this.kick(), Math.max(1, nextMs - nowMs));
  }

  suspect(slot: ReplicaSlot): void {
    if (this.#closed) return;
    const watch = this.#watchOf(slot.replica.id);
    watch.suspected = true;
    if (!watch.probing) void this.#probe(slot, watch);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #isWatched({ observed, published }: ReplicaSlot): boolean {
    if (observed.state !== 'running') return false;
    if (published === 'ready' || published === 'draining') return true;
    return this.#options.leads() && published !== 'asleep' && published !== 'stopping' && published !== 'waking';
  }

  #watchOf(id: string): Watch {
    const nowMs = this.#options.clock.monotonicMs();
    const known = this.#watches.get(id);
    const watch = known ?? { sinceMs: nowMs, atMs: nowMs, probing: false, suspected: false, misses: 0 };
    this.#watches.set(id, watch);
    return watch;
  }

  async #probe(slot: ReplicaSlot, watch: Watch): Promise<void> {
    const isSuspect = watch.suspected;
    watch.suspected = false;
    watch.probing = true;
    const health = await probeOf(slot, isSuspect);
    watch.probing = false;
    if (this.#closed) return;
    this.#judge(slot, watch, health, isSuspect);
    // A new suspicion may be younger than this answer.
    if (watch.suspected) return this.#probe(slot, watch);
    if (isSuspect && health === 'well') this.#options.onCleared(slot);
    const nowMs = this.#options.clock.monotonicMs();
    const isEarly = slot.published !== 'ready' && nowMs - watch.sinceMs < earlyForMs;
    watch.atMs = nowMs + (slot.published === 'ready' && slot.healthy === true ? readyMs : isEarly ? earlyMs : lateMs);
    this.kick();
  }

  /** @param isSuspect a single miss makes a suspected replica ill */
  #judge(slot: ReplicaSlot, watch: Watch, health: Health, isSuspect: boolean): void {
    watch.misses = health === 'busy' ? watch.misses + 1 : 0;
    const isIll = health === 'ill' || (health === 'busy' && (isSuspect || watch.misses >= missesMax));
    if (health === 'well') this.#options.onHealth(slot, true);
    else if (isIll) this.#options.onHealth(slot, false);
  }
}
