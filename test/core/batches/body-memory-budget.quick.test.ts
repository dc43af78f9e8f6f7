import { beforeEach, expect, it } from 'vitest';
import { type BodyMemoryBudget, createBodyMemoryBudget } from '#core/batches/body-memory-budget.ts';

const mib = 1_048_576;
const small = { name: 'small' };
const large = { name: 'large' };

let nowMs: number;
let memory: BodyMemoryBudget;
beforeEach(() => {
  nowMs = 0;
  const clock = { now: () => nowMs, monotonicMs: () => nowMs };
  memory = createBodyMemoryBudget({ clock, batches: () => 2, asking: () => 2, concurrency: 64, batchesMax: 16 });
});

/** One batch always has a small request running, as far as it may; the other one looks each second. */
function isServedWithin(seconds: number): boolean {
  let running = memory.takeBytes(small, 5 * mib) ? 1 : 0;
  for (let second = 0; second < seconds; second += 1) {
    nowMs += 1000;
    if (memory.takeBytes(large, 60 * mib)) return true;
    // The next one is begun before the one before it has ended.
    const more = memory.takeBytes(small, 5 * mib) ? 1 : 0;
    if (running > 0) memory.giveBytes(5 * mib);
    running = more;
  }
  return false;
}

it('rejects a body without enough free bytes, and accepts it after bytes are released', () => {
  expect(memory.takeBytes(small, 60 * mib)).toBe(true);
  expect(memory.takeBytes(large, 5 * mib)).toBe(false);
  memory.giveBytes(60 * mib);
  expect(memory.takeBytes(large, 5 * mib)).toBe(true);
});

it('accepts a body larger than the whole limit when nothing else runs', () => {
  expect(memory.takeBytes(large, 100 * mib)).toBe(true);
  expect(memory.takeBytes(small, 1)).toBe(false);
});

it('gives room to a waiting large body within a minute, despite many small ones', () => {
  expect(isServedWithin(60)).toBe(true);
  expect(memory.takeBytes(small, 5 * mib)).toBe(false);
});

it('stops reserving room for a body that no longer asks', () => {
  expect(memory.takeBytes(small, 10 * mib)).toBe(true);
  for (let second = 0; second < 12; second += 1) {
    nowMs += 1000;
    expect(memory.takeBytes(large, 60 * mib)).toBe(false);
  }
  expect(memory.takeBytes(small, mib)).toBe(false);
  nowMs += 5001;
  expect(memory.takeBytes(small, mib)).toBe(true);
});
