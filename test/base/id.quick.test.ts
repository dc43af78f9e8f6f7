import { describe, expect, it } from 'vitest';
import { uuidTimeMs, uuidv7 } from '#base/id.ts';

const nowMs = Date.parse('2026-03-01T12:00:00Z');

describe('an id with a timestamp', () => {
  it('sorts after all earlier ids, also while the clock is set back by seconds', () => {
    const ids = [nowMs, nowMs, nowMs - 5000, nowMs + 1].map((ms) => uuidv7(ms));
    expect(ids.toSorted()).toEqual(ids);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it("has the clock's time again after a clock that was days ahead is corrected", () => {
    uuidv7(nowMs + 15 * 86_400_000);
    expect(uuidTimeMs(uuidv7(nowMs))).toBe(nowMs);
  });
});
