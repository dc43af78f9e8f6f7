import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import type { DockerHostSettings, EngineDefinition } from '#core/catalog/catalog.ts';
import { containerName, networkName } from '#core/fleet/drivers/docker/labels.ts';
import { FenceLostError } from '#core/fleet/drivers/fence.ts';
import { startDockerGate } from '#edge/docker-gate/docker-gate.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import {
  ask,
  collect,
  containerEngine,
  createLab,
  holding,
  image,
  localHost,
  newId,
  scriptEngine,
  statusOf,
  type TestDriver,
} from '#test/docker/docker-drivers.ts';

const lab = createLab();

/** Prints the lines of a file of /proc that begin with these words, each with its first value. */
const showLines = (file: string, words: string) => `
  const text = require('node:fs').readFileSync('/proc/self/${file}', 'utf8');
  for (const line of text.split('\\n')) {
    const [name, value] = line.split(/:?\\s{2,}|:\\s/);
    if (/^(?:${words})$/.test(name)) console.log(name, value);
  }`;

/** Returns what a container wrote until its end. */
async function outputOf(test: TestDriver, definition: EngineDefinition): Promise<string[]> {
  const id = await test.start(definition);
  const { exit } = await test.untilIs(id, 'exited');
  expect(exit).toMatchObject({ startErrorCode: null, exitCode: 0 });
  return collect(test.driver.logs(id, { tailLines: 10, follow: false, signal: AbortSignal.timeout(60_000) }));
}

/** A docker-gate before the engine, and its address. */
async function openGate(
  socketPath: string,
): Promise<{ address: DockerHostSettings['docker']; close: () => Promise<void> }> {
  const none = { binds: [], volumes: [], allowsPorts: false, allowsSwarm: false, runImages: [], runNetworks: [] };
  const policy = { images: [image], ...none };
  const gate = await startDockerGate({ host: '127.0.0.1', port: 0, socketPath, policy, log: createLog('silent') });
  return { address: { type: 'tcp', host: '127.0.0.1', port: gate.port, tls: null }, close: () => gate.close() };
}

describe.concurrent('a container that cannot start', () => {
  it('is not created without a valid fence', async () => {
    const test = await lab.open();
    const fence = { epoch: 1n, holds: () => Promise.resolve(false) };
    await expect(test.start(containerEngine(), { fence })).rejects.toThrow(FenceLostError);
    expect(await lab.containersOf(test.fleetId)).toEqual([]);
    expect(await lab.networksOf(test.fleetId)).toEqual([]);
  });

  it('is not created, or not started, when the fence is lost meanwhile', async () => {
    for (const yes of [1, 2, 3]) {
      const test = await lab.open();
      let asked = 0;
      const fence = { epoch: 1n, holds: () => Promise.resolve((asked += 1) <= yes) };
      const id = await test.start(containerEngine(), { fence });
      const { exit } = await test.untilIs(id, 'exited');
      expect(exit).toMatchObject({ stopRequested: true, startErrorCode: 'FENCE_LOST' });
      expect(await lab.networksOf(test.fleetId)).toHaveLength(yes === 1 ? 0 : 1);
      expect((await lab.containersOf(test.fleetId)).map(({ State: state }) => state)).toEqual(
        yes === 3 ? ['created'] : [],
      );
    }
  });

  it('reports that its host is unknown', async () => {
    const test = await lab.open();
    const placement = { host: 'elsewhere', gpuIds: [] };
    const id = await test.start(containerEngine(), { placement });
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit && explainExit(exit)).toMatchObject({
      kind: 'host_unreachable',
      detail: 'The Docker host elsewhere does not exist.',
    });
    await test.driver.forget(id, holding);
    expect((await test.driver.observe()).replicas).toEqual([]);
  });

  const missing = `127.0.0.1:9/acme/no-such-engine:v1`;
  it.each([
    ['an image that is not there', { image: missing }, /^(IMAGE_NOT_FOUND|IMAGE_PULL_FAILED)$/],
    ['an image whose name is wrong', { image: 'Not/An Image' }, /^IMAGE_NOT_FOUND$/],
    ['a folder of the host that is not there', { volumes: [volume('/no/such/folder')] }, /^MOUNT$/],
    ['a variable that refers to one that is not set', { env: { HF_TOKEN: '${NO_SUCH}' } }, /^MISSING_VARIABLE$/],
  ] as const)('reports %s', async (_, driver, code) => {
    const test = await lab.open();
    const id = await test.start(containerEngine(driver));
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit?.startErrorCode).toMatch(code);
    expect(exit).toMatchObject({ stopRequested: false, exitCode: null });
    await test.driver.forget(id, holding);
    expect((await test.driver.observe()).replicas).toEqual([]);
    expect(await lab.containersOf(test.fleetId)).toEqual([]);
    expect(await lab.networksOf(test.fleetId)).toEqual([]);
  });

  it.each([
    ['nvidia', 'GPU-aaaa'],
    ['rocm', 'renderD999'],
  ] as const)('reports a missing GPU (gpu_access: %s), also to the next gateway', async (gpuAccess, gpuId) => {
    const hosts = [localHost(lab.docker(), { gpuAccess })];
    const test = await lab.open(hosts);
    const placement = { host: 'local', gpuIds: [gpuId] };
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['renderD999'] })).toBeNull();
    const id = await test.start(containerEngine(), { placement });
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit?.startErrorCode).toBe('NO_SUCH_DEVICE');
    const next = await lab.open(hosts, [containerEngine()], { fleetId: test.fleetId });
    const seen = await next.untilIs(id, 'exited');
    expect(seen.exit).toMatchObject({ stopRequested: false, startErrorCode: 'NO_SUCH_DEVICE' });
    expect(seen.placement).toEqual(placement);
  });
});

function volume(source: string) {
  return { source, target: '/data', readOnly: true };
}

describe.concurrent('a running container', () => {
  it('answers on its own network and to the gateway only, as vLLM with the added arguments', async () => {
    const test = await lab.open();
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    expect(replica).toMatchObject({ id, engineId: 'chat', kind: 'vllm', forcedUsage: true, upstreamModel: null });
    expect(await statusOf(replica, '/v1/models', false)).toBe(401);
    const models = await ask(replica.endpoint, '/v1/models', replica.headerLines);
    expect(models.status).toBe(200);
    for (const name of ['chat', 'Chat', 'acme/chat']) expect(models.text).toContain(`"id":"${name}"`);
    expect(await statusOf(replica, '/is_sleeping')).toBe(200);
    const [container] = await lab.containersOf(test.fleetId);
    expect(container?.Names[0]).toMatch(/^\/headgate-chat-[0-9a-f]{10}$/);
    const detail = (await lab.docker().call('GET', `/containers/${container?.Id}/json`)) as {
      HostConfig: Record<string, unknown>;
      NetworkSettings: { Ports: Record<string, unknown>; Networks: object };
      Config: { Env: string[]; Healthcheck: unknown };
    };
    expect(detail.NetworkSettings.Ports).toEqual({ '8000/tcp': null });
    expect(Object.keys(detail.NetworkSettings.Networks)).toEqual([
      expect.stringMatching(/^headgate-chat-[0-9a-f]{10}$/),
    ]);
    expect(detail.HostConfig).toMatchObject({
      Init: true,
      RestartPolicy: { Name: 'no' },
      SecurityOpt: ['no-new-privileges'],
      LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
    });
    expect(detail.Config.Healthcheck).toEqual({ Test: ['NONE'] });
    expect(detail.Config.Env).toContain('VLLM_NO_USAGE_STATS=1');
  });

  it('is started once for repeated and concurrent starts', async () => {
    const test = await lab.open();
    const replicaId = newId();
    await Promise.all([1, 2, 3].map(() => test.start(containerEngine(), { replicaId })));
    const other = await lab.open([localHost(lab.docker())], [containerEngine()], { fleetId: test.fleetId });
    await other.start(containerEngine(), { replicaId });
    await test.untilReady(replicaId);
    await test.start(containerEngine(), { replicaId });
    expect(await lab.containersOf(test.fleetId)).toHaveLength(1);
    expect((await other.until(({ replicas }) => replicas[0]?.state === 'running' && replicas)).length).toBe(1);
  });

  it('is started when Docker lists it but cannot find it yet', async () => {
    // Docker fills a new volume from the image first, which takes a while with all of its programs.
    const engine = containerEngine({ volumes: [{ source: `filled-${newId()}`, target: '/usr', readOnly: false }] });
    const test = await lab.open();
    const other = await lab.open([localHost(lab.docker())], [engine], { fleetId: test.fleetId });
    const replicaId = newId();
    const first = test.start(engine, { replicaId });
    let listed = await lab.containersOf(test.fleetId);
    while (listed.length === 0) listed = await lab.containersOf(test.fleetId);
    await other.start(engine, { replicaId });
    await first;
    await Promise.all([test.untilReady(replicaId), other.untilReady(replicaId)]);
    expect(await lab.containersOf(test.fleetId)).toHaveLength(1);
  });

  it('is started when its network exists twice, which Docker allows for concurrent calls', async () => {
    const test = await lab.open();
    const name = networkName(test.fleetId, 'chat');
    const marks = { 'headgate.managed': 'true', 'headgate.fleet': test.fleetId, 'headgate.engine': 'chat' };
    const double = (): Promise<unknown> =>
      lab.docker().call('POST', '/networks/create', { Name: name, Driver: 'bridge', Labels: marks });
    await double();
    await double();
    expect(await lab.networksOf(test.fleetId)).toHaveLength(2);
    const first = await test.untilReady(await test.start(containerEngine()));
    expect(await lab.networksOf(test.fleetId)).toHaveLength(1);
    // Now one is in use.
    await double();
    await test.untilReady(await test.start(containerEngine()));
    expect(await lab.networksOf(test.fleetId)).toHaveLength(1);
    expect(await statusOf(first, '/health')).toBe(200);
  });

  it('gets its name once Docker frees it', async () => {
    const test = await lab.open();
    const replicaId = newId();
    const name = containerName(test.fleetId, containerEngine().id, replicaId);
    // Nothing of ours has that name, as while another call that makes the container has reserved it.
    const docker = lab.docker();
    const other = (await docker.call('POST', `/containers/create?name=${name}`, { Image: image })) as { Id: string };
    let asked = 0;
    const fence = { epoch: 1n, holds: () => Promise.resolve((asked += 1) > 0) };
    await test.start(containerEngine(), { replicaId, fence });
    // Once for the network, then before each try.
    await test.until(() => asked > 4);
    await docker.call('DELETE', `/containers/${other.Id}`);
    await test.untilReady(replicaId);
    expect(await lab.containersOf(test.fleetId)).toHaveLength(1);
  });

  it('has its own key and address beside another replica of its engine', async () => {
    const test = await lab.open();
    const [a, b] = await Promise.all([test.start(containerEngine()), test.start(containerEngine())]);
    const [first, second] = await Promise.all([test.untilReady(a), test.untilReady(b)]);
    expect(first.endpoint.host).not.toBe(second.endpoint.host);
    expect(first.headerLines).not.toBe(second.headerLines);
    expect(await statusOf({ ...second, headerLines: first.headerLines }, '/v1/models')).toBe(401);
    expect(await lab.networksOf(test.fleetId)).toHaveLength(1);
  });

  it('gets its devices, secrets by reference and arguments for all its GPUs', async () => {
    const lines: string[] = [];
    const log = createLog('trace', { write: (line: string) => void lines.push(line) });
    const engine = containerEngine({
      gpus: { count: 2, memoryBytesMin: null, profile: null },
      env: { HF_TOKEN: '${TOKEN}' },
    });
    const test = await lab.open([localHost(lab.docker())], [engine], { env: { TOKEN: 'hf_very_secret' }, log });
    const placement = { host: 'local', gpuIds: ['GPU-aaaa', 'GPU-bbbb'] };
    const id = await test.start(engine, { placement });
    const observed = await test.untilIs(id, 'running');
    expect(observed.placement).toEqual(placement);
    expect(observed.epoch).toBe(1n);
    const [container] = await lab.containersOf(test.fleetId);
    const detail = (await lab.docker().call('GET', `/containers/${container?.Id}/json`)) as {
      Config: { Env: string[]; Cmd: string[] };
      HostConfig: { ShmSize: number };
    };
    expect(detail.Config.Env).toContain('HF_TOKEN=hf_very_secret');
    expect(detail.Config.Env).toContain('NVIDIA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb');
    expect(detail.Config.Cmd.join(' ')).toContain('--tensor-parallel-size 2');
    expect(detail.HostConfig.ShmSize).toBe(16 * 2 ** 30);
    const shown = JSON.stringify([lines, observed, container?.Labels, test.driver.specOf(engine).hash], (_, value) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    expect(shown).not.toContain('hf_very_secret');
    const { env, log: _, ...changed } = { env: { TOKEN: 'another' }, log };
    const other = await lab.open([localHost(lab.docker())], [engine], { ...changed, env });
    expect(other.driver.specOf(engine).hash).not.toBe(test.driver.specOf(engine).hash);
  });

  it('gives its processes the limits of its file', async () => {
    const script = showLines('limits', 'Max locked memory|Max stack size');
    const test = await lab.open();
    // Lower than those of the machine: without CAP_SYS_RESOURCE a Docker engine cannot raise them.
    const limited = scriptEngine(script, { ulimits: { memlock: 4_194_304, stack: 2_097_152 } });
    expect(await outputOf(test, limited)).toEqual(['Max stack size 2097152', 'Max locked memory 4194304']);
  });

  it('gets the CPUs and the NUMA nodes of its file', async () => {
    const script = showLines('status', 'Cpus_allowed_list|Mems_allowed_list');
    const test = await lab.open();
    const pinned = scriptEngine(script, { cpuset: { cpus: '0', mems: '0' } });
    expect(await outputOf(test, pinned)).toEqual(['Cpus_allowed_list 0', 'Mems_allowed_list 0']);
  });

  it('shares a network with a gateway that runs in a container', async () => {
    const gateway = await lab.open();
    const own = await gateway.start(scriptEngine('setInterval(() => {}, 1000)'));
    await gateway.untilIs(own, 'running');
    const [container] = await lab.containersOf(gateway.fleetId);
    const test = await lab.open([localHost(lab.docker())], [containerEngine()], { selfContainer: container?.Id ?? '' });
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const [network] = await lab.networksOf(test.fleetId);
    const joinedByGateway = async (): Promise<string[]> => {
      const detail = (await lab.docker().call('GET', `/containers/${container?.Id}/json`)) as {
        NetworkSettings: { Networks: object };
      };
      return Object.keys(detail.NetworkSettings.Networks);
    };
    expect(await joinedByGateway()).toContain(network?.Name);
    await test.stop(id);
    await test.untilIs(id, 'exited');
    await test.driver.forget(id, holding);
    expect(await joinedByGateway()).not.toContain(network?.Name);
    expect(await lab.networksOf(test.fleetId)).toEqual([]);
  });

  it.each([
    ['of a gateway on the Docker socket', false],
    ['of a gateway behind docker-gate', true],
  ])('takes its network from the stopped container %s, which can be started again', async (_, gated) => {
    const gate = gated ? await openGate(lab.docker().socketPath) : null;
    const host = localHost(lab.docker(), gate === null ? {} : { docker: gate.address });
    const test = await lab.open([host]);
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const [network] = await lab.networksOf(test.fleetId);
    const outside = newId();
    await lab.docker().call('POST', '/networks/create', { Name: outside, Driver: 'bridge' });
    const gateway = (await lab.docker().call('POST', '/containers/create', {
      Image: image,
      Entrypoint: ['/usr/bin/node', '--eval', 'setInterval(() => {}, 1000)'],
      Labels: { 'headgate.gateway': 'true', 'headgate.fleet': test.fleetId },
      HostConfig: { NetworkMode: outside },
    })) as { Id: string };
    const own = `/containers/${gateway.Id}`;
    await lab.docker().call('POST', `${own}/start`);
    await lab.docker().call('POST', `/networks/${network?.Name}/connect`, { Container: gateway.Id });
    await lab.docker().call('POST', `${own}/stop?t=0`);
    await test.stop(id);
    await test.untilIs(id, 'exited');
    await test.driver.forget(id, holding);
    expect(await lab.networksOf(test.fleetId)).toEqual([]);
    await lab.docker().call('POST', `${own}/start`);
    expect(await lab.docker().call('GET', `${own}/json`)).toMatchObject({ State: { Running: true } });
    await lab.docker().call('DELETE', `${own}?force=1`);
    await lab.docker().call('DELETE', `/networks/${outside}`);
    await gate?.close();
  });
});
