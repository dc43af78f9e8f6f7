import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { engineDefinition, isAlive, mustAcquire, startFleet } from '#test/fleet/test-fleet.ts';

const day = { cron: '0 8 * * *', timezone: 'Europe/Berlin', min: 2, max: 2 };
const night = { cron: '0 20 * * *', timezone: 'Europe/Berlin', min: 0, max: 0 };

/** A fleet with one engine whose clock shows the time of the test's own. */
async function fleetAt(text: string, args: readonly string[] = []) {
  let nowMs = Date.parse(text);
  const clock = { ...systemClock, now: () => nowMs };
  const started = await startFleet([engineDefinition({ args, schedule: [day, night] })], { clock });
  const view = () => {
    const [engine] = started.fleet.list();
    if (engine === undefined) throw new Error('there is no engine');
    return engine;
  };
  const ready = () => view().replicas.filter(({ state }) => state === 'ready').length;
  return { ...started, view, ready, setTime: (to: string) => void (nowMs = Date.parse(to)) };
}

describe('an engine of processes with a schedule', () => {
  it('starts and stops when the clock reaches the times of its entries', async () => {
    const { fleet, starts, view, ready, setTime, close } = await fleetAt('2026-11-27T06:59:59Z');
    expect(view()).toMatchObject({ phase: 'off', bounds: { schedule: { entry: night, next: day } } });
    const refused = await fleet.acquire('fixture', {});
    const publicText = 'The schedule of this model keeps it off at this time.';
    expect(refused).toEqual({ ok: false, refusal: { code: 'start_failed', publicText, retryAfterSeconds: null } });
    expect(starts()).toEqual([]);

    setTime('2026-11-27T07:00:00Z');
    await expect.poll(ready, { timeout: 60_000 }).toBe(2);
    expect(view()).toMatchObject({ bounds: { min: 2, max: 2, schedule: { entry: day, next: night } } });
    (await mustAcquire(fleet)).release();

    setTime('2026-11-27T19:00:00Z');
    await expect.poll(() => starts().filter(isAlive), { timeout: 60_000 }).toEqual([]);
    await expect.poll(() => view().replicas.length, { timeout: 60_000 }).toBe(0);
    expect(view()).toMatchObject({ phase: 'off', cause: null });
    expect(await fleet.acquire('fixture', {})).toEqual(refused);
    await close();
  });

  it('rejects the requests that wait when its schedule turns it off', async () => {
    const { fleet, view, setTime, close } = await fleetAt('2026-11-27T12:00:00Z', ['--delay', '600000']);
    const waiting = fleet.acquire('fixture', {});
    await expect.poll(() => view().waiting).toBe(1);
    setTime('2026-11-27T19:00:00Z');
    expect(await waiting).toMatchObject({ ok: false, refusal: { code: 'start_failed', retryAfterSeconds: null } });
    expect(view()).toMatchObject({ phase: 'off', failures: 0 });
    await close();
  });
});
