import { describe, expect, it } from 'vitest';
import { createRefreshingCache, type RefreshingCache } from '#base/queues/refreshing-cache.ts';

/** A source that answers when the test says so. */
function createSource(staleMs?: number) {
  const values = new Map<string, string>();
  const waiting: (() => void)[] = [];
  let [loads, away, held, nowMs]: [number, boolean | 'overloaded', boolean, number] = [0, false, false, 0];
  const failures: unknown[] = [];
  const cache: RefreshingCache<string> = createRefreshingCache<string>({
    clock: { now: () => nowMs, monotonicMs: () => nowMs },
    entriesMax: 3,
    refreshAfterMs: 30_000,
    ...(staleMs === undefined ? {} : { staleMs }),
    isUnavailable: (error) => !(error instanceof Error && error.message === 'overloaded'),
    async load(name) {
      loads += 1;
      const value = values.get(name) ?? null;
      if (away !== false) throw new Error(away === 'overloaded' ? away : 'away');
      if (held) await new Promise<void>((resolve) => waiting.push(resolve));
      return value;
    },
    onRefreshFailed: (error) => failures.push(error),
  });
  return {
    cache,
    values,
    failures,
    get loads() {
      return loads;
    },
    turn(ms: number) {
      nowMs += ms;
    },
    setAway(next: boolean | 'overloaded') {
      away = next;
    },
    hold() {
      held = true;
    },
    release() {
      held = false;
      for (const resume of waiting.splice(0)) resume();
    },
  };
}

describe('the refreshing cache', () => {
  it("does not keep what the source does not have, and throws the source's errors", async () => {
    const source = createSource();
    expect(await source.cache.get('a')).toBeNull();
    source.values.set('a', '1');
    expect(await source.cache.get('a')).toBe('1');
    source.setAway(true);
    await expect(source.cache.get('b')).rejects.toThrow('away');
  });

  it('asks the source once for simultaneous callers', async () => {
    const source = createSource();
    source.values.set('a', '1');
    expect(await Promise.all([source.cache.get('a'), source.cache.get('a'), source.cache.get('a')])).toEqual([
      '1',
      '1',
      '1',
    ]);
    expect(source.loads).toBe(1);
    expect(source.cache.get('a')).toBe('1');
  });

  it('returns an old value at once, and refreshes it once in the background', async () => {
    const source = createSource();
    source.values.set('a', '1');
    await source.cache.get('a');
    source.values.set('a', '2');
    source.turn(29_999);
    expect(source.cache.get('a')).toBe('1');
    expect(source.loads).toBe(1);
    source.turn(1);
    expect([source.cache.get('a'), source.cache.get('a')]).toEqual(['1', '1']);
    await expect.poll(() => source.cache.get('a')).toBe('2');
    expect(source.loads).toBe(2);
  });

  it('drops a value that the source no longer has', async () => {
    const source = createSource();
    source.values.set('a', '1');
    await source.cache.get('a');
    source.values.delete('a');
    source.turn(30_000);
    expect(source.cache.get('a')).toBe('1');
    await expect.poll(() => source.cache.peek('a')).toBeNull();
  });

  it('keeps its value while the source is unavailable, and asks again once a second', async () => {
    const source = createSource();
    source.values.set('a', '1');
    await source.cache.get('a');
    source.setAway(true);
    source.turn(3_600_000);
    expect(source.cache.get('a')).toBe('1');
    await expect.poll(() => source.failures.length).toBe(1);
    for (let index = 0; index < 100; index += 1) expect(source.cache.get('a')).toBe('1');
    expect(source.loads).toBe(2);
    source.setAway(false);
    source.values.set('a', '2');
    source.turn(1000);
    expect(source.cache.get('a')).toBe('1');
    await expect.poll(() => source.cache.get('a')).toBe('2');
  });

  it('keeps a value up to its maximum age, then throws the reason at once, and asks again once a second', async () => {
    const source = createSource(300_000);
    source.values.set('a', '1');
    await source.cache.get('a');
    source.setAway(true);
    source.turn(3_600_000);
    expect(source.cache.get('a')).toBe('1');
    await expect.poll(() => source.failures.length).toBe(1);
    source.turn(300_000);
    expect(source.cache.get('a')).toBe('1');
    await expect.poll(() => source.failures.length).toBe(2);
    source.turn(1);
    const { loads } = source;
    for (let index = 0; index < 10; index += 1) expect(() => source.cache.get('a')).toThrow('away');
    expect(source.loads).toBe(loads);
    source.turn(1000);
    await expect(source.cache.get('a')).rejects.toThrow('away');
    expect(source.loads).toBe(loads + 1);
    source.setAway(false);
    source.turn(1000);
    expect(await source.cache.get('a')).toBe('1');
    expect(source.cache.get('a')).toBe('1');
  });

  it('keeps a value without an age limit while look-ups fail for a reason other than unavailability', async () => {
    const source = createSource(300_000);
    source.values.set('a', '1');
    await source.cache.get('a');
    source.setAway('overloaded');
    for (let minute = 0; minute < 20; minute += 1) {
      source.turn(60_000);
      expect(source.cache.get('a')).toBe('1');
      await expect.poll(() => source.failures.length).toBe(minute + 1);
    }
  });

  it('never keeps a look-up that began before a change', async () => {
    const source = createSource();
    source.values.set('a', 'before');
    source.hold();
    const asked = source.cache.get('a');
    source.values.set('a', 'after');
    source.cache.update('a', () => 'after');
    source.release();
    expect(await asked).toBe('after');
    expect(source.cache.get('a')).toBe('after');
  });

  it('updates all values that a change affects, and never keeps a look-up that began before it', async () => {
    const source = createSource();
    source.values.set('a', 'one').set('b', 'two');
    await Promise.all([source.cache.get('a'), source.cache.get('b')]);
    source.hold();
    source.values.set('c', 'before');
    const asked = source.cache.get('c');
    source.values.set('a', 'one+').set('c', 'after');
    source.cache.updateWhere(
      (held) => held === 'one',
      (held) => `${held}+`,
    );
    expect(source.cache.values()).toEqual(['one+', 'two']);
    source.release();
    expect(await asked).toBe('after');
  });

  it('shows a change at once, and confirms it with the source', async () => {
    const source = createSource();
    source.values.set('a', '1');
    await source.cache.get('a');
    source.values.set('a', '3');
    source.cache.update('a', (held) => `${held}+`);
    expect(source.cache.get('a')).toBe('1+');
    await expect.poll(() => source.cache.get('a')).toBe('3');
    source.cache.update('unknown', () => 'never');
    expect(source.cache.peek('unknown')).toBeNull();
  });

  it('stays within its size, and drops the least recently used value', async () => {
    const source = createSource();
    for (const name of ['a', 'b', 'c', 'd', 'e']) source.values.set(name, name);
    for (const name of ['a', 'b', 'c']) await source.cache.get(name);
    expect(source.cache.get('a')).toBe('a');
    await source.cache.get('d');
    const held = (): string[] => ['a', 'b', 'c', 'd', 'e'].filter((name) => source.cache.peek(name) !== null);
    expect(held()).toEqual(['a', 'c', 'd']);
    for (const name of ['a', 'c', 'd']) expect(source.cache.get(name)).toBe(name);
    await source.cache.get('e');
    expect(held()).toHaveLength(3);
  });
});
