import { existsSync, renameSync, rmSync } from 'node:fs';
import { flushCompileCache } from 'node:module';
import { createServer as createSocketServer, type Server } from 'node:net';
import { createApp, type App } from './app.ts';
import { parseArgs, type Options, type StartFailure, VERSION } from './args.ts';

/**
 * The stand-in engine's process. It starts, logs, stops and dies as `vllm serve` does, with the recordings of vLLM
 * 0.32.0 as the measure; it holds no model.
 */

/** A connection that will not close keeps the process no longer than this. */
const EXIT_MS_MAX = 500;

function stamp(): string {
  const now = new Date();
  const two = (value: number): string => String(value).padStart(2, '0');
  const day = `${two(now.getMonth() + 1)}-${two(now.getDate())}`;
  return `${day} ${two(now.getHours())}:${two(now.getMinutes())}:${two(now.getSeconds())}`;
}

function write(line: string): void {
  process.stderr.write(`${line}\n`);
}

function info(where: string, text: string, who = 'APIServer'): void {
  write(`(${who} pid=${process.pid}) INFO ${stamp()} [${where}] ${text}`);
}

function failure(kind: StartFailure, options: Options): void {
  const core = `(EngineCore pid=${process.pid}) ERROR ${stamp()} [core.py:1210]`;
  if (kind === 'bad-model') {
    write(
      `OSError: ${options.model} is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'`,
    );
    return;
  }
  write(`${core} EngineCore failed to start.`);
  if (kind === 'oom') {
    write(
      `${core} torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of ` +
        '79.25 GiB of which 1.12 GiB is free.',
    );
  } else write(`${core} ValueError: the stand-in was configured to fail`);
  write(`(APIServer pid=${process.pid}) RuntimeError: Engine core initialization failed. See root cause above.`);
}

/** Makes the socket file that refuses connections: vLLM binds before it loads the model and listens after. */
function reserveSocket(path: string, done: () => void): void {
  const holder = createSocketServer();
  holder.on('error', onBindError);
  const staging = `${path}~`;
  rmSync(staging, { force: true });
  const closed = `${staging}~`;
  holder.listen(staging, () => {
    // Closing would remove the file by the name it was bound to, so it is renamed first; until then it takes connections.
    renameSync(staging, closed);
    holder.close(() => {
      renameSync(closed, path);
      done();
    });
  });
}

function onBindError(error: NodeJS.ErrnoException): void {
  const number = error.code === 'EADDRINUSE' ? 98 : 13;
  write(`OSError: [Errno ${number}] ${error.code === 'EADDRINUSE' ? 'Address already in use' : error.message}`);
  process.exit(1);
}

function listen(server: Server, options: Options, ready: (url: string) => void): void {
  server.on('error', onBindError);
  const { uds } = options;
  if (uds === null) {
    server.listen({ port: options.port, host: options.host, backlog: 2048 }, () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : options.port;
      ready(`http://${options.host}:${port}`);
    });
    return;
  }
  const staging = `${uds}~`;
  rmSync(staging, { force: true });
  server.listen({ path: staging, backlog: 2048 }, () => {
    renameSync(staging, uds);
    ready(`unix:${uds}`);
  });
}

function announce(options: Options): void {
  info('utils.py:299', `vLLM server version ${VERSION} (STAND-IN ENGINE: no model is loaded, every text is made up)`);
  info(
    'utils.py:233',
    `non-default args: ${JSON.stringify({ name: options.name, model: options.model, served_model_name: options.servedNames, uds: options.uds, port: options.port })}`,
  );
  info('core.py:109', `Initializing a V1 LLM engine (v${VERSION})`, 'EngineCore');
  info('model_runner.py:2214', `Starting to load model ${options.model}...`, 'EngineCore');
}

function loaded(): void {
  info('loader.py:310', 'Loading weights took 0.00 seconds', 'EngineCore');
  info('kv_cache_utils.py:1287', 'GPU KV cache size: 1,048,576 tokens', 'EngineCore');
  info('core.py:213', 'init engine (profile, create kv cache, warmup model) took 0.00 seconds', 'EngineCore');
}

/** Ends open answers as vLLM does when its engine is stopped under them, then leaves with code 0. */
function shutDown(app: App): void {
  info('launcher.py:110', 'Shutting down');
  app.engine.refusing = true;
  app.server.close(() => process.exit(0));
  for (const run of app.engine.runs) run.die();
  setInterval(() => app.server.closeIdleConnections(), 10);
  setTimeout(() => process.exit(0), EXIT_MS_MAX);
}

/** The drain of `--shutdown-timeout`: streams are cut when it is over, JSON requests hang until their clients leave. */
function drain(app: App, timeoutMs: number): void {
  info('launcher.py:110', `Draining for ${timeoutMs / 1000} s`);
  app.engine.refusing = true;
  const deadlineMs = app.engine.now() + timeoutMs;
  const poll = setInterval(() => {
    if (app.engine.now() >= deadlineMs) for (const run of app.engine.runs) run.cutStream();
    if (app.engine.runs.size > 0) return;
    clearInterval(poll);
    shutDown(app);
  }, 20);
}

function onSignals(app: App, options: Options): void {
  let stopping = false;
  const stop = (): void => {
    if (options.ignoreSigterm || stopping) return;
    stopping = true;
    if (options.shutdownTimeoutMs > 0) drain(app, options.shutdownTimeoutMs);
    else shutDown(app);
  };
  process.removeAllListeners('SIGTERM');
  process.removeAllListeners('SIGINT');
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
}

/** The first adapter that is not where the command line says; what stands for a repository is always found. */
function lostAdapter({ adapters }: Options): string | null {
  for (const [name, path] of adapters) {
    if (path.startsWith('/') && !existsSync(`${path}/adapter_config.json`)) return name;
  }
  return null;
}

function serve(options: Options): void {
  const app = createApp(options, write);
  loaded();
  const lost = lostAdapter(options);
  if (lost !== null) {
    write(`(APIServer pid=${process.pid}) ValueError: Loading lora ${lost} failed: No adapter found for <path>`);
    process.exit(1);
  }
  if (options.failStart !== null) {
    failure(options.failStart, options);
    process.exit(1);
  }
  listen(app.server, options, (url) => {
    onSignals(app, options);
    info(
      'api_server.py:1346',
      `Supported tasks: ('${options.scoring ? 'score' : options.embedding ? 'embed' : 'generate'}',)`,
    );
    info('launcher.py:29', `Starting vLLM server on ${url} (stand-in ${options.name})`);
    write(`(APIServer pid=${process.pid}) INFO:     Application startup complete.`);
    flushCompileCache();
    const { exitAfterMs } = options;
    if (exitAfterMs !== null) setTimeout(() => process.exit(options.exitCode), exitAfterMs);
  });
}

function start(options: Options): void {
  announce(options);
  process.on('SIGTERM', () => {
    if (options.ignoreSigterm) return;
    write('KeyboardInterrupt: terminated');
    process.exit(130);
  });
  const begin = (): void => {
    if (options.startDelayMs > 0) setTimeout(() => serve(options), options.startDelayMs);
    else serve(options);
  };
  if (options.uds === null) {
    begin();
    return;
  }
  if (existsSync(options.uds)) onBindError(Object.assign(new Error('in use'), { code: 'EADDRINUSE' }));
  reserveSocket(options.uds, begin);
}

/** Runs the program with this process's arguments and environment. */
export function main(): void {
  const parsed = parseArgs(process.argv.slice(2), process.env);
  if (parsed.kind === 'run') start(parsed.options);
  else if (parsed.kind === 'print') process.stdout.write(parsed.text);
  else {
    process.stderr.write(parsed.text);
    process.exitCode = 2;
  }
}
