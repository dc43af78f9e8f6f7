import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

describe('a renamed host', () => {
  it('keeps the GPU of an existing replica in use', () => {
    const world = new World([gpuHost('h', 1)]);
    for (const id of ['a', 'b']) world.file(containerDefinition(id));
    world.request('a');
    world.until('ready', () => world.ready('a').length === 1);
    for (const container of world.containers.values()) {
      container.placement = { ...container.placement, host: 'renamed' };
    }
    world.hosts = world.hosts.map((host) => ({ ...host, name: 'renamed' }));
    world.takeOver();
    world.request('b');
    world.run(10_000);
    expect(world.live('b')).toEqual([]);
    expect(world.ready('a').map(({ placement }) => placement.host)).toEqual(['renamed']);
  });
});
