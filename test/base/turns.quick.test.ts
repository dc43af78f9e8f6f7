import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TooManyWaitError, Turns } from '#base/queues/concurrency-limit.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('turns', () => {
  it('are refused to who has waited for too long, and go to who waits still', async () => {
    const turns = new Turns({ atOnceMax: 1, waitingMax: 2, waitMsMax: 1000 });
    const end = await turns.take('a');
    const first = turns.take('a').catch((error: unknown) => error);
    await vi.advanceTimersByTimeAsync(600);
    const second = turns.take('a');
    await vi.advanceTimersByTimeAsync(400);
    expect(await first).toBeInstanceOf(TooManyWaitError);
    end();
    const endSecond = await second;
    await vi.advanceTimersByTimeAsync(10_000);
    endSecond();
    expect(await turns.during('a', async () => 'done')).toBe('done');
  });

  it('are for ever waited for where there is no bound', async () => {
    const turns = new Turns({ atOnceMax: 1, waitingMax: 1 });
    const end = await turns.take('a');
    const waits = turns.take('a');
    await expect(turns.take('a')).rejects.toBeInstanceOf(TooManyWaitError);
    await vi.advanceTimersByTimeAsync(1_000_000);
    end();
    (await waits)();
  });
});
