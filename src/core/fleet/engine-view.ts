import type { Clock } from '#base/clock.ts';
import type { Engine, EngineStatus } from '#core/fleet/serving/serving.ts';
import type { PublishedEngine, PublishedReplica } from '#core/fleet/store/store.ts';

/** An engine for pages and the operations API. */
export interface EngineView {
  readonly engineId: string;
  readonly status: EngineStatus;
  readonly phase: PublishedEngine['phase'];
  /** Milliseconds since the Unix epoch at which the phase began. */
  readonly sinceMs: number;
  /** Why it does not run, in plain words; null when it does, or was only stopped for being idle. */
  readonly cause: string | null;
  /** More of it, for operators alone: may name hosts, devices and programs. */
  readonly causeDetail: string | null;
  /**
   * Milliseconds since the Unix epoch before which a failed engine is not started again, now when that has passed;
   * null: not before a command or a changed file, or it has not failed.
   */
  readonly retryAtMs: number | null;
  /** Stopped by an operator. */
  readonly held: boolean;
  /** How long the last successful start took; null before the first. */
  readonly lastStartMs: number | null;
  /** The last few, newest last. */
  readonly startTimesMs: readonly number[];
  /** Leases of this gateway. */
  readonly leases: number;
  /** Requests that wait at this gateway. */
  readonly waiting: number;
  readonly replicaIds: readonly string[];
  /** As published by whoever leads, with this gateway's leases. */
  readonly replicas: readonly ReplicaView[];
  /** A changed file that is being checked, or that was refused and why. */
  readonly rollout: PublishedEngine['rollout'];
}

export interface ReplicaView extends PublishedReplica {
  readonly leases: number;
  /** As this gateway's own probes found it; null before the first. */
  readonly healthy: boolean | null;
}

const nothingPublished = {
  phase: 'stopped',
  cause: null,
  retryAtMs: null,
  startTimesMs: [],
  replicas: [],
  rollout: null,
} as const;

/** An engine as this gateway has it, with what was published of it. */
export function viewOf(engine: Engine, clock: Clock): EngineView {
  const { replicas } = engine;
  const published = engine.current ?? { ...nothingPublished, sinceMs: clock.now() };
  const { phase, sinceMs, cause, retryAtMs, startTimesMs, rollout } = published;
  return {
    engineId: engine.spec.engineId,
    status: engine.status(),
    phase,
    sinceMs,
    cause: cause?.publicText ?? null,
    causeDetail: cause?.detail ?? null,
    retryAtMs: retryAtMs === null ? null : Math.max(retryAtMs, clock.now()),
    held: phase === 'held',
    lastStartMs: startTimesMs.at(-1) ?? null,
    startTimesMs,
    leases: replicas.leases(),
    waiting: engine.waiting(),
    replicaIds: replicas.all().map(({ replica }) => replica.id),
    replicas: published.replicas.map((replica) => {
      const slot = replicas.get(replica.id);
      return { ...replica, leases: slot?.leases ?? 0, healthy: slot?.healthy ?? null };
    }),
    rollout,
  };
}
