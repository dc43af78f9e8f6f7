import { execFile } from 'node:child_process';
import { chownSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { inject } from 'vitest';
import { chapterLines } from '#test/chapter-lines.ts';
import { composeCommand } from '#test/compose.ts';
import { clientEnvironment, copyClone, imageTag as tag } from './setup.ts';
import { startDocker, type TestDocker } from '#test/docker.ts';
import { freePort } from '#test/free-port.ts';

/** The compose files of this repository, running on a Docker engine of the caller's own. */
export interface Stack {
  readonly docker: TestDocker;
  readonly url: string;
  readonly key: string;
  /** Where the compose files lie, with the rest of what a clone has. */
  readonly folder: string;
  /** Runs docker compose with the files of the stack. */
  compose(...args: readonly string[]): Promise<string>;
  /**
   * Runs lines of a chapter as an operator would, in the folder of the clone, with the tool and the port of here.
   * @param typed what is typed where a line reads the terminal
   */
  shell(lines: string, typed?: string): Promise<string>;
  /**
   * Types the same lines into a shell that goes on after a line that failed, as that of a terminal does.
   * @returns all that was printed
   */
  type(lines: string): Promise<string>;
  /** The lines of the README that start it and ask it something; those that prepare them have been run. */
  readonly quickStart: string;
  ask(path: string, body?: object): Promise<Response>;
  /** Waits until the gateway answers. */
  ready(): Promise<void>;
  /** Writes settings into compose/.env. */
  set(values: Readonly<Record<string, string>>): void;
  stop(): Promise<void>;
}

const run = promisify(execFile);
/** Group of the socket of the Docker engine. */
export const oddGroup = 54_321;
/** Where the README finds the gateway. */
const readmeUrl = 'http://127.0.0.1:8080';

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

/**
 * @param engines files of engines by name, beside the shipped ones
 * @param ownFile a compose file of the operator's own, as one more -f; empty for none
 */
export async function startStack(engines: Readonly<Record<string, string>>, ownFile = ''): Promise<Stack> {
  const { folder: images, names } = inject('composeImages');
  const docker = await startDocker({ images });
  const folder = mkdtempSync(join(tmpdir(), 'headgate-compose-'));
  copyClone(folder);
  const env = clientEnvironment(docker.socketPath);
  const port = await freePort();
  // As no distribution numbers the group docker.
  chownSync(docker.socketPath, 0, oddGroup);
  const composeFiles = ['-f', 'compose/compose.yaml', '-f', 'compose/overlay.yaml'];
  if (ownFile !== '') composeFiles.push('-f', 'compose/own.yaml');
  const [program = '', ...first] = composeCommand(process.env) ?? [];
  const composeLine = [program, ...first, '--env-file compose/.env', ...composeFiles].join(' ');
  const url = `http://127.0.0.1:${port}`;
  const ofHere = (lines: string): string =>
    lines.replaceAll('docker compose -f compose/compose.yaml', composeLine).replaceAll(readmeUrl, url);
  const shell: Stack['shell'] = async (lines, typed = '') => {
    const running = run('bash', ['-euo', 'pipefail', '-c', ofHere(lines)], { cwd: folder, env, maxBuffer: 2 ** 26 });
    running.child.stdin?.end(typed);
    return (await running).stdout;
  };
  const type: Stack['type'] = async (lines) => {
    const running = run('bash', [], { cwd: folder, env, maxBuffer: 2 ** 26 });
    running.child.stdin?.end(ofHere(lines));
    const { stdout, stderr } = await running.catch((error: { stdout: string; stderr: string }) => error);
    return stdout + stderr;
  };
  const [prepare = '', quickStart = ''] = readmeBlocks(folder, 'Quick start');
  await shell(prepare);
  const key = readFileSync(join(folder, 'compose/secrets/bootstrap_key'), 'utf8').trim();
  writeSettings(folder, {
    COMPOSE_PROJECT_NAME: 'headgate',
    LISTEN: `127.0.0.1:${port}`,
    PROXY_LISTEN: `127.0.0.1:${port}`,
    DOCKER_SOCKET: docker.socketPath,
    DOCKER_ALLOWED_IMAGES: `headgate:${tag}`,
    GATEWAY_IMAGE: `headgate:${tag}`,
    NODE_IMAGE: names.node,
    POSTGRES_IMAGE: names.postgres,
    REDIS_IMAGE: names.redis,
    HAPROXY_IMAGE: names.haproxy,
  });
  writeFileSync(join(folder, 'compose/overlay.yaml'), overlay);
  if (ownFile !== '') writeFileSync(join(folder, 'compose/own.yaml'), ownFile);
  for (const [name, text] of Object.entries(engines)) writeFileSync(join(folder, 'engines', name), text);
  const compose = async (...args: readonly string[]): Promise<string> => {
    // The project's folder is that of the first file; older versions read .env of the working folder.
    const options = { cwd: folder, env, maxBuffer: 2 ** 26 };
    const { stdout, stderr } = await run(
      program,
      [...first, '--env-file', 'compose/.env', ...composeFiles, ...args],
      options,
    );
    return stdout + stderr;
  };
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
    shell,
    type,
    quickStart,
    ask,
    ready: () => untilReady(url, () => compose('logs', '--tail=100')),
    set: (values) => writeSettings(folder, values),
    async stop() {
      await compose('down', '--volumes', '--timeout', '5').catch(() => '');
      await docker.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** The blocks of shell lines under a heading of compose/README.md, word for word. */
export function readmeBlocks(folder: string, heading: string): string[] {
  return chapterLines(join(folder, 'compose/README.md'), heading);
}

/** In the settings that were copied: a name that env.example lacks is added. */
function writeSettings(folder: string, values: Readonly<Record<string, string>>): void {
  const path = join(folder, 'compose/.env');
  const kept = readFileSync(path, 'utf8')
    .split('\n')
    .filter((line) => !(line.replace(/=.*/, '') in values));
  const added = Object.entries(values).map(([name, value]) => `${name}=${value}`);
  writeFileSync(path, `${[...kept, ...added].join('\n')}\n`);
}

async function untilReady(url: string, logs: () => Promise<string>): Promise<void> {
  const deadline = Date.now() + 600_000;
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
