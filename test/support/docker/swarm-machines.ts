import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { mkdtempSync, readdirSync, existsSync, rmSync, writeFileSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import type { TestDocker } from '#test/docker.ts';
import { liftLimits } from '#test/gateway.ts';
import { startOwnDocker } from '#test/shared-docker.ts';
import { createCaller, until, type Caller } from './checked-client.ts';
import { image } from './docker-drivers.ts';

/**
 * A swarm of Docker engines, each in a network namespace as a machine of its own, connected by a bridge in one more;
 * and gateways that run where a container on the manager would: in its network, with its name in /proc.
 */
export interface TestSwarm {
  /** This machine's address, where the machines of the swarm reach it. */
  readonly here: string;
  /** The first is the manager. */
  readonly nodes: readonly SwarmMachine[];
  call(method: string, path: string, body?: object): Promise<unknown>;
  services(fleetId?: string): Promise<readonly Service[]>;
  tasks(): Promise<readonly Task[]>;
  /** Keeps an overlay network on every node; see `keepNetwork`. */
  anchor(network: string, labels: Readonly<Record<string, string>>): Promise<void>;
  /** A folder of engine files with hosts.yaml. */
  folder(engines: Readonly<Record<string, string>>): string;
  open(enginesDir: string): Promise<SwarmGateway>;
  /** Cuts a machine's only cable, or restores it. */
  cut(machine: SwarmMachine, isCut: boolean): void;
  stop(): Promise<void>;
}

export interface SwarmMachine {
  readonly docker: TestDocker;
  readonly address: string;
  readonly netns: string;
}

export interface Service {
  readonly ID: string;
  readonly Spec: {
    readonly Name: string;
    readonly Labels: Readonly<Record<string, string>>;
    readonly TaskTemplate: unknown;
  };
}

export interface Task {
  readonly ServiceID?: string;
  readonly NodeID?: string;
  readonly DesiredState: string;
  readonly Status: { readonly State: string; readonly Err?: string };
}

export interface SwarmGateway extends Caller {
  readonly url: string;
  /** Id of the container that it runs in. */
  readonly container: string;
  output(): string;
  /** Log of the door that it reaches the manager through. */
  gateOutput(): string;
  /** Sends SIGHUP: the files are read again. */
  reload(): void;
  end(signal?: NodeJS.Signals): Promise<void>;
  /** A new process in the same container, on the same data. */
  restart(): Promise<void>;
}

const repository = new URL('../../../', import.meta.url).pathname;
export const adminKey = 'sk-test-admin-0123456789abcdef0123456789abcdef';
const prefix = 'hgsw';

export interface SwarmOptions {
  /** Variables of its gateways. */
  readonly env?: Readonly<Record<string, string>>;
  /** Further names of the image on every machine. */
  readonly images?: readonly string[];
  /** Options of every machine's Docker engine. */
  readonly docker?: readonly string[];
  /** Gateways reach the manager only through its door, as in compose/. */
  readonly gated?: boolean;
  /** Each Docker engine has an identity of its own. */
  readonly isApart?: boolean;
}

/** @param gpus what each machine offers, as `GPU-aa`; the first is the manager's */
export async function startSwarm(
  gpus: readonly (readonly string[])[],
  { env = {}, images = [], docker: options = [], gated = false, isApart = false }: SwarmOptions = {},
): Promise<TestSwarm> {
  removeLeftOver();
  const net = createNet();
  const nodes: SwarmMachine[] = [];
  const folders: string[] = [];
  const gateways: SwarmGateway[] = [];
  const manager = (): TestDocker => {
    const [first] = nodes;
    if (first === undefined) throw new Error('The swarm has no manager.');
    return first.docker;
  };
  const call: TestSwarm['call'] = (method, path, body) => manager().call(method, path, body);
  for (const [index, ids] of gpus.entries()) {
    const { address, netns } = net.machine(index);
    const resources = ids.map((id) => `--node-generic-resource=NVIDIA-GPU=${id}`);
    const docker = await startOwnDocker([...resources, ...options], netns, isApart);
    nodes.push({ docker, address, netns });
    for (const other of images) await tag(docker, other);
    await (index === 0 ? initialize(docker, net, address) : join_(manager(), docker, { net, address }));
  }
  // A node that has joined gets tasks once its manager has heard of it.
  await until('all nodes are ready', async () => {
    const known = (await call('GET', '/nodes')) as readonly { Status: { State: string } }[];
    return known.length === nodes.length && known.every(({ Status: { State: state } }) => state === 'ready');
  });
  const folder: TestSwarm['folder'] = (engines) => {
    const dir = mkdtempSync(join(tmpdir(), 'hg-swarm-engines-'));
    folders.push(dir);
    for (const [name, text] of Object.entries(engines)) writeFileSync(join(dir, `${name}.yaml`), text);
    const swarm = { docker: `unix://${manager().socketPath}` };
    if (!gated) writeFileSync(join(dir, 'hosts.yaml'), `${JSON.stringify({ swarm })}\n`);
    return dir;
  };
  return {
    here: net.here,
    nodes,
    call,
    services: async () => (await call('GET', '/services')) as readonly Service[],
    tasks: async () => (await call('GET', '/tasks')) as readonly Task[],
    anchor: (network, labels) => keepNetwork(call, { network, labels, count: nodes.length }),
    folder,
    async open(enginesDir) {
      const gateway = await openGateway(manager(), net, { enginesDir, env, gated });
      gateways.push(gateway);
      return gateway;
    },
    cut: ({ netns }, isCut) => ip('-n', basename(netns), 'link', 'set', 'eth0', isCut ? 'down' : 'up'),
    async stop() {
      await Promise.all(gateways.map((gateway) => gateway.end('SIGTERM')));
      const services = (await call('GET', '/services').catch(() => [])) as readonly Service[];
      await Promise.all(services.map(({ ID: id }) => call('DELETE', `/services/${id}`).catch(() => undefined)));
      for (const { docker } of nodes.toReversed()) {
        await docker.call('POST', '/swarm/leave?force=1').catch(() => undefined);
        await docker.stop();
      }
      net.remove();
      for (const dir of folders) rmSync(dir, { recursive: true, force: true });
    },
  };
}

/**
 * Docker 20.10 rejects tasks with generic resources whenever their node changes, as it does with each network that
 * comes to it or goes (https://github.com/moby/moby/issues/44378, fixed since): a task on every node keeps it there.
 */
async function keepNetwork(
  call: TestSwarm['call'],
  { network, labels, count }: { network: string; labels: Readonly<Record<string, string>>; count: number },
): Promise<void> {
  await call('POST', '/networks/create', { Name: network, Driver: 'overlay', Attachable: true, Labels: labels });
  const { ID: id } = (await call('POST', '/services/create', {
    Name: `keeps-${network}`.slice(0, 63),
    Mode: { Global: {} },
    EndpointSpec: { Mode: 'dnsrr' },
    TaskTemplate: { ContainerSpec: idle, Networks: [{ Target: network }] },
  })) as { ID: string };
  await until(`every node has ${network}`, async () => {
    const tasks = (await call('GET', '/tasks')) as readonly Task[];
    return tasks.filter((task) => task.ServiceID === id && task.Status.State === 'running').length === count;
  });
}

const idle = { Image: image, Command: ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1e6)'] };

async function initialize(docker: TestDocker, net: Net, address: string): Promise<void> {
  await docker.call('POST', '/swarm/init', {
    ListenAddr: '0.0.0.0:2377',
    AdvertiseAddr: address,
    DefaultAddrPool: [net.overlays],
    SubnetSize: 24,
    // A lost node is missed after three of these.
    Spec: { Dispatcher: { HeartbeatPeriod: 1_000_000_000 } },
  });
}

async function join_(
  manager: TestDocker,
  docker: TestDocker,
  { net, address }: { net: Net; address: string },
): Promise<void> {
  const { JoinTokens: tokens } = (await manager.call('GET', '/swarm')) as { JoinTokens: { Worker: string } };
  await docker.call('POST', '/swarm/join', {
    ListenAddr: '0.0.0.0:2377',
    AdvertiseAddr: address,
    RemoteAddrs: [`${net.manager}:2377`],
    JoinToken: tokens.Worker,
  });
}

interface Net {
  /** Address of this end. */
  readonly here: string;
  readonly manager: string;
  /** Range of the swarm's overlay networks. */
  readonly overlays: string;
  machine(index: number): { address: string; netns: string };
  /** A way from here into the network of a process. @returns the address over there */
  reach(pid: number): string;
  remove(): void;
}

function ip(...words: readonly string[]): void {
  execFileSync('ip', words, { stdio: ['ignore', 'ignore', 'pipe'] });
}

function createNet(): Net {
  const id = `${prefix}-${process.pid}-${randomBytes(2).toString('hex')}`;
  const taken = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
  let second = randomInt(30, 90);
  while (taken.some((address) => address.startsWith(`10.${second}.`))) second = randomInt(30, 90);
  const base = `10.${second}`;
  const hub = `${id}-hub`;
  const names = [hub];
  // The bridge stands in a namespace of its own, where no rule of this machine looks at what passes.
  ip('netns', 'add', hub);
  ip('-n', hub, 'link', 'add', 'br0', 'type', 'bridge');
  ip('-n', hub, 'link', 'set', 'br0', 'up');
  // A way to the machines from here, as from a gateway that runs in no container.
  const own = `hg${randomBytes(4).toString('hex')}`;
  ip('link', 'add', own, 'type', 'veth', 'peer', 'name', 'here', 'netns', hub);
  ip('-n', hub, 'link', 'set', 'here', 'master', 'br0', 'up');
  const here = `${base}.0.254`;
  ip('addr', 'add', `${here}/24`, 'dev', own);
  ip('link', 'set', own, 'up');
  let ways = 0;
  return {
    here,
    manager: `${base}.0.1`,
    overlays: `${base}.128.0/17`,
    machine(index) {
      const name = `${id}-${index}`;
      names.push(name);
      const address = `${base}.0.${index + 1}`;
      ip('netns', 'add', name);
      ip('-n', hub, 'link', 'add', `n${index}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
      ip('-n', hub, 'link', 'set', `n${index}`, 'master', 'br0', 'up');
      ip('-n', name, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
      ip('-n', name, 'link', 'set', 'eth0', 'up');
      ip('-n', name, 'link', 'set', 'lo', 'up');
      return { address, netns: `/run/netns/${name}` };
    },
    reach(pid) {
      const own = `hg${randomBytes(4).toString('hex')}`;
      const subnet = `${base}.${64 + ways}`;
      ways += 1;
      ip('link', 'add', own, 'type', 'veth', 'peer', 'name', 'way0', 'netns', String(pid));
      ip('addr', 'add', `${subnet}.1/24`, 'dev', own);
      ip('link', 'set', own, 'up');
      const inside = ['--target', String(pid), '--net', 'ip'];
      execFileSync('nsenter', [...inside, 'addr', 'add', `${subnet}.2/24`, 'dev', 'way0']);
      execFileSync('nsenter', [...inside, 'link', 'set', 'way0', 'up']);
      return `${subnet}.2`;
    },
    remove: () => names.forEach(removeNamespace),
  };
}

function removeNamespace(name: string): void {
  try {
    ip('netns', 'del', name);
  } catch {
    // Gone already.
  }
}

/** Removes parts of runs that were killed. */
function removeLeftOver(): void {
  if (!existsSync('/run/netns')) return;
  for (const name of readdirSync('/run/netns').filter((found) => found.startsWith(`${prefix}-`))) {
    if (!existsSync(`/proc/${name.split('-')[1] ?? ''}`)) removeNamespace(name);
  }
}

async function tag(docker: TestDocker, name: string): Promise<void> {
  const [repo = '', version = ''] = name.split(':');
  await docker.call('POST', `/images/${image}/tag?repo=${repo}&tag=${version}`);
}

async function openGateway(
  docker: TestDocker,
  net: Net,
  { enginesDir, env: given, gated }: { enginesDir: string; env: Readonly<Record<string, string>>; gated: boolean },
): Promise<SwarmGateway> {
  const name = randomBytes(4).toString('hex');
  await docker.call('POST', '/networks/create', { Name: `door-${name}`, Driver: 'bridge' });
  const Labels = gated ? { 'headgate.gateway': 'true' } : {};
  const body = { Image: image, Entrypoint: idle.Command, Labels, HostConfig: { NetworkMode: `door-${name}` } };
  const { Id: id } = (await docker.call('POST', '/containers/create', body)) as { Id: string };
  await docker.call('POST', `/containers/${id}/start`);
  const detail = (await docker.call('GET', `/containers/${id}/json`)) as { State: { Pid: number } };
  const { Pid: pid } = detail.State;
  const address = net.reach(pid);
  const dataDir = join('/tmp', `hg-swarm-${name}`);
  const env = {
    PORT: '8080',
    HOST: '0.0.0.0',
    HEADGATE_DATA_DIR: dataDir,
    HEADGATE_ENGINES_DIR: enginesDir,
    HEADGATE_BOOTSTRAP_KEY: adminKey,
    ...(gated && { DOCKER_HOST: 'tcp://127.0.0.1:2375' }),
    ...given,
  };
  const mount = `for f in hostname resolv.conf; do mount --bind "$1/$f" "/etc/$f" || exit; done; shift; exec "$@"`;
  const files = `${docker.dir}/data/containers/${id}`;
  const network = `--net=/proc/${pid}/ns/net`;
  const inside = [network, 'unshare', '--mount', 'sh', '-c', mount, 'sh', files];
  const launch = () => startProcess([...inside, process.execPath, 'src/programs/start.js'], env);
  const gate = gated ? await startGate(network, docker.socketPath) : null;
  let running = await launch();
  const url = `http://${address}:8080`;
  await liftLimits(url, adminKey);
  const end: SwarmGateway['end'] = (signal = 'SIGTERM') => endProcess(running.child, signal);
  return {
    ...createCaller(url, adminKey),
    url,
    container: id,
    output: () => running.output(),
    gateOutput: () => gate?.output() ?? '',
    reload: () => void running.child.kill('SIGHUP'),
    async end(signal) {
      await end(signal);
      if (gate !== null) await endProcess(gate.child, 'SIGTERM');
      if (signal === 'SIGTERM') rmSync(dataDir, { recursive: true, force: true });
    },
    async restart() {
      await end('SIGINT');
      running = await launch();
    },
  };
}

async function endProcess(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await ended;
}

/** The door to a manager's socket, where only the gateway of that network reaches it. */
function startGate(network: string, socketPath: string): Promise<Running> {
  const env = {
    HEADGATE_DOCKER_SOCKET: socketPath,
    HEADGATE_DOCKER_IMAGES: `${image.split(':')[0] ?? ''}:*`,
    HEADGATE_DOCKER_SWARM: 'true',
  };
  return startProcess([network, process.execPath, 'src/programs/docker-gate.ts'], env, /accepts requests/);
}

interface Running {
  readonly child: ChildProcess;
  output(): string;
}

async function startProcess(
  words: readonly string[],
  env: Readonly<Record<string, string>>,
  isUp = /listens on \S+/,
): Promise<Running> {
  const child = spawn('nsenter', words, {
    cwd: repository,
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  await new Promise<void>((resolve, reject) => {
    const read = (bytes: Buffer): void => {
      text += bytes.toString();
      if (isUp.test(text)) resolve();
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.once('exit', (code) => reject(new Error(`ended with ${code}: ${text}`)));
  });
  return { child, output: () => text };
}
