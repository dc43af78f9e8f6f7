import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

describe('two engines on one GPU without minimum uptime', () => {
  it('first serve the requests that waited for them', () => {
    const world = new World([gpuHost('h', 1)], {}, 2);
    for (const id of ['a', 'b']) world.file(containerDefinition(id, { upMinMs: 0, startTimeoutMs: 60_000 }));
    for (const gateway of world.gateways) for (const id of ['a', 'b']) world.request(id, gateway);
    world.until('both have answered both gateways', () => {
      for (const id of ['a', 'b']) world.finish(id);
      return world.waiting() === 0;
    });
    expect(world.answers.map(({ answer }) => answer)).toEqual(['served', 'served', 'served', 'served']);
    expect(world.everStarted).toHaveLength(2);
  });

  it('alternate under endless load without rejecting a request', () => {
    const world = new World([gpuHost('h', 1)]);
    for (const id of ['a', 'b']) {
      world.file(containerDefinition(id, { upMinMs: 0, drainMs: 2000, startTimeoutMs: 60_000 }));
    }
    const served = { a: 0, b: 0 };
    for (let second = 0; second < 300; second += 1) {
      for (const id of ['a', 'b']) {
        if (world.waiting(id) < 3) world.request(id);
        world.finish(id);
      }
      world.run(1000);
    }
    for (const { engineId, answer } of world.answers) {
      expect(answer).toBe('served');
      served[engineId as 'a' | 'b'] += 1;
    }
    expect(Math.min(served.a, served.b)).toBeGreaterThan(40);
  });

  it('stop one whose waiting requests are at an unresponsive gateway, after its drain time', () => {
    const world = new World([gpuHost('h', 1)], {}, 2);
    for (const id of ['a', 'b'])
      world.file(containerDefinition(id, { upMinMs: 0, drainMs: 3000, startTimeoutMs: 60_000 }));
    const [near, far] = world.gateways;
    world.request('a', far);
    world.until('a is made', () => world.live('a').length === 1);
    if (far !== undefined) far.deaf = true;
    world.request('b', near);
    world.until('b serves', () => world.answers.some(({ engineId }) => engineId === 'b'), 20_000);
    expect(world.answers).toEqual([{ engineId: 'b', answer: 'served' }]);
  });
});

describe('an engine with two GPUs among engines that alternate with one GPU each', () => {
  const times = [0, 1000, 3000, 20_000].flatMap((upMinMs) => [1000, 4000].map((drainMs) => ({ upMinMs, drainMs })));

  it.each(times)(
    'is served as often as the others: $upMinMs ms minimum uptime, $drainMs ms drain time',
    ({ upMinMs, drainMs }) => {
      const ids = ['a', 'b', 'c'];
      const driver = { upMinMs, drainMs, startTimeoutMs: 120_000 };
      const world = new World([gpuHost('h', 2)]);
      for (const id of ids) {
        world.file(containerDefinition(id, driver));
        // One after the other: one of the two devices is always about to change hands.
        world.request(id);
        world.run(1300);
      }
      world.file(containerDefinition('wide', { ...driver, gpus: { count: 2, memoryBytesMin: null, profile: null } }));
      for (let second = 0; second < 300; second += 1) {
        for (const id of [...ids, 'wide']) {
          if (world.waiting(id) < 2) world.request(id);
          if (second % 2 === 0) world.finish(id);
        }
        world.run(1000);
      }
      const counts = [...ids, 'wide'].map((id) => world.answers.filter(({ engineId }) => engineId === id).length);
      expect(Math.min(...counts)).toBeGreaterThan(10);
      expect(world.answers.filter(({ answer }) => answer !== 'served')).toEqual([]);
    },
  );
});
