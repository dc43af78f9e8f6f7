import type { Clock } from '#base/clock.ts';
import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import type { Engine, EngineStatus, ReplicaSlot } from '#core/fleet/serving/serving.ts';
import type { PublishedEngine, PublishedReplica } from '#core/fleet/store/store.ts';

/** An engine for pages and the operations API. */
export interface EngineView {
  readonly engineId: string;
  readonly status: EngineStatus;
  /** `failed`: it is given up, until a command or a changed file. `retrying`: its last start failed, and it is started again. */
  readonly phase: PublishedEngine['phase'] | 'retrying';
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
  /** Failures in a row; 0 where no failure counts. */
  readonly failures: number;
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
  failures: 0,
  startTimesMs: [],
  replicas: [],
  rollout: null,
} as const;

/** What is wrong with servers that somebody else runs, as this gateway's probes and requests found them. */
function foreignCause(slots: readonly ReplicaSlot[], isSilent: boolean): FailureCause | null {
  const addressOf = ({ replica: { endpoint } }: ReplicaSlot): string => `${endpoint.host}:${endpoint.port}`;
  if (isSilent) return failureCause('unreachable', `does not answer: ${slots.map(addressOf).join(', ')}`);
  const refusing = slots.find(({ refusal }) => refusal !== null);
  if (refusing?.refusal === null || refusing === undefined) return null;
  const { status, path } = refusing.refusal;
  const where = slots.length === 1 ? '' : `${addressOf(refusing)} `;
  return failureCause('probe_failed', `${where}answered ${status} to POST ${path}${adviceFor(status)}`);
}

/** The field of the engine's file that such an answer is most often about. */
function adviceFor(status: number): string {
  if (status === 401 || status === 403) return ': see api_key_env';
  return status === 404 ? ': see upstream_model, and the path of url' : '';
}

/** An engine as this gateway has it, with what was published of it. */
export function viewOf(engine: Engine, clock: Clock): EngineView {
  const { replicas } = engine;
  const published = engine.current ?? { ...nothingPublished, sinceMs: clock.now() };
  const { sinceMs, retryAtMs, startTimesMs, rollout } = published;
  const isSilent = published.phase === 'ready' && engine.isSilent();
  const isRetried = published.phase === 'failed' && retryAtMs !== null;
  const phase = isSilent ? 'failed' : isRetried ? 'retrying' : published.phase;
  const cause = published.cause ?? foreignCause(replicas.all(), isSilent);
  return {
    engineId: engine.spec.engineId,
    status: engine.status(),
    phase,
    sinceMs,
    cause: cause?.publicText ?? null,
    causeDetail: cause?.detail ?? null,
    retryAtMs: retryAtMs === null ? null : Math.max(retryAtMs, clock.now()),
    failures: published.failures ?? 0,
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
