import { dirname, resolve } from 'node:path';
import { startApp, type App } from './app.ts';
import { ConfigError, readConfig, type Config } from '#base/config.ts';
import { connectDb, isConnectionError, migrateDb } from '#base/db.ts';
import { defaultDataDir, lockDataDir, makeDataDir } from '#base/data-dir.ts';
import { createLog, type Log } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres-embedded.ts';
import { formatEngineFileProblem, loadEngineFiles, type EngineDefinition } from '#core/catalog/catalog.ts';
import { firstStartText, startText } from './welcome.ts';

/** What was started, newest last; it is stopped from the end. */
type Stops = (() => Promise<void> | void)[];

async function stopAll(stops: Stops): Promise<void> {
  for (let stop = stops.pop(); stop !== undefined; stop = stops.pop()) await stop();
}

function readEngines(config: Config, enginesDir: string): readonly EngineDefinition[] {
  const loaded = loadEngineFiles(enginesDir, { env: config.environment });
  if (loaded.ok) return loaded.engines;
  throw new ConfigError(`HEADGATE_ENGINES_DIR: ${loaded.problems.map(formatEngineFileProblem).join('\n')}`);
}

async function openDatabase(config: Config, log: Log, dataDir: string, stops: Stops): Promise<string> {
  if (config.databaseUrl !== null) return config.databaseUrl;
  const server = await startEmbeddedPostgres({ dataDir: `${dataDir}/postgres`, log });
  stops.push(() => server.stop());
  return server.url;
}

async function migrate(url: string): Promise<void> {
  try {
    await migrateDb(url);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    if (!isConnectionError(error) && !/password|authentication|role|database .* does not exist/i.test(reason))
      throw error;
    throw new ConfigError(`DATABASE_URL: the database cannot be used (${reason}).`);
  }
}

async function start(config: Config, log: Log, stops: Stops): Promise<App> {
  const enginesDir = resolve(config.enginesDir ?? new URL('../engines', import.meta.url).pathname);
  const engines = readEngines(config, enginesDir);
  const dataDir = makeDataDir(config.dataDir ?? defaultDataDir(config.environment, process.geteuid?.()));
  const release = lockDataDir(dataDir);
  stops.push(() => release());
  const url = await openDatabase(config, log, dataDir, stops);
  await migrate(url);
  const db = connectDb(url, { poolMax: config.databasePoolMax });
  stops.push(() => db.close());
  const app = await startApp({ config, log, db, dataDir, engines, workingDirectory: dirname(enginesDir) });
  stops.push(() => app.stop());
  const text =
    app.bootstrap.secret === null ? startText(app.url) : firstStartText(app.url, app.bootstrap.secret, engines);
  process.stdout.write(text);
  return app;
}

/** Ctrl-C and SIGTERM stop in order; a second signal does not wait any longer. */
function stopOnSignals(log: Log, stops: Stops): void {
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    if (stopping) process.exit(signal === 'SIGINT' ? 130 : 143);
    stopping = true;
    log.info({ signal }, 'stopping');
    stopAll(stops).then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'stopping failed');
        process.exit(1);
      },
    );
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
}

async function main(): Promise<void> {
  const stops: Stops = [];
  try {
    const config = readConfig();
    const log = createLog(config.logLevel);
    stopOnSignals(log, stops);
    await start(config, log, stops);
  } catch (error) {
    await stopAll(stops);
    const text =
      error instanceof ConfigError
        ? error.message
        : error instanceof Error
          ? (error.stack ?? error.message)
          : String(error);
    process.stderr.write(`${text}\n`);
    process.exit(1);
  }
}

await main();
