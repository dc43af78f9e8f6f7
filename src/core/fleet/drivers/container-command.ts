import { createHmac } from 'node:crypto';
import {
  type ContainerDriverSettings,
  type EngineDefinition,
  fillReferences,
  givesParallelSize,
} from '#core/catalog/catalog.ts';
import {
  missingArguments,
  type VllmArgument,
  vllmArguments,
  vllmEnvironment,
  vllmForcesUsage,
} from './vllm-arguments.ts';

/** Builds the command and the environment of a container from the engine's file and the gateway's additions. */

type Environment = Readonly<Record<string, string | undefined>>;

/** vLLM's worker processes exchange tensors in shared memory; Docker's default of 64 MiB is too small. */
const shmBytesOfParallel = 16 * 2 ** 30;
const vllmPort = 8000;

/** @throws if the engine belongs to another driver */
export function containerSettings(definition: EngineDefinition): ContainerDriverSettings {
  const { driver } = definition;
  if (driver.type !== 'docker' && driver.type !== 'swarm') {
    throw new Error('A container driver was given another driver’s engine.');
  }
  return driver;
}

/** True if every frame of the engine carries usage. */
export function containerForcesUsage(definition: EngineDefinition): boolean {
  return vllmForcesUsage(definition.kind, containerSettings(definition).args);
}

/** Returns the arguments after the entrypoint. */
export function containerArguments(definition: EngineDefinition): string[] {
  const { args, gpus, port } = containerSettings(definition);
  if (definition.kind !== 'vllm') return [...args];
  const additions: VllmArgument[] = [...vllmArguments(definition)];
  if (port !== vllmPort) additions.push(['--port', [String(port)]]);
  if (gpus !== null && gpus.count > 1 && !givesParallelSize(args)) {
    additions.push(['--tensor-parallel-size', [String(gpus.count)]]);
  }
  return [...args, ...missingArguments(args, additions)];
}

/** Bytes of /dev/shm; null keeps Docker's default. */
export function containerShmBytes(definition: EngineDefinition): number | null {
  const { gpus, shmBytes } = containerSettings(definition);
  if (shmBytes !== null || definition.kind !== 'vllm' || gpus === null || gpus.count < 2) return shmBytes;
  return shmBytesOfParallel;
}

export interface ContainerEnvironmentOptions {
  readonly definition: EngineDefinition;
  /** The gateway's environment, for references. */
  readonly env: Environment;
  /** The key that the replica requires. */
  readonly apiKey: string;
  /** True if only the gateway can connect: vLLM's development routes may then be enabled. */
  readonly isPrivate: boolean;
}

/** Returns the variables to add to the image's environment, or the variable that refers to an unset one. */
export function containerEnvironment({
  definition,
  env,
  apiKey,
  isPrivate,
}: ContainerEnvironmentOptions): { ok: true; env: Record<string, string> } | { ok: false; missing: string } {
  const filled: Record<string, string> = {};
  for (const [name, text] of Object.entries(containerSettings(definition).env)) {
    const value = fillReferences(text, env);
    if (value === null) return { ok: false, missing: name };
    filled[name] = value;
  }
  if (definition.kind !== 'vllm') return { ok: true, env: filled };
  // The development routes can abort requests by id and do worse, and require no key.
  delete filled['VLLM_SERVER_DEV_MODE'];
  const own = { VLLM_API_KEY: apiKey, ...(isPrivate ? { VLLM_SERVER_DEV_MODE: '1' } : {}) };
  return { ok: true, env: { VLLM_NO_USAGE_STATS: '1', DO_NOT_TRACK: '1', ...vllmEnvironment, ...filled, ...own } };
}

/**
 * Returns a hash that changes with every part of the engine's file that a running container cannot adopt. The hash
 * covers secrets, so it is keyed.
 */
export function containerSpecHash(definition: EngineDefinition, env: Environment, fleetSecret: string): string {
  const {
    image,
    entrypoint,
    env: texts,
    gpus,
    memoryBytesMax,
    ulimits,
    cpuset,
    volumes,
    port,
  } = containerSettings(definition);
  const values = Object.keys(texts)
    .toSorted()
    .map((name) => [name, fillReferences(texts[name] ?? '', env)]);
  const parts = [
    definition.kind,
    image,
    entrypoint,
    containerArguments(definition),
    values,
    gpus,
    containerShmBytes(definition),
    memoryBytesMax,
    volumes,
    port,
    // Absent where a file has none of them: an upgrade must not replace running containers.
    ...[ulimits, cpuset].filter((given) => Object.keys(given).length > 0),
  ];
  return createHmac('sha256', fleetSecret).update(JSON.stringify(parts)).digest('hex');
}
