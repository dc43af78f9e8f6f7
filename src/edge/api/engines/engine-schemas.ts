import { z } from '@hono/zod-openapi';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { toUnixSeconds, unixSeconds, unixSecondsOrNull } from '#edge/api/shared/shared.ts';
import type { OperatedEngine, OperatedHost, OperatedOrphan, OperatedReplica } from './engine-operations.ts';

const milliseconds = z.int().openapi({ description: 'Milliseconds' });
const bytesOrNull = z.int().nullable();

const replicaSchema = z
  .object({
    id: z.string(),
    state: z.enum(['creating', 'starting', 'checking', 'ready', 'draining', 'stopping', 'asleep', 'waking']).openapi({
      description:
        '`starting`: the model loads. `checking`: the canary runs. `draining`: running requests finish, and no new ' +
        'ones start. `asleep`: the GPU memory is released',
    }),
    since: unixSeconds.openapi({ description: 'Start of this state in Unix seconds' }),
    host: z.string().openapi({ description: 'Name of the host' }),
    gpus: z.array(z.string()).openapi({ description: 'Ids of the GPUs of the replica' }),
    progress: z.string().nullable().openapi({
      example: 'pulling vllm/vllm-openai:v0.29.0 43 %',
      description: 'Progress of the start; null if there is none to report',
    }),
    running: z.int().openapi({ description: 'Number of running requests of this gateway' }),
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
    driver: z
      .enum(['process', 'docker', 'swarm', 'external'])
      .openapi({ description: '`external`: Headgate does not start or stop the engine' }),
    file: z.string().openapi({ example: 'engines/llama.yaml', description: 'Path of the engine file' }),
    adapters: z.array(z.string()).openapi({ description: 'Ids of LoRA adapters on the same replicas' }),
    state: z.enum(['disabled', 'stopped', 'starting', 'ready', 'draining', 'retrying', 'failed', 'held']).openapi({
      description:
        '`retrying`: the last start failed and the gateway tries again. `failed`: it no longer tries. `held`: ' +
        'stopped by a command',
    }),
    since: unixSecondsOrNull.openapi({ description: 'Start of this state in Unix seconds; null if disabled' }),
    held: z.boolean().openapi({ description: 'Stopped by a command until start, restart or reset' }),
    last_failure: z
      .object({
        message: z.string(),
        detail: z.string().nullable().openapi({ description: 'Details, such as lines of the engine log' }),
        retry_at: unixSecondsOrNull.openapi({
          description: 'Next automatic start in Unix seconds; null if only a request or a command starts the engine',
        }),
        failures: z.int().openapi({ description: 'Consecutive failures; after five the gateway stops trying' }),
      })
      .nullable()
      .openapi({
        description: 'Why the engine does not run; null if it runs, or was only stopped because it was idle',
      }),
    rollout: z
      .object({ state: z.enum(['checking', 'refused']), message: z.string() })
      .nullable()
      .openapi({
        description:
          'Rollout of a changed engine file: its new replica is being checked, or was rejected (`refused`); null if ' +
          'none',
      }),
    replicas: z.array(replicaSchema),
    replicas_min: z.int().openapi({ description: 'Minimum number of replicas' }),
    replicas_max: z.int().openapi({ description: 'Maximum number of replicas' }),
    pinned: z.boolean().openapi({ description: 'true: never stopped to make room for another model' }),
    hosts: z.array(z.string()).openapi({ description: 'Hosts of the replicas' }),
    gpus: z.array(z.string()).openapi({ description: 'Ids of the GPUs of the replicas' }),
    gpus_needed: z
      .object({
        count: z.int().openapi({ description: 'Number of GPUs' }),
        memory_bytes: bytesOrNull.openapi({ description: 'Minimum memory of each GPU in bytes; null accepts any' }),
        profile: z
          .string()
          .nullable()
          .openapi({ description: 'Part of the product name, such as `H100`; null accepts any' }),
      })
      .nullable()
      .openapi({ description: 'GPUs per replica; null is none' }),
    memory_needed_bytes: bytesOrNull.openapi({
      description: 'Host memory per replica in bytes; null if the file does not set it',
    }),
    group: z
      .object({
        name: z.string(),
        swap: z.boolean().openapi({ description: 'true: only one engine of the group runs at a time' }),
        exclusive: z.boolean().openapi({ description: 'true: a start stops the engines outside the group' }),
        persistent: z.boolean().openapi({ description: 'true: engines outside the group do not stop this engine' }),
      })
      .nullable()
      .openapi({ description: 'Group of engines that must not run together; null if there is none' }),
    queue: z
      .object({ running: z.int(), waiting: z.int() })
      .openapi({ description: 'Numbers of requests of this gateway' }),
    start_times_ms: z.array(milliseconds).openapi({
      description:
        'Recent start times in milliseconds, newest last: from the start request to the first request served',
    }),
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
    pools: z.array(z.string()).openapi({ description: 'Pools of hosts that engine files can name' }),
    gpus: z.array(
      z.object({
        id: z.string(),
        memory_bytes: bytesOrNull.openapi({ description: 'Memory of the GPU in bytes; null if unknown' }),
        profile: z.string().nullable().openapi({ description: 'Product name; null if unknown' }),
        used_by: z
          .object({ engine: z.string().nullable(), replica: z.string().nullable(), stranger: z.string().nullable() })
          .nullable()
          .openapi({ description: 'Replica, or name of an entry in `strangers`; null if the GPU is free' }),
      }),
    ),
    memory_bytes: bytesOrNull.openapi({ description: 'Memory for all processes in bytes; null if the host runs none' }),
    replicas: z.array(
      z.object({
        engine: z.string(),
        replica: z.string(),
        state: z.string(),
        memory_bytes: bytesOrNull.openapi({ description: 'Reserved host memory in bytes; null if none is set' }),
      }),
    ),
    strangers: z
      .array(
        z.object({
          name: z.string(),
          engine: z.string().nullable(),
          gpus: z.array(z.string()),
          ended_by: z.string().openapi({
            example: 'docker rm --force headgate-old-1',
            description: 'Command that ends it, for a shell on the host',
          }),
        }),
      )
      .openapi({
        description:
          'Orphaned containers and processes, whose engine file was deleted. They keep their GPUs until the file ' +
          'exists again, or until `ended_by` runs on the host',
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
