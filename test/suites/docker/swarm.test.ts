import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { overlayName } from '#core/fleet/drivers/swarm/service.ts';
import { figure, lostOf, until } from '#test/docker/checked-client.ts';
import { dockerFile, type EngineFile } from '#test/docker/docker-gateways.ts';
import {
  type Service,
  type SwarmGateway,
  type SwarmMachine,
  startSwarm,
  type TestSwarm,
} from '#test/docker/swarm-machines.ts';

const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } };
const newImage = 'headgate-test/vllm-standin:v0.29.1';
const secret = 'what nobody may read';
const two = { replicas: { min: 2, max: 2 }, env: { TOKEN: '${SECRET_OF_A_TEST}' } };
const one = { gpus: { count: 1 } };
const swarmFile = (id: string, { flags = [], fields = {} }: EngineFile = {}): string =>
  dockerFile(id, { flags, fields: { driver: 'swarm', ...fields } });

let started: { swarm: TestSwarm; gateway: SwarmGateway; dir: string } | null = null;
beforeAll(async () => {
  // A request to a node that failed at that moment is given up after this.
  const env = { SECRET_OF_A_TEST: secret, HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: '30' };
  const swarm = await startSwarm([[], ['GPU-aaaa']], { env, images: [newImage] });
  const dir = swarm.folder({
    chat: swarmFile('chat', { fields: two }),
    left: swarmFile('left', { fields: one }),
    right: swarmFile('right', { fields: one }),
    huge: swarmFile('huge', { fields: { gpus: { count: 2 } } }),
  });
  started = { swarm, gateway: await swarm.open(dir), dir };
});
afterAll(() => started?.swarm.stop());

function all(): { swarm: TestSwarm; gateway: SwarmGateway; dir: string } {
  if (started === null) throw new Error('There is no swarm.');
  return started;
}

async function servicesOf(engineId: string): Promise<readonly Service[]> {
  return (await all().swarm.services()).filter(
    ({ Spec: { Labels: labels } }) => labels['headgate.engine'] === engineId,
  );
}

/** By node, of replicas that run. */
async function nodesOf(engineId: string): Promise<readonly (string | undefined)[]> {
  const services = new Set((await servicesOf(engineId)).map(({ ID: id }) => id));
  const tasks = (await all().swarm.tasks()).filter(({ ServiceID: id = '' }) => services.has(id));
  return tasks.filter(({ Status: { State: state } }) => state === 'running').map(({ NodeID: id }) => id);
}

/** Variables of all containers of a machine, as they are. */
async function environmentsOf(machine: SwarmMachine | undefined): Promise<readonly string[]> {
  if (machine === undefined) return [];
  const { docker } = machine;
  const containers = (await docker.call('GET', '/containers/json')) as readonly { Id: string }[];
  const details = await Promise.all(containers.map(({ Id: id }) => docker.call('GET', `/containers/${id}/json`)));
  return (details as readonly { Config: { Env: string[] } }[]).flatMap(({ Config: { Env: env } }) => env);
}

async function untilReady(engineId: string, count: number): Promise<void> {
  await until(`${count} replicas of ${engineId}`, async () => {
    const { replicas } = await all().gateway.engine(engineId);
    return replicas.filter(({ state }: { state: string }) => state === 'ready').length === count;
  });
}

describe('engines as services of a swarm', () => {
  it('answer task by task on each node, over a network that the gateway has joined', async () => {
    const { gateway } = all();
    // A manager that is busy electing refuses for a moment; clients come again, as Retry-After says.
    await until('the first answer', async () => (await gateway.chat('chat')).ok);
    await untilReady('chat', 2);
    expect(new Set(await nodesOf('chat')).size).toBe(2);
    const { replicas } = await gateway.engine('chat');
    const load = gateway.load('chat', 4, steady);
    await load.more(8);
    // Between two requests a replica may have none for a moment.
    const fewestRunning = async (): Promise<number> => {
      const { replicas: now } = await gateway.engine('chat');
      return Math.min(...now.map((replica: { running: number }) => replica.running));
    };
    await expect.poll(fewestRunning).toBeGreaterThan(0);
    expect(lostOf(await load.stop())).toEqual([]);
    expect(replicas).toHaveLength(2);
  });

  it('hide their secrets: services show none, and each Swarm secret belongs to one service', async () => {
    const { swarm } = all();
    const services = await servicesOf('chat');
    const text = JSON.stringify(services);
    expect(text).not.toContain(secret);
    expect(text).not.toMatch(/hg-[A-Za-z0-9_-]{43}/);
    expect(text).not.toContain('VLLM_API_KEY=hg');
    const replicaOf = ({ Spec: { Labels: labels } }: Pick<Service, 'Spec'>) => labels['headgate.replica'] ?? '';
    const owners = async (): Promise<readonly string[]> =>
      ((await swarm.call('GET', '/secrets')) as readonly Service[]).map(replicaOf).toSorted();
    // Those of a service that has just gone are deleted after it.
    await expect
      .poll(owners)
      .toEqual(services.flatMap((service) => [replicaOf(service), replicaOf(service)]).toSorted());
  });

  it('are adopted by the next gateway', async () => {
    const { gateway } = all();
    const before = (await servicesOf('chat')).map(({ ID: id }) => id).toSorted();
    await gateway.restart();
    expect(await gateway.chat('chat')).toMatchObject({ ok: true });
    await untilReady('chat', 2);
    expect((await servicesOf('chat')).map(({ ID: id }) => id).toSorted()).toEqual(before);
  });

  it('are updated under load without a lost request', async (test) => {
    const { gateway, dir } = all();
    const load = gateway.load('chat', 4, steady);
    await load.more(10);
    writeFileSync(join(dir, 'chat.yaml'), swarmFile('chat', { fields: { ...two, image: newImage } }));
    gateway.reload();
    await until('the new ones alone', async () => {
      const services = await servicesOf('chat');
      return services.length === 2 && services.every(({ Spec: spec }) => JSON.stringify(spec).includes(newImage));
    });
    await load.more(10);
    const answers = await load.stop();
    expect(lostOf(answers)).toEqual([]);
    await figure(test, 'swarm, rolling update of the image: requests, lost', `${answers.length}, 0`);
  });

  it('wait for a GPU of another engine, which is stopped', async (test) => {
    const { swarm, gateway } = all();
    const [chat] = await servicesOf('chat');
    const fleetId = chat?.Spec.Labels['headgate.fleet'] ?? '';
    for (const id of ['left', 'right']) await swarm.anchor(overlayName(fleetId, id), { 'headgate.fleet': fleetId });
    expect(await gateway.chat('left')).toMatchObject({ ok: true });
    expect(JSON.stringify(await servicesOf('left'))).toContain('{"Kind":"NVIDIA-GPU","Value":1}');
    expect(await environmentsOf(swarm.nodes[1])).toContain('DOCKER_RESOURCE_NVIDIA-GPU=GPU-aaaa');
    const sentAtMs = performance.now();
    expect(await gateway.chat('right')).toMatchObject({ ok: true });
    await figure(test, 'swarm, eviction to first answer: ms', Math.round(performance.now() - sentAtMs));
    expect(await nodesOf('right')).toHaveLength(1);
    expect(await nodesOf('left')).toHaveLength(0);
  });

  it('are updated one by one when two do not fit', async () => {
    const { gateway, dir } = all();
    writeFileSync(join(dir, 'right.yaml'), swarmFile('right', { fields: { ...one, image: newImage } }));
    gateway.reload();
    await until('the new one alone', async () => {
      const services = await servicesOf('right');
      return services.length === 1 && JSON.stringify(services).includes(newImage);
    });
    await untilReady('right', 1);
    expect(await gateway.chat('right')).toMatchObject({ ok: true });
    expect(await gateway.engine('right')).toMatchObject({ rollout: null });
  });

  it('report that no node can ever hold them', async () => {
    const { gateway } = all();
    const answer = await gateway.chat('huge');
    expect(answer).toMatchObject({ ok: false, status: 503 });
    expect(answer.text).toContain('No GPU fits the requirements of this model.');
    expect(await nodesOf('right')).toHaveLength(1);
  });

  it('move to another node when theirs is lost, and answer meanwhile', async (test) => {
    const { swarm, gateway } = all();
    const [, worker] = swarm.nodes;
    if (worker === undefined) throw new Error('The swarm has one node.');
    await untilReady('chat', 2);
    const [manager] = (await swarm.call('GET', '/nodes?filters={"role":["manager"]}')) as readonly { ID: string }[];
    const load = gateway.load('chat', 2, steady);
    await load.more(4);
    const goneAtMs = performance.now();
    swarm.cut(worker, true);
    try {
      await until('both on the node that is left', async () => {
        const nodes = await nodesOf('chat');
        return nodes.length >= 2 && nodes.filter((id) => id === manager?.ID).length === 2;
      });
      await untilReady('chat', 2);
      await figure(test, 'swarm, node gone to two ready again: ms', Math.round(performance.now() - goneAtMs));
      await load.more(10);
    } finally {
      const lost = lostOf(await load.stop());
      swarm.cut(worker, false);
      await figure(test, 'swarm, node gone: requests lost', `${lost.length} of ${load.answers.length}`);
    }
    expect(await gateway.chat('chat')).toMatchObject({ ok: true });
  });

  it('are removed completely with their files', async () => {
    const { swarm, gateway, dir } = all();
    for (const id of ['chat', 'left', 'right', 'huge']) {
      writeFileSync(join(dir, `${id}.yaml`), swarmFile(id, { fields: { enabled: false } }));
    }
    gateway.reload();
    const left = async (path: string): Promise<number> => ((await swarm.call('GET', path)) as unknown[]).length;
    const filters = encodeURIComponent(JSON.stringify({ label: ['headgate.engine=chat'] }));
    await until('no service', async () => (await left(`/services?filters=${filters}`)) === 0);
    await until('no secret', async () => (await left('/secrets')) === 0);
    await until('no network', async () => (await left(`/networks?filters=${filters}`)) === 0);
    expect(await servicesOf('right')).toEqual([]);
  });
});
