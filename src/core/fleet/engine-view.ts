import type { Clock } from '#base/clock.ts';
import { type EngineKind, isTriedVllm } from '#core/catalog/catalog.ts';
import { type FailureCause, failureCause, type ReplicaDeployment } from '#core/fleet/drivers/drivers.ts';
import { type ReplicaBounds, replicaBoundsAt } from './policy.ts';
import type { Engine, EngineStatus, ReplicaSlot } from '#core/fleet/serving/serving.ts';
import type { PublishedEngine, PublishedReplica, StartTimeline } from '#core/fleet/store/store.ts';
import { downloadText } from './download-text.ts';
import { warningsOf } from './engine-warnings.ts';

/** An engine for pages and the operations API. */
export interface EngineView {
  readonly engineId: string;
  readonly status: EngineStatus;
  /**
   * `failed`: given up until a command or a changed file. `retrying`: the last start failed, and the engine is retried.
   */
  readonly phase: PublishedEngine['phase'] | 'retrying';
  /** Milliseconds since the Unix epoch at which the phase began. */
  readonly sinceMs: number;
  /** Why the engine does not run; null if it runs, or was only stopped because it was idle. */
  readonly cause: string | null;
  /** Details for operators only: may name hosts, devices and programs. */
  readonly causeDetail: string | null;
  /**
   * Milliseconds since the Unix epoch before which a failed engine is not restarted; the current time if that has
   * passed; null if the engine has not failed, or restarts only after a command or a changed file.
   */
  readonly retryAtMs: number | null;
  /** Consecutive failures; 0 if there are none. */
  readonly failures: number;
  /** True if an operator stopped the engine. */
  readonly held: boolean;
  /** Duration of the last successful start; null before the first. */
  readonly lastStartMs: number | null;
  /** Last few start times, newest last. */
  readonly startTimesMs: readonly number[];
  /** The newest start, also one that runs or has failed; null if none is known. */
  readonly lastStart: StartTimeline | null;
  /** Leases of this gateway. */
  readonly leases: number;
  /** Requests that wait at this gateway. */
  readonly waiting: number;
  readonly replicaIds: readonly string[];
  /** Kind in effect: of the file, or as found. */
  readonly kind: EngineKind;
  /** Sentences for operators about a running engine, such as a file that does not fit it; empty if there are none. */
  readonly warnings: readonly string[];
  /** Describes the download of weights that requests wait for; names nothing. null if there is none. */
  readonly download: string | null;
  /** As published by the leader, with this gateway's leases. */
  readonly replicas: readonly ReplicaView[];
  /** Counts replicas that answered their probes and generated nothing. */
  readonly wedges: number;
  /** Numbers of replicas that the file and its schedule allow now. */
  readonly bounds: ReplicaBounds;
  /** A changed file that is being checked, or was rejected, with the reason. */
  readonly rollout: PublishedEngine['rollout'];
}

export interface ReplicaVersion {
  /** Such as `0.32.0`; null if the engine does not report it. */
  readonly name: string | null;
  /** True if this version of Headgate was tried with that minor release. */
  readonly isTried: boolean;
}

export interface ReplicaView extends PublishedReplica {
  readonly leases: number;
  /** Result of this gateway's own probes; null before the first. */
  readonly healthy: boolean | null;
  /** Version of vLLM; null for other engines, and before the replica was asked. */
  readonly version: ReplicaVersion | null;
  /** Deployment of the engine's file that the replica is; null where the file lists none. */
  readonly deployment: DeploymentView | null;
}

export interface DeploymentView extends ReplicaDeployment {
  /** Name of the model at the server. */
  readonly upstreamModel: string;
}

const nothingPublished = {
  phase: 'stopped',
  cause: null,
  retryAtMs: null,
  failures: 0,
  wedges: 0,
  startTimesMs: [],
  replicas: [],
  rollout: null,
} as const;

/** Returns the failure of an external engine, as this gateway's probes and requests found it. */
function foreignCause(slots: readonly ReplicaSlot[], isSilent: boolean): FailureCause | null {
  const addressOf = ({ replica: { endpoint, deployment } }: ReplicaSlot): string => {
    const address = `${endpoint.host}:${endpoint.port}`;
    return deployment === undefined ? address : `${deployment.name} (${address})`;
  };
  if (isSilent) return failureCause('unreachable', `does not answer: ${slots.map(addressOf).join(', ')}`);
  const refusing = slots.find(({ refusal }) => refusal !== null);
  if (refusing?.refusal === null || refusing === undefined) return null;
  const { status, path } = refusing.refusal;
  const where = slots.length === 1 ? '' : `${addressOf(refusing)} `;
  return failureCause('probe_failed', `${where}answered ${status} to POST ${path}${adviceFor(status)}`);
}

/** Names the field of the engine's file that usually causes this status. */
function adviceFor(status: number): string {
  if (status === 401 || status === 403) return ': check api_key_env';
  return status === 404 ? ': check upstream_model and the path in url' : '';
}

function versionOf({ kind }: Engine, { identity }: ReplicaSlot): ReplicaVersion | null {
  if (kind !== 'vllm' || identity === undefined) return null;
  const name = identity?.version ?? null;
  return { name, isTried: name !== null && isTriedVllm(name) };
}

function deploymentOf({ replica: { deployment, upstreamModel, engineId } }: ReplicaSlot): DeploymentView | null {
  return deployment === undefined ? null : { ...deployment, upstreamModel: upstreamModel ?? engineId };
}

const textOf = ({ download }: PublishedReplica): string | null =>
  download === undefined ? null : downloadText(download);

function firstDownload(replicas: readonly PublishedReplica[]): string | null {
  return replicas.map(textOf).find((text) => text !== null) ?? null;
}

function replicaView(engine: Engine, replica: PublishedReplica): ReplicaView {
  const slot = engine.replicas.get(replica.id);
  return {
    ...replica,
    progress: replica.progress ?? textOf(replica),
    leases: slot?.leases ?? 0,
    healthy: slot?.healthy ?? null,
    version: slot === undefined ? null : versionOf(engine, slot),
    deployment: slot === undefined ? null : deploymentOf(slot),
  };
}

/** Returns this gateway's view of an engine, with its published state. */
export function viewOf(engine: Engine, clock: Clock): EngineView {
  const { replicas } = engine;
  const published = { lastStart: null, ...(engine.current ?? { ...nothingPublished, sinceMs: clock.now() }) };
  const { sinceMs, retryAtMs, startTimesMs, rollout, lastStart } = published;
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
    wedges: published.wedges ?? 0,
    held: phase === 'held',
    lastStartMs: startTimesMs.at(-1) ?? null,
    startTimesMs,
    lastStart,
    leases: replicas.leases(),
    waiting: engine.waiting(),
    kind: engine.kind,
    warnings: warningsOf(engine),
    replicaIds: replicas.all().map(({ replica }) => replica.id),
    download: firstDownload(published.replicas),
    replicas: published.replicas.map((replica) => replicaView(engine, replica)),
    bounds: replicaBoundsAt(engine.spec.definition, clock.now()),
    rollout,
  };
}
