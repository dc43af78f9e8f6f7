import type { ISql } from 'postgres';

/** A moment at which PostgreSQL's history may have gone back, as it was noted in the database. */
export interface HistoryChange {
  /** `server`, `rewound`: a gateway noticed it. `restored`: a backup was put into the database. */
  readonly change: 'server' | 'rewound' | 'restored';
  /** Milliseconds since the Unix epoch: all that was committed before is there. `-Infinity` where nobody knows. */
  readonly knownMs: number;
  /** The same by the database's clock, when it was noted. */
  readonly noticedMs: number;
}

const changesMax = 100;

/** Reads the changes that may have lost what was committed at a moment, newest first, at most 100. */
export async function readHistoryChanges(sql: ISql, committedMs: number): Promise<readonly HistoryChange[]> {
  const committedAt = new Date(committedMs).toISOString();
  return sql<HistoryChange[]>`
    select change, (extract(epoch from known_at) * 1000)::float8 as "knownMs",
      (extract(epoch from noticed_at) * 1000)::float8 as "noticedMs"
    from database_changes where known_at < ${committedAt}::timestamptz and noticed_at > ${committedAt}::timestamptz
    order by noticed_at desc limit ${changesMax}`;
}

/** No gateway has noticed it. */
const nobody = '00000000-0000-0000-0000-000000000000';

/**
 * Notes that a backup was put into the database. Tables of a backup from before that was noted have no place for it.
 * @param madeAt moment of the backup, as ISO 8601
 */
export async function noteRestore(sql: ISql, madeAt: string): Promise<void> {
  const [row] = await sql`select to_regclass('database_changes') is not null as there`;
  if (row?.['there'] !== true) return;
  await sql`insert into database_changes (gateway_id, change, known_at, noticed_at)
    values (${nobody}, 'restored', ${madeAt}::timestamptz, clock_timestamp())`;
}
