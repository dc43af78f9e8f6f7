import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import type { LoadReport } from '#core/fleet/fleet.ts';
import { LoadWatch, type WatchedReplica } from '#core/routing/load-watch.ts';

/** Replicas that answer when the test lets them, and a clock that is turned by hand. */
function bench(reports: Record<string, LoadReport>) {
  const state = {
    nowMs: 0,
    asked: [] as string[],
    replicas: Object.keys(reports).map((id) => ({ id, leases: 0 })) as WatchedReplica[],
    held: [] as (() => void)[],
    hold: false,
    rounds: 0,
  };
  const watch = new LoadWatch({
    replicas: () => state.replicas,
    readLoad: async (id) => {
      state.asked.push(id);
      if (state.hold) await new Promise<void>((resolve) => state.held.push(resolve));
      return reports[id] ?? 'unknown';
    },
    onRound: () => void (state.rounds += 1),
    nowMs: () => state.nowMs,
    everyMs: 500,
  });
  /** Time passes for the watch and its timers. */
  async function pass(ms: number): Promise<void> {
    state.nowMs += ms;
    await vi.advanceTimersByTimeAsync(ms);
  }
  return { state, watch, pass };
}

describe('the load watch', () => {
  beforeAll(() => void vi.useFakeTimers());
  afterEach(() => vi.clearAllTimers());
  // Other files of this worker live by the real ones.
  afterAll(() => void vi.useRealTimers());

  it('polls no replica before the first choice, and leaves no timer after the last', async () => {
    const { state, watch, pass } = bench({ a: { running: 1, waiting: 0 } });
    await pass(5_000);
    expect([state.asked, vi.getTimerCount()]).toEqual([[], 0]);
    watch.use(state.nowMs);
    for (let round = 0; round < 20; round += 1) await pass(500);
    expect(state.asked.length).toBe(11);
    expect(vi.getTimerCount()).toBe(0);
    watch.use(state.nowMs);
    expect(state.asked.length).toBe(12);
  });

  it('leaves no timer when it is closed, and starts none afterwards', async () => {
    const { state, watch, pass } = bench({ a: { running: 1, waiting: 0 } });
    watch.use(0);
    watch.close();
    watch.use(0);
    await pass(1_000);
    expect([state.asked.length, vi.getTimerCount()]).toEqual([1, 0]);
  });

  it('returns the reported load with our leases at that time', async () => {
    const { state, watch, pass } = bench({ a: { running: 3, waiting: 2 } });
    state.replicas = [{ id: 'a', leases: 4 }];
    watch.use(0);
    await pass(0);
    expect(watch.sample('a', 0)).toEqual({ running: 3, waiting: 2, atMs: 0, leasesThen: 4 });
    expect(watch.sample('b', 0)).toBeNull();
  });

  it('uses the lower of our lease counts before and after a slow report', async () => {
    const { state, watch, pass } = bench({ a: { running: 3, waiting: 0 } });
    state.hold = true;
    state.replicas = [{ id: 'a', leases: 4 }];
    watch.use(0);
    state.replicas = [{ id: 'a', leases: 1 }];
    state.held.pop()?.();
    await pass(0);
    expect(watch.sample('a', 0)?.leasesThen).toBe(1);
  });

  it('does not poll a replica again that has not answered yet', async () => {
    const { state, watch, pass } = bench({ a: { running: 0, waiting: 0 }, b: { running: 0, waiting: 0 } });
    state.hold = true;
    watch.use(0);
    await pass(500);
    await pass(500);
    expect(state.asked).toEqual(['a', 'b']);
  });

  it('drops a report that is too old, and the report of a removed replica', async () => {
    const { state, watch, pass } = bench({ a: { running: 1, waiting: 0 }, b: { running: 1, waiting: 0 } });
    watch.use(0);
    await pass(0);
    expect(watch.sample('a', 3_001)).toBeNull();
    state.replicas = [{ id: 'a', leases: 0 }];
    await pass(500);
    expect(watch.sample('a', 500)).not.toBeNull();
    expect(watch.sample('b', 500)).toBeNull();
  });

  it('keeps the last report of a replica that stops answering, and polls one without reports only once', async () => {
    const reports: Record<string, LoadReport> = { a: { running: 1, waiting: 0 }, silent: 'none' };
    const { state, watch, pass } = bench(reports);
    watch.use(0);
    await pass(0);
    reports['a'] = 'unknown';
    await pass(500);
    await pass(500);
    expect(watch.sample('a', state.nowMs)).toMatchObject({ running: 1, atMs: 0 });
    expect(state.asked.filter((id) => id === 'silent')).toHaveLength(1);
  });
});
