import type { Db } from '#base/database/database.ts';

/** A run with GPUs. Times are milliseconds since the Unix epoch. */
export interface GpuRun {
  readonly id: string;
  /** Catalog id. */
  readonly model: string;
  readonly replicaId: string;
  readonly host: string;
  /** At least one. */
  readonly gpuIds: readonly string[];
  /** Part of its card that each GPU is, in 28ths: 12 for a MIG slice of 3/7. */
  readonly gpuShare: number;
  /** When the run got its GPUs. */
  readonly startedMs: number;
  /** When the replica became ready; null before. */
  readonly readyMs: number | null;
  /** When the end was observed; null while the run lasts. */
  readonly endedMs: number | null;
  /** null while the run lasts; `unclean` if the end may have been unobserved. */
  readonly ended: 'clean' | 'unclean' | null;
  readonly endReason: string | null;
  /** When the counters were last read; null for an engine without counters. */
  readonly scrapedMs: number | null;
}

/** Selects runs that last, runs of `ids`, and runs that ended at `endedSinceMs` or later. */
export interface GpuRunsWanted {
  readonly endedSinceMs: number;
  readonly ids: readonly string[];
  /** Id of the last run of the page before; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
}

interface Row {
  readonly id: string;
  readonly model: string;
  readonly replica: string;
  readonly host: string;
  readonly gpus: readonly string[];
  readonly gpu_share: number;
  readonly started_ms: string;
  readonly ready_ms: string | null;
  readonly ended_ms: string | null;
  readonly ended: 'clean' | 'unclean' | null;
  readonly end_reason: string | null;
  readonly scraped_ms: string | null;
}

const epochMs = (column: string): string => `(extract(epoch from ${column}) * 1000)::bigint::text`;

/**
 * Moment since which a run has its GPUs: not before the end of another run that used them, because clocks of hosts
 * differ. A host may have been renamed in between: replica ids and GPU UUIDs are identical under both names.
 */
const heldAt = `case when held_at is null then started_at else least(started_at, greatest(held_at, (
  select max(before.ended_at) from replica_runs before
  where before.id <> r.id and before.ended_at <= r.started_at
    and before.gpus ?| array(select gpu from jsonb_array_elements_text(r.gpus) gpu
      where before.host = r.host or (before.scope = r.scope and before.replica = r.replica)
        or gpu ~ '^(GPU|MIG)-[0-9a-fA-F]{8}-')))) end`;

const columns = `id::text, model, replica, host, gpus, gpu_share, ${epochMs(heldAt)} as started_ms,
  ${epochMs('ready_at')} as ready_ms, ${epochMs('ended_at')} as ended_ms, ended, end_reason,
  ${epochMs('scraped_at')} as scraped_ms`;

const hasGpus = `jsonb_array_length(gpus) > 0`;

/** Returns runs sorted by id. */
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

/** The model of a replica and its GPUs. */
export interface ReplicaGpus {
  /** Catalog id. */
  readonly model: string;
  /** 28ths of a card: 56 for two cards, 12 for a MIG slice of 3/7. */
  readonly gpuShares: number;
}

/** Returns the replicas with GPUs that existed between two moments, by id. */
export async function readReplicaGpus(
  { sql }: Db,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): Promise<ReadonlyMap<string, ReplicaGpus>> {
  const rows = await sql.unsafe<{ replica: string; model: string; gpuShares: number }[]>(
    `select replica, max(model) as model, max(jsonb_array_length(gpus) * gpu_share) as "gpuShares" from replica_runs
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
    gpuShare: row.gpu_share,
    startedMs: Number(row.started_ms),
    readyMs: msOrNull(row.ready_ms),
    endedMs: msOrNull(row.ended_ms),
    ended: row.ended,
    endReason: row.end_reason,
    scrapedMs: msOrNull(row.scraped_ms),
  };
}
