import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type Clock, systemClock } from '#base/clock.ts';
import type { Config } from '#base/config/config.ts';
import { createLeases, type Db, readTime } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { openSteadyClock } from '#base/steady-clock.ts';
import { createLowBalances } from '#core/accounts/accounts.ts';
import { addEngineTexts, type EngineFilesResult, type ReadFile } from '#core/catalog/catalog.ts';
import { type FleetIdentity, readFleetIdentity } from '#core/fleet/fleet.ts';
import type { BootstrapResult } from '#core/keys/keys.ts';
import { makeSignInLink, type SignInLink } from '#core/sessions/sessions.ts';
import { type Job, type Jobs, startJobs } from '#edge/jobs/jobs.ts';
import { createObserve, type Observe } from '#edge/observe/observe.ts';
import { createAgreementPart } from './agreement.ts';
import { createEngineAlertsPart } from './alerts.ts';
import { type BillingStore, openBillingStore } from './books.ts';
import { type ClusterEngines, createClusterEngines } from './cluster-engines.ts';
import { openSharedStore, type SharedStore } from './coordination.ts';
import { followDatabaseChanges } from './database-change.ts';
import { createEdges, type Edges } from './edges.ts';
import { createEngineOperations, createReloadPart, reloadQuietly } from './engine-operations.ts';
import { soleSlot, type WorkerSlot } from './engines.ts';
import { createFoundation, type Foundation } from './foundation.ts';
import { createGateway, type EngineFiles, type Gateway } from './gateway.ts';
import { type Part, startParts } from './lifecycle.ts';
import { createPlatform, type Platform } from './platform.ts';
import { createUpkeep } from './upkeep.ts';

export { requireRunHosts, runnerSearchOf } from './runs.ts';
export { type ContainerHosts, readDockerHosts, type WorkerSlot } from './engines.ts';
export { checkAddresses, metricsOf } from './server.ts';

interface LowBalancesParts {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly foundation: Pick<Foundation, 'alerts'>;
  readonly gateway: Pick<Gateway, 'wallet'>;
}

const scanMs = 2000;

/** Connects accounts to the wallet for the alerts of low balances. */
function createLowBalancesPart({ db, clock, log, foundation, gateway }: LowBalancesParts): Part {
  const lowBalances = createLowBalances({
    db,
    clock,
    log,
    balances: (organizationIds) => gateway.wallet.balances(db.sql, organizationIds),
    raiseIn: (tx, { organizationId, balance, lowBalance }) =>
      foundation.alerts.raiseIn(tx, {
        organizationId,
        type: 'wallet.low_balance',
        data: { balance, alert_below: lowBalance, currency: 'USD' },
      }),
  });
  return {
    name: 'low balances',
    jobs: [{ name: 'tell of low balances', everyMs: scanMs, where: 'one', run: () => lowBalances.scan() }],
  };
}

export interface AppOptions extends EngineFiles {
  readonly config: Config;
  readonly log: Log;
  readonly db: Db;
  /** URL of the database of `db`, for connections of one purpose. */
  readonly databaseUrl: string;
  /** The data folder, which all gateways of an installation on this machine share. */
  readonly dataDir: string;
  /** The folder of this gateway in the data folder: the first one is the data folder itself. */
  readonly gatewayDir: string;
  /** The place of this gateway among the workers of the gateway folder; absent when there is only one. */
  readonly slot?: WorkerSlot;
}

/** A gateway that listens. */
export interface App {
  /** `http://host:port` of the listener, with the port in use. */
  readonly url: string;
  /** `http://host:port` of the listener for metrics; null where there is none. */
  readonly metricsUrl: string | null;
  /** Result of the first start. Its secret must be shown once. */
  readonly bootstrap: BootstrapResult;
  /** Link that signs the platform administrator in once; only of a first start. */
  readonly signInLink: SignInLink | null;
  /** Reads the engine files again, here and on the other gateways. Never rejects: errors are logged. */
  reload(): Promise<void>;
  /** Calls back when the URL of the database leads to another database than at the start: this gateway must end. */
  onExchanged(listener: () => void): void;
  /**
   * Accepts no more requests, lets running requests end, stops engines and closes the books, in this order.
   * @param forceStop ends running requests when it aborts, as if their time was over
   * @throws AggregateError with the errors of parts that could not stop, which are logged; all others are stopped
   */
  stop(forceStop?: AbortSignal): Promise<void>;
}

/**
 * Builds the wings and the edges, and starts their parts.
 * @throws ConfigError naming PORT or HOST when the address cannot be used; nothing is written to the books then. After
 *   any error everything that was started is stopped, so that the function may be called again
 */
export async function startApp(options: AppOptions): Promise<App> {
  const { config, log, db, slot = soleSlot } = options;
  const observe = createObserve(log);
  const identity = await readFleetIdentity(db);
  const shared = await openSharedStore(config.redis, db, log);
  const opened: OpenedFirst = { shared, place: null };
  try {
    return await startOn(opened, { ...options, slot }, { observe, identity });
  } catch (error) {
    await opened.place?.books.close();
    shared.store?.close();
    throw error;
  }
}

/** Resources that are opened before any part that stops them. */
interface OpenedFirst {
  readonly shared: SharedStore;
  place: BillingStore | null;
}

interface First {
  readonly observe: Observe;
  readonly identity: FleetIdentity;
}

async function startOn(
  opened: OpenedFirst,
  options: AppOptions & { readonly slot: WorkerSlot },
  { observe, identity }: First,
): Promise<App> {
  const { config, log, db, slot } = options;
  const { shared } = opened;
  const place = await openBillingStore({ ...options, slot: slot.number, slots: config.process.workers });
  opened.place = place;
  const clock = await openSteadyClock({ clock: systemClock, askTime: () => readTime(db), log });
  const common = { ...options, ...place, clock, shared };
  const foundation = createFoundation({
    ...common,
    settings: config.keys,
    signIn: config.signIn,
    alerts: config.alerts,
    platformKeys: config.platform.keys,
    backupPassphrase: config.platform.backupPassphrase,
    staleMs: config.database.staleMs,
    slot: slot.number,
  });
  const { clusterEngines, ...files } = await readEngines(options, identity);
  const gateway = createGateway({ ...common, ...files, foundation, identity, slot, onCommit: observe.onCommit });
  const platform = createPlatform({ ...common, foundation, gateway, identity });
  const agreeing = createAgreementPart({ ...common, foundation, gateway });
  const { agreement } = agreeing;
  const upkeep = createUpkeep({ ...common, foundation, gateway });
  let onExchanged = (): void => undefined;
  followDatabaseChanges({ foundation, gateway, onExchanged: () => onExchanged() });
  const edges = createEdges({ ...common, foundation, gateway, platform, observe, agreement, upkeep });
  const bootstrap = createBootstrapPart(options, foundation, clock);
  const operating = { gateway, coordination: foundation.coordination, agreement, log };
  const own = {
    bootstrap: bootstrap.part,
    reload: createReloadPart({ ...operating, clusterEngines }),
    lowBalances: createLowBalancesPart({ ...common, foundation, gateway }),
    engineAlerts: createEngineAlertsPart({ ...foundation, ...gateway, raising: foundation.alerts, clock }),
    agreement: agreeing.part,
    upkeep: upkeep.part,
  };
  const parts = listParts({ foundation, gateway, platform, edges }, own, options);
  edges.mount(parts);
  const started = await startParts(parts, log);
  const operations = createEngineOperations(operating);
  return {
    url: edges.url(),
    metricsUrl: edges.metricsUrl(),
    bootstrap: bootstrap.result(),
    signInLink: bootstrap.signInLink(),
    reload: () => reloadQuietly(() => operations.reload(), log),
    onExchanged: (listener) => void (onExchanged = listener),
    stop: (forceStop) => started.stop(forceStop),
  };
}

/** Adds the engines that runs have started on clusters to those of the files. */
async function readEngines(
  { config, db, log, engines, files }: AppOptions,
  { clusterEngineSecret: secret }: FleetIdentity,
) {
  // The engine files of runs name variables with keys, which no operator sets.
  const environment = { ...config.environment };
  const clusterEngines: ClusterEngines = createClusterEngines({ db, log, secret, environment });
  const addRunEngines = async (read: readonly ReadFile[]): Promise<EngineFilesResult> => {
    await clusterEngines.refresh();
    return addEngineTexts(read, clusterEngines.texts());
  };
  const read = await addRunEngines(files);
  const { engines: all, leftOut } = read.ok ? read : { engines, leftOut: [] };
  return { clusterEngines, addRunEngines, files, engines: all, leftOut, config: { ...config, environment } };
}

interface Wings {
  readonly foundation: Foundation;
  readonly gateway: Gateway;
  readonly platform: Platform;
  readonly edges: Edges;
}

interface OwnParts {
  readonly bootstrap: Part;
  readonly reload: Part;
  readonly lowBalances: Part;
  readonly engineAlerts: Part;
  readonly agreement: Part;
  readonly upkeep: Part;
}

/** Returns all parts of the gateway, in the order in which they start; they stop in the reverse order. */
function listParts(
  { foundation, gateway, platform, edges }: Wings,
  own: OwnParts,
  options: AppOptions,
): readonly Part[] {
  const jobs = createJobsParts(() => parts, options);
  const parts: readonly Part[] = [
    foundation.parts.sharedStore,
    // Before the first start writes anything: only a running gateway shows the secret of the first key.
    edges.parts.listener,
    // Stopped after all parts that metrics show, so that a long stop can be watched.
    edges.parts.metrics,
    jobs.begin,
    foundation.parts.gateways,
    gateway.parts.bounds,
    gateway.parts.admission,
    foundation.parts.keyUses,
    gateway.parts.retention,
    gateway.parts.files,
    gateway.parts.metering,
    gateway.parts.claims,
    gateway.parts.history,
    own.bootstrap,
    foundation.parts.backups,
    foundation.parts.keys,
    foundation.parts.alerts,
    own.lowBalances,
    own.engineAlerts,
    own.agreement,
    gateway.parts.budgetAlerts,
    platform.parts.clusters,
    platform.parts.runs,
    platform.parts.exposures,
    platform.parts.costs,
    own.upkeep,
    // Jobs run while the parts above start, and until the parts below have stopped.
    jobs.end,
    gateway.parts.engineClient,
    gateway.parts.engineRequests,
    gateway.parts.engines,
    // A gateway that cannot run its engines has written no price.
    gateway.parts.catalog,
    edges.parts.health,
    edges.parts.inference,
    edges.parts.api,
    edges.parts.web,
    edges.parts.portal,
    // Stopped when all requests have ended, those of batches among them.
    edges.parts.endOfBatches,
    edges.parts.requests,
    edges.parts.batches,
    own.reload,
  ];
  return parts;
}

/** Creates two parts, since jobs start first and do not stop last. */
function createJobsParts(
  parts: () => readonly Part[],
  { db, log }: AppOptions,
): { readonly begin: Part; readonly end: Part } {
  const leases = createLeases({ db });
  let jobs: Jobs | null = null;
  const stop = async (): Promise<void> => {
    await jobs?.stop();
    await leases.close();
  };
  const start = (): void => {
    const all = parts().flatMap((part): readonly Job[] => part.jobs ?? []);
    jobs = startJobs(all, { log, takeLease: (name) => leases.take(name) });
  };
  return { begin: { name: 'jobs', start, stop }, end: { name: 'end of jobs', stop } };
}

interface BootstrapPart {
  readonly part: Part;
  readonly result: () => BootstrapResult;
  readonly signInLink: () => SignInLink | null;
}

function createBootstrapPart(
  { config, log, dataDir, db }: AppOptions,
  { organizations, audit }: Foundation,
  clock: Clock,
): BootstrapPart {
  let link: SignInLink | null = null;
  let result: BootstrapResult = { created: false, secret: null, ignored: [] };
  const part: Part = {
    name: 'first organization',
    async start() {
      result = await organizations.bootstrap(config.bootstrap);
      warnOfIgnored(result, log);
      if (result.created) link = await makeSignInLink({ db, clock, audit });
      if (result.created && config.database.url !== null) warnOfUnusedDatabase(dataDir, log);
    },
  };
  return { part, result: () => result, signInLink: () => link };
}

/** Warns of ignored settings: an operator who sets another first key has lost the key that is in effect. */
function warnOfIgnored({ ignored }: BootstrapResult, log: Log): void {
  if (ignored.length === 0) return;
  const settings = ignored.map((name) => `HEADGATE_BOOTSTRAP_${name.toUpperCase()}`);
  log.warn(
    { settings },
    `${settings.join(', ')} had no effect: only the first start on a database uses these settings. For a new key of the ` +
      'platform administrator, run "npx headgate keys recover" on this machine',
  );
}

/** Warns at the first use of DATABASE_URL: an operator may expect keys and wallets of the built-in database there. */
function warnOfUnusedDatabase(dataDir: string, log: Log): void {
  const folder = join(dataDir, 'postgres');
  if (!existsSync(join(folder, 'cluster', 'PG_VERSION'))) return;
  log.warn(
    { folder },
    'DATABASE_URL is a new database, without the keys and wallets of the built-in PostgreSQL. To move them, run "npx ' +
      'headgate backup FILE" without DATABASE_URL, then "npx headgate restore FILE --replace" with DATABASE_URL',
  );
}
