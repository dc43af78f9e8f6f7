import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import { createExposures, type Exposures, type ExposureSources, type Holder } from '#core/exposures/exposures.ts';
import { keyStatus } from '#core/keys/keys.ts';
import type { Runs } from '#core/runs/runs.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './parts.ts';

export interface ExposuresWingOptions {
  readonly config: Pick<Config, 'platform'>;
  readonly foundation: Pick<Foundation, 'accounts' | 'audit' | 'coordination' | 'keys'>;
  readonly clusters: Clusters;
  readonly runs: Runs;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

export interface ExposuresWing {
  readonly exposures: Exposures;
  /** Every gateway looks which addresses there are, now. */
  readonly announce: () => Promise<void>;
  readonly part: Part;
}

/** Web addresses, with what they need of runs, clusters and keys. */
export function createExposuresWing(options: ExposuresWingOptions): ExposuresWing {
  const { config, foundation, log } = options;
  const { web, ownHosts } = config.platform;
  const { audit, coordination } = foundation;
  const exposures = createExposures({ ...options, audit, sources: sourcesOf(options), isOn: web !== null, ownHosts });
  coordination.onMessage('web addresses', () => exposures.refresh());
  return {
    exposures,
    async announce() {
      if (!exposures.isOn) return;
      await exposures.refresh();
      await coordination.gateways
        .tell({ kind: 'web addresses' })
        .catch((error: unknown) =>
          log.warn({ err: error }, 'other gateways were not told of web addresses; each looks every second'),
        );
    },
    part: { name: 'web addresses', start: () => exposures.start(), stop: () => exposures.stop() },
  };
}

function sourcesOf({ clusters, runs, foundation, clock }: ExposuresWingOptions): ExposureSources {
  const { accounts, keys } = foundation;
  const isKeyActive = async ({ organizationId, keyId }: Holder): Promise<boolean> => {
    if (keyId === null) return true;
    const key = await keys.get({ organizationId, keyId });
    return key !== null && keyStatus(key, clock.now()) === 'active';
  };
  return {
    async declaredPorts() {
      const ports = await runs.webPorts();
      return ports.map(({ node: ownNode, web, ...port }) => ({ ...port, ...web, ownNode }));
    },
    clusters: (ids) => clusters.places(ids),
    privateKey: (clusterId) => clusters.openPrivateKey(clusterId),
    async isActive(holder) {
      if (!(await isKeyActive(holder))) return false;
      const isAdmin = !holder.isOperator || (holder.userId !== null && (await accounts.isPlatformAdmin(holder.userId)));
      return isAdmin && (await accounts.readOrganization(holder.organizationId))?.status === 'active';
    },
  };
}
