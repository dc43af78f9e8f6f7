import { join } from 'node:path';
import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { createRegistryLogins } from '#base/docker/docker.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import {
  type ContainerRunners,
  createContainerRunners,
  createRuns,
  findRunner,
  findTerraformPath,
  hasRunFolders,
  type RunnerSearch,
  type Runs,
  type RunSources,
  type Sealer,
} from '#core/runs/runs.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import type { Stacks } from '#core/stacks/stacks.ts';
import type { EnginesPlace } from './engines.ts';
import type { Part } from './parts.ts';

export interface RunsWingOptions {
  readonly config: Pick<Config, 'platform'>;
  /** Where runs may go into containers; null: nowhere. */
  readonly docker: RunsDocker | null;
  readonly clusters: Clusters;
  readonly stacks: Stacks;
  readonly secrets: Secrets;
  readonly audit: Audit;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly dataDir: string;
  /** This gateway, by what stays the same when it is started again. */
  readonly holder: string;
}

export interface RunsDocker extends EnginesPlace {
  /** Of Docker's own `config.json`; null: there is none. */
  readonly configDir: string | null;
}

/** Runs, with what they need of the rooms beside them. */
export function createRunsWing(options: RunsWingOptions): { readonly runs: Runs; readonly part: Part } {
  const { config, clusters, db, secrets, log, dataDir } = options;
  const { terraformBin, runsDir, providerMirror, allowUnsandboxedRuns, runsAtOnce, runMs } = config.platform;
  const search: RunnerSearch = {
    terraformBin,
    mirror: providerMirror,
    runsDir: runsDir ?? join(dataDir, 'runs'),
    allowUnsandboxed: allowUnsandboxedRuns,
    isRoot: process.getuid?.() === 0,
  };
  const containers = containersOf(options);
  const runs = createRuns({
    ...options,
    containers,
    sealer: sealerOf(secrets, db),
    sources: sourcesOf(options),
    mirror: providerMirror,
    findRunner: () => findRunner(search),
    hasFolders: () => hasRunFolders(search.runsDir),
    atOnceMax: runsAtOnce,
    phaseMs: runMs,
  });
  /** A cluster may go at the moment at which a run is asked for, or a gateway before it has told its runs. */
  const endOfGoneClusters = async (): Promise<void> => {
    for (const id of await runs.clustersInUse()) {
      if ((await clusters.runContext(id)) === null) await runs.cancelOfCluster(id, systemAuthor);
    }
  };
  const reseal = async (): Promise<void> => void (await runs.reseal());
  const removeOldLogs = async (): Promise<void> => {
    await runs.dropOldLogs();
  };
  const part: Part = {
    name: 'runs',
    jobs: [
      { name: 'encrypt what an older platform key encrypted of runs', everyMs: 60_000, where: 'every', run: reseal },
      { name: 'end runs of clusters that are gone', everyMs: 60_000, where: 'one', run: endOfGoneClusters },
      { name: 'remove old logs of runs', everyMs: 3_600_000, where: 'one', run: removeOldLogs },
    ],
    start() {
      const found = findTerraformPath(terraformBin);
      // Of containers their hosts tell, when they are found.
      if (containers !== null) log.info({ image: config.platform.containerRuns?.image }, 'stacks go into containers');
      else if ('path' in found) log.info({ program: found.path }, 'stacks are applied with this program');
      else log.info(`stacks are listed and not applied: ${found.problem}`);
      reseal().catch((error: unknown) =>
        log.warn(
          { err: error },
          'what an older platform key encrypted of runs was not looked for; a job does it later',
        ),
      );
      runs.loop.start();
    },
    stop: () => runs.loop.close(),
  };
  return { runs, part };
}

/** On the hosts that engines have, where an image for runs is named. */
function containersOf({ config, docker, log }: RunsWingOptions): ContainerRunners | null {
  const { containerRuns, providerMirror: mirror } = config.platform;
  if (containerRuns === null || docker === null) return null;
  const { hosts, identity, configDir: folder } = docker;
  const logins = createRegistryLogins({ folder, log });
  const settings = { ...containerRuns, mirror };
  return createContainerRunners({ hosts: hosts.hosts, settings, fleetId: identity.fleetId, logins, log });
}

function sourcesOf({ clusters, stacks }: RunsWingOptions): RunSources {
  return {
    async stackPackage(versionId) {
      const open = await stacks.openVersion(versionId);
      if (open === null) return null;
      const { root, inputs, variables: declared, web } = open.version.metadata;
      const announced =
        web === null || web.port === null ? null : { port: web.port, node: web.node, path: web.path ?? '/' };
      const sensitive = new Set(inputs.filter((input) => input.sensitive).map(({ name }) => name));
      const variables = declared.map((name) => ({ name, sensitive: sensitive.has(name) }));
      const isGlobal = open.visibility === 'global';
      return { isGlobal, root, files: open.files, inputs: variables, web: announced };
    },
    pinStackVersion: (tx, versionId) => stacks.pinIn(tx, versionId),
    async cluster(clusterId) {
      const [context, organizationId] = await Promise.all([
        clusters.runContext(clusterId),
        clusters.organizationOf(clusterId),
      ]);
      if (context === null || organizationId === null) return null;
      const { cluster_id: publicId, cluster_name: name, public_domain: publicDomain, nodes } = context;
      return { id: clusterId, publicId, name, organizationId, publicDomain, nodes };
    },
    holdCluster: (tx, clusterId) => clusters.holdIn(tx, clusterId),
    privateKey: (clusterId) => clusters.openPrivateKey(clusterId),
  };
}

/** Which key it was sealed with stands before what was sealed: its length in one byte, then its id. */
const markOf = (keyId: string): Buffer => {
  const id = Buffer.from(keyId, 'utf8');
  return Buffer.concat([Buffer.from([id.length]), id]);
};

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
