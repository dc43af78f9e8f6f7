import { join } from 'node:path';
import type { Clock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import type { Config } from '#base/config/config.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { createRegistryLogins } from '#base/docker/docker.ts';
import type { Log } from '#base/log.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Raising } from '#core/alerts/alerts.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import type { FleetIdentity } from '#core/fleet/fleet.ts';
import type { Keys } from '#core/keys/keys.ts';
import {
  type AskedRunner,
  askRunner,
  type ContainerRunners,
  createContainerRunners,
  createRuns,
  findRunner,
  type FoundRunner,
  hasRunFolders,
  markOf,
  type RunnerSearch,
  type Runs,
  type RunSources,
  type Sealer,
} from '#core/runs/runs.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import type { Stacks } from '#core/stacks/stacks.ts';
import type { Job } from '#edge/jobs/jobs.ts';
import { clusterEngineKey } from './cluster-engines.ts';
import type { ContainerHosts, EnginesPlace } from './engines.ts';
import type { Part } from './lifecycle.ts';

export interface RunsWingOptions {
  readonly config: Pick<Config, 'platform'>;
  /** Docker hosts for runs in containers; null: there are none. */
  readonly docker: RunsDocker | null;
  readonly clusters: Clusters;
  readonly stacks: Stacks;
  readonly secrets: Secrets;
  readonly accounts: Pick<Accounts, 'readOrganization'>;
  readonly keys: Pick<Keys, 'onOrganizationChanged'>;
  readonly alerts: Pick<Raising, 'raiseIn'>;
  readonly audit: Audit;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly gatewayDir: string;
  readonly identity: Pick<FleetIdentity, 'clusterEngineSecret'>;
  /** Id of this gateway that stays the same after a restart. */
  readonly holder: string;
}

export interface RunsDocker extends EnginesPlace {
  /** Folder of Docker's own `config.json`; null: there is none. */
  readonly configDir: string | null;
}

/** Returns a job that one gateway does for all. */
const jobOf = (name: string, everyMs: number, work: () => Promise<unknown>): Job => {
  return { name, everyMs, where: 'one', run: async () => void (await work()) };
};

/** Connects runs to the rooms that they need. */
export function createRunsWing(options: RunsWingOptions): { readonly runs: Runs; readonly part: Part } {
  const { config, clusters, accounts, keys, db, secrets, log, gatewayDir } = options;
  const { driftHours, providerMirror, runsAtOnce, runMs, stateBytesMax } = config.platform;
  const search = runnerSearchOf(config.platform, gatewayDir);
  const runner = createRunnerFinder(search, log);
  const containers = containersOf(options);
  const runs = createRuns({
    ...options,
    containers,
    sealer: sealerOf(secrets, db),
    sources: sourcesOf(options),
    raiseIn: (tx, notice) => options.alerts.raiseIn(tx, notice),
    mirror: providerMirror,
    findRunner: () => runner.find(),
    hasFolders: () => hasRunFolders(search.runsDir),
    stateBytesMax,
    atOnceMax: runsAtOnce,
    phaseMs: runMs,
    driftHours,
  });
  /** Ends runs of archived clusters: one may be created during the archiving, or a gateway die before it ends them. */
  const cancelRunsOfArchivedClusters = async (): Promise<void> => {
    for (const id of await runs.clustersInUse()) {
      if ((await clusters.runContext(id)) === null) await runs.cancelOfCluster(id, systemAuthor);
    }
  };
  const endWaitingOf = async (organizationId: string): Promise<void> => {
    const status = (await accounts.readOrganization(organizationId))?.status ?? 'active';
    if (status !== 'active') await runs.endWaitingOf(organizationId, status, systemAuthor);
  };
  // Done when the change is answered. A run that is missed, as by a killed gateway, ends when its turn comes.
  keys.onOrganizationChanged(endWaitingOf);
  const reseal = async (): Promise<void> => void (await runs.reseal());
  const part: Part = {
    name: 'runs',
    jobs: [
      { name: 'encrypt runs with the current platform key', everyMs: 60_000, where: 'every', run: reseal },
      jobOf('notify of runs', 2000, () => runs.notify()),
      jobOf('destroy what has expired', 10_000, () => runs.destroyExpired()),
      jobOf('check what is applied for drift', 10_000, () => runs.checkDriftOfDue()),
      jobOf('end runs of clusters that are gone', 60_000, cancelRunsOfArchivedClusters),
      jobOf('let go of versions of stacks that no run needs', 60_000, () => runs.releaseVersions()),
      jobOf('remove old logs of runs', 3_600_000, () => runs.dropOldLogs()),
    ],
    start() {
      // Runners in containers are logged when their hosts are found.
      if (containers !== null)
        log.info({ image: config.platform.containerRuns?.image }, 'runs of stacks execute in containers');
      else {
        tellRunner(runner, async () => isRunnerNamed(config.platform) || (await runs.isUsed())).catch(
          (error: unknown) =>
            log.warn(
              { err: error },
              'the check whether this machine can apply stacks failed; the first run repeats it',
            ),
        );
      }
      reseal().catch((error: unknown) =>
        log.warn(
          { err: error },
          'data of runs could not be encrypted with the current platform key at the start; a job retries every minute',
        ),
      );
      runs.loop.start();
    },
    stop: () => runs.loop.close(),
  };
  return { runs, part };
}

/** Returns how a gateway with this configuration searches its own machine for a runner. */
export function runnerSearchOf(platform: Config['platform'], gatewayDir: string): RunnerSearch {
  return {
    ...platform.localRuns,
    terraformBin: platform.terraformBin,
    mirror: platform.providerMirror,
    runsDir: platform.runsDir ?? join(gatewayDir, 'runs'),
    allowUnsandboxed: platform.allowUnsandboxedRuns,
    isRoot: process.getuid?.() === 0,
  };
}

/** Searches for a runner on this machine, and logs its program and sandbox, or why there is none. */
interface RunnerFinder {
  /** Searches now; the next `find` uses this result. */
  ask(): Promise<AskedRunner>;
  find(): Promise<FoundRunner>;
}

function createRunnerFinder(search: RunnerSearch, log: Log): RunnerFinder {
  let asked: Promise<AskedRunner> | null = null;
  let lastNotice = '';
  async function searchAndLog(): Promise<AskedRunner> {
    const found = await askRunner(search);
    const text = found.walls?.sentence ?? found.problem ?? '';
    // A missing runner is searched for again and again: only a change is logged.
    if (text !== lastNotice) logRunner(found, log);
    lastNotice = text;
    return found;
  }
  return {
    ask() {
      asked = searchAndLog();
      return asked;
    },
    async find() {
      const known = asked ?? searchAndLog();
      asked = null;
      return findRunner(search, await known);
    },
  };
}

function logRunner({ walls, terraform, problem }: AskedRunner, log: Log): void {
  if (walls === null) {
    log.info({ runner: 'none' }, `this machine lists stacks but cannot apply them: ${problem}`);
    return;
  }
  const { kind, openNetwork, openMemory, sentence } = walls;
  const isOpen = openNetwork !== null || openMemory !== null || kind === 'process';
  const facts = { program: terraform.path, product: `${terraform.product} ${terraform.version}`, runner: kind };
  log[isOpen ? 'warn' : 'info'](facts, `stacks are applied on this machine: ${sentence}`);
}

/**
 * Logs the runner at the start, which does not wait for this. The search starts programs, which is slow on a small
 * machine: where nobody has applied a stack and no setting is about runners, the first run searches.
 */
async function tellRunner(look: RunnerFinder, isWanted: () => Promise<boolean>): Promise<void> {
  if (await isWanted()) await look.ask();
}

/** True if a setting says how stacks are applied. */
function isRunnerNamed({ terraformBin, runsDir, providerMirror, allowUnsandboxedRuns, localRuns }: Config['platform']) {
  const names = [terraformBin, runsDir, providerMirror].filter((name) => name !== null);
  return names.length > 0 || allowUnsandboxedRuns || localRuns.required.length > 0;
}

/** Creates runners on the hosts of engines; null where no image for runs is set. */
function containersOf({ config, docker, log }: RunsWingOptions): ContainerRunners | null {
  const { containerRuns, providerMirror: mirror } = config.platform;
  if (containerRuns === null || docker === null) return null;
  const { hosts, identity, configDir: folder } = docker;
  const logins = createRegistryLogins({ folder, log });
  const settings = { ...containerRuns, mirror };
  const gates = hosts.swarm?.gates ?? null;
  // The Docker engine of DOCKER_HOST runs them where no setting names hosts.
  const listed = gates === null || hosts.areHostsNamed ? hosts.hosts : [];
  return createContainerRunners({ hosts: listed, gates, settings, fleetId: identity.fleetId, logins, log });
}

/**
 * Requires that hosts.yaml says which machines take runs, where engines are services of a swarm and runs go into
 * containers: a run cannot be a service, and the one machine of `DOCKER_HOST` would silently get all runs.
 * @throws ConfigError
 */
export function requireRunHosts(
  { platform }: Pick<Config, 'platform'>,
  { areHostsNamed, swarm }: ContainerHosts,
  engines: readonly EngineDefinition[],
): void {
  if (platform.containerRuns === null || areHostsNamed || (swarm?.gates ?? null) !== null) return;
  const inSwarm = engines.some(({ driver, enabled }) => enabled && driver.type === 'swarm');
  if (!inSwarm && swarm?.isNamed !== true) return;
  throw new ConfigError(
    'HEADGATE_RUNS_IMAGE: engines use a swarm, and hosts.yaml does not say which nodes accept runs of stacks, which cannot ' +
      'be services of a swarm. Set swarm.gates in hosts.yaml to the docker-gates of the nodes (tcp://tasks.SERVICE:2375, ' +
      'see compose/swarm.md), or list under hosts the machines that accept runs.',
  );
}

function sourcesOf({ clusters, stacks, accounts, identity }: RunsWingOptions): RunSources {
  return {
    async stackPackage(versionId) {
      const open = await stacks.openVersion(versionId);
      if (open === null) return null;
      const { root, inputs, variables: declared, ephemeral = [], web } = open.version.metadata;
      const announced =
        web === null || web.port === null ? null : { port: web.port, node: web.node, path: web.path ?? '/' };
      const inputOf = new Map(inputs.map((input) => [input.name, input]));
      const variables = declared.map((name) => ({
        name,
        sensitive: inputOf.get(name)?.sensitive === true,
        default: inputOf.get(name)?.default ?? null,
        ephemeral: ephemeral.includes(name),
      }));
      const isGlobal = open.visibility === 'global';
      return { isGlobal, root, files: open.files, inputs: variables, web: announced };
    },
    pinStackVersion: (tx, versionId) => stacks.pinIn(tx, versionId),
    unpinStackVersion: (tx, versionId) => stacks.unpinIn(tx, versionId),
    async cluster(clusterId) {
      const [context, organizationId] = await Promise.all([
        clusters.runContext(clusterId),
        clusters.organizationOf(clusterId),
      ]);
      if (context === null || organizationId === null) return null;
      const organization = await accounts.readOrganization(organizationId);
      if (organization === null) return null;
      const { cluster_id: publicId, cluster_name: name, public_domain: publicDomain, nodes } = context;
      const ofOrganization = { organizationId, organizationStatus: organization.status };
      const engineApiKey = clusterEngineKey(identity.clusterEngineSecret, clusterId);
      return { id: clusterId, publicId, name, ...ofOrganization, publicDomain, engineApiKey, nodes };
    },
    holdCluster: (tx, clusterId) => clusters.holdIn(tx, clusterId),
    privateKey: (clusterId) => clusters.openPrivateKey(clusterId),
  };
}

function sealerOf(secrets: Secrets, db: Db): Sealer {
  return {
    async mark() {
      const keyId = await secrets.keyInUse();
      return keyId === null ? null : markOf(keyId);
    },
    async seal(bytes, context, outer) {
      const plain = bytes.toString('base64');
      const seal = (tx: Transaction) => secrets.seal(tx, context, plain);
      const sealed = outer === undefined ? await db.orm.transaction(seal) : await seal(outer);
      return Buffer.concat([markOf(sealed.keyId), sealed.bytes]);
    },
    async open(sealed, context) {
      const end = 1 + (sealed[0] ?? 0);
      const keyId = sealed.toString('utf8', 1, end);
      return Buffer.from(secrets.open(context, { keyId, bytes: sealed.subarray(end) }), 'base64');
    },
  };
}
