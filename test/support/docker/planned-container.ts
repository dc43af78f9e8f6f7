import { randomBytes } from 'node:crypto';
import type { ContainerDriverSettings, DockerHostSettings, EngineKind } from '#core/catalog/catalog.ts';
import { planContainer } from '#core/fleet/drivers/docker/container.ts';
import { containerEngine, holding } from './docker-drivers.ts';

type Fields = Readonly<Record<string, unknown>>;

export interface PlannedContainer {
  readonly name: string;
  readonly network: string;
  readonly body: Fields & { readonly HostConfig: Fields; readonly Labels: Readonly<Record<string, string>> };
}

export interface PlannedOptions {
  readonly driver?: Partial<ContainerDriverSettings>;
  readonly kind?: EngineKind;
  readonly host?: Partial<DockerHostSettings>;
  readonly gpuIds?: readonly string[];
}

/** A container as the docker driver asks for it. */
export function plannedContainer({
  driver = {},
  kind = 'vllm',
  host = {},
  gpuIds = [],
}: PlannedOptions = {}): PlannedContainer {
  const definition = containerEngine(driver, { kind });
  const made = planContainer({
    request: {
      replicaId: randomBytes(8).toString('hex'),
      spec: { engineId: definition.id, hash: 'h', definition },
      placement: { host: 'local', gpuIds },
      fence: holding,
    },
    host: {
      name: 'local',
      docker: { type: 'unix', socketPath: '/var/run/docker.sock' },
      address: null,
      pools: [],
      gpus: [],
      gpuAccess: 'environment',
      probeImage: null,
      ...host,
    },
    gpuAccess: host.gpuAccess ?? 'environment',
    fleetId: 'fleet',
    fleetSecret: 'a secret of the fleet',
    env: {},
  });
  if (!made.ok) throw new Error(`There is no ${made.missing}.`);
  return made.plan as PlannedContainer;
}

/** The body with which the docker driver makes the network of an engine. */
export const networkBody = (Name: string): Fields => ({
  Name,
  CheckDuplicate: true,
  Driver: 'bridge',
  Attachable: false,
  Labels: { 'headgate.managed': 'true', 'headgate.fleet': 'fleet', 'headgate.engine': 'chat' },
});
