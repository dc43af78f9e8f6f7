import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { createProcessDriver } from '#core/fleet/drivers/process/process.ts';
import type { Fleet, FleetOptions } from '#core/fleet/fleet.ts';
import { containerDefinition } from '#test/fleet/container-engines.ts';
import { Machines } from '../../simulated-machines.ts';
import { ask, engineDefinition, mustAcquire, newFolder, startFleet, type TestFleet } from '#test/fleet/test-fleet.ts';

/** Child processes that do not fit on the machine together, run for real. */

let folder: string;
let pool: string;
let started: TestFleet | null = null;

beforeEach(() => {
  folder = newFolder();
  pool = join(folder, 'pool');
  mkdirSync(pool);
});
afterEach(async () => {
  await started?.close();
  started = null;
  rmSync(folder, { recursive: true, force: true });
});

type Driver = NonNullable<Parameters<typeof engineDefinition>[0]>;

function engine(id: string, driver: Driver = {}): EngineDefinition {
  return engineDefinition({ env: { POOL: pool }, drainMs: 5000, ...driver }, { id, file: `engines/${id}.yaml` });
}

async function start(engines: readonly EngineDefinition[], options: Partial<FleetOptions> = {}): Promise<Fleet> {
  started = await startFleet(engines, { folder, ...options });
  return started.fleet;
}

/** One request, which runs for a moment. @returns what ran when it was served */
async function serve(fleet: Fleet, id: string): Promise<string[]> {
  const lease = await mustAcquire(fleet, id);
  await ask(lease.replica, '/health');
  const there = running(fleet);
  lease.release();
  return there;
}

const running = (fleet: Fleet): string[] =>
  fleet.list().flatMap(({ engineId, replicaIds }) => (replicaIds.length > 0 ? [engineId] : []));

const gib = 2 ** 30;

describe('two processes that do not fit together', () => {
  const files: [string, Driver, Partial<FleetOptions>][] = [
    ['by their memory', { memoryBytes: 10 * gib }, { engineMemoryBytes: 16 * gib }],
    ['by their group', { group: { name: 'g', swap: true, exclusive: false, persistent: false } }, {}],
  ];
  it.each(files)('replace each other %s, and never run at once', async (_, driver, options) => {
    // Those that do run at once end for want of memory.
    const fleet = await start(
      [engine('a', { ...driver, args: ['--takes', '10'] }), engine('b', { ...driver, args: ['--takes', '10'] })],
      options,
    );
    for (const id of ['a', 'b', 'a', 'b']) expect(await serve(fleet, id)).toEqual([id]);
    expect(started?.starts()).toHaveLength(4);
    for (const { cause } of fleet.list()) expect(cause).toBeNull();
  });

  it('replace each other when only the engine detects the lack of memory, without counting failures', async () => {
    const files = ['a', 'b'].map((id) => engine(id, { args: ['--takes', '10'] }));
    const fleet = await start(files, { policy: { backoffFirstMs: 50 } });
    for (let turn = 0; turn < 5; turn += 1) for (const id of ['a', 'b']) expect(await serve(fleet, id)).toEqual([id]);
    // Each tried once beside the other.
    expect(started?.starts()).toHaveLength(12);
  });

  it('are both served when requests for both arrive at once, repeatedly', async () => {
    const files = ['a', 'b'].map((id) => engine(id, { memoryBytes: 10 * gib, args: ['--takes', '10'] }));
    const fleet = await start(files, { engineMemoryBytes: 16 * gib });
    for (let turn = 0; turn < 3; turn += 1) {
      const all = Array.from({ length: 10 }, (_, index) => serve(fleet, index % 2 === 0 ? 'a' : 'b'));
      await Promise.all(all);
    }
    for (const { cause } of fleet.list()) expect(cause).toBeNull();
  });
});

describe('a process that needs more memory than the machine has', () => {
  it('is rejected with start_failed, and operators see the missing memory', async () => {
    const fleet = await start([engine('a', { memoryBytes: 20 * gib })], { engineMemoryBytes: 16 * gib });
    expect(await fleet.acquire('a', {})).toMatchObject({
      ok: false,
      refusal: { code: 'start_failed', publicText: 'There is not enough memory to run this model.' },
    });
    expect(fleet.list()[0]?.causeDetail).toBe('the engine needs 20 GiB; local has 16 GiB for engines');
  });
});

describe('processes with their own GPUs', () => {
  const gpus = { count: 1, memoryBytesMin: null, profile: null };

  /** A machine with two GPUs, as `nvidia-smi` reports them; the used memory stands in a file. */
  function withGpus(slices = ''): NodeJS.ProcessEnv {
    const bin = join(folder, 'bin');
    mkdirSync(bin);
    writeFileSync(join(folder, 'used'), '4');
    const script = `#!/bin/sh
case "$*" in
  -L) printf 'GPU 0: NVIDIA H100 (UUID: GPU-11)\\n${slices}GPU 1: NVIDIA H100 (UUID: GPU-22)\\n' ;;
  *--query-gpu=uuid,memory.total*) printf 'GPU-11, 81559, NVIDIA H100, 0, ${slices === '' ? 'Disabled' : 'Enabled'}\\nGPU-22, 81559, NVIDIA H100, 1, Disabled\\n' ;;
  *--query-gpu=uuid,memory.used*) echo "$1" | sed 's/--id=//' | tr ',' '\\n' | sed "s/$/, $(cat ${folder}/used), 81559/" ;;
  *) printf 'GPU-22, 4711, python\\n' ;;
esac
`;
    writeFileSync(join(bin, 'nvidia-smi'), script);
    chmodSync(join(bin, 'nvidia-smi'), 0o755);
    return { ...process.env, PATH: `${bin}:${process.env['PATH'] ?? ''}` };
  }

  async function devicesOf(fleet: Fleet, id: string): Promise<string> {
    const lease = await mustAcquire(fleet, id);
    const seen = JSON.parse((await ask(lease.replica, '/env')) ?? '') as Record<string, string>;
    lease.release();
    return seen['CUDA_VISIBLE_DEVICES'] ?? '';
  }

  it('see only their own GPUs, and stop idle ones to make room', async () => {
    const fleet = await start(
      ['a', 'b', 'c'].map((id) => engine(id, { gpus })),
      { env: withGpus() },
    );
    const first = await devicesOf(fleet, 'a');
    const second = await devicesOf(fleet, 'b');
    expect([first, second].toSorted()).toEqual(['GPU-11', 'GPU-22']);
    expect(await devicesOf(fleet, 'c')).toBe(first);
    expect(running(fleet)).toEqual(['b', 'c']);
    expect(fleet.hosts()[0]?.gpus.map(({ id, profile }) => [id, profile])).toEqual([
      ['GPU-11', 'NVIDIA H100'],
      ['GPU-22', 'NVIDIA H100'],
    ]);
  });

  it('do not use GPUs hidden from the gateway by CUDA_VISIBLE_DEVICES', async () => {
    const env = { ...withGpus(), CUDA_VISIBLE_DEVICES: '1' };
    const fleet = await start(
      ['a', 'b'].map((id) => engine(id, { gpus })),
      { env },
    );
    expect(await devicesOf(fleet, 'a')).toBe('GPU-22');
    expect(await devicesOf(fleet, 'b')).toBe('GPU-22');
    expect(running(fleet)).toEqual(['b']);
  });

  it('wait for GPU memory to be free, then name the process that uses it', async () => {
    const env = withGpus();
    const policy = { gpuFreeTimeoutMs: 200 };
    const fleet = await start(
      [engine('a', { gpus: { ...gpus, count: 2 } }), engine('b', { gpus: { ...gpus, count: 2 } })],
      { env, policy },
    );
    await devicesOf(fleet, 'a');
    writeFileSync(join(folder, 'used'), '40000');
    expect(await fleet.acquire('b', {})).toMatchObject({
      ok: false,
      refusal: { publicText: expect.stringMatching(/Another program uses the GPU memory/) },
    });
    expect(fleet.list().find(({ engineId }) => engineId === 'b')?.causeDetail).toContain('by python (pid 4711)');
  });

  it('get slices of a divided card side by side, and whole cards for several GPUs', async () => {
    const line = (n: number) => `  MIG 3g.40gb     Device  ${n}: (UUID: MIG-${n})\\n`;
    const of = (id: string, over: object) => engine(id, { gpus: { ...gpus, ...over } });
    const sliced = ['a', 'b'].map((id) => of(id, { profile: 'MIG 3g.40gb' }));
    const fleet = await start([...sliced, of('large', { memoryBytesMin: 70 * gib }), of('two', { count: 2 })], {
      env: withGpus(line(0) + line(1)),
    });
    expect(await devicesOf(fleet, 'a')).toBe('MIG-0');
    expect(await devicesOf(fleet, 'b')).toBe('MIG-1');
    expect(await devicesOf(fleet, 'large')).toBe('GPU-22');
    expect(running(fleet)).toEqual(['a', 'b', 'large']);
    expect(await fleet.acquire('two', {})).toMatchObject({
      ok: false,
      refusal: { publicText: expect.stringMatching(/No GPU fits the requirements/) },
    });
  });

  it('get the slices of a card that CUDA_VISIBLE_DEVICES names by its index', async () => {
    const line = (n: number) => `  MIG 3g.40gb     Device  ${n}: (UUID: MIG-${n})\\n`;
    const env = { ...withGpus(line(0) + line(1)), CUDA_VISIBLE_DEVICES: '0,1' };
    const fleet = await start([engine('a', { gpus })], { env });
    await devicesOf(fleet, 'a');
    expect(fleet.hosts()[0]?.gpus.map(({ id }) => id)).toEqual(['MIG-0', 'MIG-1', 'GPU-22']);
  });

  it('are rejected when nvidia-smi is missing', async () => {
    const fleet = await start([engine('a', { gpus })], { env: { ...process.env, PATH: join(folder, 'empty') } });
    expect(await fleet.acquire('a', {})).toMatchObject({
      ok: false,
      refusal: { publicText: expect.stringMatching(/No GPU fits the requirements/) },
    });
    expect(fleet.list()[0]?.causeDetail).toMatch(/nvidia-smi.*is not on the gateway's PATH/);
  });

  it('keep their GPUs under every gateway of the data folder, also after their engine file is deleted', async () => {
    const env = withGpus();
    const fleet = await start([engine('a', { gpus, memoryBytes: gib })], { env });
    const device = await devicesOf(fleet, 'a');
    const [replicaId = ''] = fleet.list()[0]?.replicaIds ?? [];
    const { pid } = JSON.parse(readFileSync(join(folder, 'data', 'engines', 'running', `${replicaId}.json`), 'utf8'));
    const other = createProcessDriver({
      dataDir: join(folder, 'data'),
      workingDirectory: folder,
      env,
      log: createLog('silent'),
      sharing: 'joining',
    });
    await other.open([other.specOf(engine('a', { gpus }))]);
    const known = await other.observe();
    expect(known.replicas).toMatchObject([{ state: 'running', placement: { host: 'local', gpuIds: [device] } }]);
    expect(known.orphans).toEqual([]);
    other.setSpecs([]);
    const { orphans } = await other.observe();
    const held = { gpuIds: [device], memoryBytes: gib };
    expect(orphans).toEqual([{ host: 'local', name: `pid ${pid}`, engineId: 'a', ...held, endedBy: `kill ${pid}` }]);
    await other.close();
  });

  it('do not share GPUs with containers on the same machine, which is listed once', async () => {
    const gpuIds = ['GPU-11', 'GPU-22'];
    const listed = gpuIds.map((id) => ({ id, memoryBytes: null, profile: null }));
    const machines = new Machines([{ name: 'local', pools: ['lab'], reachable: true, gpus: listed }]);
    const boxes = ['box', 'box2'].map((id) => containerDefinition(id, { upMinMs: 0, startTimeoutMs: 1000 }));
    const fleet = await start([engine('a', { gpus, startTimeoutMs: 3000 }), engine('b', { gpus }), ...boxes], {
      env: withGpus(),
      engineMemoryBytes: 16 * gib,
      drivers: { docker: machines.driver() },
    });
    const box = await mustAcquire(fleet, 'box');
    const [taken] = [...machines.replicas.values()].flatMap(({ observed }) => observed.placement.gpuIds);
    const left = gpuIds.find((id) => id !== taken);
    for (const id of ['a', 'b', 'a']) expect(await devicesOf(fleet, id)).toBe(left);
    // It would stop its own fellow, and does not touch memory that a process has.
    expect(await fleet.acquire('box2', {})).toMatchObject({ ok: false });
    expect(machines.starts).toHaveLength(1);
    expect(fleet.hosts()).toMatchObject([{ name: 'local', pools: ['lab'], reachable: true, memoryBytes: 16 * gib }]);
    expect(fleet.hosts()[0]?.gpus.map(({ id, memoryBytes }) => [id, memoryBytes])).toEqual(
      gpuIds.map((id) => [id, 81_559 * 2 ** 20]),
    );
    box.release();
    await machines.close();
  });
});
