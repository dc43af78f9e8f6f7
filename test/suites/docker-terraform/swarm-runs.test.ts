import { execFileSync } from 'node:child_process';
import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { findProgram } from '#test/compose.ts';
import type { TestDocker } from '#test/docker.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { image as gateImage } from '#test/docker/docker-drivers.ts';
import { adminKey, startSwarm, type SwarmGateway, type TestSwarm } from '#test/docker/swarm-machines.ts';
import { rowsOf } from '#test/terraform/printed.ts';
import { RunClient } from '#test/terraform/run-gateway.ts';
import { waitingStack } from '#test/terraform/waiting-stacks.ts';
import { importRunImages, runImage } from './images.ts';
import { siteNetwork, startNodes } from './run-floor.ts';

/**
 * Two machines that are a swarm, and a gateway in a container on the manager; the gates are deployed from the file that
 * operators deploy. Nodes of clusters are in an overlay network that runs of every machine are in.
 */
const repository = new URL('../../../', import.meta.url).pathname;
const dir = mkdtempSync(join(tmpdir(), 'hg-swarm-runs-'));
const [site, keys, sockets] = ['site', 'keys', 'sockets'].map((name) => join(dir, name)) as [string, string, string];
const gates = 'headgate-gates';
const rows = Array.from({ length: 400 }, (_, index) => index + 1);

interface Scene {
  readonly swarm: TestSwarm;
  readonly gateway: SwarmGateway;
  readonly client: RunClient;
  readonly nodes: readonly Body[];
}
let scene: Scene | null = null;
let swarm: TestSwarm | null = null;

beforeAll(async () => {
  for (const folder of [site, keys, sockets]) mkdirSync(folder);
  const env = {
    HEADGATE_RUNS_IMAGE: runImage,
    HEADGATE_RUNS_NETWORK: siteNetwork,
    HEADGATE_RUNS_MEMORY_MIB: '256',
    HEADGATE_RUNS_AT_ONCE: '4',
    HEADGATE_TERRAFORM_BIN: '/nonexistent/terraform',
  };
  swarm = await startSwarm([[], []], { env, isApart: true });
  for (const { docker } of swarm.nodes) {
    await importRunImages(docker);
    // A service is the same on every node: its mount finds the socket by the node's id.
    const { Swarm: own } = (await docker.call('GET', '/info')) as Body;
    mkdirSync(join(sockets, own.NodeID));
    symlinkSync(docker.socketPath, join(sockets, own.NodeID, 'docker.sock'));
  }
  const overlay = { Driver: 'overlay', Attachable: true };
  await swarm.call('POST', '/networks/create', { ...overlay, Name: siteNetwork });
  await swarm.call('POST', '/networks/create', { ...overlay, Name: gates, Internal: true });
  const nodes = await startNodes(machine(0), keys, site);
  const folder = swarm.folder({});
  const settings = { docker: `unix://${machine(0).socketPath}`, gates: 'tcp://tasks.headgate_gate:2375' };
  writeFileSync(join(folder, 'hosts.yaml'), JSON.stringify({ swarm: settings }));
  const gateway = await swarm.open(folder);
  await swarm.call('POST', `/networks/${gates}/connect`, { Container: gateway.container });
  scene = { swarm, gateway, client: new RunClient(gateway.url, adminKey), nodes };
});
afterAll(async () => {
  await swarm?.stop();
  rmSync(dir, { recursive: true, force: true });
});

function machine(index: number): TestDocker {
  const found = swarm?.nodes[index];
  if (found === undefined) throw new Error('there is no such machine');
  return found.docker;
}

function all(): Scene {
  if (scene === null) throw new Error('There is no swarm.');
  return scene;
}

/**
 * As operators do it, with this repository in the place of an image of it; again if it fails, as they would, since the
 * manager of a busy machine can be without a leader for a moment.
 */
async function deployGates(): Promise<void> {
  const override = join(dir, 'override.yaml');
  const here = { type: 'bind', source: repository, target: '/repository', read_only: true };
  const gate = {
    working_dir: '/repository',
    entrypoint: ['/usr/bin/node', 'src/programs/docker-gate.ts'],
    volumes: [here],
  };
  writeFileSync(override, JSON.stringify({ services: { gate } }));
  const files = ['compose/swarm-gates.yaml', override].map((path) => `--compose-file=${path}`);
  const words = ['--host', `unix://${machine(0).socketPath}`, 'stack', 'deploy', '--resolve-image=never', ...files];
  const docker = findProgram('docker', process.env) ?? 'docker';
  const env = {
    PATH: process.env['PATH'],
    HOME: dir,
    GATEWAY_IMAGE: gateImage,
    DOCKER_ALLOWED_RUN_IMAGES: runImage,
    DOCKER_ALLOWED_RUN_NETWORKS: siteNetwork,
    DOCKER_SOCKET: `${sockets}/{{.Node.ID}}/docker.sock`,
  };
  const deploy = (): string =>
    execFileSync(docker, [...words, 'headgate'], {
      cwd: repository,
      stdio: ['ignore', 'pipe', 'pipe'],
      env,
      encoding: 'utf8',
    });
  await vi.waitFor(deploy, { timeout: 60_000, interval: 1000 });
}

async function gateTasks(): Promise<readonly Body[]> {
  const tasks = (await all().swarm.call('GET', '/tasks?filters={"service":["headgate_gate"]}')) as readonly Body[];
  return tasks.filter(({ Status: { State: state } }) => state === 'running');
}

let count = 0;
async function newCluster(): Promise<Body> {
  const { client, nodes } = all();
  const { id } = await client.made('/v1/organizations', { name: `Organization ${(count += 1)}` });
  const cluster = await client.made('/v1/clusters', {
    name: `swarm-${count}`,
    organization_id: id,
    nodes: nodes.slice(0, 2),
  });
  appendFileSync(join(keys, 'authorized'), `${cluster.access_identity.public_key}\n`);
  return cluster;
}

async function begin(name: string, main: string, inputs: object = {}): Promise<Body> {
  const cluster = await newCluster();
  const uploaded = await all().client.upload(name, main);
  if (uploaded.status >= 300) throw new Error(JSON.stringify(uploaded.body));
  return all().client.apply(name, cluster.id, inputs);
}

/** Ids of runs that are being applied on a machine. */
async function appliedOn(index: number): Promise<readonly string[]> {
  const found = await machine(index).call('GET', '/containers/json?filters={"label":["headgate.phase=apply"]}');
  return (found as readonly Body[]).map(({ Labels: marks }) => `run_${marks['headgate.run'].replaceAll('-', '')}`);
}

/** Neither containers of runs nor their volumes. */
async function leavesNothing(): Promise<void> {
  for (const index of [0, 1]) {
    await eventually(async () => {
      const [containers, volumes] = (await Promise.all([
        machine(index).call('GET', '/containers/json?all=1&filters={"label":["headgate.run"]}'),
        machine(index).call('GET', '/volumes'),
      ])) as [readonly Body[], Body];
      return containers.length + (volumes.Volumes ?? []).length === 0;
    });
  }
}

const endless = `
resource "terraform_data" "program" {
  provisioner "local-exec" {
    command = "echo 'it runs.'; while true; do sleep 0.2; done"
  }
}
`;

describe('runs on the nodes of a swarm', () => {
  it("are rejected while no gate runs, and not run on the gateway's own machine", async () => {
    const { client } = all();
    const cluster = await newCluster();
    const answer = await client.ask('/v1/stacks/scheduler/apply', { body: { cluster_id: cluster.id } });
    expect([answer.status, answer.body.error.code]).toEqual([503, 'RUNNER_UNAVAILABLE']);
    expect(answer.body.error.message).toContain('swarm: tasks.headgate_gate has no address');
  });

  it('are spread evenly over all nodes, through the gate on each', async () => {
    const { client, gateway } = all();
    await deployGates();
    await eventually(async () => (await gateTasks()).length === 2);
    const found = (): readonly string[] =>
      gateway
        .output()
        .split('\n')
        .filter((line) => line.includes('this host accepts runs'));
    await eventually(async () => found().length === 2);
    // As the machines call themselves, which here are one.
    for (const line of found()) expect(line).toContain(`"host":"${hostname()}"`);
    const runs: Body[] = [];
    for (let index = 0; index < 4; index += 1) runs.push(await begin('endless', endless));
    for (const { id } of runs) await client.prints(id, 'it runs.');
    const [onFirst, onSecond] = [await appliedOn(0), await appliedOn(1)];
    expect([onFirst.length, onSecond.length]).toEqual([2, 2]);
    expect([...onFirst, ...onSecond].toSorted()).toEqual(runs.map(({ id }) => String(id)).toSorted());
    for (const { id } of runs) await client.made(`/v1/runs/${id}/cancel`);
    for (const { id } of runs) await client.becomes(id, 'CANCELED');
    await leavesNothing();
  });

  it('continue when the gates are restarted at other addresses', async () => {
    const { client } = all();
    const folder = join(site, 'waiting');
    mkdirSync(folder, { mode: 0o777 });
    const run = await begin('waiting', waitingStack(), { folder });
    await client.prints(run.id, 'row 200.');
    const before = await gateTasks();
    for (const index of [0, 1]) {
      const own = (await machine(index).call('GET', '/containers/json')) as readonly Body[];
      const gate = own.find(({ Labels: marks }) => marks['com.docker.swarm.service.name'] === 'headgate_gate');
      await machine(index).call('DELETE', `/containers/${gate.Id}?force=1`);
    }
    await eventually(async () => {
      const now = await gateTasks();
      return now.length === 2 && now.every(({ ID: id }) => before.every((task) => task.ID !== id));
    });
    writeFileSync(join(folder, 'go'), '');
    await client.becomes(run.id, 'APPLIED');
    expect(rowsOf(await client.log(run.id))).toEqual(rows);
    expect(readFileSync(join(folder, 'times'), 'utf8')).toBe('once\n');
    const destroying = await client.made(`/v1/runs/${run.id}/destroy`);
    await client.becomes(destroying.id, 'DESTROYED');
    await leavesNothing();
  });
});
