import type { EngineDefinition, ScheduleEntry } from '#core/catalog/catalog.ts';
import { type EngineSamples, fileBounds, type ReplicaBounds, type StartTimeline } from '#core/fleet/fleet.ts';
import { toUnixSeconds } from '#edge/api/shared/shared.ts';
import type { EngineAnswer } from '#edge/contract/engines.ts';
import type { HostAnswer } from '#edge/contract/hosts.ts';
import { toNow } from './engine-history.ts';
import type { OperatedEngine, OperatedHost, OperatedOrphan, OperatedReplica } from './engine-operations.ts';

function toReplica(replica: OperatedReplica): EngineAnswer['replicas'][number] {
  const { id, state, sinceMs, host, gpuIds, progress, leases, healthy } = replica;
  const deployment = toDeployment(replica);
  const version = replica.version === null ? null : { name: replica.version.name, tried: replica.version.isTried };
  const since = toUnixSeconds(sinceMs);
  return { id, state, since, host, gpus: [...gpuIds], progress, running: leases, healthy, version, deployment };
}

function toDeployment({ deployment }: OperatedReplica): EngineAnswer['replicas'][number]['deployment'] {
  if (deployment === null) return null;
  const { name, upstreamModel, weight } = deployment;
  return { name, upstream_model: upstreamModel, weight };
}

function toFailure({ cause, causeDetail, retryAtMs, failures }: OperatedEngine): EngineAnswer['last_failure'] {
  if (cause === null) return null;
  const retryAt = retryAtMs === null ? null : Math.ceil(retryAtMs / 1000);
  return { message: cause, detail: causeDetail, retry_at: retryAt, failures };
}

type Needs = Pick<EngineAnswer, 'gpus_needed' | 'memory_needed_bytes' | 'group'>;
type Scale = Pick<EngineAnswer, 'pinned'> & Needs;

const nothingNeeded: Needs = { gpus_needed: null, memory_needed_bytes: null, group: null };

function toScale({ driver }: EngineDefinition): Scale {
  if (driver.type === 'external') return { pinned: true, ...nothingNeeded };
  const { gpus, pinned } = driver;
  const needed = gpus === null ? null : { count: gpus.count, memory_bytes: gpus.memoryBytesMin, profile: gpus.profile };
  const scale = { pinned, ...nothingNeeded };
  if (driver.type !== 'process') return { ...scale, gpus_needed: needed };
  return { ...scale, gpus_needed: needed, memory_needed_bytes: driver.memoryBytes, group: driver.group };
}

type Condition = Pick<
  EngineAnswer,
  'state' | 'since' | 'held' | 'last_failure' | 'rollout' | 'queue' | 'start_times_ms' | 'last_start'
>;

const disabled: Condition = {
  state: 'disabled',
  since: null,
  held: false,
  last_failure: null,
  rollout: null,
  queue: { running: 0, waiting: 0 },
  start_times_ms: [],
  last_start: null,
};

function toCondition(engine: OperatedEngine): Condition {
  const { phase, sinceMs, rollout, leases, waiting, startTimesMs, lastStart } = engine;
  return {
    state: phase,
    since: toUnixSeconds(sinceMs),
    held: phase === 'held',
    last_failure: toFailure(engine),
    rollout: rollout === null ? null : { state: rollout.state, message: rollout.text },
    queue: { running: leases, waiting },
    start_times_ms: startTimesMs.map(Math.round),
    last_start: lastStart === null ? null : toStart(lastStart),
  };
}

function toStart({ replicaId, steps, cause }: StartTimeline): NonNullable<EngineAnswer['last_start']> {
  const [first, last] = [steps[0]?.atMs ?? 0, steps.at(-1)?.atMs ?? 0];
  return {
    replica: replicaId,
    steps: steps.map(({ phase, atMs }, index) => {
      const next = steps[index + 1]?.atMs;
      return { phase, at: toUnixSeconds(atMs), duration_ms: next === undefined ? null : Math.max(0, next - atMs) };
    }),
    total_ms: Math.max(0, last - first),
    failure: cause === null ? null : { message: cause.publicText, detail: cause.detail ?? null },
  };
}

function toSchedule(schedule: ReplicaBounds['schedule']): EngineAnswer['schedule'] {
  if (schedule === null) return null;
  const { entry, sinceMs, next, untilMs } = schedule;
  return {
    entry: toEntry(entry),
    since: entry === null ? null : toUnixSeconds(sinceMs),
    next: toEntry(next),
    next_at: next === null ? null : toUnixSeconds(untilMs),
  };
}

function toEntry(entry: ScheduleEntry | null) {
  if (entry === null) return null;
  const { cron, timezone, min, max } = entry;
  return { cron, timezone, min_replicas: min, max_replicas: max };
}

/** @param engine null if the engine is disabled */
export function toEngineAnswer(
  definition: EngineDefinition,
  engine: OperatedEngine | null,
  samples: EngineSamples,
): EngineAnswer {
  const replicas = (engine?.replicas ?? []).map(toReplica);
  // The schedule of a disabled engine changes nothing.
  const { min, max, schedule } = engine?.bounds ?? fileBounds(definition);
  return {
    id: definition.id,
    object: 'engine',
    name: definition.name,
    driver: definition.driver.type,
    kind: engine?.kind ?? definition.kind,
    warnings: [...(engine?.warnings ?? [])],
    file: definition.file,
    adapters: definition.lora.map((adapter) => adapter.id),
    ...(engine === null ? disabled : toCondition(engine)),
    replicas,
    replicas_min: min,
    replicas_max: max,
    schedule: toSchedule(schedule),
    ...toScale(definition),
    ...toNow(samples, replicas),
    hosts: [...new Set(replicas.map(({ host }) => host))],
    gpus: [...new Set(replicas.flatMap(({ gpus }) => gpus))],
  };
}

export interface HostContents {
  readonly definitions: readonly EngineDefinition[];
  readonly engines: readonly OperatedEngine[];
  readonly orphans: readonly OperatedOrphan[];
}

/** Returns a host with everything that runs there. A device is in use in every state of its replica. */
export function toHostAnswer(host: OperatedHost, { definitions, engines, orphans }: HostContents): HostAnswer {
  const here = engines.flatMap(({ engineId, replicas }) =>
    replicas.filter((replica) => replica.host === host.name).map((replica) => ({ engineId, replica })),
  );
  const unknown = orphans.filter((orphan) => orphan.host === host.name);
  const userOf = (gpuId: string): HostAnswer['gpus'][number]['used_by'] => {
    const user = here.find(({ replica }) => replica.gpuIds.includes(gpuId));
    if (user !== undefined) return { engine: user.engineId, replica: user.replica.id, stranger: null };
    const orphan = unknown.find(({ gpuIds }) => gpuIds.includes(gpuId));
    return orphan === undefined ? null : { engine: orphan.engineId, replica: null, stranger: orphan.name };
  };
  const memoryOf = (engineId: string): number | null => {
    const driver = definitions.find(({ id }) => id === engineId)?.driver;
    return driver?.type === 'process' ? driver.memoryBytes : null;
  };
  return {
    name: host.name,
    object: 'host',
    reachable: host.reachable,
    trouble: host.trouble ?? null,
    pools: [...host.pools],
    gpus: host.gpus.map(({ id, memoryBytes, profile }) => {
      return { id, memory_bytes: memoryBytes, profile, used_by: userOf(id) };
    }),
    memory_bytes: host.memoryBytes ?? null,
    replicas: here.map(({ engineId, replica: { id, state } }) => {
      return { engine: engineId, replica: id, state, memory_bytes: memoryOf(engineId) };
    }),
    strangers: unknown.map(({ name, engineId, gpuIds, endedBy }) => {
      return { name, engine: engineId, gpus: [...gpuIds], ended_by: endedBy };
    }),
  };
}
