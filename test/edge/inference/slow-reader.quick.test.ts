import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { SlowReader } from '#edge/inference/answer/slow-reader.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function watch(): { readonly reader: SlowReader; readonly said: string[] } {
  const said: string[] = [];
  const onUnread = (): void => void said.push('unread');
  const reader = new SlowReader({ stallMs: 2000, onStalled: () => void said.push('stalled'), onUnread });
  return { reader, said };
}

describe('a client that is waited for', () => {
  it('half a second, in one go or in several, leaves its engine ahead, which is said once', async () => {
    const { reader, said } = watch();
    for (let time = 0; time < 3; time += 1) {
      reader.waits();
      await vi.advanceTimersByTimeAsync(199);
      reader.caughtUp();
    }
    expect(said).toEqual([]);
    reader.waits();
    await vi.advanceTimersByTimeAsync(60);
    expect(said).toEqual(['unread']);
    await vi.advanceTimersByTimeAsync(2000);
    expect(said).toEqual(['unread', 'stalled']);
  });

  it('often, and each time for a moment, does not', async () => {
    const { reader, said } = watch();
    for (let time = 0; time < 100; time += 1) {
      reader.waits();
      await vi.advanceTimersByTimeAsync(40);
      reader.caughtUp();
    }
    expect(said).toEqual([]);
  });

  it('by a gateway that stands still itself does not', () => {
    vi.useRealTimers();
    const { reader, said } = watch();
    return new Promise<void>((resolve) => {
      reader.waits();
      setImmediate(() => {
        reader.caughtUp();
        setImmediate(() => {
          expect(said).toEqual([]);
          resolve();
        });
      });
      for (const untilMs = Date.now() + 700; Date.now() < untilMs;);
    });
  });
});
