import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { refusalStatement, type RefusalCount, type RefusalKey } from './writer.ts';

/** Refusals are counted in memory and written as sums per minute, so that being refused costs no write. */
export interface Refusals {
  count(refusal: RefusalKey): void;
  flush(): Promise<void>;
}

const minuteMs = 60_000;
/** Sums by key, code, model and minute in memory. More come only in a flood while Postgres is away; they are dropped. */
const heldMax = 100_000;

export function createRefusals({ db, clock, log }: { db: Db; clock: Clock; log: Log }): Refusals {
  let held = new Map<string, { entry: RefusalKey; minuteMs: number; count: number }>();
  let flushing: Promise<void> | null = null;

  async function write(): Promise<void> {
    if (held.size === 0) return;
    const taken = held;
    held = new Map();
    const counts: RefusalCount[] = [...taken.values()].map(({ entry, ...rest }) => ({ ...entry, ...rest }));
    try {
      await refusalStatement(db.sql, counts);
    } catch (error) {
      log.warn(
        { err: error },
        'counts of refused requests could not be written to PostgreSQL; they are kept for the next try',
      );
      for (const [key, value] of taken) {
        const newer = held.get(key);
        if (newer !== undefined) newer.count += value.count;
        else if (held.size < heldMax) held.set(key, value);
      }
    }
  }

  return {
    count(refusal) {
      const startMs = clock.now() - (clock.now() % minuteMs);
      const key = `${startMs} ${refusal.keyId} ${refusal.projectId} ${refusal.code} ${refusal.model}`;
      const found = held.get(key);
      if (found !== undefined) found.count += 1;
      else if (held.size < heldMax) held.set(key, { entry: refusal, minuteMs: startMs, count: 1 });
    },
    async flush() {
      // One at a time, and what was counted before this call is written when it returns.
      while (flushing !== null) await flushing;
      flushing = write().finally(() => {
        flushing = null;
      });
      await flushing;
    },
  };
}
