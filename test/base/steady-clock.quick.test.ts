import { describe, expect, it } from 'vitest';
import type { Clock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { openSteadyClock } from '#base/steady-clock.ts';

const startMs = Date.UTC(2031, 4, 17);
const day = 86_400_000;

/** A machine whose clock can be set, and another clock that is asked what time it is. */
class Bench {
  machineMs = startMs;
  passedMs = 0;
  otherMs: number | null = startMs;
  asked = 0;

  /** Asks once. */
  open(): Promise<Clock> {
    return openSteadyClock({
      clock: { now: () => this.machineMs, monotonicMs: () => 1000 + this.passedMs },
      askTime: async () => {
        this.asked += 1;
        if (this.otherMs === null) throw new Error('away');
        return this.otherMs;
      },
      log: createLog('silent'),
    });
  }

  pass(ms: number): void {
    this.machineMs += ms;
    this.passedMs += ms;
    if (this.otherMs !== null) this.otherMs += ms;
  }
}

describe('the steady clock', () => {
  it("shows the machine's time, also through small corrections", async () => {
    const bench = new Bench();
    const clock = await bench.open();
    bench.pass(60_000);
    expect(clock.now()).toBe(startMs + 60_000);
    for (let time = 1; time <= 10; time += 1) {
      bench.machineMs += 900;
      expect(clock.now()).toBe(bench.machineMs);
    }
    expect(bench.asked).toBe(1);
  });

  it.each([31 * day, -31 * day, 3_600_000])(
    'continues with the elapsed time when only the machine jumps by %i ms, and asks once',
    async (byMs) => {
      const bench = new Bench();
      const clock = await bench.open();
      bench.machineMs += byMs;
      bench.pass(250);
      expect(clock.now()).toBe(startMs + 250);
      await expect.poll(() => bench.asked).toBe(2);
      for (let minute = 1; minute <= 10; minute += 1) {
        bench.pass(60_000);
        expect(clock.now()).toBe(startMs + 250 + minute * 60_000);
      }
      expect(bench.asked).toBe(2);
      // The machine is set right.
      bench.machineMs -= byMs;
      expect(clock.now()).toBe(bench.machineMs);
      await expect.poll(() => bench.asked).toBe(3);
      bench.pass(900);
      expect(clock.now()).toBe(bench.machineMs);
    },
  );

  it('follows the machine when another clock agrees, and asks again while that is unavailable', async () => {
    const bench = new Bench();
    const clock = await bench.open();
    bench.otherMs = null;
    bench.machineMs += day;
    expect(clock.now()).toBe(startMs);
    await expect.poll(() => bench.asked).toBe(2);
    bench.pass(4000);
    expect(clock.now()).toBe(startMs + 4000);
    expect(bench.asked).toBe(2);
    bench.otherMs = bench.machineMs + 300;
    bench.pass(1000);
    expect(clock.now()).toBe(startMs + 5000);
    await expect.poll(() => clock.now()).toBe(bench.machineMs);
    expect(bench.asked).toBe(3);
  });

  it('is right when the machine is wrong from the start, and follows the machine once it is corrected', async () => {
    const bench = new Bench();
    bench.machineMs -= 31 * day;
    const clock = await bench.open();
    expect(clock.now()).toBe(startMs);
    bench.pass(60_000);
    bench.machineMs += 900;
    expect(clock.now()).toBe(startMs + 60_900);
    bench.machineMs += 31 * day - 900;
    expect(clock.now()).toBe(startMs + 60_900);
    await expect.poll(() => clock.now()).toBe(bench.machineMs);
  });
});
