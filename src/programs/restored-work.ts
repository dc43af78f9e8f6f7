import type { ISql } from 'postgres';
import { countPendingAlerts, silenceAlerts } from '#core/alerts/alerts.ts';
import { cancelOpenBatches, countOpenBatches } from '#core/batches/batches.ts';
import { forgetFleetIdentity } from '#core/fleet/fleet.ts';
import {
  countExpiringRuns,
  countUnfinishedRuns,
  endDriftChecks,
  endExpiries,
  endUnfinishedRuns,
} from '#core/runs/runs.ts';
import { FailedError } from '#edge/cli/cli.ts';

/** Unfinished work in a restored database, which the original database would continue as well. */

interface Work {
  readonly what: string;
  /** Table of the work; older backups may lack it. */
  readonly table: string;
  /** Counts unfinished work; null for work that every database has. */
  readonly count: ((sql: ISql) => Promise<number>) | null;
  readonly end: (sql: ISql) => Promise<void>;
}

const works: readonly Work[] = [
  { what: 'batches', table: 'batches', count: countOpenBatches, end: cancelOpenBatches },
  { what: 'runs of stacks', table: 'runs', count: countUnfinishedRuns, end: endUnfinishedRuns },
  { what: 'runs that expire', table: 'runs', count: countExpiringRuns, end: endExpiries },
  { what: 'drift checks', table: 'runs', count: null, end: endDriftChecks },
  { what: 'alerts', table: 'alert_events', count: countPendingAlerts, end: silenceAlerts },
  { what: 'engines', table: 'fleet_secrets', count: null, end: forgetFleetIdentity },
];

/** Choice of `--pending`; null if absent. */
export type PendingChoice = 'resume' | 'end' | null;

/**
 * Resumes or ends unfinished work, as the operator chooses: only the operator knows if the original database is used
 * again. Then both would send the same requests to engines, apply the same stacks, and alert the same receivers.
 * @throws FailedError when there is unfinished work and no choice
 */
export async function decidePending(sql: ISql, choice: PendingChoice): Promise<void> {
  if (choice === 'resume') return;
  const found: string[] = [];
  for (const { what, table, count, end } of works) {
    const [row] = await sql`select to_regclass(${table}) is not null as there`;
    if (row?.['there'] !== true) continue;
    if (choice === 'end') await end(sql);
    else if (count !== null) {
      const open = await count(sql);
      if (open > 0) found.push(`${open} ${what}`);
    }
  }
  if (found.length === 0) return;
  throw new FailedError(
    `the backup contains unfinished work (${found.join(', ')}), and nothing was changed. Use --pending resume if the ` +
      'original database is no longer used, or --pending end if it is: the work then ends in the restored database, its ' +
      'webhooks are disabled, and the engines of the original are not touched',
  );
}
