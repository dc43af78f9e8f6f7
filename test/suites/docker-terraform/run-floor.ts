import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll } from 'vitest';
import { createLog } from '#base/log.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { clearHome, type Home, makeHome } from '#test/programs/gateway-process.ts';
import { keepImages, startDocker, type TestDocker } from '#test/docker.ts';
import { importRunImages, nodeImage, runImage } from './images.ts';

/** Two Docker engines, and two nodes as containers of the first; what is slow to start is there for all tests of a file. */

export const siteNetwork = 'site';
export const nodeNames = ['n0', 'n1'] as const;

export interface RunFloor {
  /** The first, behind the door to its socket; the second is asked at its socket. */
  readonly dockers: readonly [TestDocker, TestDocker];
  readonly nodes: readonly Body[];
  /** Lines of requests that the gate rejected. */
  readonly refused: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Lets the holder of a key into all nodes. */
  authorize(publicKey: string): void;
  /** A folder that this machine and all nodes have at one path. */
  folder(): string;
  /** Where gateways find the engines: the first, or both. */
  home(hosts?: 1 | 2): Home;
  /** Containers of runs, whatever state they are in. */
  runContainers(docker?: TestDocker): Promise<readonly Body[]>;
  inspect(name: string): Promise<Body>;
  /** Checks that an engine has no containers, networks and volumes of runs. */
  leavesNothing(docker?: TestDocker): Promise<void>;
}

interface Opened {
  dockers?: [TestDocker, TestDocker];
  gate?: DockerGate;
  nodes?: Body[];
}

export function useRunFloor(): RunFloor {
  const dir = mkdtempSync(join(tmpdir(), 'hg-run-floor-'));
  const site = join(dir, 'site');
  const keys = join(dir, 'keys');
  const opened: Opened = {};
  const refused: string[] = [];
  const homes: Home[] = [];
  let folders = 0;
  const need = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error('it is there once the tests have begun');
    return value;
  };

  beforeAll(async () => {
    for (const folder of [site, keys]) mkdirSync(folder);
    const first = await startDocker();
    await importRunImages(first);
    const second = await startDocker({ images: keepImages(first), isAnother: true });
    opened.dockers = [first, second];
    for (const docker of opened.dockers) {
      await docker.call('POST', '/networks/create', { Name: siteNetwork, Driver: 'bridge' });
    }
    opened.nodes = await startNodes(first, keys, site);
    const log = createLog('silent');
    log.warn = (about: { reason?: string; call?: string }) => void refused.push(`${about.call}: ${about.reason}`);
    const policy = {
      images: [],
      binds: [],
      volumes: [],
      allowsPorts: false,
      allowsSwarm: false,
      runImages: [runImage],
      runNetworks: [siteNetwork],
    };
    opened.gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath: first.socketPath, policy, log });
  });
  afterEach(async () => {
    refused.splice(0);
    for (const home of homes.splice(0)) await clearHome(home);
    for (const docker of need(opened.dockers)) await removeRuns(docker).catch(() => undefined);
  });
  afterAll(async () => {
    await opened.gate?.close();
    for (const docker of opened.dockers ?? []) await docker.stop();
    rmSync(dir, { recursive: true, force: true });
  });

  const floor: RunFloor = {
    get dockers() {
      return need(opened.dockers);
    },
    get nodes() {
      return need(opened.nodes);
    },
    refused,
    env: { HEADGATE_RUNS_IMAGE: runImage, HEADGATE_RUNS_NETWORK: siteNetwork, HEADGATE_RUNS_MEMORY_MIB: '256' },
    authorize: (publicKey) => appendFileSync(join(keys, 'authorized'), `${publicKey}\n`),
    folder() {
      const folder = join(site, `f${(folders += 1)}`);
      mkdirSync(folder, { mode: 0o777 });
      return folder;
    },
    home(hosts = 1) {
      const home = makeHome({});
      const first = {
        name: 'one',
        docker: `tcp://127.0.0.1:${need(opened.gate).port}`,
        address: '127.0.0.1',
        gpus: [],
      };
      const second = { name: 'two', docker: `unix://${need(opened.dockers)[1].socketPath}`, gpus: [] };
      const all = hosts === 1 ? [first] : [first, second];
      writeFileSync(join(home.enginesDir, 'hosts.yaml'), JSON.stringify({ hosts: all }));
      homes.push(home);
      return home;
    },
    runContainers: (docker = floor.dockers[0]) => containersOf(docker),
    inspect: (name) => floor.dockers[0].call('GET', `/containers/${name}/json`) as Promise<Body>,
    async leavesNothing(docker = floor.dockers[0]) {
      await eventually(async () => {
        const [containers, networks, volumes]: Body[] = await Promise.all([
          containersOf(docker),
          docker.call('GET', '/networks?filters={"label":["headgate.run"]}'),
          docker.call('GET', '/volumes'),
        ]);
        return containers.length + networks.length + (volumes.Volumes ?? []).length === 0 || null;
      });
    },
  };
  return floor;
}

async function containersOf(docker: TestDocker): Promise<readonly Body[]> {
  return (await docker.call('GET', '/containers/json?all=1&filters={"label":["headgate.run"]}')) as readonly Body[];
}

async function removeRuns(docker: TestDocker): Promise<void> {
  for (const { Id: id } of await containersOf(docker)) await docker.call('DELETE', `/containers/${id}?force=1&v=1`);
  const networks = (await docker.call('GET', '/networks?filters={"label":["headgate.run"]}')) as readonly Body[];
  for (const { Id: id } of networks) await docker.call('DELETE', `/networks/${id}`);
}

/** OpenSSH servers, each with an address of its own in the network of the site. */
export async function startNodes(docker: TestDocker, keys: string, site: string): Promise<Body[]> {
  execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(keys, 'host')]);
  writeFileSync(join(keys, 'authorized'), '');
  const settings = [
    'HostKey /keys/host',
    'AuthorizedKeysFile /keys/authorized',
    'PidFile none',
    'StrictModes no',
    'UsePAM no',
    'PasswordAuthentication no',
    'KbdInteractiveAuthentication no',
    'PermitRootLogin prohibit-password',
  ];
  writeFileSync(join(keys, 'config'), `${settings.join('\n')}\n`);
  const hostKey = readFileSync(join(keys, 'host.pub'), 'utf8').trim();
  const nodes: Body[] = [];
  for (const name of [...nodeNames, 'stranger']) {
    const { Id: id }: Body = await docker.call('POST', `/containers/create?name=${name}`, {
      Image: nodeImage,
      HostConfig: { NetworkMode: siteNetwork, Binds: [`${keys}:/keys:ro`, `${site}:${site}`], Init: true },
    });
    await docker.call('POST', `/containers/${id}/start`);
    const found: Body = await docker.call('GET', `/containers/${id}/json`);
    const address = found.NetworkSettings.Networks[siteNetwork].IPAddress;
    nodes.push({ name, address, ssh_port: 22, ssh_user: 'root', host_key: hostKey, hardware_profile: 'plain' });
  }
  return nodes;
}
