import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Lease, LoadReport } from '#core/fleet/fleet.ts';
import { FlexQueue } from '#core/routing/flex-queue.ts';

/** A bench of one engine that runs four requests at once; the test sets its reports. */
function bench() {
  let leases = 0;
  let report: LoadReport = { running: 0, waiting: 0 };
  const lease = (): Lease => {
    leases += 1;
    let held = true;
    const release = (): void => {
      if (held) leases -= 1;
      held = false;
    };
    return {
      replica: {} as never,
      cold: false,
      readySinceMs: null,
      isWedged: false,
      describe: () => undefined,
      release,
    };
  };
  const fleet = {
    status: () => 'ready',
    leases: () => leases,
    concurrencyMax: () => null,
    readLoad: () => Promise.resolve(report),
  } as never;
  const queue = new FlexQueue({ fleet, engineId: 'chat', queueMax: 100, acquire: lease });
  const ends: (() => void)[] = [];
  for (let count = 0; count < 60; count += 1) {
    const joined = queue.join({ keyId: 'key', tokens: 1, signal: new AbortController().signal });
    void joined.then((result) => {
      if (!result.ok) throw new Error('there is room in the queue');
      const { flexLease } = result;
      ends.push(() => {
        flexLease.lease.release();
        flexLease.done(1);
      });
    });
  }
  return {
    /** Requests of the tier that run, as the gateway knows it. */
    running: () => ends.length,
    lease,
    async endOne(): Promise<void> {
      ends.shift()?.();
      await vi.advanceTimersByTimeAsync(0);
    },
    /** The engine is asked once, and says this. */
    async says(running: number, waiting = 0): Promise<void> {
      report = { running, waiting };
      await vi.advanceTimersByTimeAsync(100);
    },
  };
}

/** An engine that was full with four, of which flex has three now. */
async function settled() {
  const one = bench();
  await one.says(4, 2);
  for (let running = one.running(); running > 0; running -= 1) await one.endOne();
  await one.says(0);
  await one.says(3);
  expect(one.running()).toBe(3);
  return one;
}

describe('flex requests at a full engine', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('do not start before the engine has reported the requests that it was sent or has ended', async () => {
    const one = await settled();
    for (const running of [2, 1, 0, 2]) {
      await one.says(running);
      expect(one.running()).toBe(3);
      await one.endOne();
      expect(one.running()).toBe(3);
    }
  });

  it('leave room for default requests that the engine has not reported yet', async () => {
    const one = await settled();
    one.lease();
    await one.says(3);
    await one.endOne();
    expect(one.running()).toBe(2);
  });
});
