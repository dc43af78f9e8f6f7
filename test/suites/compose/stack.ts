import { execFile, execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { composeCommand } from '../../support/compose.ts';
import { startDocker, type TestDocker } from '../../support/docker.ts';
import { freePort } from '../../support/free-port.ts';
import { buildBaseImages } from './base-images.ts';

/** The compose files of this repository, running on a Docker engine of the caller's own. */
export interface Stack {
  readonly docker: TestDocker;
  readonly url: string;
  readonly key: string;
  /** Where the compose files lie, with the rest of what a clone has. */
  readonly folder: string;
  /** Runs docker compose with the files of the stack. */
  compose(...args: readonly string[]): Promise<string>;
  /** The words that an operator begins with, `docker compose -f …`. */
  readonly composeLine: string;
  /** Runs a line of a shell as an operator would, in the folder of the clone. */
  shell(line: string): Promise<string>;
  ask(path: string, body?: object): Promise<Response>;
  /** Waits until the gateway answers. */
  ready(): Promise<void>;
  stop(): Promise<void>;
}

const run = promisify(execFile);
const repository = new URL('../../..', import.meta.url).pathname;
const cloned = ['package.json', 'package-lock.json', '.npmrc', '.dockerignore', 'src', 'drizzle', 'engines', 'compose'];
const tag = 'headgate-test';

/** The network of the build is the machine's: an engine without rules of iptables has none of its own. */
const overlay = `
services:
  gateway:
    build:
      network: host
  docker-gate:
    build:
      network: host
`;

export async function startStack(engines: Readonly<Record<string, string>>): Promise<Stack> {
  const docker = await startDocker();
  const folder = mkdtempSync(join(tmpdir(), 'headgate-compose-'));
  for (const name of cloned) cpSync(join(repository, name), join(folder, name), { recursive: true });
  const host = `unix://${docker.socketPath}`;
  const env = { ...process.env, DOCKER_HOST: host, DOCKER_BUILDKIT: '0', COMPOSE_DOCKER_CLI_BUILD: '0' };
  const images = buildBaseImages((args, input) => {
    const options = { env, ...(input === undefined ? {} : { input }), maxBuffer: 2 ** 26 };
    return execFileSync('docker', [...args], options).toString();
  }, tag);
  const port = await freePort();
  const key = randomBytes(24).toString('hex');
  writeSettings(folder, {
    COMPOSE_PROJECT_NAME: 'headgate',
    POSTGRES_PASSWORD: randomBytes(12).toString('hex'),
    HEADGATE_BOOTSTRAP_KEY: key,
    LISTEN: `127.0.0.1:${port}`,
    DOCKER_GID: String(statSync(docker.socketPath).gid),
    DOCKER_SOCKET: docker.socketPath,
    DOCKER_ALLOWED_IMAGES: `headgate:${tag}`,
    GATEWAY_IMAGE: `headgate:${tag}`,
    NODE_IMAGE: images.node,
    POSTGRES_IMAGE: images.postgres,
    REDIS_IMAGE: images.redis,
  });
  writeFileSync(join(folder, 'compose/overlay.yaml'), overlay);
  for (const [name, text] of Object.entries(engines)) writeFileSync(join(folder, 'engines', name), text);
  const files = ['-f', 'compose/compose.yaml', '-f', 'compose/overlay.yaml'];
  const [program = '', ...first] = composeCommand(process.env) ?? [];
  const compose = async (...args: readonly string[]): Promise<string> => {
    // The project's folder is that of the first file; older versions read .env of the working folder.
    const options = { cwd: folder, env, maxBuffer: 2 ** 26 };
    const { stdout, stderr } = await run(program, [...first, '--env-file', 'compose/.env', ...files, ...args], options);
    return stdout + stderr;
  };
  const url = `http://127.0.0.1:${port}`;
  const ask = (path: string, body?: object): Promise<Response> =>
    fetch(`${url}${path}`, {
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    });
  return {
    docker,
    url,
    key,
    folder,
    compose,
    composeLine: [program, ...first, '--env-file compose/.env', ...files].join(' '),
    ask,
    async shell(line) {
      const shellEnv = { ...env, ...readSettings(folder) };
      const { stdout } = await run('bash', ['-euo', 'pipefail', '-c', line], { cwd: folder, env: shellEnv });
      return stdout;
    },
    ready: () => untilReady(url, () => compose('logs', '--tail=100')),
    async stop() {
      await compose('down', '--volumes', '--timeout', '5').catch(() => '');
      await docker.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** env.example with values of the test in it: a name that it lacks is one that operators would not find. */
function writeSettings(folder: string, values: Readonly<Record<string, string>>): void {
  const lines = readFileSync(join(folder, 'compose/env.example'), 'utf8').split('\n');
  const known = lines.map((line) => line.replace(/=.*/, ''));
  const replaced = lines.map((line) => {
    const value = values[line.replace(/=.*/, '')];
    return line.includes('=') && !line.startsWith('#') && value !== undefined
      ? `${line.replace(/=.*/, '')}=${value}`
      : line;
  });
  const added = Object.entries(values).filter(([name]) => !known.includes(name));
  const text = [...replaced, ...added.map(([name, value]) => `${name}=${value}`)].join('\n');
  writeFileSync(join(folder, 'compose/.env'), `${text}\n`);
}

function readSettings(folder: string): Record<string, string> {
  const path = join(folder, 'compose/.env');
  if (!existsSync(path)) return {};
  const lines = readFileSync(path, 'utf8').split('\n');
  return Object.fromEntries(
    lines.filter((line) => /^\w+=./.test(line)).map((line) => [line.replace(/=.*/, ''), line.replace(/^\w+=/, '')]),
  );
}

async function untilReady(url: string, logs: () => Promise<string>): Promise<void> {
  const deadline = Date.now() + 120_000;
  for (;;) {
    try {
      const { ok } = await fetch(`${url}/readyz`);
      if (ok) return;
    } catch {
      // It does not listen yet.
    }
    if (Date.now() > deadline) throw new Error(`The gateway does not answer:\n${await logs()}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
