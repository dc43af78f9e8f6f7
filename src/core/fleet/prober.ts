import type { Clock } from '#base/clock.ts';
import { type Health, probeHealth } from './health.ts';
import type { ReplicaSlot } from './replica-set.ts';

/** Keeps knowing how the replicas are that this gateway sends to, or starts. */
export interface Prober {
  /** Something changed: looks again at who is to be probed. */
  kick(): void;
  /** Probes a replica now, because a connection to it could not be had. */
  suspect(slot: ReplicaSlot): void;
  close(): void;
}

export interface ProberOptions {
  readonly clock: Clock;
  readonly slots: () => Iterable<ReplicaSlot>;
  /** Starting replicas are only looked at by who leads. */
  readonly leads: () => boolean;
  readonly onHealth: (slot: ReplicaSlot, healthy: boolean) => void;
}

/** Quick engines are ready at once; slow ones are not worth asking more often. */
const earlyMs = 50;
const lateMs = 500;
const earlyForMs = 3000;
const readyMs = 5000;
/** A busy engine may miss one or two. */
const missesMax = 3;

interface Watch {
  readonly sinceMs: number;
  atMs: number;
  probing: boolean;
  misses: number;
}

export function createProber(options: ProberOptions): Prober {
  const { clock, slots, leads, onHealth } = options;
  const watches = new Map<string, Watch>();
  let timer: NodeJS.Timeout | null = null;
  let closed = false;

  function isWatched({ observed, published }: ReplicaSlot): boolean {
    if (observed.health === 'assumed' || observed.state !== 'running') return false;
    if (published === 'ready' || published === 'draining') return true;
    return leads() && published !== 'asleep' && published !== 'stopping' && published !== 'waking';
  }

  function kick(): void {
    if (closed) return;
    const nowMs = clock.monotonicMs();
    const seen = new Set<string>();
    let nextMs = Infinity;
    for (const slot of slots()) {
      if (!isWatched(slot)) continue;
      const { id } = slot.replica;
      seen.add(id);
      const watch = watches.get(id) ?? { sinceMs: nowMs, atMs: nowMs, probing: false, misses: 0 };
      watches.set(id, watch);
      if (watch.probing) continue;
      if (watch.atMs <= nowMs) void probe(slot, watch, false);
      else nextMs = Math.min(nextMs, watch.atMs);
    }
    for (const [id, watch] of watches) if (!seen.has(id) && !watch.probing) watches.delete(id);
    if (timer !== null) clearTimeout(timer);
    timer = nextMs === Infinity ? null : setTimeout(kick, Math.max(1, nextMs - nowMs));
  }

  /** @param isSuspect a single miss counts then */
  async function probe(slot: ReplicaSlot, watch: Watch, isSuspect: boolean): Promise<void> {
    watch.probing = true;
    const health = await probeHealth(slot.replica);
    watch.probing = false;
    if (closed) return;
    judge(slot, watch, health, isSuspect);
    const nowMs = clock.monotonicMs();
    const isEarly = slot.published !== 'ready' && nowMs - watch.sinceMs < earlyForMs;
    watch.atMs = nowMs + (slot.published === 'ready' && slot.healthy === true ? readyMs : isEarly ? earlyMs : lateMs);
    kick();
  }

  function judge(slot: ReplicaSlot, watch: Watch, health: Health, isSuspect: boolean): void {
    watch.misses = health === 'busy' ? watch.misses + 1 : 0;
    const isIll = health === 'ill' || (health === 'busy' && (isSuspect || watch.misses >= missesMax));
    if (health === 'well') onHealth(slot, true);
    else if (isIll) onHealth(slot, false);
  }

  return {
    kick,
    suspect(slot) {
      const { id } = slot.replica;
      const nowMs = clock.monotonicMs();
      const watch = watches.get(id) ?? { sinceMs: nowMs, atMs: nowMs, probing: false, misses: 0 };
      watches.set(id, watch);
      if (!watch.probing && !closed) void probe(slot, watch, true);
    },
    close() {
      closed = true;
      if (timer !== null) clearTimeout(timer);
    },
  };
}
