import { createHmac } from 'node:crypto';
import { fillReferences, type SwarmSettings } from '#core/catalog/catalog.ts';
import {
  containerArguments,
  containerEnvironment,
  containerForcesUsage,
  containerSettings,
  containerShmBytes,
  containerSpecHash,
} from '#core/fleet/drivers/container-command.ts';
import {
  apiKeyOf,
  containerLog,
  containerName,
  droppedCapabilities,
  labelsOf,
  mountsOf,
  ulimitsOf,
  networkName,
} from '#core/fleet/drivers/docker/docker.ts';
import type { EngineSpec, Placement, StartRequest } from '#core/fleet/drivers/driver.ts';

/** The only place that the fleet knows in a swarm: the swarm chooses the node of each task. */
export const swarmPlacement: Placement = { host: 'swarm', gpuIds: [] };

/** Time between SIGTERM and SIGKILL. It is part of the service, so changing it would restart the task. */
const stopGraceNs = 10_000_000_000;
const secretsFolder = '/run/secrets';
const vllmEntrypoint = ['vllm', 'serve'];

/** Differs from the network name that containers of the same engine use. */
export function overlayName(fleetId: string, engineId: string): string {
  return networkName(fleetId, `swarm ${engineId}`);
}

/** A value that only the task may read. */
export interface SecretPlan {
  readonly name: string;
  readonly variable: string;
  readonly value: string;
}

/** A service as requested from the Engine API, once its secrets have ids. */
export interface ServicePlan {
  readonly name: string;
  readonly network: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly secrets: readonly SecretPlan[];
  /**
   * Returns the request's body.
   * @param secretIds in the order of `secrets`
   * @param imageEntrypoint null if unknown
   */
  body(secretIds: readonly string[], imageEntrypoint: readonly string[] | null): object;
}

export interface ServicePlanOptions {
  readonly request: StartRequest;
  readonly swarm: SwarmSettings;
  readonly fleetId: string;
  readonly fleetSecret: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Returns a hash that changes with every part of the engine's file that a running task cannot adopt. */
export function serviceSpecHash(
  definition: EngineSpec['definition'],
  env: ServicePlanOptions['env'],
  fleetSecret: string,
): string {
  const { constraints } = containerSettings(definition);
  const parts = ['swarm', containerSpecHash(definition, env, fleetSecret), constraints];
  return createHmac('sha256', fleetSecret).update(JSON.stringify(parts)).digest('hex');
}

/**
 * Returns the service for a start request, or the variable of the engine's file that refers to an unset one. Each
 * replica is one service with one task: requests reach tasks one by one, and the fleet ends each task separately.
 */
export function planService(
  options: ServicePlanOptions,
): { ok: true; plan: ServicePlan } | { ok: false; missing: string } {
  const { request, swarm, fleetId, fleetSecret, env } = options;
  const { replicaId, spec, fence } = request;
  const { definition, engineId } = spec;
  const { port, env: texts } = containerSettings(definition);
  const isPrivate = swarm.network === 'overlay';
  const environment = containerEnvironment({
    definition,
    env,
    apiKey: apiKeyOf(fleetSecret, replicaId),
    isPrivate,
  });
  if (!environment.ok) return environment;
  const isSecret = (variable: string): boolean =>
    swarm.secrets === 'files' &&
    (variable === 'VLLM_API_KEY' || fillReferences(texts[variable] ?? '', noVariables) === null);
  const variables = Object.entries(environment.env);
  const secrets = variables
    .filter(([variable]) => isSecret(variable))
    .map(([variable, value]) => ({
      name: containerName(fleetId, engineId, `${replicaId}\n${variable}`),
      variable,
      value,
    }));
  const plain = variables
    .filter(([variable]) => !isSecret(variable))
    .map(([variable, value]) => `${variable}=${value}`);
  const name = containerName(fleetId, engineId, replicaId);
  const network = overlayName(fleetId, engineId);
  const labels = labelsOf(fleetId, {
    replicaId,
    engineId,
    specHash: spec.hash,
    epoch: fence.epoch,
    gpuIds: swarmPlacement.gpuIds,
    kind: definition.kind,
    port,
    forcedUsage: containerForcesUsage(definition),
  });
  const body: ServicePlan['body'] = (secretIds, imageEntrypoint) => ({
    Name: name,
    Labels: labels,
    TaskTemplate: {
      ContainerSpec: {
        ...containerSpec(definition, plain),
        ...secretSpec({ definition, secrets, secretIds, imageEntrypoint }),
      },
      Resources: resourcesOf(definition, swarm),
      // The fleet decides what happens after an end.
      RestartPolicy: { Condition: 'none' },
      Placement: { Constraints: containerSettings(definition).constraints },
      LogDriver: { Name: containerLog.Type, Options: containerLog.Config },
      Networks: [{ Target: network }],
    },
    Mode: { Replicated: { Replicas: 1 } },
    // Without a virtual address, which would hide the task's own.
    EndpointSpec: { Mode: 'dnsrr', ...publishedOf(isPrivate, port) },
  });
  return { ok: true, plan: { name, network, labels, secrets, body } };
}

/** With this environment every reference is unset. */
const noVariables: Readonly<Record<string, string | undefined>> = {};

function containerSpec(definition: EngineSpec['definition'], env: readonly string[]): object {
  const settings = containerSettings(definition);
  const shmBytes = containerShmBytes(definition);
  const shm = {
    Type: 'tmpfs',
    Target: '/dev/shm',
    TmpfsOptions: { SizeBytes: shmBytes, Mode: 0o1777 },
  };
  // vLLM images request all GPUs. The swarm sets its own variable for the GPUs that it assigned.
  const withoutGpus = settings.gpus === null ? ['NVIDIA_VISIBLE_DEVICES=void'] : [];
  return {
    Image: settings.image,
    Args: containerArguments(definition),
    ...(settings.entrypoint === null ? {} : { Command: settings.entrypoint }),
    Env: [...env, ...withoutGpus],
    Mounts: [...mountsOf(settings.volumes), ...(shmBytes === null ? [] : [shm])],
    ...ulimitsOf(settings.ulimits),
    StopSignal: 'SIGTERM',
    StopGracePeriod: stopGraceNs,
    // With an image's own health check, a task would count as running only once the check passes.
    Healthcheck: { Test: ['NONE'] },
    Init: true,
    CapabilityDrop: droppedCapabilities.map((capability) => `CAP_${capability}`),
    Privileges: { NoNewPrivileges: true },
  };
}

interface SecretSpecOptions {
  readonly definition: EngineSpec['definition'];
  readonly secrets: readonly SecretPlan[];
  readonly secretIds: readonly string[];
  readonly imageEntrypoint: readonly string[] | null;
}

/**
 * Wraps the command in a shell that reads secret files into variables: engines read keys only from their environment.
 */
function secretSpec({ definition, secrets, secretIds, imageEntrypoint }: SecretSpecOptions): object {
  if (secrets.length === 0) return {};
  const { entrypoint } = containerSettings(definition);
  const command = entrypoint ?? imageEntrypoint ?? vllmEntrypoint;
  return {
    Command: ['/bin/sh', '-c', exportScript(secrets.map(({ variable }) => variable)), 'sh', ...command],
    Secrets: secrets.map(({ name, variable }, index) => ({
      SecretID: secretIds[index],
      SecretName: name,
      // Readable by whatever user the image runs as; no other users are in the container.
      File: { Name: variable, UID: '0', GID: '0', Mode: 0o444 },
    })),
  };
}

/** Uses only shell built-ins of POSIX: images may lack `cat`. */
function exportScript(variables: readonly string[]): string {
  const read = `while IFS= read -r l || [ -n "$l" ]; do printf '%s\\n' "$l"; done`;
  const exports = variables.map((variable) => `${variable}="$(${read} < ${secretsFolder}/${variable})"`);
  return [...exports, `export ${variables.join(' ')}`, 'exec "$@"'].join('\n');
}

function resourcesOf(definition: EngineSpec['definition'], { gpuResource }: SwarmSettings): object {
  const { gpus, memoryBytesMax } = containerSettings(definition);
  const gpuSpec = { DiscreteResourceSpec: { Kind: gpuResource, Value: gpus?.count } };
  return {
    ...(memoryBytesMax !== null && { Limits: { MemoryBytes: memoryBytesMax } }),
    ...(gpus !== null && { Reservations: { GenericResources: [gpuSpec] } }),
  };
}

function publishedOf(isPrivate: boolean, port: number): object {
  if (isPrivate) return {};
  return { Ports: [{ Protocol: 'tcp', TargetPort: port, PublishMode: 'host' }] };
}
