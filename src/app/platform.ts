import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { type Clusters, type ClustersOptions, createClusters } from '#core/clusters/clusters.ts';
import type { CostBudgets } from '#core/cost-budgets/cost-budgets.ts';
import type { Costs } from '#core/costs/costs.ts';
import type { Exposures } from '#core/web-addresses/web-addresses.ts';
import { nodeRuns, type Runs, runsUnderWay } from '#core/runs/runs.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { createStacks, type Stacks } from '#core/stacks/stacks.ts';
import { createCostsWing } from './costs.ts';
import type { EnginesPlace } from './engines.ts';
import { createExposuresWing } from './exposures.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { OrganizationDirectory } from './organization-directory.ts';
import type { Part } from './lifecycle.ts';
import { createRunsWing } from './runs.ts';

/** The wing beside the gateway: clusters, stacks, runs and web addresses, and the costs of nodes and GPUs. */
export interface Platform {
  readonly rooms: {
    readonly costs: Costs;
    readonly costBudgets: CostBudgets;
    readonly clusters: Clusters;
    readonly stacks: Stacks;
    readonly runs: Runs;
    readonly exposures: Exposures;
  };
  /** Refreshes web addresses on every gateway; must be called after a change that they depend on. */
  readonly announceAddresses: () => Promise<void>;
  readonly directory: OrganizationDirectory;
  readonly parts: {
    readonly costs: Part;
    readonly clusters: Part;
    readonly runs: Part;
    readonly exposures: Part;
  };
}

export interface PlatformOptions extends EnginesPlace {
  readonly config: Pick<Config, 'platform' | 'docker' | 'http' | 'metrics' | 'redis' | 'process'>;
  readonly databaseUrl: string;
  readonly foundation: Foundation;
  /** The gateway wing: its replicas and models, and the turns of reports. */
  readonly gateway: Pick<Gateway, 'history' | 'fleet' | 'catalog'>;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly gatewayDir: string;
}

const checkMs = 60_000;

export function createPlatform(options: PlatformOptions): Platform {
  const { config, foundation, db, clock, log } = options;
  const { alerts, audit, accounts, keys, secrets, coordination } = foundation;
  const { placeId: holder } = coordination.gateways;
  const { costs, costBudgets, directory, part: costsPart } = createCostsWing(options);
  const { nodeSilenceMs } = config.platform;
  const raiseIn: ClustersOptions['raiseIn'] = (tx, notice) => alerts.raiseIn(tx, notice);
  const clusterParts = { db, clock, log, audit, accounts, costs, secrets, runsUnderWay, nodeRuns, raiseIn };
  const clusters = createClusters({ ...clusterParts, nodeSilenceMs });
  const stacks = createStacks({ db, audit, clock, log, terraform: () => runs.terraform() });
  const docker = { hosts: options.hosts, identity: options.identity, configDir: config.docker.configDir };
  const { runs, part } = createRunsWing({
    ...options,
    docker,
    accounts,
    alerts,
    keys,
    audit,
    clusters,
    stacks,
    secrets,
    holder,
  });
  const web = createExposuresWing({ ...options, clusters, runs });
  runs.onChanged(() => void web.announce());
  return {
    rooms: { costs, costBudgets, clusters, stacks, runs, exposures: web.exposures },
    announceAddresses: web.announce,
    directory,
    parts: {
      costs: costsPart,
      clusters: clustersPart(clusters, secrets, log),
      runs: part,
      exposures: web.part,
    },
  };
}

function clustersPart(clusters: Clusters, secrets: Secrets, log: Log): Part {
  const checkSecrets = async (): Promise<void> => {
    await secrets.check();
    await clusters.reseal();
  };
  const endSilentNodes = async (): Promise<void> => {
    await clusters.endSilentNodes();
  };
  const notifySilence = async (): Promise<void> => {
    await clusters.notifySilence();
  };
  const failed = (error: unknown): void =>
    log.warn(
      { err: error },
      'the platform key and the access identities of clusters could not be checked at the start; a job retries every minute',
    );
  return {
    name: 'clusters',
    jobs: [
      { name: 'check the platform key', everyMs: checkMs, where: 'every', run: checkSecrets },
      { name: 'end what is metered of nodes that are gone', everyMs: checkMs, where: 'one', run: endSilentNodes },
      { name: 'notify of silent nodes', everyMs: checkMs, where: 'one', run: notifySilence },
    ],
    // No other part depends on this check: an error here must not keep a gateway from starting.
    start: () => checkSecrets().then(endSilentNodes).catch(failed),
  };
}
