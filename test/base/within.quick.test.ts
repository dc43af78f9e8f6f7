import { expect, it, vi } from 'vitest';
import { within } from '#base/within.ts';
import { unhandledIn } from '#test/base/unhandled.ts';

const never = new Promise<never>(() => undefined);

it('returns the result of work that ends in time, and leaves no timer', async () => {
  vi.useFakeTimers();
  try {
    const otherwise = vi.fn<() => string>();
    expect(await within(Promise.resolve('done'), 60_000, otherwise)).toBe('done');
    await expect(within(Promise.reject(new Error('refused')), 60_000, otherwise)).rejects.toThrow('refused');
    expect(vi.getTimerCount()).toBe(0);
    expect(otherwise).not.toHaveBeenCalled();
  } finally {
    vi.useRealTimers();
  }
});

it('returns or throws what the caller has for late work', async () => {
  expect(await within(never, 1, () => null)).toBeNull();
  const late = (): never => {
    throw new Error('no answer');
  };
  await expect(within(never, 1, late)).rejects.toThrow('no answer');
});

it('raises no unhandled rejection, whichever fails', async () => {
  const left = await unhandledIn(async () => {
    const { promise, reject } = Promise.withResolvers<void>();
    expect(await within(promise, 1, () => 'late')).toBe('late');
    reject(new Error('refused later'));
    await expect(within(Promise.reject(new Error('refused')), 60_000, () => 'late')).rejects.toThrow('refused');
    const refuse = (): never => {
      throw new Error('no answer');
    };
    await expect(within(never, 1, refuse)).rejects.toThrow('no answer');
  });
  expect(left).toEqual([]);
});
