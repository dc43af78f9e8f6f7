import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { type Container, World } from './simulated-world.ts';

/** A world whose engine has a request that waits for its start, with this time for a start without progress. */
function startingWorld(stalledMs: number | null = 10_000): World {
  const world = new World([gpuHost('h', 1)]);
  world.file({ ...containerDefinition('a'), stalledMs });
  world.request('a');
  return world;
}

/** Waits for the next start, which hangs after its first line. */
function hang(world: World): Container {
  const count = world.everStarted.length;
  world.until('the next start', () => world.everStarted.length > count);
  const container = world.live('a').find(({ id }) => id === world.everStarted[count]);
  if (container === undefined) throw new Error('nothing is starting');
  container.isWell = false;
  write(world, container, 'a line');
  return container;
}

function write(world: World, { id }: Container, activity: string): void {
  world.starts.set(id, { activity, download: null });
}

describe('a start without output and without a download', () => {
  it('is ended after the time of its file, and its request waits for the next start', () => {
    const world = startingWorld();
    const first = hang(world);
    world.run(9500);
    expect(first.state).toBe('running');
    world.until('the next start', () => world.everStarted.length === 2);
    expect(world.engine('a')).toMatchObject({ phase: 'starting', cause: { kind: 'stalled' }, failedStarts: 0 });
    world.until('it is ready', () => world.ready('a').length === 1);
    expect(world.engine('a')).toMatchObject({ phase: 'ready', cause: null });
    expect(world.answers.map(({ answer }) => answer)).not.toContain('failed');
  });

  it('is ended once only, also by the next leader: then the start has its whole time', () => {
    const world = startingWorld();
    hang(world);
    hang(world);
    world.takeOver();
    world.run(15_000);
    expect(world.everStarted).toHaveLength(2);
    expect(world.engine('a').replicas).toMatchObject([{ state: 'starting' }]);
    world.until('it is late', () => world.engine('a').cause?.kind === 'timeout');
  });

  it('is ended again after another failure', () => {
    const world = startingWorld();
    hang(world);
    hang(world);
    world.until('it is late', () => world.engine('a').cause?.kind === 'timeout');
    world.run(5000);
    world.request('a');
    hang(world);
    world.run(11_000);
    expect(world.engine('a')).toMatchObject({ cause: { kind: 'stalled' } });
  });
});

describe('a start that is not ended', () => {
  it('writes a line or a byte now and then', () => {
    const world = startingWorld();
    const container = hang(world);
    for (const line of ['b', 'c']) {
      world.run(8000);
      write(world, container, line);
    }
    expect(world.everStarted).toHaveLength(1);
  });

  it.each([
    ['whose activity is unknown', 10_000],
    ['with stalled_seconds: 0', null],
  ] as const)('is one %s', (_, limit) => {
    const world = startingWorld(limit);
    hang(world);
    if (limit !== null) world.starts.clear();
    world.run(15_000);
    expect(world.everStarted).toHaveLength(1);
  });
});
