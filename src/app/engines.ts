import type { Clock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import type { DockerConfig, EnginesConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import { createRegistryLogins } from '#base/docker/docker.ts';
import type { Log } from '#base/log.ts';
import {
  type Catalog,
  type DockerHostSettings,
  type EngineDefinition,
  formatEngineFileProblem,
  loadDockerHosts,
  type SwarmSettings,
} from '#core/catalog/catalog.ts';
import type { EngineClient } from '#core/engine-client/engine-client.ts';
import {
  createDbStore,
  createDockerDriver,
  type ImageStore,
  createFleet,
  createGoodSpecTable,
  createLocalStore,
  createReplicaRuns,
  createSwarmDriver,
  type EngineRequests,
  type Fleet,
  type FleetIdentity,
  type SharingMode,
} from '#core/fleet/fleet.ts';
import { type Gateways, readGatewayDirId } from '#core/gateways/gateways.ts';

/** Hosts on which containers may run. */
export interface ContainerHosts {
  readonly hosts: readonly DockerHostSettings[];
  /** True if hosts.yaml lists the hosts; otherwise `hosts` is the one of `DOCKER_HOST`. */
  readonly areHostsNamed: boolean;
  /** Null where no setting names a manager of a swarm. */
  readonly swarm: SwarmSettings | null;
}

/** Requirements of engines besides the gateway's own rooms, known before the rooms are built. */
export interface EnginesPlace {
  readonly hosts: ContainerHosts;
  readonly identity: FleetIdentity;
}

/** The place of a gateway among the workers of a gateway folder; the first has the number 0. */
export interface WorkerSlot {
  readonly number: number;
  readonly sharing: SharingMode;
}

export const soleSlot: WorkerSlot = { number: 0, sharing: 'sole' };

/** @throws ConfigError naming the file and line, or the variable, that is wrong */
export function readDockerHosts(docker: DockerConfig, enginesDir: string): ContainerHosts {
  const loaded = loadDockerHosts(enginesDir, { defaultDocker: docker.host });
  if (loaded.ok) return loaded;
  throw new ConfigError(loaded.problems.map(formatEngineFileProblem).join('\n'));
}

export interface EnginesParts extends EnginesPlace {
  readonly settings: Pick<EnginesConfig, 'startQueueMax' | 'memoryBytes'>;
  readonly docker: Pick<DockerConfig, 'configDir'>;
  /** Environment of this process, for references in engine files and for variables that engines may inherit. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly engines: readonly EngineDefinition[];
  readonly gateways: Pick<Gateways, 'id' | 'live'>;
  readonly slot: WorkerSlot;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** The folder of this gateway in the data folder: processes of engines run on this machine only. */
  readonly gatewayDir: string;
  /** Working directory of engine processes. */
  readonly workingDirectory: string;
  readonly engineClient: Pick<EngineClient, 'giveUp'>;
  readonly engineRequests: EngineRequests;
  readonly catalog: Pick<Catalog, 'setShown'>;
}

/**
 * Creates the fleet of this gateway: processes of its own or of the workers of its gateway folder, and containers that
 * all gateways of the database share. Where several gateways share replicas, one of them starts and stops them.
 */
export function createEngines(parts: EnginesParts): { readonly fleet: Fleet; readonly images: ImageStore } {
  const {
    settings,
    environment: env,
    engines,
    gateways,
    db,
    clock,
    log,
    gatewayDir,
    workingDirectory,
    hosts,
    identity,
  } = parts;
  const { sharing } = parts.slot;
  const logins = createRegistryLogins({ folder: parts.docker.configDir, log });
  const liveGateways = (): Promise<ReadonlySet<string>> => gateways.live();
  const machine = `machine:${readGatewayDirId(gatewayDir)}`;
  const storeOf = (scope: string) => createDbStore({ db, scope, gatewayId: gateways.id, liveGateways, clock, log });
  const runsOf = (scope: string) => createReplicaRuns({ db, scope, clock, log });
  const docker = createDockerDriver({ hosts: hosts.hosts, ...identity, env, logins, log });
  const fleet = createFleet({
    runs: { shared: runsOf('containers'), machine: runsOf(machine) },
    engineRequests: parts.engineRequests,
    engines,
    dataDir: gatewayDir,
    workingDirectory,
    env,
    clock,
    log,
    queueMax: settings.startQueueMax,
    engineMemoryBytes: settings.memoryBytes,
    drivers: {
      docker,
      ...(hosts.swarm !== null && { swarm: createSwarmDriver({ swarm: hosts.swarm, ...identity, env, logins, log }) }),
    },
    sharing,
    onShown: (engineId, shown) => parts.catalog.setShown(engineId, shown),
    onLost: ({ endpoint }) => parts.engineClient.giveUp(endpoint),
    stores: {
      shared: storeOf('containers'),
      machine:
        sharing === 'sole'
          ? createLocalStore({ clock, goodSpecs: createGoodSpecTable({ db, scope: machine }) })
          : storeOf(machine),
    },
  });
  return { fleet, images: docker };
}
