import type { Db } from '#base/database/database.ts';
import type { CountedMost } from './token-watermarks.ts';

/** A run of a gateway that has ended. */
export interface GatewayRun {
  readonly id: string;
  /** Host name of the machine. */
  readonly host: string;
  readonly slot: number;
  readonly version: string;
  /** Milliseconds since the Unix epoch, by the database's clock. */
  readonly startedMs: number;
  /** Milliseconds since the Unix epoch, by the database's clock; for an unclean end, the time of the last heartbeat. */
  readonly endedMs: number;
  /** Maximum tokens per engine of the requests in progress, each sent once; null if the run did not store them. */
  readonly underWay: Readonly<Record<string, CountedMost>> | null;
}

interface Row {
  readonly id: string;
  readonly host: string;
  readonly slot: number;
  readonly version: string;
  readonly started_ms: string;
  readonly ended_ms: string;
  readonly under_way: Readonly<Record<string, CountedMost>> | null;
}

/** Maximum number of runs returned, oldest first. */
const runsMax = 1000;

export async function readUncleanRuns({ sql }: Db, fromMs: number, toMs: number): Promise<readonly GatewayRun[]> {
  const rows = await sql<Row[]>`
    select id::text, host, slot, version, (extract(epoch from started_at) * 1000)::bigint::text as started_ms,
      (extract(epoch from ended_at) * 1000)::bigint::text as ended_ms, under_way
    from gateway_runs where ended = 'unclean' and ended_at >= ${new Date(fromMs).toISOString()}::timestamptz
      and ended_at < ${new Date(toMs).toISOString()}::timestamptz
    order by ended_at limit ${runsMax}`;
  return rows.map(({ started_ms, ended_ms, under_way: underWay, ...row }) => {
    return { ...row, underWay, startedMs: Number(started_ms), endedMs: Number(ended_ms) };
  });
}
