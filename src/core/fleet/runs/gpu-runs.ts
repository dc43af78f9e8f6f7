import type { Db } from '#base/db.ts';

/** A run that was given GPUs. Moments are milliseconds since the Unix epoch. */
export interface GpuRun {
  readonly id: string;
  /** Catalog id. */
  readonly model: string;
  readonly replicaId: string;
  readonly host: string;
  /** At least one. */
  readonly gpuIds: readonly string[];
  /** Since when it has them. */
  readonly startedMs: number;
  /** When it could serve; null as long as it cannot. */
  readonly readyMs: number | null;
  /** When its end was seen; null while it lasts. */
  readonly endedMs: number | null;
  /** Null while it lasts; `unclean` where nobody may have watched it end. */
  readonly ended: 'clean' | 'unclean' | null;
  readonly endReason: string | null;
  /** When its counters were read last; null for an engine that has none. */
  readonly scrapedMs: number | null;
}

/** Which runs are wanted: those that last, those of `ids`, and those that ended at `endedSinceMs` or later. */
export interface GpuRunsWanted {
  readonly endedSinceMs: number;
  readonly ids: readonly string[];
  /** The id of the last one of the page before; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
}

interface Row {
  readonly id: string;
  readonly model: string;
  readonly replica: string;
  readonly host: string;
  readonly gpus: readonly string[];
  readonly started_ms: string;
  readonly ready_ms: string | null;
  readonly ended_ms: string | null;
  readonly ended: 'clean' | 'unclean' | null;
  readonly end_reason: string | null;
  readonly scraped_ms: string | null;
}

const epochMs = (column: string): string => `(extract(epoch from ${column}) * 1000)::bigint::text`;

/**
 * GPUs that another run had until then count for that one: clocks of hosts differ. A host may have got another name
 * meanwhile: a replica's id and a GPU's UUID are the same under both.
 */
const heldAt = `case when held_at is null then started_at else least(started_at, greatest(held_at, (
  select max(before.ended_at) from replica_runs before
  where before.id <> r.id and before.ended_at <= r.started_at
    and before.gpus ?| array(select gpu from jsonb_array_elements_text(r.gpus) gpu
      where before.host = r.host or (before.scope = r.scope and before.replica = r.replica)
        or gpu ~ '^(GPU|MIG)-[0-9a-fA-F]{8}-')))) end`;

const columns = `id::text, model, replica, host, gpus, ${epochMs(heldAt)} as started_ms,
  ${epochMs('ready_at')} as ready_ms, ${epochMs('ended_at')} as ended_ms, ended, end_reason,
  ${epochMs('scraped_at')} as scraped_ms`;

const hasGpus = `jsonb_array_length(gpus) > 0`;

/** By id. */
export async function readGpuRuns({ sql }: Db, wanted: GpuRunsWanted): Promise<readonly GpuRun[]> {
  const rows = await sql.unsafe<Row[]>(
    `select ${columns} from replica_runs r
      where (ended_at is null or ended_at >= $1::text::timestamptz or id = any($2::text::uuid[]))
        and ($3::text is null or id > $3::text::uuid) and ${hasGpus}
      order by id limit $4::text::integer`,
    [new Date(wanted.endedSinceMs).toISOString(), `{${wanted.ids.join(',')}}`, wanted.after, String(wanted.limit)],
  );
  return rows.map(toGpuRun);
}

/** Whose replica it was, and how many GPUs it was given. */
export interface ReplicaGpus {
  /** Catalog id. */
  readonly model: string;
  readonly gpus: number;
}

/** Of each replica that was given GPUs and was there between two moments, by its id. */
export async function readReplicaGpus(
  { sql }: Db,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): Promise<ReadonlyMap<string, ReplicaGpus>> {
  const rows = await sql.unsafe<{ replica: string; model: string; gpus: number }[]>(
    `select replica, max(model) as model, max(jsonb_array_length(gpus)) as gpus from replica_runs
      where started_at < $2::text::timestamptz and (ended_at is null or ended_at > $1::text::timestamptz) and ${hasGpus}
      group by replica`,
    [new Date(fromMs).toISOString(), new Date(toMs).toISOString()],
  );
  return new Map(rows.map(({ replica, ...row }) => [replica, row]));
}

function toGpuRun(row: Row): GpuRun {
  const msOrNull = (text: string | null): number | null => (text === null ? null : Number(text));
  return {
    id: row.id,
    model: row.model,
    replicaId: row.replica,
    host: row.host,
    gpuIds: row.gpus,
    startedMs: Number(row.started_ms),
    readyMs: msOrNull(row.ready_ms),
    endedMs: msOrNull(row.ended_ms),
    ended: row.ended,
    endReason: row.end_reason,
    scrapedMs: msOrNull(row.scraped_ms),
  };
}
