import { describe, expect, it, vi } from 'vitest';
import type { Db } from '#base/database/connect-database.ts';
import type { Log } from '#base/log.ts';
import { createTokenWatermarks } from '#core/gateways/token-watermarks.ts';

const some = { promptTokens: 10_000, completionTokens: 10_000 };

/** A database that answers as the test sets, and what a gateway says to it. */
function scripted(answer: () => Promise<unknown>) {
  const marks: string[] = [];
  const warn = vi.fn<Log['warn']>();
  const sql = (_text: unknown, mark: string): Promise<unknown> => {
    marks.push(mark);
    return answer();
  };
  const tokenWatermarks = createTokenWatermarks({
    db: { sql } as unknown as Db,
    log: { warn } as unknown as Log,
    id: 'run',
  });
  return { tokenWatermarks, marks, warn };
}

describe('the mark of running requests', () => {
  it('is written before a request continues, and few requests wait for it', async () => {
    const { tokenWatermarks, marks } = scripted(() => Promise.resolve([]));
    const waited = Array.from({ length: 100 }, async () => tokenWatermarks.enter('chat', some));
    await Promise.all(waited);
    expect(tokenWatermarks.enter('chat', { promptTokens: 1, completionTokens: 1 })).toBeUndefined();
    expect(marks.length).toBeLessThan(4);
    expect(JSON.parse(marks.at(-1) ?? '').chat.promptTokens).toBeGreaterThanOrEqual(1_000_000);
  });

  it('delays no request while PostgreSQL is unreachable, and logs one warning until it is back', async () => {
    let isAway = true;
    const { tokenWatermarks, warn } = scripted(() =>
      isAway ? Promise.reject(new Error('away')) : Promise.resolve([]),
    );
    await tokenWatermarks.enter('chat', some);
    for (let request = 0; request < 50; request += 1) {
      expect(tokenWatermarks.enter('chat', some)).toBeUndefined();
      await new Promise(setImmediate);
    }
    expect(warn).toHaveBeenCalledTimes(1);
    isAway = false;
    void tokenWatermarks.enter('chat', some);
    await new Promise(setImmediate);
    expect(tokenWatermarks.enter('chat', { promptTokens: 1, completionTokens: 1 })).toBeUndefined();
    expect(tokenWatermarks.enter('other', some)).toBeInstanceOf(Promise);
  });

  it('delays no other request while PostgreSQL does not answer', async () => {
    const { tokenWatermarks, warn } = scripted(() => new Promise(() => undefined));
    await tokenWatermarks.enter('chat', some);
    expect(tokenWatermarks.enter('chat', some)).toBeUndefined();
    expect(warn).toHaveBeenCalledTimes(1);
  });
});
