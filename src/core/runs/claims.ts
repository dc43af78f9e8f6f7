import type { Sql } from 'postgres';
import { type Claiming, createClaiming } from './claiming.ts';
import { createProgress, type Progress } from './progress.ts';
import { activeStatuses } from './run-status.ts';

/** Who runs what, over all gateways of a database. Whatever is written names the fence that it was claimed with. */
export interface Claims extends Claiming, Progress {
  /** Fails runs whose place nobody has heard of for `abandonedMs`, and such as have waited for longer than `pendingMs`. */
  sweep(limits: { readonly abandonedMs: number; readonly pendingMs: number }): Promise<void>;
}

export function createClaims(sql: Sql, holder: string): Claims {
  const active: string[] = [...activeStatuses];

  return {
    ...createClaiming(sql, holder),
    ...createProgress(sql),
    async sweep({ abandonedMs, pendingMs }) {
      const abandoned = 'the machine that it ran on has not been heard of; what it had made until then is kept';
      await sql`
        update runs set status = 'FAILED', failure_code = 'INTERRUPTED', failure_message = ${abandoned},
          fence = fence + 1, ended_at = clock_timestamp(), lease_until = null
        where status in ${sql(active)} and lease_until < clock_timestamp() - make_interval(secs => ${abandonedMs / 1000})`;
      await sql`
        update runs set status = 'FAILED', failure_code = 'TIMEOUT', ended_at = clock_timestamp(),
          failure_message = 'it waited for too long to begin'
        where status = 'PENDING' and created_at < clock_timestamp() - make_interval(secs => ${pendingMs / 1000})`;
    },
  };
}
