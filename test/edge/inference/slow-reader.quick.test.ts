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

describe('a client that reads slowly', () => {
  it('is reported once when the gateway waits for it half a second, at once or in parts', async () => {
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

  it('is not reported when it pauses often and briefly', async () => {
    const { reader, said } = watch();
    for (let time = 0; time < 100; time += 1) {
      reader.waits();
      await vi.advanceTimersByTimeAsync(40);
      reader.caughtUp();
    }
    expect(said).toEqual([]);
  });

  it('is not reported when the gateway itself stands still', () => {
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
