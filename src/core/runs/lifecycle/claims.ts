import type { Sql } from 'postgres';
import { type Claiming, createClaiming } from './claiming.ts';
import { createProgress, type Progress } from './progress.ts';
import { activeStatuses, unfinishedStatuses } from './run-status.ts';

/** Claims of runs across all gateways of a database. Every write names the fence of its claim. */
export interface Claims extends Claiming, Progress {
  /** Fails runs whose place has sent no news for too long, and runs that were pending for too long. */
  sweep(limits: SweepLimits): Promise<void>;
}

export interface SweepLimits {
  /** Milliseconds that a place may send no news; null: no place could have sent news meanwhile. */
  readonly abandonedMs: number | null;
  readonly pendingMs: number;
  /** Places whose runs this gateway resumes itself. */
  readonly places: readonly string[];
}

export function createClaims(sql: Sql, holder: string): Claims {
  const active: string[] = [...activeStatuses];

  return {
    ...createClaiming(sql, holder),
    ...createProgress(sql),
    async sweep({ abandonedMs, pendingMs, places }) {
      const abandoned = 'its machine stopped responding; the resources that the run created until then are kept';
      if (abandonedMs !== null) {
        await sql`
          update runs set status = 'FAILED', failure_code = 'INTERRUPTED', failure_message = ${abandoned},
            fence = fence + 1, ended_at = clock_timestamp(), lease_until = null
          where status in ${sql(active)} and place not in (select json_array_elements_text(${JSON.stringify(places)}::text::json))
            and lease_until < clock_timestamp() - make_interval(secs => ${abandonedMs / 1000})`;
      }
      await sql`
        update runs set status = 'FAILED', failure_code = 'TIMEOUT', ended_at = clock_timestamp(),
          failure_message = 'it waited in the queue for too long'
        where status = 'PENDING'
          and coalesce(confirmed_at, created_at) < clock_timestamp() - make_interval(secs => ${pendingMs / 1000})`;
      await sql`
        update runs set status = 'FAILED', failure_code = 'TIMEOUT', ended_at = clock_timestamp(),
          failure_message = 'nobody confirmed or discarded its plan in time'
        where id in (select run_id from run_plans where plan is not null) and status = 'PLANNED'
          and planned_at < clock_timestamp() - make_interval(secs => ${pendingMs / 1000})`;
      // A plan contains secrets.
      await sql`
        update run_plans p set plan = null from runs r
        where r.id = p.run_id and p.plan is not null and r.status not in ${sql([...unfinishedStatuses])}`;
    },
  };
}
