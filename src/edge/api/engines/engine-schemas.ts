import { z } from '@hono/zod-openapi';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { toUnixSeconds, unixSeconds, unixSecondsOrNull } from '#edge/api/shared/shared.ts';
import type { OperatedEngine, OperatedHost, OperatedOrphan, OperatedReplica } from './engine-operations.ts';

const milliseconds = z.int().openapi({ description: 'Milliseconds' });
const bytesOrNull = z.int().nullable();

const replicaSchema = z
  .object({
    id: z.string(),
    state: z.enum(['creating', 'starting', 'checking', 'ready', 'draining', 'stopping', 'asleep', 'waking']),
    since: unixSeconds,
    host: z.string(),
    gpus: z.array(z.string()).openapi({ description: 'Devices of the replica' }),
    progress: z.string().nullable().openapi({ example: 'pulling vllm/vllm-openai:v0.29.0 43 %' }),
    running: z.int().openapi({ description: 'Running requests of this gateway' }),
    healthy: z
      .boolean()
      .nullable()
      .openapi({ description: 'Result of the last probe by this gateway; null before the first one' }),
  })
  .openapi('EngineReplica');

export const engineSchema = z
  .object({
    id: z.string(),
    object: z.literal('engine'),
    name: z.string(),
    driver: z.enum(['process', 'docker', 'swarm', 'external']),
    file: z.string().openapi({ example: 'engines/llama.yaml' }),
    adapters: z.array(z.string()).openapi({ description: 'Ids of LoRA adapters on the same replicas' }),
    state: z.enum(['disabled', 'stopped', 'starting', 'ready', 'draining', 'retrying', 'failed', 'held']).openapi({
      description: '`retrying`: the last start failed and the gateway tries again; `failed`: it no longer tries',
    }),
    since: unixSecondsOrNull.openapi({ description: 'Start of this state; null if disabled' }),
    held: z.boolean().openapi({ description: 'Stopped by a command until start, restart or reset' }),
    last_failure: z
      .object({
        message: z.string(),
        detail: z.string().nullable(),
        retry_at: unixSecondsOrNull,
        failures: z.int().openapi({ description: 'Consecutive failures; after five the gateway stops trying' }),
      })
      .nullable()
      .openapi({ description: 'Last failure that still counts, and the time of the next automatic start' }),
    rollout: z
      .object({ state: z.enum(['checking', 'refused']), message: z.string() })
      .nullable()
      .openapi({
        description: 'Changed engine file that is not serving yet: its new replica is being checked or was rejected',
      }),
    replicas: z.array(replicaSchema),
    replicas_min: z.int(),
    replicas_max: z.int(),
    pinned: z.boolean(),
    hosts: z.array(z.string()).openapi({ description: 'Hosts of the replicas' }),
    gpus: z.array(z.string()).openapi({ description: 'Devices of the replicas' }),
    gpus_needed: z
      .object({ count: z.int(), memory_bytes: bytesOrNull, profile: z.string().nullable() })
      .nullable()
      .openapi({ description: 'GPUs per replica; null is none' }),
    memory_needed_bytes: bytesOrNull.openapi({
      description: 'Host memory per replica; null if the file does not set it',
    }),
    group: z
      .object({ name: z.string(), swap: z.boolean(), exclusive: z.boolean(), persistent: z.boolean() })
      .nullable()
      .openapi({ description: 'Group of processes that exclude each other' }),
    queue: z.object({ running: z.int(), waiting: z.int() }).openapi({ description: 'Requests of this gateway' }),
    start_times_ms: z
      .array(milliseconds)
      .openapi({ description: 'Recent start times, newest last: from the start request to the first request served' }),
  })
  .openapi('Engine');

export type EngineAnswer = z.infer<typeof engineSchema>;

function toReplica(replica: OperatedReplica): EngineAnswer['replicas'][number] {
  const { id, state, sinceMs, host, gpuIds, progress, leases, healthy } = replica;
  return { id, state, since: toUnixSeconds(sinceMs), host, gpus: [...gpuIds], progress, running: leases, healthy };
}

function toFailure({ cause, causeDetail, retryAtMs, failures }: OperatedEngine): EngineAnswer['last_failure'] {
  if (cause === null) return null;
  const retryAt = retryAtMs === null ? null : Math.ceil(retryAtMs / 1000);
  return { message: cause, detail: causeDetail, retry_at: retryAt, failures };
}

type Needs = Pick<EngineAnswer, 'gpus_needed' | 'memory_needed_bytes' | 'group'>;
type Scale = Pick<EngineAnswer, 'replicas_min' | 'replicas_max' | 'pinned'> & Needs;

const nothingNeeded: Needs = { gpus_needed: null, memory_needed_bytes: null, group: null };

function toScale({ driver }: EngineDefinition): Scale {
  if (driver.type === 'external') {
    const { length } = driver.urls;
    return { replicas_min: length, replicas_max: length, pinned: true, ...nothingNeeded };
  }
  const { replicas, gpus, pinned } = driver;
  const needed = gpus === null ? null : { count: gpus.count, memory_bytes: gpus.memoryBytesMin, profile: gpus.profile };
  const scale = { replicas_min: replicas.min, replicas_max: replicas.max, pinned, ...nothingNeeded };
  if (driver.type !== 'process') return { ...scale, gpus_needed: needed };
  return { ...scale, gpus_needed: needed, memory_needed_bytes: driver.memoryBytes, group: driver.group };
}

type Condition = Pick<
  EngineAnswer,
  'state' | 'since' | 'held' | 'last_failure' | 'rollout' | 'queue' | 'start_times_ms'
>;

const disabled: Condition = {
  state: 'disabled',
  since: null,
  held: false,
  last_failure: null,
  rollout: null,
  queue: { running: 0, waiting: 0 },
  start_times_ms: [],
};

function toCondition(engine: OperatedEngine): Condition {
  const { phase, sinceMs, rollout, leases, waiting, startTimesMs } = engine;
  return {
    state: phase,
    since: toUnixSeconds(sinceMs),
    held: phase === 'held',
    last_failure: toFailure(engine),
    rollout: rollout === null ? null : { state: rollout.state, message: rollout.text },
    queue: { running: leases, waiting },
    start_times_ms: startTimesMs.map(Math.round),
  };
}

/** @param engine null if the engine is disabled */
export function toEngineAnswer(definition: EngineDefinition, engine: OperatedEngine | null): EngineAnswer {
  const replicas = (engine?.replicas ?? []).map(toReplica);
  return {
    id: definition.id,
    object: 'engine',
    name: definition.name,
    driver: definition.driver.type,
    file: definition.file,
    adapters: definition.lora.map((adapter) => adapter.id),
    ...(engine === null ? disabled : toCondition(engine)),
    replicas,
    ...toScale(definition),
    hosts: [...new Set(replicas.map(({ host }) => host))],
    gpus: [...new Set(replicas.flatMap(({ gpus }) => gpus))],
  };
}

export const hostSchema = z
  .object({
    name: z.string(),
    object: z.literal('host'),
    reachable: z.boolean(),
    trouble: z.string().nullable().openapi({ description: 'Why the host is unreachable, or what is unknown about it' }),
    pools: z.array(z.string()),
    gpus: z.array(
      z.object({
        id: z.string(),
        memory_bytes: bytesOrNull,
        profile: z.string().nullable(),
        used_by: z
          .object({ engine: z.string().nullable(), replica: z.string().nullable(), stranger: z.string().nullable() })
          .nullable()
          .openapi({ description: 'Replica, or name of an entry of `strangers`; null is free' }),
      }),
    ),
    memory_bytes: bytesOrNull.openapi({ description: 'Memory for all processes; null if none run' }),
    replicas: z.array(
      z.object({ engine: z.string(), replica: z.string(), state: z.string(), memory_bytes: bytesOrNull }),
    ),
    strangers: z
      .array(
        z.object({
          name: z.string(),
          engine: z.string().nullable(),
          gpus: z.array(z.string()),
          ended_by: z.string().openapi({ example: 'docker rm --force headgate-old-1' }),
        }),
      )
      .openapi({
        description:
          'Orphaned containers and processes without an engine file. They keep their devices until ' +
          'the file returns, or until someone runs `ended_by` on that host',
      }),
  })
  .openapi('Host');

export interface HostContents {
  readonly definitions: readonly EngineDefinition[];
  readonly engines: readonly OperatedEngine[];
  readonly orphans: readonly OperatedOrphan[];
}

type HostAnswer = z.infer<typeof hostSchema>;

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
