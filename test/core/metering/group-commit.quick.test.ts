import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { createLog } from '#base/log.ts';
import { openSpool, type Spool } from '#base/spool.ts';
import { createGroupCommit, type GroupCommit } from '#core/metering/records/group-commit.ts';

/** An error as Postgres gives it. */
const refusal = (code: string, severity = 'ERROR'): Error => Object.assign(new Error(code), { code, severity });
/** An error as a socket or a name server gives it. */
const failure = (code: string): Error => Object.assign(new Error(code), { code });

interface Store {
  commits: GroupCommit<string>;
  spool: Spool;
  /** Batches in the order of their tries. */
  readonly tries: string[][];
  readonly written: string[];
  readonly quarantined: string[];
  readonly unspooled: { items: readonly string[]; isBooked: boolean }[];
  abandoned: number;
  /** Errors of the next tries, one a try; a function decides by the batch for as long as it is there. */
  readonly faults: Error[];
  fault: ((items: readonly string[]) => Error | null) | null;
  /** Lets a try go on that waits. */
  release(): void;
  holdTries: boolean;
}

let folder: string;
let stores: Store[] = [];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'headgate-commits-'));
});
afterEach(async () => {
  for (const store of stores) {
    store.holdTries = false;
    store.release();
    await store.commits.stop();
  }
  stores = [];
  await rm(folder, { recursive: true });
});

/** Items are texts; the group is what comes before a colon. */
async function createStore(own: { batchMax?: number; spoolAfterMs?: number; stallMs?: number } = {}): Promise<Store> {
  let waiting: (() => void)[] = [];
  const spool = await openSpool({ folder, log: createLog('silent') });
  const store: Omit<Store, 'commits'> = {
    spool,
    tries: [],
    written: [],
    quarantined: [],
    unspooled: [],
    abandoned: 0,
    faults: [],
    fault: null,
    holdTries: false,
    release() {
      for (const resolve of waiting) resolve();
      waiting = [];
    },
  };
  const commits = createGroupCommit<string>({
    log: createLog('silent'),
    clock: systemClock,
    batchMax: own.batchMax ?? 100,
    retryDelayMs: 1,
    retryDelayMsMax: 4,
    spoolAfterMs: own.spoolAfterMs ?? 60_000,
    stallMs: own.stallMs ?? 60_000,
    spool,
    encode: (item) => Buffer.from(item),
    describe: (item) => ({ item }),
    decode(data) {
      if (data.toString().startsWith('unreadable')) throw new Error('unreadable');
      return data.toString();
    },
    groupOf: (item) => item.split(':')[0] ?? '',
    abandon: () => void (store.abandoned += 1),
    quarantine: (item, data) => Promise.resolve(void store.quarantined.push(item ?? data.toString())),
    onUnspooled: (items, isBooked) => void store.unspooled.push({ items, isBooked }),
    async write(items) {
      store.tries.push([...items]);
      if (store.holdTries) await new Promise<void>((resolve) => waiting.push(resolve));
      const fault = store.faults.shift() ?? store.fault?.(items) ?? null;
      if (fault !== null) throw fault;
      store.written.push(...items);
    },
  });
  stores.push(Object.assign(store, { commits }));
  return Object.assign(store, { commits });
}

const holding = (word: string, error: Error) => (items: readonly string[]) =>
  items.some((item) => item.includes(word)) ? error : null;

describe('an item that the store rejects', () => {
  it('is put in quarantine, and the rest of its batch is written', async () => {
    const store = await createStore();
    store.fault = holding('poison', refusal('22P05'));
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
    expect(store.quarantined).toEqual(['poison 1', 'poison 2']);
    await store.commits.idle();
    expect(store.commits.pending).toBe(0);
  });

  it('is put in quarantine from the spool too, and is not reported as booked', async () => {
    const store = await createStore();
    store.fault = holding('poison', refusal('23514'));
    store.faults.push(failure('ECONNREFUSED'));
    await Promise.all(['a', 'poison', 'b'].map((item) => store.commits.add(item)));
    await store.commits.idle();
    expect(store.quarantined).toEqual(['poison']);
    expect(store.unspooled.filter(({ isBooked }) => !isBooked)).toEqual([{ items: ['poison'], isBooked: false }]);
    expect(store.unspooled.flatMap(({ items, isBooked }) => (isBooked ? items : [])).toSorted()).toEqual(['a', 'b']);
    expect(await readdir(folder)).toEqual([]);
  });

  it('with an unknown error is put in quarantine once others were written after it', async () => {
    const store = await createStore({ batchMax: 4 });
    store.fault = holding('odd', refusal('XX000'));
    const items = ['a', 'b', 'odd', 'c', 'd', 'e', 'f', 'g', 'h'];
    await Promise.all(items.map((item) => store.commits.add(item)));
    await expect.poll(() => store.quarantined).toEqual(['odd']);
    await store.commits.idle();
    expect(store.written.toSorted()).toEqual(items.filter((item) => item !== 'odd').toSorted());
  });

  it('is not put in quarantine while no other item can be written either', async () => {
    const store = await createStore({ batchMax: 2 });
    store.fault = () => refusal('25006');
    const items = ['a', 'b', 'c', 'd', 'e'];
    await Promise.all(items.map((item) => store.commits.add(item)));
    await expect.poll(() => store.tries.length).toBeGreaterThan(40);
    expect(store.quarantined).toEqual([]);
    store.fault = null;
    await store.commits.idle();
    expect(store.written.toSorted()).toEqual(items);
  });

  it('is put in quarantine when a later version cannot read it from the spool', async () => {
    const earlier = await createStore();
    earlier.fault = () => failure('ECONNREFUSED');
    await earlier.commits.add('unreadable');
    await earlier.commits.add('readable');
    await earlier.commits.stop();
    const store = await createStore();
    store.commits.begin();
    await store.commits.idle();
    expect(store.quarantined).toEqual(['unreadable']);
    expect(store.written).toEqual(['readable']);
  });
});

describe('an unavailable store', () => {
  it.each([
    failure('ECONNREFUSED'),
    failure('CONNECTION_CLOSED'),
    failure('EAI_AGAIN'),
    failure('ENOENT'),
    failure('EMFILE'),
    failure('ERR_TLS_CERT_ALTNAME_INVALID'),
    refusal('57P01', 'FATAL'),
    refusal('28P01', 'FATAL'),
    refusal('53300', 'FATAL'),
    refusal('53100'),
    refusal('58030'),
    refusal('25006'),
    refusal('42501'),
    refusal('XX000'),
    new Error('something that nobody thought of'),
  ])('with %s loses no item', async (fault) => {
    const store = await createStore();
    store.faults.push(...Array.from({ length: 8 }, () => fault));
    expect(await store.commits.add('a')).toBe('spooled');
    expect(store.commits.unavailableMs).toBeGreaterThan(0);
    await store.commits.idle();
    expect(store.written).toEqual(['a']);
    expect(store.quarantined).toEqual([]);
    expect(store.unspooled).toEqual([{ items: ['a'], isBooked: true }]);
    expect(store.commits.unavailableMs).toBe(0);
    expect(await store.commits.add('b')).toBe('booked');
  });

  it('delays no caller: items go to the spool, and are written in order once the store is back', async () => {
    const store = await createStore({ batchMax: 3 });
    store.fault = () => failure('ECONNREFUSED');
    const items = Array.from({ length: 10 }, (_, index) => `item ${index}`);
    for (const item of items) expect(await store.commits.add(item)).toBe('spooled');
    expect(store.commits.pending).toBe(0);
    expect(store.commits.spooled).toBe(10);
    store.fault = null;
    await store.commits.idle();
    expect(store.written).toEqual(items);
    expect(await readdir(folder)).toEqual([]);
  });

  it('that is slow delays no caller', async () => {
    const store = await createStore({ spoolAfterMs: 5 });
    store.holdTries = true;
    const first = store.commits.add('first');
    const second = store.commits.add('second');
    expect(await Promise.all([first, second])).toEqual(['spooled', 'spooled']);
    store.holdTries = false;
    store.release();
    await store.commits.idle();
    expect([...new Set(store.written)].toSorted()).toEqual(['first', 'second']);
  });

  it('without an answer is abandoned, and asked again', async () => {
    const store = await createStore({ stallMs: 5, spoolAfterMs: 1 });
    store.holdTries = true;
    expect(await store.commits.add('a')).toBe('spooled');
    await expect.poll(() => store.abandoned).toBeGreaterThan(1);
    store.holdTries = false;
    await store.commits.idle();
    expect(store.written).toContain('a');
  });

  it('gets items as soon as it is back, also while new items keep coming to the spool', async () => {
    const store = await createStore();
    const append = store.spool.append.bind(store.spool);
    let isOver = false;
    const adding: Promise<unknown>[] = [];
    store.spool.append = async (entries) => {
      await append(entries);
      // Whenever the disk has taken some, there are more.
      if (!isOver) adding.push(store.commits.add(`more ${adding.length}`));
    };
    store.fault = () => failure('ECONNREFUSED');
    await store.commits.add('first');
    store.fault = null;
    await expect.poll(() => store.written).toContain('first');
    await expect.poll(() => store.commits.unavailableMs).toBe(0);
    isOver = true;
    await Promise.all(adding);
    await store.commits.idle();
    expect(new Set(store.written).size).toBe(adding.length + 1);
  });

  it('is no outage when it rejects only the one item', async () => {
    const store = await createStore();
    store.fault = holding('odd', refusal('XX001'));
    expect(await store.commits.add('odd')).toBe('spooled');
    await expect.poll(() => store.commits.isRefused).toBe(true);
    expect(await store.commits.add('fine')).toBe('spooled');
    await expect.poll(() => store.quarantined).toEqual(['odd']);
    expect(store.written).toEqual(['fine']);
    // Known with the end of the try, which is a little later than what was set aside in it.
    await expect.poll(() => store.commits.unavailableMs).toBe(0);
  });

  it('gets the items of the previous process, once', async () => {
    const earlier = await createStore();
    earlier.fault = () => failure('ECONNREFUSED');
    for (const item of ['a', 'b', 'c']) await earlier.commits.add(item);
    await earlier.commits.stop();
    const store = await createStore();
    expect(store.commits.spooled).toBe(3);
    store.commits.begin();
    await store.commits.idle();
    expect(store.written).toEqual(['a', 'b', 'c']);
    expect(store.unspooled.flatMap(({ items }) => items)).toEqual(['a', 'b', 'c']);
    expect(await readdir(folder)).toEqual([]);
  });
});

describe('a spool that cannot be written', () => {
  it('leaves items pending and counted, until the store takes them', async () => {
    const store = await createStore();
    store.spool.append = () => Promise.reject(failure('ENOSPC'));
    store.fault = () => failure('ECONNREFUSED');
    const added = [store.commits.add('a'), store.commits.add('b')];
    await expect.poll(() => store.tries.length).toBeGreaterThan(5);
    expect(store.commits.pending).toBe(2);
    expect(store.commits.oldestPendingMs).toBeGreaterThan(0);
    store.fault = null;
    expect(await Promise.all(added)).toEqual(['booked', 'booked']);
    expect(store.commits.pending).toBe(0);
    expect(store.commits.oldestPendingMs).toBe(0);
  });

  it('takes items again once there is room', async () => {
    const store = await createStore();
    const append = store.spool.append.bind(store.spool);
    store.spool.append = () => Promise.reject(failure('ENOSPC'));
    store.fault = () => failure('ECONNREFUSED');
    const added = store.commits.add('a');
    await expect.poll(() => store.tries.length).toBeGreaterThan(5);
    store.spool.append = append;
    expect(await added).toBe('spooled');
    store.fault = null;
    await store.commits.idle();
    expect(store.written).toEqual(['a']);
  });

  it('rejects items that were not stored when everything closes', async () => {
    const store = await createStore();
    store.spool.append = () => Promise.reject(failure('ENOSPC'));
    store.fault = () => failure('ECONNREFUSED');
    const added = store.commits.add('a');
    const stopOnceTried = async (): Promise<void> => {
      await expect.poll(() => store.tries.length).toBeGreaterThan(1);
      await store.commits.stop();
    };
    const [[outcome]] = await Promise.all([Promise.allSettled([added]), stopOnceTried()]);
    expect(outcome).toMatchObject({ status: 'rejected' });
    await expect(store.commits.add('b')).rejects.toThrow('the gateway is stopping');
  });
});

describe('locked rows', () => {
  it('delay their own group only', async () => {
    const store = await createStore();
    store.fault = holding('locked:', refusal('55P03'));
    const added = ['free:1', 'locked:1', 'other:1', 'locked:2', 'free:2'].map((item) => store.commits.add(item));
    await Promise.all(added);
    await expect.poll(() => store.written.toSorted()).toEqual(['free:1', 'free:2', 'other:1']);
    const later = ['free:3', 'locked:3'].map((item) => store.commits.add(item));
    expect(await Promise.all(later)).toEqual(['spooled', 'spooled']);
    await expect.poll(() => store.written).toContain('free:3');
    expect(store.commits.spooled).toBe(3);
    store.fault = null;
    await store.commits.idle();
    expect(store.written.filter((item) => item.startsWith('locked'))).toEqual(['locked:1', 'locked:2', 'locked:3']);
    expect(store.quarantined).toEqual([]);
    expect(await store.commits.add('locked:4')).toBe('booked');
  });
});

describe('commits', () => {
  it('start at once, and items that arrive meanwhile form the next batch, in order and bounded', async () => {
    const store = await createStore({ batchMax: 3 });
    const items = ['a', 'b', 'c', 'd', 'e', 'f'].map((item) => store.commits.add(item));
    expect(store.commits.pending).toBe(6);
    expect(await Promise.all(items)).toEqual(Array.from({ length: 6 }, () => 'booked'));
    expect(store.tries.flat()).toEqual(['a', 'b', 'c', 'd', 'e', 'f']);
    expect(store.tries.every(({ length }) => length <= 3)).toBe(true);
    await store.commits.idle();
  });

  it('are written at any time, also at the moment when the last one ends', async () => {
    const store = await createStore();
    store.fault = holding('poison', refusal('22P05'));
    // How many turns of the loop lie between the end of one and the start of the next.
    for (let turns = 0; turns < 20; turns += 1) {
      for (const item of ['a', 'poison']) {
        await store.commits.add(`${item} ${turns}`).catch(() => undefined);
        for (let i = 0; i < turns; i += 1) await Promise.resolve();
      }
    }
    expect(store.written).toHaveLength(20);
    expect(store.quarantined).toHaveLength(20);
  });

  it('are repeated unchanged after conflicts', async () => {
    const store = await createStore();
    store.faults.push(refusal('40P01'), refusal('40001'), refusal('23505'));
    expect(await store.commits.add('a')).toBe('booked');
    expect(store.tries).toEqual([['a'], ['a'], ['a'], ['a']]);
  });
});
