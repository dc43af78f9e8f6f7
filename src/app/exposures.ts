import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import {
  createDoors,
  createExposures,
  type Door,
  type Doors,
  type Exposures,
  type ExposureSources,
  type Holder,
  type Standing,
} from '#core/web-addresses/web-addresses.ts';
import { keyStatus } from '#core/keys/keys.ts';
import type { Runs } from '#core/runs/runs.ts';
import type { ContainerHosts } from './engines.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './lifecycle.ts';

export interface ExposuresWingOptions {
  readonly config: Pick<Config, 'platform' | 'http' | 'metrics' | 'redis' | 'process'>;
  /** Docker hosts of engines and runs. */
  readonly hosts: ContainerHosts;
  /** URL of the gateway's own database. */
  readonly databaseUrl: string;
  readonly foundation: Pick<Foundation, 'accounts' | 'audit' | 'coordination' | 'keys' | 'sessions'>;
  readonly clusters: Clusters;
  readonly runs: Runs;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

export interface ExposuresWing {
  readonly exposures: Exposures;
  /** Refreshes the addresses of every gateway now. */
  readonly announce: () => Promise<void>;
  readonly part: Part;
}

/** Connects web addresses to runs, clusters and keys. */
export function createExposuresWing(options: ExposuresWingOptions): ExposuresWing {
  const { config, foundation, log } = options;
  const { web, ownHosts } = config.platform;
  const { audit, coordination } = foundation;
  const own = { isOn: web !== null, ownHosts, doors: doorsOf(options) };
  const exposures = createExposures({ ...options, audit, sources: sourcesOf(options), ...own });
  coordination.onMessage('web addresses', () => exposures.refresh());
  async function announce(): Promise<void> {
    if (!exposures.isOn) return;
    await exposures.refresh();
    await coordination.gateways
      .broadcast({ kind: 'web addresses' })
      .catch((error: unknown) =>
        log.warn({ err: error }, 'other gateways were not notified of changed web addresses; each polls every second'),
      );
  }
  // Addresses stop while their organization is suspended, and when it is closed.
  foundation.keys.onOrganizationChanged(announce);
  return {
    exposures,
    announce,
    part: { name: 'web addresses', start: () => exposures.start(), stop: () => exposures.stop() },
  };
}

/** Returns the addresses that the gateway listens on and those that it connects to. */
function doorsOf({ config, hosts, databaseUrl, clock }: ExposuresWingOptions): Doors {
  const { http, metrics, platform, redis, process } = config;
  const { port: first } = metrics;
  const metricsPorts = first === null ? [] : Array.from({ length: process.workers }, (_, index) => first + index);
  const ownPorts = [http.port, platform.web?.port ?? 0, ...metricsPorts].filter((port) => port > 0);
  const docker = hosts.hosts.flatMap(({ docker: address }): readonly Door[] =>
    address.type === 'unix' ? [] : [{ host: address.host, port: address.port }],
  );
  const stores = [...doorsOfUrl(databaseUrl, 5432), ...doorsOfUrl(redis.url, 6379), ...docker];
  return createDoors({ ownPorts, stores, clock });
}

/** Returns the address in a store's URL. The parameter `host` overrides the URL's host; it may be a socket folder. */
function doorsOfUrl(url: string | null, defaultPort: number): readonly Door[] {
  if (url === null || !URL.canParse(url)) return [];
  const { hostname, port, searchParams } = new URL(url);
  const host = (searchParams.get('host') ?? hostname).replace(/^\[(.*)\]$/, '$1');
  return host === '' || host.startsWith('/')
    ? []
    : [{ host, port: Number(searchParams.get('port') ?? port) || defaultPort }];
}

function sourcesOf({ clusters, runs, foundation, clock }: ExposuresWingOptions): ExposureSources {
  const { accounts, keys, sessions } = foundation;
  /** Returns the expiry of the key or session; null when it is not active, or not that of the holder. */
  const standingOf = async ({ organizationId, keyId, userId, sessionId }: Holder): Promise<Standing | null> => {
    if (keyId === null) {
      const session = sessionId === null ? null : await sessions.findById(sessionId);
      const isTheirs = session?.userId === userId && session.organizationId === organizationId;
      return isTheirs ? { expiresAtMs: session.expiresAtMs } : null;
    }
    const key = await keys.get({ organizationId, keyId });
    const isActive = key !== null && keyStatus(key, clock.now()) === 'active';
    return isActive ? { expiresAtMs: key.expiresAtMs } : null;
  };
  return {
    async declaredPorts() {
      const ports = await runs.webPorts();
      return ports.map(({ node: ownNode, web, ...port }) => ({ ...port, ...web, ownNode }));
    },
    async clusters(ids) {
      const places = await clusters.places(ids);
      const owners = await accounts.readOrganizations([...new Set(places.map((place) => place.organizationId))]);
      const statuses = new Map(owners.map(({ id, status }) => [id, status]));
      return places.flatMap((place) => {
        const status = statuses.get(place.organizationId) ?? 'closed';
        return status === 'closed' ? [] : [{ ...place, isSuspended: status === 'suspended' }];
      });
    },
    sshPorts: (ports) => clusters.sshPorts(ports),
    privateKey: (clusterId) => clusters.openPrivateKey(clusterId),
    async standing(holder) {
      const standing = await standingOf(holder);
      if (standing === null) return null;
      const isAdmin = !holder.isOperator || (holder.userId !== null && (await accounts.isPlatformAdmin(holder.userId)));
      const isActive = isAdmin && (await accounts.readOrganization(holder.organizationId))?.status === 'active';
      return isActive ? standing : null;
    },
  };
}
