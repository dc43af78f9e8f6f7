import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { explainExit } from '#core/fleet/start-failure.ts';
import { loadStandinImage, startDocker, type TestDocker } from '../../support/docker.ts';
import {
  ask,
  collect,
  containerEngine,
  holding,
  image,
  localHost,
  newId,
  openDriver,
  scriptEngine,
  statusOf,
  type TestDriver,
} from './kit.ts';

let docker: TestDocker;
const open: TestDriver[] = [];

beforeAll(async () => {
  docker = await startDocker();
  await loadStandinImage(docker, image);
});

afterAll(async () => {
  await Promise.all(open.map(({ driver }) => driver.close()));
  await docker.stop();
});

async function driverOf(...[hosts, engines, over]: Partial<Parameters<typeof openDriver>>): Promise<TestDriver> {
  const opened = await openDriver(hosts ?? [localHost(docker)], engines ?? [containerEngine()], over);
  open.push(opened);
  return opened;
}

interface Found {
  readonly Id: string;
  readonly State: string;
  readonly Labels: Record<string, string>;
  readonly Names: string[];
}

async function containersOf(fleetId: string): Promise<Found[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`headgate.fleet=${fleetId}`] }));
  return (await docker.call('GET', `/containers/json?all=1&filters=${filters}`)) as Found[];
}

async function networksOf(fleetId: string): Promise<{ Name: string }[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`headgate.fleet=${fleetId}`] }));
  return (await docker.call('GET', `/networks?filters=${filters}`)) as { Name: string }[];
}

describe('a container that cannot be started', () => {
  it('is not made where the fence does not hold', async () => {
    const test = await driverOf();
    const fence = { epoch: 1n, holds: () => Promise.resolve(false) };
    await expect(test.start(containerEngine(), { fence })).rejects.toThrow('Another gateway leads');
    expect(await containersOf(test.fleetId)).toEqual([]);
    expect(await networksOf(test.fleetId)).toEqual([]);
  });

  it('is not made, or not started, where the fence falls on the way', async () => {
    for (const yes of [1, 2, 3]) {
      const test = await driverOf();
      let asked = 0;
      const fence = { epoch: 1n, holds: () => Promise.resolve((asked += 1) <= yes) };
      const id = await test.start(containerEngine(), { fence });
      const { exit } = await test.untilIs(id, 'exited');
      expect(exit).toMatchObject({ asked: true, startErrorCode: 'FENCE_LOST' });
      expect(await networksOf(test.fleetId)).toHaveLength(yes === 1 ? 0 : 1);
      expect((await containersOf(test.fleetId)).map(({ State: state }) => state)).toEqual(yes === 3 ? ['created'] : []);
    }
  });

  it('says that its host is not known', async () => {
    const test = await driverOf();
    const placement = { host: 'elsewhere', gpuIds: [] };
    await expect(test.start(containerEngine(), { placement })).rejects.toThrow('no Docker host elsewhere');
  });

  const missing = `127.0.0.1:9/acme/no-such-engine:v1`;
  it.each([
    ['an image that is not there', { image: missing }, /^(IMAGE_NOT_FOUND|IMAGE_PULL_FAILED)$/],
    ['an image whose name is wrong', { image: 'Not/An Image' }, /^IMAGE_NOT_FOUND$/],
    ['a folder of the host that is not there', { volumes: [volume('/no/such/folder')] }, /^MOUNT$/],
    ['a variable that refers to one that is not set', { env: { HF_TOKEN: '${NO_SUCH}' } }, /^MISSING_VARIABLE$/],
  ] as const)('because of %s says so', async (_, driver, code) => {
    const test = await driverOf();
    const id = await test.start(containerEngine(driver));
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit?.startErrorCode).toMatch(code);
    expect(exit).toMatchObject({ asked: false, exitCode: null });
    await test.driver.forget(id, holding);
    expect((await test.driver.observe()).replicas).toEqual([]);
    expect(await containersOf(test.fleetId)).toEqual([]);
    expect(await networksOf(test.fleetId)).toEqual([]);
  });

  it('because there is no such GPU says so, to the gateway that comes after as well', async () => {
    const hosts = [localHost(docker, { gpuAccess: 'nvidia' })];
    const test = await driverOf(hosts);
    const placement = { host: 'local', gpuIds: ['GPU-aaaa'] };
    const id = await test.start(containerEngine(), { placement });
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit?.startErrorCode).toBe('NO_SUCH_DEVICE');
    const next = await driverOf(hosts, [containerEngine()], { fleetId: test.fleetId });
    const seen = await next.untilIs(id, 'exited');
    expect(seen.exit).toMatchObject({ asked: false, startErrorCode: 'NO_SUCH_DEVICE' });
    expect(seen.placement).toEqual(placement);
  });
});

function volume(source: string) {
  return { source, target: '/data', readOnly: true };
}

describe('a container that runs', () => {
  it('answers on its network alone, to the gateway alone, as vLLM with its added arguments', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    expect(replica).toMatchObject({ id, engineId: 'chat', kind: 'vllm', forcedUsage: true, upstreamModel: null });
    expect(await statusOf(replica, '/v1/models', false)).toBe(401);
    const models = await ask(replica.endpoint, '/v1/models', replica.headerLines);
    expect(models.status).toBe(200);
    for (const name of ['chat', 'Chat', 'acme/chat']) expect(models.text).toContain(`"id":"${name}"`);
    expect(await statusOf(replica, '/is_sleeping')).toBe(200);
    const [container] = await containersOf(test.fleetId);
    expect(container?.Names[0]).toMatch(/^\/headgate-chat-[0-9a-f]{10}$/);
    const detail = (await docker.call('GET', `/containers/${container?.Id}/json`)) as {
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

  it('is started once, however often it is ordered and by whom', async () => {
    const test = await driverOf();
    const replicaId = newId();
    await Promise.all([1, 2, 3].map(() => test.start(containerEngine(), { replicaId })));
    const other = await driverOf([localHost(docker)], [containerEngine()], { fleetId: test.fleetId });
    await other.start(containerEngine(), { replicaId });
    await test.untilReady(replicaId);
    await test.start(containerEngine(), { replicaId });
    expect(await containersOf(test.fleetId)).toHaveLength(1);
    expect((await other.until(({ replicas }) => replicas[0]?.state === 'running' && replicas)).length).toBe(1);
  });

  it('has a key and an address of its own beside another of its engine', async () => {
    const test = await driverOf();
    const [a, b] = await Promise.all([test.start(containerEngine()), test.start(containerEngine())]);
    const [first, second] = await Promise.all([test.untilReady(a), test.untilReady(b)]);
    expect(first.endpoint.host).not.toBe(second.endpoint.host);
    expect(first.headerLines).not.toBe(second.headerLines);
    expect(await statusOf({ ...second, headerLines: first.headerLines }, '/v1/models')).toBe(401);
    expect(await networksOf(test.fleetId)).toHaveLength(1);
  });

  it('gets its devices, secrets by reference and arguments for all its GPUs', async () => {
    const lines: string[] = [];
    const log = createLog('trace', { write: (line: string) => void lines.push(line) });
    const engine = containerEngine({
      gpus: { count: 2, memoryBytesMin: null, profile: null },
      env: { HF_TOKEN: '${TOKEN}' },
    });
    const test = await driverOf([localHost(docker)], [engine], { env: { TOKEN: 'hf_very_secret' }, log });
    const placement = { host: 'local', gpuIds: ['GPU-aaaa', 'GPU-bbbb'] };
    const id = await test.start(engine, { placement });
    const observed = await test.untilIs(id, 'running');
    expect(observed.placement).toEqual(placement);
    expect(observed.epoch).toBe(1n);
    const [container] = await containersOf(test.fleetId);
    const detail = (await docker.call('GET', `/containers/${container?.Id}/json`)) as {
      Config: { Env: string[]; Cmd: string[] };
      HostConfig: { ShmSize: number };
    };
    expect(detail.Config.Env).toContain('HF_TOKEN=hf_very_secret');
    expect(detail.Config.Env).toContain('NVIDIA_VISIBLE_DEVICES=GPU-aaaa,GPU-bbbb');
    expect(detail.Config.Cmd.join(' ')).toContain('--tensor-parallel-size 2');
    expect(detail.HostConfig.ShmSize).toBe(16 * 2 ** 30);
    const told = JSON.stringify([lines, observed, container?.Labels, test.driver.specOf(engine).hash], (_, value) =>
      typeof value === 'bigint' ? String(value) : value,
    );
    expect(told).not.toContain('hf_very_secret');
    const { env, log: _, ...changed } = { env: { TOKEN: 'another' }, log };
    const other = await driverOf([localHost(docker)], [engine], { ...changed, env });
    expect(other.driver.specOf(engine).hash).not.toBe(test.driver.specOf(engine).hash);
  });

  it('is joined by the gateway that runs in a container itself', async () => {
    const gateway = await driverOf();
    const own = await gateway.start(scriptEngine('setInterval(() => {}, 1000)'));
    await gateway.untilIs(own, 'running');
    const [container] = await containersOf(gateway.fleetId);
    const test = await driverOf([localHost(docker)], [containerEngine()], { selfContainer: container?.Id ?? '' });
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const [network] = await networksOf(test.fleetId);
    const networksOfGateway = async (): Promise<string[]> => {
      const detail = (await docker.call('GET', `/containers/${container?.Id}/json`)) as {
        NetworkSettings: { Networks: object };
      };
      return Object.keys(detail.NetworkSettings.Networks);
    };
    expect(await networksOfGateway()).toContain(network?.Name);
    await test.stop(id);
    await test.untilIs(id, 'exited');
    await test.driver.forget(id, holding);
    expect(await networksOfGateway()).not.toContain(network?.Name);
    expect(await networksOf(test.fleetId)).toEqual([]);
  });
});

describe('a container that ends', () => {
  it.each([
    ['0 by itself', 'process.exit(0)', { exitCode: 0, oomKilled: false }, 'ended'],
    ['2 on arguments that it does not know', 'process.exit(2)', { exitCode: 2 }, 'bad_arguments'],
    [
      '1 with a cause in its log',
      'console.error("huggingface_hub.errors.GatedRepoError: 401"); process.exit(1)',
      { exitCode: 1 },
      'token',
    ],
    ['a signal that nobody sent', 'process.kill(process.pid, "SIGSEGV")', { exitCode: 139 }, 'crashed'],
  ])('with code %s is a crash with its cause', async (_, script, exit, kind) => {
    const engine = scriptEngine(script);
    const test = await driverOf([localHost(docker)], [engine]);
    const id = await test.start(engine);
    const observed = await test.untilIs(id, 'exited');
    expect(observed.exit).toMatchObject({ asked: false, startErrorCode: null, ...exit });
    if (observed.exit !== null) expect(explainExit(observed.exit).kind).toBe(kind);
  });

  it.each([
    ['a program that is not there', '/usr/bin/vllm', 127, 'program_not_found'],
    ['a file that is no program', '/app/package.json', 126, 'not_executable'],
  ])('because its image has %s is a crash with its cause', async (_, program, exitCode, kind) => {
    const engine = containerEngine({ entrypoint: [program] });
    const test = await driverOf([localHost(docker)], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ asked: false, exitCode });
    if (exit !== null) expect(explainExit(exit).kind).toBe(kind);
  });

  it('on an argument that vLLM does not know is a crash with its cause', async () => {
    const engine = containerEngine({ args: ['acme/chat', '--no-such-flag'] });
    const test = await driverOf([localHost(docker)], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ asked: false, exitCode: 2 });
    expect(exit?.logTail).toContain('unrecognized arguments: --no-such-flag');
  });

  it('for want of memory is told from others', async () => {
    const hog = 'const all = []; for (;;) all.push(Buffer.alloc(8_000_000, 1))';
    const engine = scriptEngine(hog, { memoryBytesMax: 128 * 2 ** 20 });
    const test = await driverOf([localHost(docker)], [engine]);
    const { exit } = await test.untilIs(await test.start(engine), 'exited');
    expect(exit).toMatchObject({ asked: false, exitCode: 137, oomKilled: true });
  });

  it('because it was asked to is no crash, for the gateway that comes after as well', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    await test.stop(id);
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ asked: true, exitCode: 0 });
    const next = await driverOf([localHost(docker)], [containerEngine()], { fleetId: test.fleetId });
    expect((await next.untilIs(id, 'exited')).exit).toMatchObject({ asked: true, exitCode: 0 });
  });

  it('is killed after the grace time when it hangs on SIGTERM', async () => {
    const engine = containerEngine({ args: ['acme/chat', '--ignore-sigterm'] });
    const test = await driverOf([localHost(docker)], [engine]);
    const id = await test.start(engine);
    await test.untilReady(id);
    await test.stop(id, 1000);
    expect((await test.untilIs(id, 'stopping')).exit).toBeNull();
    // Once more changes nothing.
    await test.stop(id, 60_000);
    const { exit } = await test.untilIs(id, 'exited');
    expect(exit).toMatchObject({ asked: true, exitCode: 137, oomKilled: false });
  });

  it('is not stopped, nor cleaned away, where the fence does not hold', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    const replica = await test.untilReady(id);
    const fence = { epoch: 1n, holds: () => Promise.resolve(false) };
    await expect(test.driver.stop(id, { fence, graceMs: 0 })).rejects.toThrow('Another gateway leads');
    await expect(test.driver.forget(id, fence)).rejects.toThrow('Another gateway leads');
    expect(await statusOf(replica, '/health')).toBe(200);
  });

  it('is not cleaned away while it runs', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    await expect(test.driver.forget(id, holding)).rejects.toThrow(/running container/);
  });

  it('because somebody removed it by hand is gone at once', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    let told = 0;
    test.driver.onChange(() => (told += 1));
    const [container] = await containersOf(test.fleetId);
    await docker.call('DELETE', `/containers/${container?.Id}?force=1`);
    await test.until(({ replicas }) => replicas.length === 0);
    await expect.poll(() => told).toBeGreaterThan(0);
  });
});

describe('a gateway that comes after another', () => {
  it('finds what runs by its labels alone and uses it with the same key', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    const before = await test.untilReady(id);
    await test.driver.close();
    const next = await driverOf([localHost(docker)], [containerEngine()], { fleetId: test.fleetId });
    const { replica, specHash, state } = await next.untilIs(id, 'running');
    expect(replica).toEqual(before);
    expect(state).toBe('running');
    expect(specHash).toBe(next.driver.specOf(containerEngine()).hash);
    expect(await statusOf(replica, '/v1/models')).toBe(200);
  });

  it('sees nothing of another installation', async () => {
    const test = await driverOf();
    await test.untilIs(await test.start(containerEngine()), 'running');
    const other = await driverOf();
    expect(await other.driver.observe()).toMatchObject({ replicas: [], strangers: [] });
  });

  it('names containers of engines that no file has, and lets them be', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const next = await driverOf([localHost(docker)], [], { fleetId: test.fleetId });
    const { replicas, strangers } = await next.driver.observe();
    expect(replicas).toEqual([]);
    expect(strangers).toEqual([{ host: 'local', name: expect.stringMatching(/^headgate-chat-/), engineId: 'chat' }]);
  });

  it('cleans away what an earlier leader made and did not start', async () => {
    const test = await driverOf();
    let asked = 0;
    const fence = { epoch: 4n, holds: () => Promise.resolve((asked += 1) <= 3) };
    const id = await test.start(containerEngine(), { fence });
    await test.untilIs(id, 'exited');
    const next = await driverOf([localHost(docker)], [containerEngine()], { fleetId: test.fleetId });
    // Somebody may be about to start it, until a newer leader has acted.
    expect((await next.untilIs(id, 'creating')).exit).toBeNull();
    await next.start(containerEngine(), { fence: { ...holding, epoch: 5n } });
    expect((await next.untilIs(id, 'exited')).exit).toMatchObject({ asked: false, startErrorCode: 'NOT_STARTED' });
    await next.driver.forget(id, holding);
    expect(await containersOf(test.fleetId)).toHaveLength(1);
  });
});

describe('the output of a container', () => {
  const chatter = `
    let count = 0;
    const timer = setInterval(() => {
      count += 1;
      (count % 2 === 0 ? process.stdout : process.stderr).write('line ' + count + '\\n');
      if (count === 6) { clearInterval(timer); process.once('SIGTERM', () => { console.log('the end'); process.exit(0); }); setInterval(() => {}, 1000); }
    }, 5);`;

  it('is read from its end, both streams, and followed until the container ends', async () => {
    const engine = scriptEngine(chatter);
    const test = await driverOf([localHost(docker)], [engine]);
    const id = await test.start(engine);
    await test.untilIs(id, 'running');
    const followed = collect(
      test.driver.logs(id, { tailLines: 1000, follow: true, signal: AbortSignal.timeout(20_000) }),
    );
    const tail = { tailLines: 3, follow: false, signal: AbortSignal.timeout(20_000) };
    await expect.poll(async () => collect(test.driver.logs(id, tail))).toEqual(['line 4', 'line 5', 'line 6']);
    await test.stop(id);
    expect(await followed).toEqual([...[1, 2, 3, 4, 5, 6].map((count) => `line ${count}`), 'the end']);
    await test.untilIs(id, 'exited');
    expect(await collect(test.driver.logs(id, { ...tail, tailLines: 1 }))).toEqual(['the end']);
    expect(await collect(test.driver.logs(newId(), tail))).toEqual([]);
  });

  it('ends quietly for a reader that leaves', async () => {
    const test = await driverOf();
    const id = await test.start(containerEngine());
    await test.untilReady(id);
    const leaving = new AbortController();
    const lines: string[] = [];
    for await (const line of test.driver.logs(id, { tailLines: 1000, follow: true, signal: leaving.signal })) {
      lines.push(line);
      if (line.includes('startup complete')) leaving.abort();
    }
    expect(lines.join('\n')).toContain('Starting to load model');
  });
});

describe('the GPUs of a host', () => {
  it('are those of the file, or those that nvidia-smi names in an engine’s own image', async () => {
    const byHand = { id: 'GPU-cccc', memoryBytes: 1, profile: 'H100' };
    const hosts = [localHost(docker, { gpus: [byHand] }), localHost(docker, { name: 'asked', gpus: null })];
    const test = await driverOf(hosts);
    const asked = await test.until(({ hosts: [, second] }) => second?.gpus.length === 2 && second);
    expect(asked).toEqual({
      name: 'asked',
      pools: ['lab'],
      reachable: true,
      gpus: ['GPU-aaaa', 'GPU-bbbb'].map((id) => ({ id, memoryBytes: 80 * 2 ** 30, profile: 'Fake H100' })),
    });
    expect((await test.driver.observe()).hosts[0]?.gpus).toEqual([byHand]);
  });

  it('say how much of them is in use, and by whom', async () => {
    const test = await driverOf();
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toEqual([
      { gpuId: 'GPU-bbbb', usedBytes: 4 * 2 ** 30, totalBytes: 80 * 2 ** 30, processes: ['python3 (pid 4711)'] },
    ]);
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: [] })).toBeNull();
    expect(await test.driver.probeGpus({ host: 'elsewhere', gpuIds: ['GPU-bbbb'] })).toBeNull();
    await expect.poll(() => containersOf(test.fleetId)).toEqual([]);
  });

  it('cannot be asked where no container gets them', async () => {
    const test = await driverOf([localHost(docker, { gpuAccess: 'nvidia', gpus: null })]);
    expect(await test.driver.probeGpus({ host: 'local', gpuIds: ['GPU-bbbb'] })).toBeNull();
    expect((await test.driver.observe()).hosts[0]).toMatchObject({ reachable: true, gpus: [] });
  });
});
