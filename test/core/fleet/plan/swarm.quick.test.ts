import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

describe('placement by a swarm', () => {
  const swarm = { type: 'swarm', upMinMs: 1000 } as const;
  function swarmOf(gpus: number, ...definitions: ReturnType<typeof containerDefinition>[]): World {
    const world = new World([gpuHost('swarm', 0)]);
    world.swarmGpus = gpus;
    for (const definition of definitions) world.file(definition);
    return world;
  }
  const serve = (world: World, id: string): void => {
    world.request(id);
    world.until(`${id} serves`, () => world.ready(id).length === 1 && world.waiting(id) === 0);
    world.finish(id);
    world.run(5000);
  };

  it('stops the ones idle longest, no more than necessary, and never pinned ones or ones without GPUs', () => {
    const world = swarmOf(
      2,
      containerDefinition('pinned', { ...swarm, pinned: true }),
      ...['b', 'c'].map((id) => containerDefinition(id, swarm)),
      containerDefinition('cpu', { ...swarm, gpus: null }),
    );
    for (const id of ['cpu', 'pinned', 'b', 'c']) serve(world, id);
    expect(world.live().map(({ engineId }) => engineId)).toEqual(['cpu', 'pinned', 'c']);
  });

  it('stops no other engine for one without waiting requests', () => {
    const world = swarmOf(1, ...['a', 'b'].map((id) => containerDefinition(id, { ...swarm, upMinMs: 20_000 })));
    world.request('a');
    world.until('a serves', () => world.ready('a').length === 1 && world.waiting() === 0);
    world.request('b');
    world.until('b has no place', () => world.engine('b').cause?.kind === 'no_room');
    for (const gateway of world.gateways) gateway.waiting = [];
    world.until('b is withdrawn', () => world.live('b').length === 0);
    expect(world.ready('a')).toHaveLength(1);
  });

  it('replaces an engine in place when there is no room beside it', () => {
    const world = swarmOf(1, containerDefinition('a', swarm));
    serve(world, 'a');
    world.file(containerDefinition('a', swarm), 'v2');
    world.until('renewed', () => world.ready('a').some(({ spec }) => spec.hash === 'a-v2'));
    expect(world.live()).toHaveLength(1);
  });
});
