import { describe, expect, it } from 'vitest';
import { type FairTurnBounds, FairTurns, NoTurnError } from '#base/queues/fair-concurrency-limit.ts';
import { TooManyWaitError } from '#base/queues/concurrency-limit.ts';

const bounds: FairTurnBounds = {
  atOnceMax: 3,
  atOncePerNameMax: 2,
  waitingMax: 6,
  waitingPerNameMax: 4,
  waitMsMax: 60_000,
};

/** Work that runs until it is told to end, in the order in which it began. */
function createWork(options: Partial<FairTurnBounds> = {}) {
  const turns = new FairTurns({ ...bounds, ...options });
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

describe('fair turns', () => {
  it('refuse a name of which too many wait, and everybody when too many wait together', async () => {
    const { start } = createWork();
    for (let i = 0; i < 6; i += 1) void start('a');
    await expect(start('a')).rejects.toThrow(TooManyWaitError);
    for (let i = 0; i < 3; i += 1) void start('b');
    await expect(start('c')).rejects.toThrow(NoTurnError);
  });

  it('refuse who has waited too long, and forget it', async () => {
    const { start, began, endOldest } = createWork({ waitMsMax: 10, atOnceMax: 1 });
    void start('a');
    await expect(start('b')).rejects.toThrow(NoTurnError);
    void start('c');
    await endOldest();
    expect(began).toEqual(['a', 'c']);
  });

  it('leave one for others while a name has all that it may have', async () => {
    const { start, began } = createWork();
    for (let i = 0; i < 5; i += 1) void start('a');
    await settled();
    expect(began).toEqual(['a', 'a']);
    void start('b');
    await settled();
    expect(began).toEqual(['a', 'a', 'b']);
  });

  it('go to the name that has the fewest running, then to the one that had its last, or came, before the others', async () => {
    const { start, began, endOldest } = createWork({ waitingMax: 100 });
    for (const name of ['a', 'a', 'a', 'a', 'b', 'b', 'c', 'd']) void start(name);
    for (let i = 0; i < 8; i += 1) await endOldest();
    expect(began).toEqual(['a', 'a', 'b', 'c', 'a', 'b', 'd', 'a']);
  });

  it('do not refuse what has begun', async () => {
    const { start, began, endOldest } = createWork({ waitingPerNameMax: 0, waitingMax: 0, waitMsMax: 1 });
    void start('a');
    void start('a');
    void start('a', true);
    await expect(start('a')).rejects.toThrow(TooManyWaitError);
    await endOldest();
    expect(began).toEqual(['a', 'a', 'a']);
  });

  it('end with what fails', async () => {
    const turns = new FairTurns({ ...bounds, atOnceMax: 1, atOncePerNameMax: 1, waitingMax: 0 });
    for (let i = 0; i < 3; i += 1) {
      await expect(turns.during('a', () => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    }
    expect(await turns.during('b', () => Promise.resolve(1))).toBe(1);
  });
});
