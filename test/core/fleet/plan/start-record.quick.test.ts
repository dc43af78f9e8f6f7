import { describe, expect, it } from 'vitest';
import type { Download } from '#core/fleet/store/coordination-store.ts';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { type Container, World } from './simulated-world.ts';

const phases = (world: World): string[] => world.engine('a').lastStart?.steps.map(({ phase }) => phase) ?? [];

/** A world whose engine starts for a waiting request, and does not answer its probes before the test says so. */
function startingWorld(): { world: World; container: Container } {
  const world = new World([gpuHost('h', 1)]);
  world.file({ ...containerDefinition('a'), stalledMs: 10_000 });
  world.request('a');
  world.until('the start', () => world.live('a').length === 1);
  const [container] = world.live('a');
  if (container === undefined) throw new Error('nothing is starting');
  container.isWell = false;
  world.until('the process', () => container.state === 'running' && phases(world).includes('loading'));
  return { world, container };
}

let lines = 0;
function read(world: World, { id }: Container, download: Download | null, forMs = 1000): void {
  lines += 1;
  world.starts.set(id, { activity: String(lines), download });
  world.run(forMs);
}

describe('the record of a start', () => {
  it('has each phase with its time, until the replica is ready', () => {
    const { world, container } = startingWorld();
    read(world, container, { bytes: 1_000_000, bytesPerSecond: 1000 });
    read(world, container, null);
    container.isWell = true;
    world.until('it is ready', () => world.ready('a').length === 1);
    const record = world.engine('a').lastStart;
    expect(phases(world)).toEqual(['requested', 'creating', 'loading', 'downloading', 'loading', 'checking', 'ready']);
    const times = record?.steps.map(({ atMs }) => atMs) ?? [];
    expect(times).toEqual(times.toSorted((a, b) => a - b));
    expect([record?.replicaId, record?.cause]).toEqual([container.id, null]);
    while (world.finish('a'));
    world.run(5000);
    expect(world.engine('a').lastStart).toEqual(record);
  });

  it('ends with the cause when the start fails', () => {
    const { world, container } = startingWorld();
    world.crash(container);
    world.until('the failure', () => phases(world).at(-1) === 'failed');
    expect(world.engine('a').lastStart?.cause).not.toBeNull();
  });

  it('ends as canceled when a command stops the engine before it is ready', () => {
    const { world } = startingWorld();
    world.command('a', 'stop');
    world.until('the stop', () => phases(world).at(-1) === 'canceled');
    expect(world.engine('a').lastStart?.cause).toBeNull();
  });

  it('is continued by the next leader', () => {
    const { world, container } = startingWorld();
    const before = world.engine('a').lastStart;
    world.takeOver();
    container.isWell = true;
    world.until('it is ready', () => world.ready('a').length === 1);
    expect(world.engine('a').lastStart?.steps.slice(0, 3)).toEqual(before?.steps);
    expect(phases(world).at(-1)).toBe('ready');
  });

  it('stays bounded while a download stops and goes on', () => {
    const { world, container } = startingWorld();
    for (let count = 0; count < 40; count += 1)
      read(world, container, count % 2 === 0 ? { bytes: count, bytesPerSecond: 1 } : null, 200);
    container.isWell = true;
    world.until('it is ready', () => world.ready('a').length === 1);
    expect(phases(world).length).toBeLessThanOrEqual(33);
    expect(phases(world).at(-1)).toBe('ready');
  });
});
