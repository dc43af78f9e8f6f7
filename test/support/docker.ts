import { type ChildProcess, execFileSync, spawn, type SpawnOptions } from 'node:child_process';
import { randomInt } from 'node:crypto';
import {
  closeSync,
  createReadStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { networkInterfaces, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/** A Docker engine of the caller's own: its data, sockets and networks clash with nobody's. */
export interface TestDocker {
  readonly socketPath: string;
  /** Everything of it; files may be put there. */
  readonly dir: string;
  /** A call of the Engine API; what it answers, parsed where it is JSON. */
  call(method: string, path: string, body?: object): Promise<unknown>;
  /** Ends the engine as a power failure would; containers stay. */
  kill(): Promise<void>;
  /** Starts it again on the same data. */
  start(options?: readonly string[]): Promise<void>;
  /** Freezes it, or thaws it. */
  freeze(frozen: boolean): void;
  stop(): Promise<void>;
}

const dirPrefix = 'headgate-dockerd-';
const startTimeoutMs = 120_000;

/** Why no Docker engine can be started here, or null. */
export function whyNoDocker({ PATH = '' }: Readonly<Record<string, string | undefined>>): string | null {
  if (process.platform !== 'linux') return 'only Linux runs a Docker engine without a virtual machine';
  const folders = [...PATH.split(delimiter), '/usr/sbin', '/sbin'];
  const missing = ['dockerd', 'containerd', 'tar', 'ip', 'nsenter', 'unshare'].find(
    (name) => !folders.some((dir) => existsSync(join(dir, name))),
  );
  if (missing !== undefined) return `there is no ${missing} on PATH`;
  return process.geteuid?.() === 0 ? null : 'a Docker engine needs root';
}

export interface DockerOptions {
  /**
   * Options of dockerd, beside those that keep engines apart: without rules of iptables and a bridge of its own, any
   * number of them run at once; networks take their addresses from a range of only this engine.
   */
  readonly options?: readonly string[];
  /** Path of the network namespace that it runs in, as a machine of its own. */
  readonly netns?: string | null;
  /** Folder that `keepImages` made: the engine has those images from its start. */
  readonly images?: string | null;
  /** It has an identity of its own: before Docker 25 all engines of a machine have one ID, from a key in /etc/docker. */
  readonly isAnother?: boolean;
}

export async function startDocker({
  options = [],
  netns = null,
  images = null,
  isAnother = false,
}: DockerOptions = {}): Promise<TestDocker> {
  removeLeftOver();
  const dir = mkdtempSync(join(tmpdir(), dirPrefix));
  writeFileSync(join(dir, 'owner'), `${process.pid} ${processStart(process.pid)}`);
  if (images !== null) copyImages(images, join(dir, 'data'));
  const socketPath = join(dir, 'docker.sock');
  const pool = freeRange();
  let child: ChildProcess | null = null;
  const call: TestDocker['call'] = async (method, path, body) => callDocker(socketPath, { method, path, body });
  const start = async (more: readonly string[] = []): Promise<void> => {
    rmSync(join(dir, 'pid'), { force: true });
    child = launch(dir, [`--default-address-pool=base=${pool},size=28`, ...options, ...more], { netns, isAnother });
    await untilAnswers(child, call, join(dir, 'log'));
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child === null || child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child?.once('exit', resolve));
    child.kill(signal);
    await ended;
  };
  await start();
  return {
    socketPath,
    dir,
    call,
    start,
    async kill() {
      await end('SIGKILL');
      await endContainerd(dir);
    },
    freeze: (frozen) => void child?.kill(frozen ? 'SIGSTOP' : 'SIGCONT'),
    async stop() {
      child?.kill('SIGCONT');
      await removeContainers(call);
      await end('SIGTERM');
      endProcesses(dir);
      removeDir(dir);
    },
  };
}

/**
 * Puts the images of an engine that has no containers into a folder, from which other engines begin: an import takes
 * seconds, links to the files of its layers take none.
 */
export function keepImages({ dir }: TestDocker): string {
  const kept = join(dir, 'images');
  // The engine mounts the folder of its layers onto itself, and nothing links across mounts.
  copyImages(join(dir, 'data'), kept, []);
  return kept;
}

/** Copies images: metadata is written anew with every change, layers are never written to. */
function copyImages(from: string, to: string, layers: readonly string[] = ['--link']): void {
  mkdirSync(to, { recursive: true });
  const known = join(from, 'image');
  execFileSync('cp', ['--archive', known, to]);
  for (const driver of readdirSync(known)) execFileSync('cp', ['--archive', ...layers, join(from, driver), to]);
}

function launch(
  dir: string,
  options: readonly string[],
  { netns, isAnother }: Required<Pick<DockerOptions, 'netns' | 'isAnother'>>,
): ChildProcess {
  const log = openSync(join(dir, 'log'), 'a');
  const places = { host: `unix://${dir}/docker.sock`, 'data-root': `${dir}/data`, 'exec-root': `${dir}/exec` };
  const named = Object.entries({ ...places, pidfile: `${dir}/pid` }).map(([name, value]) => `--${name}=${value}`);
  const apart = ['--bridge=none', '--iptables=false', '--ip-masq=false', '--ip-forward=false'];
  try {
    const words = [...named, ...apart, ...options];
    const settings: SpawnOptions = { stdio: ['ignore', log, log], detached: true };
    const [program = '', ...args] = commandOf(dir, words, { netns, isAnother });
    return spawn(program, args, settings);
  } finally {
    closeSync(log);
  }
}

function commandOf(
  dir: string,
  words: readonly string[],
  { netns, isAnother }: Required<Pick<DockerOptions, 'netns' | 'isAnother'>>,
): readonly string[] {
  const dockerd = netns === null ? ['dockerd', ...words] : ['nsenter', `--net=${netns}`, 'dockerd', ...words];
  if (!isAnother) return dockerd;
  const own = join(dir, 'etc-docker');
  for (const folder of [own, '/etc/docker']) mkdirSync(folder, { recursive: true });
  return ['unshare', '--mount', 'sh', '-c', 'mount --bind "$0" /etc/docker && exec "$@"', own, ...dockerd];
}

async function untilAnswers(child: ChildProcess, call: TestDocker['call'], logPath: string): Promise<void> {
  const deadline = Date.now() + startTimeoutMs;
  for (;;) {
    try {
      await call('GET', '/_ping');
      return;
    } catch (error) {
      if (child.exitCode === null && Date.now() < deadline) await pause(20);
      else throw new Error(`dockerd did not start:\n${readFileSync(logPath, 'utf8').slice(-4000)}`, { cause: error });
    }
  }
}

/**
 * It dies with the engine that started it. Where nobody takes note of its death the next engine would wait for it, so
 * that its pid is forgotten as well.
 */
async function endContainerd(dir: string): Promise<void> {
  const pidPath = join(dir, 'exec/containerd/containerd.pid');
  const pid = readText(pidPath).trim();
  if (pid === '') return;
  signal(Number(pid));
  const deadline = Date.now() + startTimeoutMs;
  while (/^\d+ \(containerd\) [^ZX]/.test(readText(`/proc/${pid}/stat`)) && Date.now() < deadline) await pause(5);
  rmSync(pidPath, { force: true });
}

async function removeContainers(call: TestDocker['call']): Promise<void> {
  try {
    const all = (await call('GET', '/containers/json?all=1')) as readonly { Id: string }[];
    await Promise.all(all.map(({ Id: id }) => call('DELETE', `/containers/${id}?force=1&v=1`).catch(() => undefined)));
    const networks = (await call('GET', '/networks?filters={"type":["custom"]}')) as readonly { Id: string }[];
    await Promise.all(networks.map(({ Id: id }) => call('DELETE', `/networks/${id}`).catch(() => undefined)));
  } catch {
    // It does not run any more.
  }
}

/** Runs that were killed leave their engine; the owner's pid tells them from runs that go on. */
function removeLeftOver(): void {
  for (const name of readdirSync(tmpdir()).filter((found) => found.startsWith(dirPrefix))) {
    const dir = join(tmpdir(), name);
    const [pid = '', start = ''] = readText(join(dir, 'owner')).split(' ');
    if (pid === '' || processStart(Number(pid)) === start) continue;
    endProcesses(dir);
    removeDir(dir);
  }
}

/** The engine, what it started, and the first process of every container, with which its others end. */
function endProcesses(dir: string): void {
  const processes = readdirSync('/proc').filter((entry) => /^\d+$/.test(entry));
  const own = processes.filter((pid) => {
    const command = readText(`/proc/${pid}/cmdline`);
    return command.includes(`${dir}/`) && /dockerd|containerd|docker-proxy/.test(command);
  });
  const parentOf = (pid: string): string => /^PPid:\s*(\d+)$/m.exec(readText(`/proc/${pid}/status`))?.[1] ?? '';
  const contained = processes.filter((pid) => own.includes(parentOf(pid)));
  for (const pid of new Set([...contained, ...own])) signal(Number(pid));
}

function signal(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // Gone by itself.
  }
}

/** Its mounts first: an engine that was killed leaves those of its containers. */
function removeDir(dir: string): void {
  const mounts = readText('/proc/self/mounts').split('\n');
  const paths = mounts.map((line) => line.split(' ')[1] ?? '').filter((path) => path.startsWith(`${dir}/`));
  for (const path of paths.toReversed()) {
    try {
      execFileSync('umount', ['-l', path], { stdio: 'ignore' });
    } catch {
      // Unmounted with the one it lies in.
    }
  }
  try {
    rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  } catch {
    // Something is slow to let go; the next run tries again.
  }
}

/** Field 22 of /proc/<pid>/stat, which distinguishes a reused process id from the process before. */
function processStart(pid: number): string {
  const stat = readText(`/proc/${pid}/stat`);
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? '';
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** 256 networks of 14 addresses, where no interface of this machine is. */
function freeRange(): string {
  const taken = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  for (;;) {
    const base = `10.${randomInt(100, 250)}.${randomInt(0, 16) * 16}`;
    const prefix = base.slice(0, base.lastIndexOf('.') + 1);
    if (!taken.some(({ address }) => address.startsWith(prefix))) return `${base}.0/20`;
  }
}

interface DockerCall {
  readonly method: string;
  readonly path: string;
  readonly body?: object | undefined;
  /** A tar file, in place of a body. */
  readonly tarPath?: string;
}

/** A call of the Engine API; what it answers, parsed where it is JSON. */
export function callDocker(socketPath: string, { method, path, body, tarPath }: DockerCall): Promise<unknown> {
  const text = body === undefined ? '' : JSON.stringify(body);
  const type = tarPath === undefined ? 'application/json' : 'application/x-tar';
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, method, path, agent: false, headers: { 'content-type': type } }, (answer) => {
      let received = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => (received += chunk));
      answer.on('end', () => {
        if ((answer.statusCode ?? 500) >= 400) reject(new Error(`${method} ${path}: ${received}`));
        else resolve(parse(received));
      });
      answer.on('error', reject);
    });
    sent.on('error', reject);
    if (tarPath === undefined) sent.end(text);
    else createReadStream(tarPath).pipe(sent);
  });
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
