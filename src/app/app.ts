import { Hono } from 'hono';
import { type Clock, systemClock } from '#base/clock.ts';
import type { Config } from '#base/config.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { createAccounts } from '#core/accounts/accounts.ts';
import { createAudit } from '#core/audit/audit.ts';
import {
  createCatalog,
  createEngineReload,
  type EngineDefinition,
  type EngineFilesResult,
} from '#core/catalog/catalog.ts';
import { createOperatorCommands, readFleetIdentity, type FleetIdentity } from '#core/fleet/fleet.ts';
import { createKeys, createOrganizations, type BootstrapResult } from '#core/keys/keys.ts';
import { createMetering } from '#core/metering/metering.ts';
import { createAborter, createEngineClient } from '#core/proxy/proxy.ts';
import { createCacheSalts, createRouting } from '#core/routing/routing.ts';
import { createWallet, createWalletOpening } from '#core/wallet/wallet.ts';
import { createApi } from '#edge/api/api.ts';
import { createHttpGuards, createShowLimits, installFallbacks, routeFirst, type HttpEnv } from '#edge/http/http.ts';
import { createInference, type Inference } from '#edge/inference/inference.ts';
import { startJobs, type Job } from '#edge/jobs/jobs.ts';
import { createObserve, lookEveryMs, type Observe, type Watching } from '#edge/observe/observe.ts';
import { createCoordination, openSharedStore, type SharedStore } from './coordination.ts';
import { createEngineOperations } from './engine-operations.ts';
import { type ContainerHosts, createEngines, soleSlot, type WorkerSlot } from './engines.ts';
import { createRetention } from './retention.ts';
import { createHttpServer } from './server.ts';

export { type ContainerHosts, readDockerHosts, type WorkerSlot } from './engines.ts';
export { checkAddresses, metricsPortOf } from './server.ts';

export interface AppOptions {
  readonly config: Config;
  readonly log: Log;
  readonly db: Db;
  readonly dataDir: string;
  readonly engines: readonly EngineDefinition[];
  /** Reads the files of `engines` again. */
  readonly readEngineFiles: () => EngineFilesResult;
  /** Where containers may run. */
  readonly hosts: ContainerHosts;
  /** Where engine processes run: the folder that holds the engines folder. */
  readonly workingDirectory: string;
  /** Its place among several gateways of one data folder; absent when it has that for itself. */
  readonly slot?: WorkerSlot;
}

/** A gateway that listens. */
export interface App {
  /** `http://host:port`, with the port that was really taken. */
  readonly url: string;
  /** The same of the listener for metrics; null where there is none. */
  readonly metricsUrl: string | null;
  /** What the first start made; a secret that must be shown once. */
  readonly bootstrap: BootstrapResult;
  /** Reads the engine files again, here and on the other gateways. Never rejects: what is wrong is logged. */
  reload(): Promise<void>;
  /**
   * Takes no more requests, lets running ones end, stops engines and closes the books, in this order.
   * @param forceStop once it aborts, running requests are ended as if their time was over
   */
  stop(forceStop?: AbortSignal): Promise<void>;
}

/** 10 USD, so that the first request can be paid. */
const firstCreditPicoUsd = 10_000_000_000_000n;
const secondMs = 1000;
const hourMs = 3_600_000;
const idleSocketMs = 4000;
const maxHeaderBytes = 65_536;
const booksTimeoutMs = 10_000;

/**
 * Builds every room and hands rooms to edges; serves when everything stands.
 * @throws ConfigError naming PORT or HOST when the address cannot be had; nothing is written to the books then
 */
export async function startApp(options: AppOptions): Promise<App> {
  const { config, log, db } = options;
  const observe = createObserve(log);
  const identity = await readFleetIdentity(db);
  const rooms = createRooms(options, { ...(await openSharedStore(config, db, log)), identity }, observe);
  const inference = createInferenceEdge(options, rooms, observe);
  const life = { fleetRuns: false };
  const watching = watch(options, rooms, { observe, inference, life });
  const server = createHttpServer(config, composeEdges(options, rooms, { inference, observe, watching }));
  const offRevoked = rooms.keys.onRevoked((keyId) => inference.revoked(keyId));
  const jobs = startJobs(jobsOf(rooms, watching), log);

  async function stop(forceStop?: AbortSignal): Promise<void> {
    watching.health.enter('draining');
    const closed = server.close();
    await Promise.race([
      inference.drain(config.shutdownTimeoutMs),
      ...(forceStop === undefined ? [] : [aborted(forceStop).then(() => inference.drain(0))]),
    ]);
    server.cut();
    await closed;
    inference.close();
    offRevoked();
    life.fleetRuns = false;
    rooms.routing.close();
    await rooms.fleet.close();
    rooms.engineClient.close();
    await jobs.stop();
    await rooms.metering.close(booksTimeoutMs);
    await rooms.retention.close(booksTimeoutMs);
    // Only a note of when keys were used: it must not keep a gateway from stopping while Postgres is away.
    await rooms.keys.flush().catch((error: unknown) => log.warn({ err: error }, 'last uses of keys were not written'));
    await rooms.coordination.stop();
    // Last, so that a stop that takes long can be watched.
    await watching.server.close();
  }

  try {
    // Before the first start writes anything: the secret that it makes is told only by a gateway that runs.
    await server.listen();
    await watching.server.listen();
    const former = await rooms.coordination.start();
    await rooms.idempotency.lapse(former);
    await rooms.metering.ensurePartitions();
    const bootstrap = await rooms.organizations.bootstrap(config.bootstrap);
    await rooms.keys.start();
    await rooms.catalog.sync();
    await rooms.fleet.start();
    life.fleetRuns = true;
    await watching.look();
    watching.health.enter('serving');
    server.open();
    const reload = (): Promise<void> => reloadQuietly(() => rooms.operations.reload(), log);
    rooms.coordination.onReload(() => void reloadQuietly(() => rooms.engineFiles.reload(), log));
    return { url: server.url(), metricsUrl: watching.server.url(), bootstrap, reload, stop };
  } catch (error) {
    await stop().catch((stopError: unknown) => log.error({ err: stopError }, 'stopping failed'));
    throw error;
  }
}

/** Mistakes in files are logged by who reads them; this is for what else may fail. */
async function reloadQuietly(reload: () => Promise<unknown>, log: Log): Promise<void> {
  try {
    await reload();
  } catch (error) {
    log.error({ err: error }, 'the engine files were not read again; everything stays as it was');
  }
}

interface Outside {
  readonly observe: Observe;
  readonly inference: Inference;
}

interface WatchParts extends Outside {
  readonly life: { readonly fleetRuns: boolean };
}

function watch({ config, db }: AppOptions, rooms: Rooms, { observe, inference, life }: WatchParts): Watching {
  const { fleet, metering, coordination } = rooms;
  const { store } = coordination;
  return observe.watch({
    config,
    fleet,
    metering,
    fleetRuns: () => life.fleetRuns,
    inFlight: () => inference.inFlight,
    askDatabase: () => db.sql`select 1`,
    askRedis: store === null ? null : () => store.command('PING'),
  });
}

function jobsOf({ metering, keys, retention, coordination }: Rooms, watching: Watching): Job[] {
  return [
    { name: 'look at stores and engines', everyMs: lookEveryMs, run: () => watching.look() },
    { name: 'flush refusals', everyMs: secondMs, run: () => metering.flushRefusals() },
    { name: 'flush last uses of keys', everyMs: 5 * secondMs, run: () => keys.flush() },
    { name: 'make partitions', everyMs: hourMs, run: () => metering.ensurePartitions() },
    ...retention.jobs,
    ...coordination.jobs,
  ];
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** What was opened or read before the rooms are built. */
type SharedPlaces = SharedStore & { readonly identity: FleetIdentity };

type Rooms = ReturnType<typeof createRooms>;

/** Who may call and who pays. */
function createHolders({ config, log, db }: Pick<AppOptions, 'config' | 'log' | 'db'>, clock: Clock) {
  const audit = createAudit({ clock });
  const accounts = createAccounts({ db, clock, log, audit });
  const { keyPrefix, maxActiveKeys } = config;
  const keys = createKeys({ db, clock, log, audit, accounts, keyPrefix, maxActiveKeys });
  const wallet = createWallet({ db, clock, audit });
  accounts.onOpening(createWalletOpening(wallet, firstCreditPicoUsd));
  return { audit, accounts, keys, wallet, organizations: createOrganizations({ db, accounts, keys }) };
}

function createRooms(
  { config, log, db, dataDir, engines, readEngineFiles, hosts, workingDirectory, slot = soleSlot }: AppOptions,
  { identity, ...shared }: SharedPlaces,
  { onCommit }: Observe,
) {
  const clock = systemClock;
  const holders = createHolders({ config, log, db }, clock);
  const { audit, accounts, keys, wallet } = holders;
  const metering = createMetering({ db, clock, log, wallet, onCommit });
  const common = { config, db, clock, log, dataDir };
  const coordination = createCoordination({ ...shared, ...common, slot: slot.number, wallet, keys, metering });
  const { admission } = coordination;
  const catalog = createCatalog({ db, clock, engines });
  const { gateways } = coordination;
  const engineClient = createEngineClient({
    firstByteTimeoutMs: config.upstreamFirstByteTimeoutMs,
    idleTimeoutMs: config.upstreamIdleTimeoutMs,
    connectTimeoutMs: config.upstreamConnectTimeoutMs,
    idleSocketMs,
    maxHeaderBytes,
    onSinkError: (error) => log.error({ err: error }, 'an answer could not be handled'),
  });
  const place = { workingDirectory, hosts, identity, gateways, slot, engineClient };
  const fleet = createEngines({ ...common, ...place, engines });
  const engineFiles = createEngineReload({ engines, readFiles: readEngineFiles, catalog, fleet, log });
  const operations = createEngineOperations({
    fleet,
    reload: engineFiles,
    tellReload: () => coordination.tellReload(),
    log,
  });
  const commands = createOperatorCommands({ db, audit, fleet, reload: () => operations.reload() });
  const routing = createRouting({ fleet, clock, log, flexQueueMax: config.flexQueueMax });
  const httpGuards = createHttpGuards({ ...config, ...shared, keys, accounts });
  const cacheSalts = createCacheSalts(identity.cacheSecret);
  const retention = createRetention({ config, shared, db, clock, log, audit, metering, gateways });
  const showLimits = createShowLimits(admission);
  const { cache, contents, idempotency } = retention;
  const edge = {
    ...httpGuards,
    cacheSalts,
    showLimits,
    coordination,
    retention,
    cache,
    contents,
    idempotency,
    engineFiles,
    operations,
    engines: { operations, commands },
  };
  return {
    ...holders,
    clock,
    admission,
    catalog,
    fleet,
    routing,
    engineClient,
    metering,
    ...edge,
  };
}

function createInferenceEdge({ config, log }: AppOptions, rooms: Rooms, observe: Observe): Inference {
  return createInference({
    ...rooms,
    observer: observe.requests,
    client: rooms.engineClient,
    aborter: createAborter({ client: rooms.engineClient, clock: rooms.clock }),
    log,
    limits: config,
    settleTimeoutMs: config.settleTimeoutMs,
    answerStallTimeoutMs: config.answerStallTimeoutMs,
  });
}

function composeEdges(
  { config, log }: AppOptions,
  rooms: Rooms,
  { inference, observe, watching }: Outside & { readonly watching: Watching },
): Hono<HttpEnv> {
  const app = new Hono<HttpEnv>();
  app.route('/', inference.requests);
  app.route('/', watching.routes);
  app.use(observe.otherRequests);
  app.route('/', inference.lists);
  const heldPicoUsd = async (organizationId: string): Promise<bigint> =>
    (await rooms.admission.heldMicroUsd(organizationId)) * PICO_PER_MICRO;
  app.route('/', createApi({ ...rooms, log, heldPicoUsd, limits: config }));
  installFallbacks(app, log);
  return routeFirst(app, inference.requests, log);
}
