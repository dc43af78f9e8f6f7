import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

type Driver = Parameters<typeof containerDefinition>[1];

const idleMs = 5000;
const wide: Driver = { gpus: { count: 2, memoryBytesMin: null, profile: null } };
const chat = (over: Driver = {}) => containerDefinition('a', { idleMs, upMinMs: 0, ...over });

function worldOf(gpus = 1, over: Driver = {}): World {
  const world = new World([gpuHost('h', gpus)]);
  world.file(chat(over));
  return world;
}

/** Serves its first file. */
function serving(gpus = 1, over: Driver = {}): World {
  const world = worldOf(gpus, over);
  world.request('a');
  world.until('ready', () => world.ready('a').length === 1);
  return world;
}

/** Has served its first file, and was stopped for being idle. */
function stopped(gpus = 1, over: Driver = {}): World {
  const world = serving(gpus, over);
  stop(world);
  return world;
}

function stop(world: World): void {
  while (world.finish('a'));
  world.until('stopped', () => world.live('a').length === 0 && world.engine('a').phase === 'stopped');
}

function change(world: World, hash: 'v2' | 'v3', over: Driver = {}): void {
  world.bad.add('a-v2');
  world.file(chat(over), hash);
}

/** The hashes of what was started for a request, and its answer. */
function ask(world: World): { started: readonly string[]; answer: string | undefined } {
  const before = world.everStarted.length;
  const answered = world.answers.length;
  world.request('a');
  const seen = new Map<string, string>();
  world.until('an answer', () => {
    for (const { id, spec } of world.containers.values()) seen.set(id, spec.hash);
    return world.answers.length > answered;
  });
  const started = world.everStarted.slice(before).map((id) => seen.get(id) ?? '');
  return { started, answer: world.answers.at(-1)?.answer };
}

describe('a failing file that is not recorded as a refused rollout', () => {
  it('fails when no definition of its engine ever passed the checks, also under a new leader', () => {
    const world = worldOf();
    world.bad.add('a-v1');
    expect(ask(world).answer).toBe('canary_failed');
    world.takeOver();
    change(world, 'v2');
    world.run(1000);
    expect(ask(world)).toEqual({ started: ['a-v2'], answer: 'canary_failed' });
    expect(world.engine('a')).toMatchObject({ phase: 'failed', rollout: null, failedStarts: 2 });
  });

  it('fails when it is the definition that last passed the checks, also under a new leader', () => {
    const world = stopped();
    world.bad.add('a-v1');
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'canary_failed' });
    world.takeOver();
    world.run(5000);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'canary_failed' });
    expect(world.engine('a')).toMatchObject({ phase: 'failed', rollout: null });
  });

  it('returns no_accelerator or host_unreachable when it is the definition that last passed the checks', () => {
    const world = stopped();
    world.takeOver();
    const { hosts } = world;
    world.hosts = [gpuHost('h', 0)];
    expect(ask(world)).toEqual({ started: [], answer: 'no_accelerator' });
    world.hosts = hosts.map((host) => ({ ...host, reachable: false }));
    world.run(5000);
    expect(ask(world)).toEqual({ started: [], answer: 'host_unreachable' });
    expect(world.engine('a').rollout).toBeNull();
    world.hosts = hosts;
    world.run(10_000);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
  });

  it('returns no_accelerator when the machine could not run the former definition either', () => {
    const world = stopped();
    change(world, 'v3', wide);
    world.hosts = [gpuHost('h', 0)];
    expect(ask(world)).toEqual({ started: [], answer: 'no_accelerator' });
    expect(world.engine('a').rollout).toBeNull();
    world.hosts = [gpuHost('h', 2)];
    world.run(10_000);
    expect(ask(world)).toEqual({ started: ['a-v3'], answer: 'served' });
  });

  it('returns no_accelerator when an unreachable host may have the GPUs it needs', () => {
    const world = stopped();
    change(world, 'v3', wide);
    world.hosts = [gpuHost('h', 1), { ...gpuHost('i', 0), reachable: false }];
    expect(ask(world)).toEqual({ started: [], answer: 'no_accelerator' });
    expect(world.engine('a').rollout).toBeNull();
    world.hosts = [gpuHost('h', 1), gpuHost('i', 2)];
    world.run(10_000);
    expect(ask(world)).toEqual({ started: ['a-v3'], answer: 'served' });
  });

  it('restarts when it was ready before it exited', () => {
    const world = stopped();
    change(world, 'v3');
    expect(ask(world)).toEqual({ started: ['a-v3'], answer: 'served' });
    for (const container of world.live('a')) world.crash(container);
    world.until('another of the same', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v3'));
    expect(world.engine('a').rollout).toBeNull();
  });
});

describe('a changed file that fails while nothing runs', () => {
  it('is rejected with its cause, and waiting requests get the former definition', () => {
    const world = stopped();
    change(world, 'v2');
    expect(ask(world)).toEqual({ started: ['a-v2', 'a-v1'], answer: 'served' });
    expect(world.engine('a')).toMatchObject({
      phase: 'ready',
      specHash: 'a-v2',
      cause: null,
      rollout: { state: 'refused', specHash: 'a-v2', text: expect.stringContaining('does not answer as it should') },
    });
    stop(world);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
  });

  it('is rejected when it needs GPUs that no host has and the former one does not', () => {
    const world = stopped();
    change(world, 'v2', wide);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
    expect(world.engine('a').rollout).toMatchObject({ state: 'refused', text: expect.stringContaining('No GPU') });
  });

  it('is rejected when it changed while there was no leader', () => {
    const world = stopped();
    change(world, 'v2');
    world.takeOver();
    expect(ask(world)).toEqual({ started: ['a-v2', 'a-v1'], answer: 'served' });
    expect(world.engine('a').rollout?.state).toBe('refused');
  });

  it('is rejected when only the good definition is stored and no published state', () => {
    const world = stopped();
    change(world, 'v2');
    world.published = null;
    world.takeOver();
    expect(ask(world)).toEqual({ started: ['a-v2', 'a-v1'], answer: 'served' });
  });

  it('is rejected when its leader died during its checks after the old replica stopped', () => {
    const world = serving();
    change(world, 'v2');
    world.until('it is checked', () => world.engine('a').replicas.some(({ state }) => state === 'checking'));
    expect(world.live('a')).toHaveLength(1);
    world.takeOver();
    while (world.finish('a'));
    world.request('a');
    world.until('the one before serves', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v1'));
    expect(world.engine('a').rollout?.state).toBe('refused');
    expect(world.everStarted).toHaveLength(3);
  });

  it('is rejected when the running former definition passed its checks but was not stored yet', () => {
    const world = serving();
    world.good.clear();
    world.takeOver();
    world.run(1000);
    change(world, 'v2');
    world.until('refused', () => world.engine('a').rollout?.state === 'refused');
    world.until('the one before serves', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v1'));
    expect(world.everStarted).toHaveLength(3);
  });

  it('is tried again after a reset, and refused again', () => {
    const world = stopped();
    change(world, 'v2');
    ask(world);
    stop(world);
    world.command('a', 'reset');
    world.run(1000);
    expect(ask(world)).toEqual({ started: ['a-v2', 'a-v1'], answer: 'served' });
  });
});

describe('a refused rollout that a new leader inherits', () => {
  function refused(over: Driver = {}): World {
    const world = serving(2, over);
    change(world, 'v2', over);
    world.until('refused', () => world.engine('a').rollout?.state === 'refused');
    world.until('one is left', () => world.live('a').length === 1);
    world.takeOver();
    return world;
  }

  it('stays refused when the old replica stopped for being idle', () => {
    const world = refused();
    stop(world);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
    world.takeOver();
    stop(world);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
    expect(world.engine('a').rollout?.state).toBe('refused');
  });

  it('stays refused when the old replica crashed and no request came meanwhile', () => {
    const world = refused();
    for (const container of world.live('a')) world.crash(container);
    world.until('the old one again', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v1'));
    expect(world.everStarted).toHaveLength(3);
  });

  it('stays refused when the old replica sleeps, and when it crashes while asleep', () => {
    const world = refused({ sleepLevel: 1 });
    while (world.finish('a'));
    world.until('asleep', () => world.engine('a').replicas[0]?.state === 'asleep');
    world.takeOver();
    expect(ask(world)).toEqual({ started: [], answer: 'served' });
    while (world.finish('a'));
    world.until('asleep again', () => world.engine('a').replicas[0]?.state === 'asleep');
    for (const container of world.live('a')) world.crash(container);
    world.run(1000);
    expect(ask(world)).toEqual({ started: ['a-v1'], answer: 'served' });
  });

  it('ends with a third file, which is tried, and with the file that was good', () => {
    const world = refused();
    stop(world);
    change(world, 'v3');
    world.takeOver();
    expect(ask(world)).toEqual({ started: ['a-v3'], answer: 'served' });
    expect(world.engine('a').rollout).toBeNull();
    stop(world);
    change(world, 'v2');
    expect(ask(world)).toEqual({ started: ['a-v2', 'a-v3'], answer: 'served' });
    stop(world);
    world.file(chat(), 'v3');
    world.takeOver();
    expect(ask(world)).toEqual({ started: ['a-v3'], answer: 'served' });
    expect(world.engine('a').rollout).toBeNull();
  });
});

describe('the replacement of a refused file', () => {
  it('uses the hosts of the good file, not those of the refused one', () => {
    const world = new World([gpuHost('h', 1), gpuHost('i', 1)]);
    world.file(chat({ hosts: ['h'] }));
    ask(world);
    stop(world);
    world.file(chat({ hosts: ['i'] }));
    world.run(1000);
    change(world, 'v2', { hosts: ['h'] });
    ask(world);
    expect(world.live('a').map(({ placement, spec }) => [placement.host, spec.hash])).toEqual([['i', 'a-v1']]);
  });
});
