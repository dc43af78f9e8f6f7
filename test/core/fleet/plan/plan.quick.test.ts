import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

function worldOf(gpus: number, ...definitions: ReturnType<typeof containerDefinition>[]): World {
  const world = new World([gpuHost('h', gpus)]);
  for (const definition of definitions) world.file(definition);
  return world;
}

const twins = (over: Parameters<typeof containerDefinition>[1] = {}) => [
  containerDefinition('a', over),
  containerDefinition('b', over),
];

describe('the planner', () => {
  it('starts nothing without a request', () => {
    const world = worldOf(1, ...twins());
    world.run(10_000);
    expect(world.everStarted).toEqual([]);
    expect(world.engine('a').phase).toBe('stopped');
  });

  it('starts nothing for an engine that no host can hold, and answers no_accelerator', () => {
    const world = worldOf(1, containerDefinition('a', { gpus: { count: 2, memoryBytesMin: null, profile: null } }));
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'no_accelerator' }]);
    expect(world.everStarted).toEqual([]);
  });

  it('starts nothing on an unreachable host, and answers host_unreachable', () => {
    const world = worldOf(1, ...twins());
    world.hosts = [{ ...gpuHost('h', 1), reachable: false, trouble: 'no answer' }];
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'host_unreachable' }]);
    expect(world.state.engines[0]?.failure?.cause.detail).toBe('h: no answer');
  });

  it('starts no engine that an operator stopped until a start command', () => {
    const world = worldOf(1, ...twins());
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    world.command('a', 'stop');
    world.finish('a');
    world.until('gone', () => world.live().length === 0);
    expect(world.engine('a').phase).toBe('held');
    world.request('a');
    world.run(1000);
    expect(world.answers.at(-1)).toEqual({ engineId: 'a', answer: 'held' });
    world.takeOver();
    world.run(1000);
    expect(world.engine('a').phase).toBe('held');
    world.command('a', 'start');
    world.until('ready again', () => world.ready('a').length === 1);
  });

  it('starts nothing while GPU memory is in use, and names the process in the cause', () => {
    const world = worldOf(1, ...twins({ idleMs: 1000 }));
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    world.remains.set('h-gpu0', 20 * 2 ** 30);
    world.finish('a');
    world.until('gone', () => world.live().length === 0);
    world.request('b');
    world.run(10_000);
    expect(world.live()).toEqual([]);
    world.remains.clear();
    world.until('b is ready', () => world.ready('b').length === 1);
    world.remains.set('h-gpu0', 20 * 2 ** 30);
    world.finish('b');
    world.until('gone', () => world.live().length === 0);
    world.command('a', 'start');
    world.until('given up', () => world.engine('a').cause?.kind === 'gpu_in_use');
    expect(world.engine('a').cause?.detail).toContain('20.0 of 80.0 GiB in use by pid 7 python');
  });
});

describe('a start', () => {
  it('is shared by all waiting requests of all gateways', () => {
    const world = new World([gpuHost('h', 4)], {}, 3);
    world.file(containerDefinition('a', { replicas: { min: 0, max: 4 } }));
    for (const gateway of world.gateways) for (let count = 0; count < 50; count += 1) world.request('a', gateway);
    world.until('all are served', () => world.waiting() === 0);
    expect(world.everStarted).toHaveLength(1);
    expect(world.answers.every(({ answer }) => answer === 'served')).toBe(true);
    expect(world.engine('a').startTimesMs).toHaveLength(1);
  });

  it('is stopped when it fails its checks, and waiting requests get the cause', () => {
    const world = worldOf(1, ...twins());
    world.bad.add('a-v1');
    world.request('a');
    world.until('an answer', () => world.answers.length > 0);
    expect(world.answers).toEqual([{ engineId: 'a', answer: 'canary_failed' }]);
    world.until('gone', () => world.live().length === 0);
    expect(world.engine('a').phase).toBe('failed');
  });

  it('is not retried after too many failures until a reset or a new file', () => {
    const world = worldOf(1, ...twins());
    world.bad.add('a-v1');
    for (let count = 0; count < 40; count += 1) {
      world.request('a');
      world.run(10_000);
    }
    expect(world.everStarted).toHaveLength(5);
    expect(world.engine('a')).toMatchObject({ phase: 'failed', retryAtMs: null });
    world.command('a', 'reset');
    world.run(200);
    world.request('a');
    world.until('another try', () => world.everStarted.length === 6);
    world.file(containerDefinition('a'), 'v2');
    world.run(5000);
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
  });

  it('happens without a request for the minimum replicas, and again after a crash', () => {
    const world = worldOf(2, containerDefinition('a', { replicas: { min: 2, max: 2 } }));
    world.until('both', () => world.ready('a').length === 2);
    world.run(600_000);
    expect(world.everStarted).toHaveLength(2);
    const [first] = world.live('a');
    if (first !== undefined) world.crash(first, 0);
    world.until('one of two is replaced while the other serves', () => {
      expect(world.ready('a').length).toBeGreaterThanOrEqual(1);
      return world.ready('a').length === 2 && world.everStarted.length === 3;
    });
  });
});

describe('a stop', () => {
  it('waits until every gateway knows of it and has no request on the replica', () => {
    const world = new World([gpuHost('h', 1)], {}, 2);
    world.file(containerDefinition('a', { idleMs: 1000, drainMs: 60_000 }));
    const [, far] = world.gateways;
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    if (far !== undefined) far.deaf = true;
    world.finish('a');
    world.until('drains', () => world.engine('a').phase === 'draining');
    world.run(10_000);
    expect(world.live('a').map(({ state }) => state)).toEqual(['running']);
    // It does not know, and sends one there.
    world.request('a', far);
    world.run(10_000);
    expect(world.live('a').map(({ state }) => state)).toEqual(['running']);
    if (far !== undefined) far.deaf = false;
    world.run(10_000);
    expect(world.live('a').map(({ state }) => state)).toEqual(['running']);
    world.finish('a');
    world.until('gone', () => world.live('a').length === 0);
  });

  it('waits no longer than its drain time', () => {
    const world = worldOf(1, ...twins({ drainMs: 3000 }));
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    world.command('a', 'stop');
    world.until('gone', () => world.live('a').length === 0, 5000);
    expect(world.engine('a').phase).toBe('held');
  });

  it('is canceled when a request arrives while it drains', () => {
    const world = new World([gpuHost('h', 1)], {}, 2);
    world.file(containerDefinition('a', { idleMs: 1000, drainMs: 60_000 }));
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    world.finish('a');
    const [, far] = world.gateways;
    if (far !== undefined) far.deaf = true;
    world.until('drains', () => world.engine('a').phase === 'draining');
    world.request('a');
    world.until('served', () => world.answers.length === 2);
    expect(world.everStarted).toHaveLength(1);
  });
});

describe('two engines on one GPU', () => {
  it('stop the idle one for the other after its minimum uptime', () => {
    const world = worldOf(1, ...twins({ upMinMs: 30_000 }));
    world.request('a');
    world.until('a is ready', () => world.ready('a').length === 1);
    const readyAtMs = world.nowMs;
    world.finish('a');
    world.file(containerDefinition('b', { startTimeoutMs: 60_000, upMinMs: 30_000 }));
    world.request('b');
    world.until('b is ready', () => world.ready('b').length === 1);
    expect(world.nowMs - readyAtMs).toBeGreaterThanOrEqual(30_000);
    expect(world.live('a')).toEqual([]);
  });

  it.each([{ pinned: true }, { replicas: { min: 1, max: 1 } }])('never stop one with %o for the other', (over) => {
    const world = worldOf(1, containerDefinition('a', over), containerDefinition('b'));
    world.request('a');
    world.until('a is ready', () => world.ready('a').length === 1);
    world.finish('a');
    world.request('b');
    world.until('b is refused', () => world.answers.length === 2);
    expect(world.answers.at(-1)).toEqual({ engineId: 'b', answer: 'no_room' });
    expect(world.ready('a')).toHaveLength(1);
    expect(world.live('b')).toEqual([]);
  });

  it('both make progress under endless load, without switching faster than the minimum uptime', () => {
    const world = worldOf(1, ...twins({ upMinMs: 10_000, drainMs: 2000, startTimeoutMs: 60_000 }));
    const served = { a: 0, b: 0 };
    for (let second = 0; second < 300; second += 1) {
      for (const engineId of ['a', 'b']) {
        if (world.waiting(engineId) < 3) world.request(engineId);
        if (second % 2 === 0) world.finish(engineId);
      }
      world.run(1000);
    }
    for (const { engineId, answer } of world.answers) {
      expect(answer).toBe('served');
      served[engineId as 'a' | 'b'] += 1;
    }
    expect(Math.min(served.a, served.b)).toBeGreaterThan(40);
    expect(world.everStarted.length).toBeLessThanOrEqual(300 / 10);
    expect(world.everStarted.length).toBeGreaterThan(8);
  });

  it('stop the least recently used of several idle engines', () => {
    const world = new World([gpuHost('h', 2)]);
    for (const id of ['a', 'b', 'c']) world.file(containerDefinition(id, { upMinMs: 0, idleMs: 600_000 }));
    for (const id of ['a', 'b']) {
      world.request(id);
      world.until(`${id} is ready`, () => world.ready(id).length === 1);
    }
    world.finish('b');
    world.run(1000);
    world.finish('a');
    world.run(1000);
    world.request('c');
    world.until('c is ready', () => world.ready('c').length === 1);
    expect(world.live('b')).toEqual([]);
    expect(world.live('a')).toHaveLength(1);
  });

  it('stop a sleeping engine first', () => {
    const world = worldOf(1, containerDefinition('a', { sleepLevel: 1, idleMs: 1000 }), containerDefinition('b'));
    world.request('a');
    world.until('a is ready', () => world.ready('a').length === 1);
    world.finish('a');
    world.until('a sleeps', () => world.engine('a').replicas[0]?.state === 'asleep');
    world.request('a');
    world.until('a is awake', () => world.ready('a').length === 1);
    expect(world.everStarted).toHaveLength(1);
    world.finish('a');
    world.until('a sleeps again', () => world.engine('a').replicas[0]?.state === 'asleep');
    world.request('b');
    world.until('b is ready', () => world.ready('b').length === 1);
    expect(world.live('a')).toEqual([]);
  });
});

describe('a changed file', () => {
  function serving(gpus: number, replicas: { min: number; max: number }): World {
    const world = worldOf(gpus, containerDefinition('a', { replicas }));
    if (replicas.min === 0) world.request('a');
    world.until('ready', () => world.ready('a').length === Math.max(1, replicas.min));
    return world;
  }

  it('starts new replicas beside the old ones, so that enough replicas always serve', () => {
    const world = serving(4, { min: 2, max: 2 });
    world.file(containerDefinition('a', { replicas: { min: 2, max: 2 } }), 'v2');
    world.until('renewed', () => {
      expect(world.ready('a').length).toBeGreaterThanOrEqual(2);
      expect(world.live('a').length).toBeLessThanOrEqual(4);
      return world.live('a').every(({ spec }) => spec.hash === 'a-v2') && world.live('a').length === 2;
    });
    world.run(1000);
    expect(world.engine('a').rollout).toBeNull();
  });

  it('is rejected when it fails its checks, also under a new leader, and the old replicas keep serving', () => {
    const world = serving(2, { min: 1, max: 1 });
    world.bad.add('a-v2');
    world.file(containerDefinition('a', { replicas: { min: 1, max: 1 } }), 'v2');
    world.until('refused', () => {
      expect(world.ready('a')).toHaveLength(1);
      return world.engine('a').rollout?.state === 'refused';
    });
    expect(world.engine('a').rollout?.text).toMatch(/does not answer as it should/);
    const starts = world.everStarted.length;
    world.run(100_000);
    world.takeOver();
    world.run(100_000);
    expect(world.everStarted).toHaveLength(starts);
    expect(world.ready('a').map(({ spec }) => spec.hash)).toEqual(['a-v1']);
    world.bad.clear();
    world.command('a', 'reset');
    world.until('renewed', () => world.live('a').every(({ spec }) => spec.hash === 'a-v2'));
  });

  it('replaces replicas one by one without room beside them, and returns to the old one when it fails', () => {
    const world = serving(1, { min: 1, max: 1 });
    world.bad.add('a-v2');
    world.file(containerDefinition('a', { replicas: { min: 1, max: 1 } }), 'v2');
    world.until('refused', () => world.engine('a').rollout?.state === 'refused');
    world.until('the old one is back', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v1'));
    expect(world.said.join('\n')).toContain('no room for new replicas beside');
    world.file(containerDefinition('a', { replicas: { min: 1, max: 1 } }), 'v3');
    world.until('renewed', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v3'));
  });

  it('replaces no replica when only times and prices change', () => {
    const world = serving(2, { min: 0, max: 1 });
    world.file(containerDefinition('a', { idleMs: 1000, replicas: { min: 0, max: 1 } }));
    world.finish('a');
    world.until('the new idle time counts', () => world.live('a').length === 0, 10_000);
    expect(world.everStarted).toHaveLength(1);
  });

  it('drains and stops the engine when the file is deleted', () => {
    const world = serving(1, { min: 1, max: 1 });
    world.specs.clear();
    world.until('gone', () => world.live().length === 0);
    world.run(1000);
    expect(world.published?.engines).toEqual([]);
  });

  it('replaces the running replica beside itself after a restart command', () => {
    const world = serving(2, { min: 1, max: 1 });
    const [before] = world.ready('a');
    world.command('a', 'restart');
    world.until('renewed', () => {
      expect(world.ready('a').length).toBeGreaterThanOrEqual(1);
      return world.live('a').length === 1 && world.live('a')[0]?.id !== before?.id;
    });
  });
});

describe('load', () => {
  it('adds a replica while requests wait inside the engine, and removes it when it is not needed', () => {
    const world = worldOf(3, containerDefinition('a', { replicas: { min: 0, max: 2 }, upMinMs: 0, idleMs: 1e9 }));
    world.request('a');
    world.until('one', () => world.ready('a').length === 1);
    const setLoads = (running: number, waiting: number) => {
      for (const { id } of world.live('a')) world.loads.set(id, { running, waiting });
    };
    setLoads(8, 3);
    world.run(5000);
    expect(world.everStarted).toHaveLength(1);
    world.until('two', () => world.ready('a').length === 2);
    setLoads(8, 3);
    world.run(60_000);
    expect(world.everStarted).toHaveLength(2);
    setLoads(2, 0);
    world.run(60_000);
    expect(world.ready('a')).toHaveLength(2);
    world.until('one again', () => world.live('a').length === 1, 200_000);
  });
});

describe('a new leader', () => {
  it('keeps serving replicas, waits for starting ones, and starts nothing twice', () => {
    const world = worldOf(2, containerDefinition('a', { replicas: { min: 1, max: 1 } }), containerDefinition('b'));
    world.until('a is ready', () => world.ready('a').length === 1);
    world.request('b');
    world.until('b is being made', () => world.live('b').length === 1);
    world.takeOver();
    world.until('b is ready', () => {
      expect(world.ready('a')).toHaveLength(1);
      return world.ready('b').length === 1;
    });
    expect(world.everStarted).toHaveLength(2);
  });

  it('restarts a replica that crashed while there was no leader', () => {
    const world = worldOf(1, containerDefinition('a', { replicas: { min: 1, max: 1 } }));
    world.until('ready', () => world.ready('a').length === 1);
    for (const container of world.live('a')) world.crash(container);
    world.takeOver();
    world.until('another', () => world.ready('a').length === 1 && world.everStarted.length === 2);
    expect(world.live('a')).toHaveLength(1);
  });
});

describe('an unreachable host', () => {
  it('keeps its GPUs, has its replica replaced elsewhere, and drops the excess replica when it is back', () => {
    const world = new World([gpuHost('h', 1), gpuHost('i', 1)]);
    world.file(containerDefinition('a', { replicas: { min: 1, max: 1 } }));
    world.until('ready', () => world.ready('a').length === 1);
    const lost = world.live('a')[0]?.placement.host;
    world.hosts = world.hosts.map((host) => ({ ...host, reachable: host.name !== lost }));
    world.until('replaced', () => world.ready('a').some(({ placement }) => placement.host !== lost));
    world.hosts = world.hosts.map((host) => ({ ...host, reachable: true }));
    world.until('one is left', () => world.live('a').length === 1 && world.ready('a').length === 1);
    expect(world.everStarted).toHaveLength(2);
  });
});
