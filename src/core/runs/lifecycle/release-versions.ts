import { type SQL, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { logDaysMax } from './old-logs.ts';
import { lockRuns } from './run-rows.ts';
import { isFinal, type RunStatus, runStatuses } from './run-status.ts';
import type { RunSources } from './sources.ts';

/**
 * Versions of stacks that runs pin. A run pins its version for as long as it may be destroyed or retried, so that
 * deleting or replacing a stack takes nothing from what was applied.
 */

export interface ReleasingParts {
  readonly db: Db;
  readonly sources: Pick<RunSources, 'unpinStackVersion'>;
}

const listed = (statuses: readonly RunStatus[]): SQL =>
  sql.join(
    statuses.map((status) => sql`${status}`),
    sql`, `,
  );
const final = listed(runStatuses.filter(isFinal));

/**
 * Runs `r` that no longer need their version: what their installation had created was destroyed since, they never
 * started, they only checked for drift, or they created nothing and their log is expired too. A run whose state could not be stored needs its
 * version, which says where in the folder the state is.
 */
const needsNone = sql`r.holds_version and r.status in (${final})
  and (r.failure_code is null or r.failure_code <> 'STATE_SAVE_FAILED')
  and (
    exists (
      select from runs d where d.installation_id = r.installation_id and d.status = 'DESTROYED' and d.id >= r.id)
    or r.status in ('DISCARDED', 'PLANNED_AND_FINISHED') or r.drift_of is not null
    or (r.status in ('FAILED', 'CANCELED') and not r.prepared)
    or (r.status in ('FAILED', 'CANCELED') and r.ended_at < clock_timestamp() - make_interval(days => ${logDaysMax})
      and coalesce((select s.resources from stack_states s where s.installation_id = r.installation_id
        order by s.serial desc limit 1), 0) = 0))`;

/** @returns the number of runs that released their version */
export async function releaseVersions({ db, sources }: ReleasingParts): Promise<number> {
  const found = await db.orm.execute<{ installation_id: string; cluster_id: string }>(
    sql`select distinct r.installation_id, r.cluster_id from runs r where ${needsNone}`,
  );
  let released = 0;
  for (const { installation_id: installationId, cluster_id: clusterId } of found) {
    released += await db.orm.transaction(async (tx) => {
      // A run that is requested at this moment is inserted before, or finds the version deleted.
      await lockRuns(tx, clusterId);
      return release(tx, sources, sql`r.installation_id = ${installationId} and ${needsNone}`);
    });
  }
  return released;
}

/** Releases the versions of a forgotten installation. The caller has the lock of its cluster's runs. */
export function releaseForgotten(
  tx: Transaction,
  sources: ReleasingParts['sources'],
  installationId: string,
): Promise<number> {
  return release(tx, sources, sql`r.installation_id = ${installationId} and r.holds_version`);
}

async function release(tx: Transaction, sources: ReleasingParts['sources'], which: SQL): Promise<number> {
  const rows = await tx.execute<{ stack_version_id: string }>(
    sql`update runs r set holds_version = false where ${which} returning r.stack_version_id`,
  );
  for (const { stack_version_id: versionId } of rows) await sources.unpinStackVersion(tx, versionId);
  return rows.length;
}
