import { dirname, resolve } from 'node:path';
import { isatty } from 'node:tty';
import { fileURLToPath } from 'node:url';
import { startApp } from './app.ts';
import { ConfigError, readConfig, type Config } from '#base/config.ts';
import { connectDb, migrateDb, whyUnusable } from '#base/db.ts';
import { defaultDataDir, lockDataDir, makeDataDir } from '#base/data-dir.ts';
import { createLog, type Log } from '#base/log.ts';
import { startEmbeddedPostgres } from '#base/postgres-embedded.ts';
import {
  formatEngineFileProblem,
  loadEngineFiles,
  type EngineDefinition,
  type EngineFilesResult,
} from '#core/catalog/catalog.ts';
import { readDockerHosts } from './running.ts';
import { checkAddresses } from './server.ts';
import { firstStartText, startText } from './welcome.ts';

/** The process's life: what was started, newest last, and how far the wish to end it goes. */
interface Life {
  readonly stops: (() => Promise<void> | void)[];
  readonly asked: AbortController;
  readonly hurry: AbortController;
  /** Reads the engine files again; nothing before there is somebody who goes by them. */
  reload: () => void;
}

/** Stops from the end. @returns false when a part could not be stopped; the others are stopped all the same */
async function stopAll({ stops }: Life, log: Log | null): Promise<boolean> {
  let isClean = true;
  for (let stop = stops.pop(); stop !== undefined; stop = stops.pop()) {
    try {
      await stop();
    } catch (error) {
      isClean = false;
      log?.error({ err: error }, 'a part could not be stopped');
    }
  }
  return isClean;
}

function readEngines(readEngineFiles: () => EngineFilesResult): readonly EngineDefinition[] {
  const loaded = readEngineFiles();
  if (loaded.ok) return loaded.engines;
  throw new ConfigError(`HEADGATE_ENGINES_DIR: ${loaded.problems.map(formatEngineFileProblem).join('\n')}`);
}

async function openDatabase(config: Config, log: Log, dataDir: string, { stops }: Life): Promise<string> {
  if (config.databaseUrl !== null) return config.databaseUrl;
  const server = await startEmbeddedPostgres({ dataDir: `${dataDir}/postgres`, log });
  stops.push(() => server.stop());
  return server.url;
}

async function migrate(url: string, config: Config): Promise<void> {
  try {
    await migrateDb(url);
  } catch (error) {
    const reason = config.databaseUrl === null ? null : whyUnusable(error);
    if (reason === null) throw error;
    throw new ConfigError(`DATABASE_URL: the database cannot be used (${reason}).`);
  }
}

async function start(config: Config, log: Log, life: Life): Promise<void> {
  const { stops, asked, hurry } = life;
  const enginesDir = resolve(config.enginesDir ?? fileURLToPath(new URL('../engines', import.meta.url)));
  const readEngineFiles = (): EngineFilesResult => loadEngineFiles(enginesDir, { env: config.environment });
  const engines = readEngines(readEngineFiles);
  const hosts = readDockerHosts(config, enginesDir);
  // Before anything that takes time or leaves something behind.
  await checkAddresses(config);
  const dataDir = makeDataDir(config.dataDir ?? defaultDataDir(config.environment, process.geteuid?.()));
  const release = lockDataDir(dataDir);
  stops.push(() => release());
  const url = await openDatabase(config, log, dataDir, life);
  asked.signal.throwIfAborted();
  await migrate(url, config);
  asked.signal.throwIfAborted();
  const db = connectDb(url, { poolMax: config.databasePoolMax });
  stops.push(() => db.close());
  const files = { engines, readEngineFiles, hosts, workingDirectory: dirname(enginesDir) };
  const app = await startApp({ config, log, db, dataDir, ...files });
  stops.push(() => app.stop(hurry.signal));
  life.reload = () => void app.reload();
  const { secret } = app.bootstrap;
  process.stdout.write(secret === null ? startText(app.url) : firstStartText(app.url, secret, engines));
}

/** npm passes on a Ctrl-C that the terminal has sent to this process, too: both within this time are one. */
const sameWishMs = 1000;

/**
 * SIGINT and SIGTERM stop everything in order. A second one ends running requests at once, a third the process: what
 * it leaves behind is taken over by the next start. SIGHUP has the engine files read again.
 */
function listenToSignals(life: Life, log: Log): void {
  const { asked, hurry } = life;
  let seenMs = -Infinity;
  const onSignal = (signal: NodeJS.Signals): void => {
    const nowMs = performance.now();
    if (nowMs - seenMs < sameWishMs) return;
    seenMs = nowMs;
    if (hurry.signal.aborted) process.exit(signal === 'SIGINT' ? 130 : 143);
    const wish = asked.signal.aborted ? hurry : asked;
    log.info({ signal }, wish === hurry ? 'stopping at once' : 'stopping');
    wish.abort();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  const hadTerminal = isatty(1);
  process.on('SIGHUP', () => {
    // Whoever closes the window of a terminal does not mean the files.
    if (hadTerminal && !isatty(1)) onSignal('SIGTERM');
    else life.reload();
  });
}

async function end(life: Life, log: Log | null): Promise<void> {
  const isClean = await stopAll(life, log);
  process.exit(isClean ? 0 : 1);
}

function explain(error: unknown): string {
  if (error instanceof ConfigError) return error.message;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

async function main(): Promise<void> {
  const life: Life = {
    stops: [],
    asked: new AbortController(),
    hurry: new AbortController(),
    reload: () => undefined,
  };
  const { signal } = life.asked;
  let log: Log | null = null;
  try {
    const config = readConfig();
    log = createLog(config.logLevel);
    listenToSignals(life, log);
    await start(config, log, life);
  } catch (error) {
    const isClean = await stopAll(life, log);
    if (signal.aborted && signal.reason === error) process.exit(isClean ? 0 : 1);
    process.stderr.write(`${explain(error)}\n`);
    process.exit(1);
  }
  const onAsked = (): void => void end(life, log);
  if (signal.aborted) onAsked();
  else signal.addEventListener('abort', onAsked, { once: true });
}

await main();
