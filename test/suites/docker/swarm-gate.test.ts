import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createRegistryLogins } from '#base/docker/registry-logins.ts';
import { createLog } from '#base/log.ts';
import { swarmPlacement } from '#core/fleet/drivers/swarm/service.ts';
import { createSwarmDriver } from '#core/fleet/drivers/swarm/swarm.ts';
import { type DockerGate, startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { lostOf, until } from '#test/docker/checked-client.ts';
import { dockerFile } from '#test/docker/docker-gateways.ts';
import { ask, collect, containerEngine, holding, image, newId, statusOf } from '#test/docker/docker-drivers.ts';
import { type Service, startSwarm, type SwarmGateway, type TestSwarm } from '#test/docker/swarm-machines.ts';

const newImage = 'headgate-test/vllm-standin:v0.29.1';
const silent = createLog('silent');
const secret = 'what nobody may read';
const steady = { stream: true, standin: { output_tokens: 20, tpot_ms: 20, finish: 'stop' } };
const engineFile = (fields: object): string =>
  dockerFile('shop', { fields: { driver: 'swarm', env: { TOKEN: '${SECRET_OF_A_TEST}' }, ...fields } });

let swarm: TestSwarm | null = null;
let gate: DockerGate | null = null;
const folder = mkdtempSync(join(tmpdir(), 'hg-swarm-gate-'));
const allowed = join(folder, 'models');
beforeAll(async () => {
  for (const name of ['models', 'keys']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'keys', 'key'), secret);
  swarm = await startSwarm([[]], { env: { SECRET_OF_A_TEST: secret }, images: [newImage], gated: true });
  const policy = {
    images: ['headgate-test/*'],
    binds: [{ source: allowed, isReadOnly: false }],
    volumes: [],
    allowsPorts: true,
    allowsSwarm: true,
    runImages: [],
    runNetworks: [],
  };
  const socketPath = swarm.nodes[0]?.docker.socketPath ?? '';
  gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: silent });
});
afterAll(async () => {
  await gate?.close();
  await swarm?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function lab(): TestSwarm {
  if (swarm === null) throw new Error('There is no swarm.');
  return swarm;
}

async function call(method: string, path: string, body?: object): Promise<{ status: number; text: string }> {
  const sent = body === undefined ? {} : { body: JSON.stringify(body) };
  const answer = await fetch(`http://127.0.0.1:${gate?.port}${path}`, { method, ...sent });
  return { status: answer.status, text: await answer.text() };
}

/** Paths of the objects that a driver makes. */
const left = ['/services', '/secrets', '/networks'];

async function count(path: string, fleetId: string): Promise<number> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`headgate.fleet=${fleetId}`] }));
  return ((await lab().call('GET', `${path}?filters=${filters}`)) as unknown[]).length;
}

describe('the Docker gate on a manager', () => {
  it('hides other services and secrets, and blocks changes to them', async () => {
    const data = Buffer.from(secret).toString('base64');
    const made = (await lab().call('POST', '/secrets/create', { Name: 'prod', Data: data })) as { ID: string };
    const idle = { Image: image, Command: ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1e6)'] };
    const spec = { Name: 'prod', TaskTemplate: { ContainerSpec: idle }, Mode: { Replicated: { Replicas: 1 } } };
    const { ID: id } = (await lab().call('POST', '/services/create', spec)) as { ID: string };
    for (const kind of ['services', 'tasks', 'secrets']) {
      expect(await call('GET', `/${kind}`)).toMatchObject({ status: 200, text: expect.not.stringContaining(id) });
    }
    expect((await call('GET', '/secrets?filters={"name":["prod"]}')).text.trim()).toBe('[]');
    expect((await call('GET', '/nodes')).status).toBe(200);
    const { Version: version } = (await lab().call('GET', `/services/${id}`)) as { Version: { Index: number } };
    const none = { ...spec, Mode: { Replicated: { Replicas: 0 } } };
    const refused = [
      await call('POST', `/services/${id}/update?version=${version.Index}`, none),
      await call('DELETE', '/services/prod'),
      await call('GET', `/services/${id}/logs?stdout=1`),
      await call('DELETE', `/secrets/${made.ID}`),
      await call('GET', '/swarm'),
    ];
    expect(refused.map(({ status }) => status)).toEqual([403, 403, 403, 403, 403]);
    await lab().call('DELETE', `/services/${id}`);
    await lab().call('DELETE', `/secrets/${made.ID}`);
  });

  it('blocks a template that leads a mount out of an allowed folder', async () => {
    const dots = String.raw`{{"\x2e\x2e"}}`;
    const mount = { Type: 'bind', Source: `${allowed}/${dots}/keys`, Target: '/x', ReadOnly: true };
    const driver = createDriver(newId());
    const volumes = [{ source: mount.Source, target: mount.Target, readOnly: true }];
    const spec = driver.specOf(containerEngine({ type: 'swarm', volumes }));
    await driver.open([spec]);
    await driver.start({ replicaId: 'r', spec, placement: swarmPlacement, fence: holding });
    const { replicas } = await driver.observe();
    expect(replicas[0]?.exit?.logTail).toContain('is not allowed; add this folder itself');
    await driver.forget('r', holding);
    await driver.close();
    // The rejections here are real.
    const reading = `require('node:fs').readFileSync('/x/key')`;
    const ContainerSpec = { Image: image, Command: ['/usr/bin/node', '--eval', reading], Mounts: [mount] };
    const body = { Name: 'templated', TaskTemplate: { ContainerSpec, RestartPolicy: { Condition: 'none' } } };
    const { ID: id } = (await lab().call('POST', '/services/create', body)) as { ID: string };
    const complete = await until('its end', async () => {
      const tasks = await lab().tasks();
      return tasks.find((task) => task.ServiceID === id && /complete|rejected|failed/.test(task.Status.State));
    });
    expect(complete.Status).toMatchObject({ State: 'complete' });
    await lab().call('DELETE', `/services/${id}`);
  });

  it('allows the driver to start, read, stop and remove a service with secrets and a port', async () => {
    const fleetId = newId();
    const driver = createDriver(fleetId);
    const engine = containerEngine({ type: 'swarm', env: { TOKEN: '${NAME}' }, shmBytes: 2 ** 26 });
    const spec = driver.specOf(engine);
    await driver.open([spec]);
    const replicaId = newId();
    await driver.start({ replicaId, spec, placement: swarmPlacement, fence: holding });
    const is = (state: string) =>
      until(`it is ${state}`, async () => {
        const { replicas } = await driver.observe();
        return replicas.find((found) => found.replica.id === replicaId && found.state === state);
      });
    const { replica } = await is('running');
    await until('it is ready', async () => (await statusOf(replica, '/health')) === 200);
    expect((await ask(replica.endpoint, '/v1/models', replica.headerLines)).status).toBe(200);
    const options = { tailLines: 10, follow: false, signal: new AbortController().signal };
    await until('a line', async () => (await collect(driver.logs(replicaId, options))).length > 0);
    expect([await count('/services', fleetId), await count('/secrets', fleetId)]).toEqual([1, 2]);
    expect((await changeImage(fleetId)).status).toBe(403);
    const ended = new AbortController();
    const followed = driver.logs(replicaId, { ...options, follow: true, signal: ended.signal });
    expect((await followed[Symbol.asyncIterator]().next()).done).toBe(false);
    ended.abort();
    await driver.stop(replicaId, { fence: holding, graceMs: 1000 });
    expect((await is('exited')).exit).toMatchObject({ stopRequested: true });
    await driver.forget(replicaId, holding);
    await driver.close();
    for (const path of left) expect(await count(path, fleetId), path).toBe(0);
  });

  /** Asks for another image in the one service of a fleet, at its end. */
  async function changeImage(fleetId: string): Promise<{ status: number }> {
    const found = (await lab().services()).find(({ Spec: { Labels: labels } }) => labels['headgate.fleet'] === fleetId);
    const { Version: version } = (await lab().call('GET', `/services/${found?.ID}`)) as { Version: { Index: number } };
    const spec = JSON.stringify(found?.Spec).replaceAll(image, newImage).replace('"Replicas":1', '"Replicas":0');
    return call('POST', `/services/${found?.ID}/update?version=${version.Index}`, JSON.parse(spec) as object);
  }

  function createDriver(fleetId: string) {
    const docker = { type: 'tcp', host: '127.0.0.1', port: gate?.port ?? 0, tls: null } as const;
    return createSwarmDriver({
      swarm: { docker, network: 'host', gpuResource: 'NVIDIA-GPU', secrets: 'files', isNamed: false, gates: null },
      fleetId,
      fleetSecret: 'a secret of the fleet',
      env: { NAME: 'a value' },
      logins: createRegistryLogins({ folder: null, log: silent }),
      log: silent,
      selfContainer: null,
    });
  }
});

describe('a gateway behind the Docker gate on a manager', () => {
  it('starts an engine, updates its image under load without a lost request, and cleans up', async () => {
    const dir = lab().folder({ shop: engineFile({}) });
    const gateway = await lab().open(dir);
    expect(await gateway.chat('shop')).toMatchObject({ ok: true });
    const load = gateway.load('shop', 2, steady);
    await load.more(6);
    writeFileSync(join(dir, 'shop.yaml'), engineFile({ image: newImage }));
    gateway.reload();
    await until('the new one alone', async () => {
      const services = await ours();
      return services.length === 1 && JSON.stringify(services).includes(newImage);
    });
    await load.more(6);
    expect(lostOf(await load.stop())).toEqual([]);
    expect(await ours()).toMatchObject([
      { Spec: { TaskTemplate: { Networks: [{}] }, EndpointSpec: { Mode: 'dnsrr' } } },
    ]);
    const fleetId = (await ours())[0]?.Spec.Labels['headgate.fleet'] ?? '';
    for (const path of left) expect(await count(path, fleetId), path).toBeGreaterThan(0);
    writeFileSync(join(dir, 'shop.yaml'), engineFile({ enabled: false }));
    gateway.reload();
    for (const path of left) {
      await until(`nothing of ${path}`, async () => (await count(path, fleetId)) === 0);
    }
    expectQuiet(gateway);
  });

  async function ours(): Promise<readonly Service[]> {
    return (await lab().services()).filter(({ Spec: { Labels: labels } }) => labels['headgate.engine'] === 'shop');
  }

  /** The gate rejected nothing, and no secret is in a log. */
  function expectQuiet(gateway: SwarmGateway): void {
    expect(gateway.gateOutput()).toContain('docker-gate accepts requests for the Docker socket');
    expect(gateway.gateOutput()).not.toContain('refused');
    for (const value of [secret, Buffer.from(secret).toString('base64')]) {
      expect(gateway.gateOutput()).not.toContain(value);
    }
  }
});
