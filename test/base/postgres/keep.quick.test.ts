import { describe, expect, it } from 'vitest';
import { pauseBeforeStartMs } from '#base/postgres/keep.ts';

describe('a PostgreSQL that ended', () => {
  it('is started at once, then after pauses that grow to ten seconds, indefinitely', () => {
    const pauses = Array.from({ length: 10 }, (_, starts) => pauseBeforeStartMs(starts));
    expect(pauses).toEqual([0, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000, 10_000]);
    expect(pauseBeforeStartMs(1_000_000)).toBe(10_000);
  });
});
