import { describe, expect, it } from 'vitest';
import type { EngineGroup } from '#core/catalog/catalog.ts';
import { gib, machine, processDefinition } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

type Driver = NonNullable<Parameters<typeof processDefinition>[1]>;

function worldOf(engines: Readonly<Record<string, Driver>>, over: Parameters<typeof machine>[0] = {}): World {
  const world = new World([machine(over)]);
  for (const [id, driver] of Object.entries(engines)) world.file(processDefinition(id, driver));
  return world;
}

function serve(world: World, id: string): void {
  world.request(id);
  world.until(`${id} serves`, () => world.ready(id).length === 1 && world.waiting(id) === 0);
  while (world.finish(id));
  world.run(1000);
}

const finishAll = (world: World, id: string): void => {
  while (world.finish(id));
};
const running = (world: World): string[] => world.live().map(({ engineId }) => engineId);
const group = (name: string, over: Partial<EngineGroup> = {}): { group: EngineGroup } => ({
  group: { name, swap: true, exclusive: false, persistent: false, ...over },
});

describe('processes that need more memory together than the machine has', () => {
  it('are rejected with the needed and available memory when a single one needs more', () => {
    const world = worldOf({ a: { memoryBytes: 17 * gib } });
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'memory' }]);
    expect(world.engine('a').cause?.detail).toBe('the engine needs 17 GiB; local has 16 GiB for engines');
    expect(world.everStarted).toEqual([]);
  });

  it('are rejected with no_room when the other is pinned, without counting failures', () => {
    const pinned = { pinned: true, idleMs: 1e9 };
    const world = worldOf({ a: { memoryBytes: 10 * gib, ...pinned }, b: { memoryBytes: 10 * gib } });
    serve(world, 'a');
    for (let count = 0; count < 8; count += 1) {
      world.request('b');
      world.run(25_000);
    }
    expect(world.answers.slice(1).map(({ answer }) => answer)).toEqual(Array(8).fill('no_room'));
    expect(running(world)).toEqual(['a']);
    world.file(processDefinition('a', { memoryBytes: 10 * gib }));
    serve(world, 'b');
    expect(running(world)).toEqual(['b']);
  });

  it('stop the ones idle longest, and no more than necessary', () => {
    const world = worldOf({
      a: { memoryBytes: 4 * gib },
      b: { memoryBytes: 4 * gib },
      c: { memoryBytes: 8 * gib },
      d: { memoryBytes: 6 * gib },
      free: {},
    });
    for (const id of ['free', 'b', 'a', 'c']) serve(world, id);
    expect(running(world)).toEqual(['free', 'b', 'a', 'c']);
    serve(world, 'd');
    expect(running(world)).toEqual(['free', 'c', 'd']);
    serve(world, 'b');
    expect(running(world)).toEqual(['free', 'd', 'b']);
  });

  it('keep a small one when stopping a larger one is enough', () => {
    const world = worldOf({ a: { memoryBytes: 2 * gib }, b: { memoryBytes: 12 * gib }, c: { memoryBytes: 13 * gib } });
    for (const id of ['a', 'b', 'c']) serve(world, id);
    expect(running(world)).toEqual(['a', 'c']);
  });

  it('wait for a busy one until it has served its waiting requests', () => {
    const world = worldOf({ a: { memoryBytes: 10 * gib }, b: { memoryBytes: 10 * gib } });
    world.request('a');
    world.request('b');
    world.until('both are served', () => {
      for (const id of ['a', 'b']) world.finish(id);
      return world.answers.length === 2;
    });
    expect(world.answers.map(({ answer }) => answer)).toEqual(['served', 'served']);
    expect(world.everStarted).toHaveLength(2);
  });

  it('use the memory in the current engine file', () => {
    const world = worldOf({ a: { memoryBytes: 10 * gib }, b: { memoryBytes: 10 * gib } });
    serve(world, 'a');
    world.file(processDefinition('a', { memoryBytes: 6 * gib }));
    serve(world, 'b');
    expect(running(world)).toEqual(['a', 'b']);
  });

  it('are replaced one after the other on a rollout', () => {
    const world = worldOf({ a: { memoryBytes: 10 * gib } });
    serve(world, 'a');
    world.file(processDefinition('a', { memoryBytes: 10 * gib }), 'v2');
    world.until('renewed', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v2'));
    expect(world.live()).toHaveLength(1);
  });

  it('do not stop processes that no engine file defines', () => {
    const world = worldOf({ a: { memoryBytes: 10 * gib } });
    world.holdings = [{ engineId: 'gone', placement: { host: 'local', gpuIds: [] }, memoryBytes: 10 * gib }];
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'no_room' }]);
    world.request('a');
    world.run(1000);
    expect(world.engine('a').cause).toMatchObject({ kind: 'no_room', detail: 'in use by gone' });
    world.holdings = [];
    serve(world, 'a');
  });
});

describe('processes with GPUs', () => {
  const gpus = { count: 1, memoryBytesMin: null, profile: null };
  const devices = ['GPU-1', 'GPU-2'].map((id) => ({ id, memoryBytes: null, profile: null }));

  it('each have their own GPU, and stop idle ones to make room', () => {
    const world = worldOf({ a: { gpus }, b: { gpus }, c: { gpus } }, { gpus: devices });
    for (const id of ['a', 'b', 'c']) serve(world, id);
    expect(running(world)).toEqual(['b', 'c']);
    expect(new Set(world.live().flatMap(({ placement }) => placement.gpuIds)).size).toBe(2);
  });

  it('do not get a GPU that something else uses', () => {
    const world = worldOf({ a: { gpus }, b: { gpus } }, { gpus: devices });
    world.holdings = [{ engineId: 'box', placement: { host: 'local', gpuIds: ['GPU-1'] }, memoryBytes: 0 }];
    for (const id of ['a', 'b', 'a']) serve(world, id);
    expect(world.live().map(({ placement }) => placement.gpuIds)).toEqual([['GPU-2']]);
  });

  it('are rejected with no_accelerator when the machine has no GPU', () => {
    const world = worldOf({ a: { gpus } }, { trouble: 'nvidia-smi is not there' });
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'no_accelerator' }]);
    expect(world.engine('a').cause?.detail).toBe('local: nvidia-smi is not there');
  });
});

describe('a group of processes', () => {
  it('runs one of its engines at a time, with all replicas of that engine', () => {
    const world = worldOf({
      a: { ...group('g'), replicas: { min: 0, max: 2 } },
      b: group('g'),
      c: group('other'),
      d: {},
    });
    for (const id of ['c', 'd', 'a']) serve(world, id);
    world.command('a', 'restart');
    world.until('renewed', () => world.live('a').length === 1 && world.everStarted.length === 4);
    expect(running(world).toSorted()).toEqual(['a', 'c', 'd']);
    serve(world, 'b');
    expect(running(world).toSorted()).toEqual(['b', 'c', 'd']);
  });

  it('keeps all engines running with swap: false', () => {
    const world = worldOf({ a: group('g', { swap: false }), b: group('g', { swap: false }) });
    for (const id of ['a', 'b']) serve(world, id);
    expect(running(world)).toEqual(['a', 'b']);
  });

  it('stops all others with exclusive: true, except persistent, pinned and minimum replicas', () => {
    const world = worldOf({
      big: group('big', { exclusive: true, swap: false }),
      big2: group('big', { exclusive: true, swap: false }),
      small: group('small'),
      none: {},
      forever: group('forever', { persistent: true }),
      pinned: { pinned: true },
      kept: { replicas: { min: 1, max: 1 } },
    });
    for (const id of ['small', 'none', 'forever', 'pinned', 'big', 'big2']) serve(world, id);
    expect(running(world).toSorted()).toEqual(['big', 'big2', 'forever', 'kept', 'pinned']);
    serve(world, 'small');
    expect(running(world).toSorted()).toEqual(['big', 'big2', 'forever', 'kept', 'pinned', 'small']);
  });

  it('still swaps within itself with persistent: true', () => {
    const world = worldOf({
      a: { ...group('g', { persistent: true }), memoryBytes: 10 * gib },
      b: { ...group('g', { persistent: true }), memoryBytes: 10 * gib },
      c: { memoryBytes: 10 * gib },
    });
    for (const id of ['a', 'b']) serve(world, id);
    expect(running(world)).toEqual(['b']);
    world.request('c');
    world.until('an answer', () => world.answers.length === 3);
    expect(world.answers.at(-1)).toEqual({ engineId: 'c', answer: 'no_room' });
    expect(running(world)).toEqual(['b']);
  });

  it('is not starved by the engines that it stops with exclusive: true', () => {
    const world = worldOf({
      big: { ...group('big', { exclusive: true }), startTimeoutMs: 120_000 },
      ...Object.fromEntries(['a', 'b', 'c'].map((id) => [id, { ...group(id), idleMs: 3000, startTimeoutMs: 120_000 }])),
    });
    for (let second = 0; second < 300; second += 1) {
      for (const id of ['a', 'b', 'c', 'big']) {
        if (world.waiting(id) < 2) world.request(id);
        if (second % 2 === 0) finishAll(world, id);
      }
      world.run(1000);
    }
    const served = (id: string): number => world.answers.filter(({ engineId }) => engineId === id).length;
    expect(Math.min(...['a', 'b', 'c', 'big'].map(served))).toBeGreaterThan(10);
    expect(world.answers.filter(({ answer }) => answer !== 'served')).toEqual([]);
  });
});

describe('processes whose files do not state their memory', () => {
  function crowded(takes: Readonly<Record<string, number>>, over: Driver = {}): World {
    const world = worldOf(Object.fromEntries(Object.keys(takes).map((id) => [id, over])));
    world.machineMemory = 16;
    for (const [id, bytes] of Object.entries(takes)) world.takes.set(id, bytes);
    return world;
  }

  it('fail with memory when no other process runs', () => {
    const world = crowded({ a: 17 });
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'memory' }]);
    for (let count = 0; count < 10; count += 1) {
      world.request('a');
      world.run(30_000);
    }
    expect(world.everStarted).toHaveLength(5);
  });

  it('are retried after an idle one has stopped when memory was too small beside it', () => {
    const world = crowded({ a: 10, b: 10 });
    serve(world, 'a');
    serve(world, 'b');
    expect(world.answers.map(({ answer }) => answer)).toEqual(['served', 'served']);
    expect(running(world)).toEqual(['b']);
    expect(world.engine('b')).toMatchObject({ phase: 'ready', failedStarts: 0, cause: null });
    expect(world.everStarted).toHaveLength(3);
  });

  it('are not tried again beside the same engines', () => {
    const world = crowded({ a: 10, b: 10 });
    for (let turn = 0; turn < 5; turn += 1) for (const id of ['a', 'b']) serve(world, id);
    expect(world.answers.every(({ answer }) => answer === 'served')).toBe(true);
    // Each found out once that it does not fit beside the other.
    expect(world.everStarted).toHaveLength(12);
  });

  it('stop others one by one, the longest idle first, until memory is enough', () => {
    const world = crowded({ a: 4, b: 4, c: 4, d: 12 });
    for (const id of ['b', 'a', 'c', 'd']) serve(world, id);
    expect(running(world)).toEqual(['c', 'd']);
    expect(world.engine('d').failedStarts).toBe(0);
  });

  it('are all served when requests arrive at once', () => {
    const world = crowded({ a: 10, b: 10 }, { startTimeoutMs: 60_000 });
    for (const id of ['a', 'b']) world.request(id);
    world.until('both are served', () => {
      for (const id of ['a', 'b']) world.finish(id);
      return world.answers.length === 2;
    });
    expect(world.answers.map(({ answer }) => answer)).toEqual(['served', 'served']);
  });

  it('stop others only once when memory is too small even without them', () => {
    const world = crowded({ a: 4, b: 4, c: 17 });
    for (const id of ['a', 'b']) serve(world, id);
    world.request('c');
    world.until('an answer', () => world.answers.length === 3);
    expect(world.answers.at(-1)).toEqual({ engineId: 'c', answer: 'memory' });
    expect(running(world)).toEqual([]);
    for (const id of ['a', 'b']) serve(world, id);
    for (let count = 0; count < 6; count += 1) {
      world.request('c');
      world.run(35_000);
      for (const id of ['a', 'b']) serve(world, id);
    }
    expect(world.everStarted.filter((id) => !id.startsWith('c'))).toHaveLength(4);
    expect(world.engine('c').phase).toBe('failed');
  });

  it('do not stop processes that see other GPUs', () => {
    const world = crowded({ a: 4, c: 17 });
    world.file(processDefinition('a', { env: { CUDA_VISIBLE_DEVICES: '0,1' } }));
    world.file(processDefinition('c', { env: { CUDA_VISIBLE_DEVICES: '2' } }));
    serve(world, 'a');
    world.request('c');
    world.until('an answer', () => world.answers.length === 2);
    expect(world.answers.at(-1)).toEqual({ engineId: 'c', answer: 'memory' });
    expect(running(world)).toEqual(['a']);
  });

  it('wait for a pinned one and get no_room, without counting failures', () => {
    const world = crowded({ a: 10, b: 10 });
    world.file(processDefinition('a', { pinned: true, idleMs: 1e9 }));
    serve(world, 'a');
    for (let count = 0; count < 8; count += 1) {
      world.request('b');
      world.run(25_000);
    }
    expect(world.answers.slice(1).map(({ answer }) => answer)).toEqual(Array(8).fill('no_room'));
    for (const container of world.live('a')) world.crash(container, 0);
    world.command('a', 'stop');
    world.run(2000);
    serve(world, 'b');
  });

  it('are replaced in place when memory is too small for both', () => {
    const world = crowded({ a: 10 });
    serve(world, 'a');
    world.file(processDefinition('a'), 'v2');
    world.until('renewed', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v2'));
    expect(world.engine('a').rollout).toBeNull();
    expect(world.live()).toHaveLength(1);
  });
});
