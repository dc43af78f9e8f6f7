import { describe, expect, it } from 'vitest';
import { containerDefinition, gpuHost } from '#test/fleet/container-engines.ts';
import { World } from './simulated-world.ts';

const day = { cron: '0 8 * * *', timezone: 'Europe/Berlin', min: 2, max: 3 };
const night = { cron: '0 20 * * *', timezone: 'Europe/Berlin', min: 0, max: 1 };
const off = { ...night, max: 0 };

/** A world that begins half a minute before a time of day in Berlin, in winter. */
function worldBefore(hour: number, schedule: readonly (typeof day)[], sleepLevel: 0 | 1 = 0): World {
  const world = new World([gpuHost('h', 3)]);
  world.epochMs = Date.parse('2026-11-27T00:00:00Z') + (hour - 1) * 3_600_000 - 31_000;
  world.file(containerDefinition('a', { idleMs: 5000, upMinMs: 0, schedule, sleepLevel }));
  return world;
}

describe('an engine with a schedule', () => {
  it('gets its minimum of replicas when an entry takes effect', () => {
    const world = worldBefore(8, [day, night]);
    world.run(29_000);
    expect(world.everStarted).toEqual([]);
    world.until('both are ready', () => world.ready('a').length === 2);
    expect(world.said.filter((line) => line.includes('schedule'))).toEqual([
      expect.stringContaining('a: an entry of the schedule takes effect: 2 to 3 replicas'),
    ]);
  });

  it('gets its minimum at once after a restart in the time of an entry', () => {
    const world = worldBefore(12, [day, night]);
    world.until('both are ready', () => world.ready('a').length === 2);
    world.takeOver();
    world.run(10_000);
    expect(world.ready('a')).toHaveLength(2);
    expect(world.everStarted).toHaveLength(2);
  });

  it('loses the replicas above the maximum of the next entry, and idle ones above its minimum', () => {
    const world = worldBefore(20, [day, night]);
    world.until('both are ready', () => world.ready('a').length === 2);
    world.request('a');
    world.until('one stays, with the request', () => world.live().length === 1, 60_000);
    world.run(20_000);
    expect(world.ready('a')).toHaveLength(1);
    world.finish('a');
    world.until('none stays', () => world.live().length === 0);
    expect(world.engine('a').phase).toBe('stopped');
  });

  it.each([0, 1] as const)('stops and rejects requests while off, with sleep_level %i', (sleepLevel) => {
    const world = worldBefore(20, [day, off], sleepLevel);
    world.until('both are ready', () => world.ready('a').length === 2);
    world.until('none runs', () => world.live().length === 0);
    expect(world.engine('a')).toMatchObject({ phase: 'off', cause: null, replicas: [] });
    const started = world.everStarted.length;
    world.request('a');
    world.command('a', 'start');
    world.run(5000);
    expect(world.answers.at(-1)).toEqual({ engineId: 'a', answer: 'off' });
    expect([world.waiting(), world.everStarted.length]).toEqual([0, started]);
    world.takeOver();
    world.run(1000);
    expect(world.engine('a').phase).toBe('off');
    world.epochMs += 12 * 3_600_000;
    world.until('both are ready again', () => world.ready('a').length === 2);
  });

  it('stays stopped by a command when an entry takes effect', () => {
    const world = worldBefore(8, [day, night]);
    world.command('a', 'stop');
    world.run(60_000);
    expect(world.everStarted).toEqual([]);
    expect(world.engine('a').phase).toBe('held');
  });
});
