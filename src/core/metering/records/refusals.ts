import type { Sql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';

export interface RefusalKey {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  /** Catalog id, or '' if the request was rejected before its model was known. */
  readonly model: string;
  readonly code: string;
}

interface RefusalCount extends RefusalKey {
  /** Start of the minute, in milliseconds since the Unix epoch. */
  readonly minuteMs: number;
  readonly count: number;
}

/** Returns one statement that adds a batch of refusal counts. */
function refusalStatement(sql: Sql, counts: readonly RefusalCount[]) {
  const rows = counts.map((entry) => ({
    organization_id: entry.organizationId,
    minute: new Date(entry.minuteMs).toISOString(),
    key_id: entry.keyId,
    project_id: entry.projectId,
    model: entry.model,
    code: entry.code,
    count: entry.count,
  }));
  return sql`
    insert into usage_refusals as r (organization_id, minute, key_id, project_id, model, code, count)
    select organization_id, minute, key_id, project_id, model, code, count
    from json_to_recordset(${JSON.stringify(rows)}::text::json) as t(
      organization_id uuid, minute timestamptz, key_id uuid, project_id uuid, model text, code text, count bigint)
    order by organization_id, minute, key_id, project_id, model, code
    on conflict (organization_id, minute, key_id, project_id, model, code) do update set count = r.count + excluded.count`;
}

/** Counts refusals in memory and writes them as sums per minute, so that a rejected request costs no write. */
export interface Refusals {
  count(refusal: RefusalKey): void;
  flush(): Promise<void>;
}

const minuteMs = 60_000;
/**
 * Maximum number of sums by key, project, code, model and minute in memory. More come only in a flood while Postgres is
 * unavailable; they are dropped.
 */
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
        'counts of rejected requests could not be written to PostgreSQL; they are kept for the next attempt',
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
      const nowMs = clock.now();
      const startMs = nowMs - (nowMs % minuteMs);
      const key = `${startMs} ${refusal.keyId} ${refusal.projectId} ${refusal.code} ${refusal.model}`;
      const found = held.get(key);
      if (found !== undefined) found.count += 1;
      else if (held.size < heldMax) held.set(key, { entry: refusal, minuteMs: startMs, count: 1 });
    },
    async flush() {
      // One write at a time. Counts from before this call are written when it returns, or kept while Postgres is
      // unavailable.
      while (flushing !== null) await flushing;
      flushing = write().finally(() => {
        flushing = null;
      });
      await flushing;
    },
  };
}
