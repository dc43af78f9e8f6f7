import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  ConcurrencyLimit,
  type ConcurrencyBounds,
  NoSlotError,
  TooManyWaitError,
} from '#base/queues/concurrency-limit.ts';

const bounds: ConcurrencyBounds = {
  atOnceMax: 3,
  atOncePerNameMax: 2,
  waitingMax: 6,
  waitingPerNameMax: 4,
  waitMsMax: 60_000,
};

/** Work that runs until the test ends it, in the order in which it began. */
function createWork(options: Partial<ConcurrencyBounds> = {}) {
  const turns = new ConcurrencyLimit({ ...bounds, ...options });
  const began: string[] = [];
  const ends: (() => void)[] = [];
  return {
    began,
    start: (name: string, isBegun = false): Promise<void> =>
      turns.during(
        name,
        () => {
          began.push(name);
          return new Promise<void>((resolve) => ends.push(resolve));
        },
        { isBegun },
      ),
    endOldest: async (): Promise<void> => {
      ends.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('slots shared by names', () => {
  it('rejects a name with too many waiting, and every name when too many wait in total', async () => {
    const { start } = createWork();
    for (let i = 0; i < 6; i += 1) void start('a');
    await expect(start('a')).rejects.toThrow(TooManyWaitError);
    for (let i = 0; i < 3; i += 1) void start('b');
    await expect(start('c')).rejects.toThrow(NoSlotError);
  });

  it('rejects work that waited too long, and forgets it', async () => {
    const { start, began, endOldest } = createWork({ waitMsMax: 10, atOnceMax: 1 });
    void start('a');
    await expect(start('b')).rejects.toThrow(NoSlotError);
    void start('c');
    await endOldest();
    expect(began).toEqual(['a', 'c']);
  });

  it('leaves a slot for others while one name has its maximum', async () => {
    const { start, began } = createWork();
    for (let i = 0; i < 5; i += 1) void start('a');
    await settled();
    expect(began).toEqual(['a', 'a']);
    void start('b');
    await settled();
    expect(began).toEqual(['a', 'a', 'b']);
  });

  it('gives a slot to the name with the fewest running, then to the name whose last slot is oldest', async () => {
    const { start, began, endOldest } = createWork({ waitingMax: 100 });
    for (const name of ['a', 'a', 'a', 'a', 'b', 'b', 'c', 'd']) void start(name);
    for (let i = 0; i < 8; i += 1) await endOldest();
    expect(began).toEqual(['a', 'a', 'b', 'c', 'a', 'b', 'd', 'a']);
  });

  it('treats a name whose work was rejected as a new name', async () => {
    const { start, began, endOldest } = createWork({ atOnceMax: 1, waitingMax: 1 });
    void start('a');
    void start('a');
    await expect(start('rejected')).rejects.toThrow(NoSlotError);
    await endOldest();
    void start('b', true);
    void start('rejected', true);
    await endOldest();
    expect(began).toEqual(['a', 'a', 'b']);
  });

  it('treats a name whose work waited too long as a new name', async () => {
    const { start, began, endOldest } = createWork({ atOnceMax: 1, waitMsMax: 10 });
    void start('a');
    await expect(start('late')).rejects.toThrow(NoSlotError);
    void start('b', true);
    void start('late', true);
    await endOldest();
    expect(began).toEqual(['a', 'b']);
  });

  it('rejects no work that has begun', async () => {
    const { start, began, endOldest } = createWork({ waitingPerNameMax: 0, waitingMax: 0, waitMsMax: 1 });
    void start('a');
    void start('a');
    void start('a', true);
    await expect(start('a')).rejects.toThrow(TooManyWaitError);
    await endOldest();
    expect(began).toEqual(['a', 'a', 'a']);
  });

  it('frees the slot of work that fails', async () => {
    const turns = new ConcurrencyLimit({ ...bounds, atOnceMax: 1, atOncePerNameMax: 1, waitingMax: 0 });
    for (let i = 0; i < 3; i += 1) {
      await expect(turns.during('a', () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    }
    expect(await turns.during('b', () => Promise.resolve(1))).toBe(1);
  });
});

describe('slots of one name', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('rejects work that waited too long, and gives the slot to work that still waits', async () => {
    const turns = new ConcurrencyLimit({ atOncePerNameMax: 1, waitingPerNameMax: 2, waitMsMax: 1000 });
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

  it('waits indefinitely without a limit', async () => {
    const turns = new ConcurrencyLimit({ atOncePerNameMax: 1, waitingPerNameMax: 1 });
    const end = await turns.take('a');
    const waits = turns.take('a');
    await expect(turns.take('a')).rejects.toBeInstanceOf(TooManyWaitError);
    await vi.advanceTimersByTimeAsync(1_000_000);
    end();
    (await waits)();
  });
});
