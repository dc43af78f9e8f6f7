import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { createGroupCommit, type GroupCommit } from '#core/metering/group-commit.ts';

/** An error as the driver gives it, by its code. */
function databaseError(code: string): Error {
  return Object.assign(new Error(code), { code });
}

interface Store {
  readonly commits: GroupCommit<string>;
  /** Batches in the order of their tries. */
  readonly tries: string[][];
  readonly written: string[];
  /** Monotonic milliseconds that the commits believe in. */
  nowMs: number;
  /** What the next tries do: throw these, one a try. */
  readonly faults: Error[];
  /** Lets a try go on that waits. */
  release(): void;
  holdTries: boolean;
}

function createStore(batchMax = 100): Store {
  let waiting: (() => void)[] = [];
  const tries: string[][] = [];
  const written: string[] = [];
  const faults: Error[] = [];
  const clock = { now: () => store.nowMs, monotonicMs: () => store.nowMs };
  const commits = createGroupCommit<string>({
    log: createLog('silent'),
    clock,
    batchMax,
    retryDelayMs: 1,
    stallMs: 1000,
    async write(items) {
      tries.push([...items]);
      if (store.holdTries) await new Promise<void>((resolve) => waiting.push(resolve));
      const fault = faults.shift();
      if (fault !== undefined) throw fault;
      if (items.some((item) => item.startsWith('poison'))) throw databaseError('22P05');
      written.push(...items);
    },
  });
  const store: Store = {
    commits,
    tries,
    written,
    faults,
    nowMs: 0,
    holdTries: false,
    release() {
      for (const resolve of waiting) resolve();
      waiting = [];
    },
  };
  return store;
}

describe('an item that the store refuses', () => {
  it('is refused alone: all others of its batch are written', async () => {
    const store = createStore();
    store.holdTries = true;
    const first = store.commits.add('first');
    const items = ['a', 'b', 'poison 1', 'c', 'd', 'e', 'poison 2', 'f'].map((item) => store.commits.add(item));
    store.holdTries = false;
    store.release();
    await first;
    const results = await Promise.allSettled(items);
    const refused = results.flatMap(({ status }, index) => (status === 'rejected' ? [index] : []));
    expect(refused).toEqual([2, 6]);
    expect(store.written.toSorted()).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'first']);
    await store.commits.idle();
    expect(store.commits.pending).toBe(0);
    expect(store.commits.healthy).toBe(true);
  });

  it('is refused alone also while everything is being closed', async () => {
    const store = createStore();
    store.holdTries = true;
    const first = store.commits.add('first');
    const good = store.commits.add('good');
    const bad = store.commits.add('poison');
    store.commits.stop();
    store.holdTries = false;
    store.release();
    await Promise.all([first, good]);
    await expect(bad).rejects.toThrow('22P05');
  });
});

describe('a store that is away', () => {
  it.each(['ECONNREFUSED', 'CONNECTION_CLOSED', '57P01', '53100', '53300', '25006'])(
    'by %s is waited for, and nothing is lost',
    async (code) => {
      const store = createStore();
      store.faults.push(databaseError(code), databaseError(code));
      await store.commits.add('a');
      expect(store.tries).toEqual([['a'], ['a'], ['a']]);
      expect(store.written).toEqual(['a']);
      expect(store.commits.healthy).toBe(true);
    },
  );

  it('is not healthy until a try goes through', async () => {
    const store = createStore();
    store.faults.push(databaseError('ECONNREFUSED'));
    store.holdTries = true;
    const added = store.commits.add('a');
    expect(store.commits.healthy).toBe(true);
    store.release();
    await expect.poll(() => store.commits.healthy, { interval: 1 }).toBe(false);
    expect(store.commits.pending).toBe(1);
    store.holdTries = false;
    store.release();
    await expect.poll(() => (store.release(), store.written), { interval: 1 }).toEqual(['a']);
    await added;
    expect(store.commits.healthy).toBe(true);
  });

  it('that says nothing is not healthy once a try takes too long', async () => {
    const store = createStore();
    store.holdTries = true;
    const added = store.commits.add('a');
    store.nowMs = 999;
    expect(store.commits.healthy).toBe(true);
    store.nowMs = 1000;
    expect(store.commits.healthy).toBe(false);
    store.release();
    await added;
    expect(store.commits.healthy).toBe(true);
  });

  it('is given up on when everything is being closed', async () => {
    const store = createStore();
    store.commits.stop();
    store.faults.push(databaseError('ECONNREFUSED'));
    await expect(store.commits.add('a')).rejects.toThrow('ECONNREFUSED');
    await store.commits.idle();
  });
});

describe('commits', () => {
  it('start at once, and what arrives meanwhile is the next one, in order and bounded', async () => {
    const store = createStore(3);
    const items = ['a', 'b', 'c', 'd', 'e', 'f'].map((item) => store.commits.add(item));
    expect(store.commits.pending).toBe(6);
    await Promise.all(items);
    expect(store.tries).toEqual([['a'], ['b', 'c', 'd'], ['e', 'f']]);
    await store.commits.idle();
  });

  it('that conflict with others are repeated as they are', async () => {
    const store = createStore();
    store.faults.push(databaseError('40P01'), databaseError('40001'));
    await store.commits.add('a');
    expect(store.tries).toEqual([['a'], ['a'], ['a']]);
  });
});
