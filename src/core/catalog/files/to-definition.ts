import { parseId } from '#base/id.ts';
import { MICRO_DIGITS, parseDecimal } from '#base/money.ts';
import { withAbsolutePaths } from '#core/catalog/command-paths.ts';
import { findFlag } from './find-flag.ts';
import { engineKindOf } from './process-command-checks.ts';
import { type ContainerFile, givesTensorParallelSize, tensorParallelSize } from './container-checks.ts';
import { deploymentsOf } from './external-checks.ts';
import { repositoryOf } from './lora-checks.ts';
import { parseSize, parseVolume } from './container-file-schema.ts';
import type {
  ContainerDriverSettings,
  EngineDefinition,
  EnginePricing,
  GpuNeed,
  LoraAdapter,
  ProcessDriverSettings,
} from './engine-definition.ts';
import type { EngineFile } from './engine-file-schema.ts';
import { toSchedule } from './schedule-fields.ts';
import { toGroup } from './process-resource-fields.ts';

type ProcessFile = Extract<EngineFile, { driver: 'process' }>;

/** Conversion of engine files to the definitions that other rooms use. */

/**
 * Returns the definition of an engine file that has passed every check.
 * @param file name for messages
 * @param folder of the file; null for a text without a file
 */
export function toDefinition(file: string, engine: EngineFile, folder: string | null): EngineDefinition {
  return {
    file,
    id: engine.id,
    name: engine.name,
    aliases: engine.aliases,
    listsAliases: engine.list_aliases,
    huggingFaceId: engine.hugging_face_id ?? null,
    taskType: engine.task_type,
    contextLength: engine.context_length,
    enabled: engine.enabled,
    ownedBy: ownedBy(engine),
    pricing: engine.pricing === undefined ? null : toPricing(engine.pricing),
    flexPricing: engine.pricing === undefined ? null : toFlexPricing(engine.pricing),
    fallbacks: engine.fallbacks,
    concurrencyMax: engine.max_concurrent ?? null,
    ...toQueueLimits(engine),
    wedgedMs: engine.wedged_seconds === 0 ? null : engine.wedged_seconds * 1000,
    stalledMs: engine.stalled_seconds === 0 ? null : engine.stalled_seconds * 1000,
    kind: engineKindOf(engine),
    allow: engine.allow,
    unservedTools: engine.tools.unserved,
    requestChanges: { defaults: engine.defaults, overrides: engine.overrides },
    mediaDomains: engine.media_domains.map((domain) => domain.toLowerCase()),
    nMax: engine.max_n ?? null,
    mediaMax: engine.max_media,
    structuredOutputs: {
      choicesMax: engine.structured_outputs.max_choices,
      depthMax: engine.structured_outputs.max_depth,
      propertiesMax: engine.structured_outputs.max_properties,
      bytesMax: engine.structured_outputs.max_bytes,
      repetitionsMax: engine.structured_outputs.max_repetitions,
    },
    shareCache: engine.share_cache,
    hardwareProfile: engine.hardware_profile ?? null,
    organizationId: engine.organization === undefined ? null : parseId('org', engine.organization),
    lora: engine.lora.map((adapter) => toAdapter(adapter, engine, folder)),
    lorasMax: engine.max_loras ?? null,
    loraRankMax: engine.max_lora_rank ?? null,
    driver: toDriver(engine, folder),
  };
}

function toQueueLimits(engine: EngineFile) {
  if (engine.driver === 'external') return { queuedRequestsMax: null, queuedTokensMax: null };
  const { max_num_queued_reqs: requests, max_num_queued_tokens: tokens } = engine;
  return { queuedRequestsMax: requests ?? null, queuedTokensMax: tokens ?? null };
}

function toAdapter(adapter: EngineFile['lora'][number], engine: EngineFile, folder: string | null): LoraAdapter {
  const { id, name = id, aliases, path = null, upstream_model: upstream = null } = adapter;
  const repository = path === null ? null : repositoryOf(path);
  const pricing = adapter.pricing ?? engine.pricing;
  return {
    id,
    name,
    aliases,
    huggingFaceId: repository,
    ownedBy: adapter.owned_by ?? (repository === null ? ownedBy(engine) : ownerOf(repository)),
    path: path === null || folder === null ? path : (withAbsolutePaths([path], folder)[0] ?? path),
    upstreamModel: upstream,
    pricing: pricing === undefined ? null : toPricing(pricing),
    flexPricing: pricing === undefined ? null : toFlexPricing(pricing),
    fallbacks: adapter.fallbacks,
  };
}

const ownedBy = ({ owned_by: given, hugging_face_id: repository }: EngineFile): string =>
  given ?? ownerOf(repository ?? '');

function toDriver(engine: EngineFile, folder: string | null): EngineDefinition['driver'] {
  if (engine.driver === 'external') {
    return {
      type: 'external',
      deployments: deploymentsOf(engine),
      findsKind: engine.kind === undefined,
    };
  }
  if (engine.driver === 'process') {
    return toProcess(engine, folder);
  }
  return toContainer(engine);
}

function toProcess(engine: ProcessFile, folder: string | null): ProcessDriverSettings {
  const { env, gpus, group, replicas, pinned } = engine;
  const command = folder === null ? engine.command : withAbsolutePaths(engine.command, folder);
  const schedule = toSchedule(engine);
  const room = { memoryBytes: toBytes(engine.memory_gib), gpus: toGpuNeed(gpus), group: toGroup(group) };
  return { type: 'process', command, env, ...room, ...toTimes(engine), replicas, schedule, pinned };
}

function toTimes(engine: ContainerFile | ProcessFile) {
  return {
    idleMs: engine.idle_seconds * 1000,
    startTimeoutMs: engine.start_timeout_seconds * 1000,
    drainMs: engine.drain_seconds * 1000,
    upMinMs: engine.min_up_seconds * 1000,
  };
}

function toContainer(engine: ContainerFile): ContainerDriverSettings {
  return {
    type: engine.driver,
    image: engine.image,
    args: [...engine.args, ...addedArguments(engine)],
    entrypoint: engine.entrypoint ?? null,
    env: engine.env,
    gpus: toGpuNeed(engine.gpus),
    shmBytes: sharedMemory(engine),
    memoryBytesMax: engine.memory_limit === undefined ? null : parseSize(engine.memory_limit),
    ulimits: engine.ulimits,
    cpuset: engine.driver === 'docker' ? toCpuset(engine) : {},
    volumes: engine.volumes.flatMap((volume) => parseVolume(volume) ?? []),
    port: engine.port,
    hosts: engine.driver === 'docker' ? engine.hosts : [],
    placement: engine.placement,
    constraints: engine.driver === 'swarm' ? engine.constraints : [],
    ...toTimes(engine),
    replicas: engine.replicas,
    schedule: toSchedule(engine),
    pinned: engine.pinned,
    sleepLevel: engine.sleep_level,
    canaries: engine.canaries.map(({ route, body, contains }) => ({ route, body, contains: contains ?? null })),
  };
}

function toCpuset({ cpuset_cpus: cpus, cpuset_mems: mems }: Extract<ContainerFile, { driver: 'docker' }>) {
  return { ...(cpus !== undefined && { cpus }), ...(mems !== undefined && { mems }) };
}

function toGpuNeed(gpus: ContainerFile['gpus']): GpuNeed | null {
  if (gpus === undefined) return null;
  return { count: gpus.count, memoryBytesMin: toBytes(gpus.memory_gib), profile: gpus.profile ?? null };
}

function toBytes(gib: number | undefined): number | null {
  return gib === undefined ? null : Math.round(gib * 1024 ** 3);
}

/** Returns vLLM arguments for fields of the file, except arguments that the file already has. */
function addedArguments(engine: ContainerFile): string[] {
  if (engineKindOf(engine) !== 'vllm') return [];
  const added: string[] = [];
  const size = tensorParallelSize(engine);
  if (size > 1 && !givesTensorParallelSize(engine.args)) added.push('--tensor-parallel-size', String(size));
  if (engine.sleep_level > 0 && findFlag(engine.args, '--enable-sleep-mode') === null) {
    added.push('--enable-sleep-mode');
  }
  return added;
}

/** Processes of several GPUs communicate through /dev/shm, and a container's default of 64 MB is too small. */
function sharedMemory(engine: ContainerFile): number | null {
  if (engine.shm_size !== undefined) return parseSize(engine.shm_size);
  return engineKindOf(engine) === 'vllm' && (engine.gpus?.count ?? 1) > 1 ? 16 * 1024 ** 3 : null;
}

function toPricing(pricing: NonNullable<EngineFile['pricing']>): EnginePricing {
  return {
    inputPerMTokMicroUsd: microUsd(pricing.input_per_million),
    cachedInputPerMTokMicroUsd: microUsd(pricing.cached_input_per_million ?? pricing.input_per_million),
    outputPerMTokMicroUsd: microUsd(pricing.output_per_million),
  };
}

/**
 * Returns the prices of the tier `flex`. Micro-dollars per million tokens stay whole, so that every cost is exact: each
 * price is rounded up once, here.
 */
function toFlexPricing(pricing: NonNullable<EngineFile['pricing']>): EnginePricing | null {
  if (pricing.flex_multiplier === undefined) return null;
  const millionths = microUsd(pricing.flex_multiplier);
  const share = (price: bigint): bigint => (price * millionths + 999_999n) / 1_000_000n;
  const full = toPricing(pricing);
  return {
    inputPerMTokMicroUsd: share(full.inputPerMTokMicroUsd),
    cachedInputPerMTokMicroUsd: share(full.cachedInputPerMTokMicroUsd),
    outputPerMTokMicroUsd: share(full.outputPerMTokMicroUsd),
  };
}

/** Converts a decimal with at most 6 places to millionths. */
function microUsd(text: string): bigint {
  const value = parseDecimal(text, MICRO_DIGITS);
  if (value === null) throw new Error('A price passed the schema and is no decimal.');
  return value;
}

function ownerOf(huggingFaceId: string): string {
  const slash = huggingFaceId.indexOf('/');
  return slash > 0 ? huggingFaceId.slice(0, slash) : 'headgate';
}
