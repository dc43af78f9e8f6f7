import { expect, it } from 'vitest';
import { isLate } from '#base/is-late.ts';
import { unhandledIn } from '#test/base/unhandled.ts';

it('returns false for work that ends in time, and true for work that goes on', async () => {
  expect(await isLate(Promise.resolve(), 60_000)).toBe(false);
  expect(await isLate(new Promise(() => undefined), 1)).toBe(true);
});

it('throws what the work rejects with in time, and raises no unhandled rejection', async () => {
  const left = await unhandledIn(async () => {
    await expect(isLate(Promise.reject(new Error('refused')), 60_000)).rejects.toThrow('refused');
  });
  expect(left).toEqual([]);
});

it('ignores a rejection after the timeout', async () => {
  const left = await unhandledIn(async () => {
    const { promise, reject } = Promise.withResolvers<void>();
    expect(await isLate(promise, 1)).toBe(true);
    reject(new Error('refused later'));
  });
  expect(left).toEqual([]);
});
