import type { ISql } from 'postgres';

/** A recorded moment at which PostgreSQL's history may have gone back. */
export interface HistoryChange {
  /** `server`, `rewound`: a gateway noticed the change. `restored`: a backup was restored into the database. */
  readonly change: 'server' | 'rewound' | 'restored';
  /** Milliseconds since the Unix epoch: every commit before this time is present. `-Infinity` if unknown. */
  readonly knownMs: number;
  /** Time when the change was recorded, in milliseconds since the Unix epoch by the database's clock. */
  readonly noticedMs: number;
}

const changesMax = 100;

/** Reads the changes that may have lost a commit made at the given time, newest first, at most 100. */
export async function readHistoryChanges(sql: ISql, committedMs: number): Promise<readonly HistoryChange[]> {
  const committedAt = new Date(committedMs).toISOString();
  return sql<HistoryChange[]>`
    select change, (extract(epoch from known_at) * 1000)::float8 as "knownMs",
      (extract(epoch from noticed_at) * 1000)::float8 as "noticedMs"
    from database_changes where known_at < ${committedAt}::timestamptz and noticed_at > ${committedAt}::timestamptz
    order by noticed_at desc limit ${changesMax}`;
}

/** Gateway id of changes that no gateway noticed. */
const nobody = '00000000-0000-0000-0000-000000000000';

/**
 * Records that a backup was restored into the database. Does nothing if the backup is from a version without the table.
 * @param madeAt time of the backup, as ISO 8601
 */
export async function noteRestore(sql: ISql, madeAt: string): Promise<void> {
  const [row] = await sql`select to_regclass('database_changes') is not null as there`;
  if (row?.['there'] !== true) return;
  await sql`insert into database_changes (gateway_id, change, known_at, noticed_at)
    values (${nobody}, 'restored', ${madeAt}::timestamptz, clock_timestamp())`;
}
