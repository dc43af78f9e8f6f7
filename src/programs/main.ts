import { dirname, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';
import { ConfigError } from '#base/config-error.ts';
import {
  type Config,
  defaultDataDir,
  findIdleSettings,
  type GatewayDir,
  lockDataDir,
  lockGatewayDir,
  makeDataDir,
  noteAddress,
  readConfig,
  readVersion,
} from '#base/config/config.ts';
import { connectDb, migrateDb, describeConnectionFailure } from '#base/database/database.ts';
import { createLog, type Log } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres/postgres.ts';
import {
  createEngineFolder,
  type EngineDefinition,
  type EngineFolder,
  formatEngineFileProblem,
  type ReadFile,
} from '#core/catalog/catalog.ts';
import { endProcesses } from '#core/fleet/fleet.ts';
import {
  type App,
  checkAddresses,
  type ContainerHosts,
  metricsOf,
  readDockerHosts,
  requireRunHosts,
  startApp,
  type WorkerSlot,
} from '#app/app.ts';
import { isStoreUnavailable, type Patience, storeUnavailableReason, withPatience } from './store-patience.ts';
import { firstStartText, hereOf, noEnginesText, startText, welcomeText } from './welcome.ts';
import {
  createWorkers,
  isWorker,
  type Started,
  storeUnavailableExitCode,
  takeSlot,
  tellReady,
  WorkerEndedError,
} from './workers.ts';

/** State of the process: everything it has started, and requests to stop. */
interface Life {
  readonly stops: (() => Promise<void> | void)[];
  readonly stopRequested: AbortController;
  readonly forceStop: AbortController;
  /** Reads the engine files again; does nothing before the gateways run. */
  reload: () => void;
  /** True if the process ends because something failed, and not because of a request to stop. */
  failed: boolean;
}

/** The engines folder as last read. */
interface Files {
  readonly engines: readonly EngineDefinition[];
  readonly files: readonly ReadFile[];
  readonly enginesDir: string;
  readonly engineFolder: EngineFolder;
  readonly hosts: ContainerHosts;
  readonly workingDirectory: string;
}

/** Stops everything that was started, newest first. @returns false if something could not be stopped */
async function stopAll({ stops }: Life, log: Log | null): Promise<boolean> {
  let isClean = true;
  for (let stop = stops.pop(); stop !== undefined; stop = stops.pop()) {
    try {
      await stop();
    } catch (error) {
      isClean = false;
      log?.error({ err: error }, 'a component could not be stopped; the process exits with code 1');
    }
  }
  return isClean;
}

function readEngines(engineFolder: EngineFolder): Pick<Files, 'engines' | 'files'> {
  const loaded = engineFolder.read();
  if (loaded.ok) return loaded;
  throw new ConfigError(`HEADGATE_ENGINES_DIR: ${loaded.problems.map(formatEngineFileProblem).join('\n')}`);
}

async function openDatabase(config: Config, log: Log, dataDir: string, { stops }: Life): Promise<string> {
  if (config.database.url !== null) return config.database.url;
  const server = await startEmbeddedPostgres({ dataDir: `${dataDir}/postgres`, log });
  stops.push(() => server.stop());
  return server.url;
}

async function migrate(url: string, config: Config, log: Log): Promise<void> {
  try {
    await migrateDb(url, log);
  } catch (error) {
    const reason = config.database.url === null ? null : describeConnectionFailure(error);
    if (reason === null) throw error;
    throw new ConfigError(`DATABASE_URL: the database cannot be used (${reason}).`, error);
  }
}

const patienceOf = ({ process: { startWaitMs } }: Config, log: Log, { stopRequested: { signal } }: Life): Patience => ({
  waitMs: startWaitMs,
  log,
  stopRequested: signal,
});

/** Waits for work until a stop is requested: a database may be silent, or be migrated by another gateway. */
async function unlessStopRequested({ stopRequested: { signal } }: Life, work: Promise<void>): Promise<void> {
  const end = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
  await Promise.race([work, end]);
}

function readFiles(config: Config): Files {
  const enginesDir = resolve(config.engines.dir ?? fileURLToPath(new URL('../../engines', import.meta.url)));
  const engineFolder = createEngineFolder(enginesDir, { env: config.environment });
  const { engines, files } = readEngines(engineFolder);
  const hosts = readDockerHosts(config.docker, enginesDir);
  requireRunHosts(config, hosts, engines);
  return {
    engines,
    files,
    enginesDir,
    engineFolder,
    hosts,
    workingDirectory: dirname(enginesDir),
  };
}

/** Locks a folder for this gateway. The only gateway on a built-in PostgreSQL locks the data folder itself. */
function lockFolder({ database }: Config, dataDir: string): GatewayDir {
  if (database.url !== null) return lockGatewayDir(dataDir);
  return { path: dataDir, release: lockDataDir(dataDir) };
}

/** Starts everything that the gateways of this process share, then one gateway or several workers. */
async function start(config: Config, log: Log, life: Life): Promise<void> {
  const { stops, stopRequested } = life;
  for (const sentence of findIdleSettings(config)) log.warn(sentence);
  const files = readFiles(config);
  // Before anything that takes time, or creates files or processes.
  await checkAddresses(config);
  const dataDir = makeDataDir(config.process.dataDir ?? defaultDataDir(config.environment, process.geteuid?.()));
  const { path: gatewayDir, release } = lockFolder(config, dataDir);
  stops.push(() => release());
  const databaseUrl = await openDatabase(config, log, dataDir, life);
  stopRequested.signal.throwIfAborted();
  const migrated = withPatience(patienceOf(config, log, life), () => migrate(databaseUrl, config, log));
  await unlessStopRequested(life, migrated);
  const place = { config, log, dataDir, gatewayDir, databaseUrl };
  const started =
    config.process.workers > 1
      ? await startWorkers(place, files, life)
      : startedBy(await startGateway(place, files, life));
  noteAddress(dataDir, config.signIn.publicUrl ?? hereOf(started.url));
  process.stdout.write(textOf(started, files.engines));
  if (!files.engines.some(({ enabled }) => enabled)) {
    process.stdout.write(noEnginesText(files.enginesDir, files.engines.length));
  }
}

interface Place {
  readonly config: Config;
  readonly log: Log;
  readonly dataDir: string;
  readonly gatewayDir: string;
  readonly databaseUrl: string;
  readonly slot?: WorkerSlot;
}

async function startGateway({ databaseUrl, ...place }: Place, files: Files, life: Life): Promise<App> {
  const { stops, forceStop } = life;
  const attempt = async (): Promise<App> => {
    const db = connectDb(databaseUrl, { poolMax: place.config.database.poolMax });
    try {
      const app = await startApp({ ...place, db, databaseUrl, ...files });
      stops.push(() => db.close());
      return app;
    } catch (error) {
      await db.close();
      throw error;
    }
  };
  const app = await withPatience(patienceOf(place.config, place.log, life), attempt);
  stops.push(() => app.stop(forceStop.signal));
  life.reload = () => void app.reload();
  app.onExchanged(() => {
    place.log.fatal(
      {},
      'this gateway stops with exit code 1, because DATABASE_URL now leads to a different database; a restart uses that database',
    );
    life.failed = true;
    life.stopRequested.abort();
  });
  return app;
}

function startedBy({ url, bootstrap, signInLink }: App): Started {
  return { url, secret: bootstrap.secret, welcome: signInLink?.token ?? null };
}

function textOf({ url, secret, welcome }: Started, engines: readonly EngineDefinition[]): string {
  const link = welcome === null ? '' : welcomeText(url, welcome);
  return secret === null ? `${startText(url)}${link}` : `${firstStartText(url, secret, engines)}${link}`;
}

async function startWorkers(
  { config, log, gatewayDir, databaseUrl }: Place,
  files: Files,
  life: Life,
): Promise<Started> {
  const { workingDirectory } = files;
  life.stops.push(() => endProcesses({ dataDir: gatewayDir, workingDirectory, env: config.environment, log }));
  const workers = createWorkers({ count: config.process.workers, databaseUrl, gatewayDir, log });
  life.stops.push(() => workers.stop(life.forceStop.signal));
  life.reload = () => workers.reload();
  workers.onGivenUp(() => {
    life.failed = true;
    life.stopRequested.abort();
  });
  return workers.start();
}

/** Starts one of several gateways; the parent process has started everything that they share. */
async function startWorker(config: Config, log: Log, life: Life): Promise<void> {
  const { databaseUrl, gatewayDir, ...slot } = await takeSlot({
    reload: () => life.reload(),
    stop: () => life.stopRequested.abort(),
    forceStop: () => life.forceStop.abort(),
  });
  const dataDir = makeDataDir(config.process.dataDir ?? defaultDataDir(config.environment, process.geteuid?.()));
  const own = { ...config, metrics: metricsOf(config.metrics, slot.number) };
  const place = { config: own, log: log.child({ worker: slot.number }), dataDir, gatewayDir, databaseUrl, slot };
  tellReady(startedBy(await startGateway(place, readFiles(config), life)));
}

/** Time within which two signals are one: npm repeats a Ctrl-C that the terminal also sends to this process. */
const repeatedSignalMs = 1000;

/**
 * Handles signals. SIGINT and SIGTERM stop everything in order. A second signal ends running requests at once; a third
 * ends the process, and the next start adopts what is left. SIGHUP reads the engine files again.
 */
function listenToSignals(life: Life, log: Log): void {
  const { stopRequested, forceStop } = life;
  let seenMs = -Infinity;
  const onSignal = (signal: NodeJS.Signals): void => {
    const nowMs = performance.now();
    if (nowMs - seenMs < repeatedSignalMs) return;
    seenMs = nowMs;
    if (forceStop.signal.aborted) process.exit(signal === 'SIGINT' ? 130 : 143);
    const next = stopRequested.signal.aborted ? forceStop : stopRequested;
    log.info({ signal }, next === forceStop ? 'stopping immediately' : 'stopping');
    next.abort();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  const hadTerminal = isatty(1);
  process.on('SIGHUP', () => {
    // A closed terminal also sends SIGHUP, which is no request for a reload.
    if (hadTerminal && !isatty(1)) onSignal('SIGTERM');
    else life.reload();
  });
}

/** Ignores errors of the output: a gateway keeps running without readers, and drops its output. */
function outliveReaders(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
}

async function end(life: Life, log: Log | null): Promise<void> {
  const isClean = await stopAll(life, log);
  process.exit(isClean && !life.failed ? 0 : 1);
}

function explain(error: unknown): string {
  if (error instanceof ConfigError || error instanceof WorkerEndedError) return error.message;
  if (isStoreUnavailable(error)) return storeUnavailableReason(error);
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

/** Answers --version and --help, and rejects other arguments: an ignored argument could be taken for a setting. */
function answerArguments([argument]: readonly string[]): void {
  if (argument === undefined) return;
  if (argument === '--version' || argument === '-V') {
    process.stdout.write(`headgate ${readVersion()}\n`);
    process.exit(0);
  }
  const isHelp = argument === '--help' || argument === '-h';
  (isHelp ? process.stdout : process.stderr).write(
    `${isHelp ? '' : `unknown argument ${argument}. `}Settings are environment variables, such as ` +
      'PORT=8081 npm start; compose/settings.md lists them. "npx headgate help" lists commands.\n',
  );
  process.exit(isHelp ? 0 : 2);
}

async function main(): Promise<void> {
  answerArguments(process.argv.slice(2));
  const life: Life = {
    stops: [],
    stopRequested: new AbortController(),
    forceStop: new AbortController(),
    reload: () => undefined,
    failed: false,
  };
  const { signal } = life.stopRequested;
  let log: Log | null = null;
  outliveReaders();
  try {
    const config = readConfig();
    log = createLog(config.process.logLevel);
    listenToSignals(life, log);
    await (isWorker ? startWorker(config, log, life) : start(config, log, life));
  } catch (error) {
    const isClean = await stopAll(life, log);
    if (signal.aborted && signal.reason === error) process.exit(isClean ? 0 : 1);
    process.stderr.write(`${explain(error)}\n`);
    process.exit(isWorker && isStoreUnavailable(error) ? storeUnavailableExitCode : 1);
  }
  const onStopRequested = (): void => void end(life, log);
  if (signal.aborted) onStopRequested();
  else signal.addEventListener('abort', onStopRequested, { once: true });
}

await main();
