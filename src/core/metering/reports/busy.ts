import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import { readFloorMs } from '#core/metering/tables/tables.ts';

/** Time for which a replica had at least one request. */
export interface ReplicaBusy {
  /** Catalog id of one of the models that it served: several only if they are adapters of one base. */
  readonly model: string;
  readonly replicaId: string;
  readonly busyMs: number;
}

export interface Busy {
  readonly replicas: readonly ReplicaBusy[];
  /** Start of the kept records, in milliseconds since the Unix epoch: nothing is known of the time before. */
  readonly keptFromMs: number;
}

/** Milliseconds before a span in which the start of a request is looked for. */
const lookBackMs = 86_400_000;

/** Reads the time of a UUIDv7: its first 48 bits are milliseconds. */
const idMs = `('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint`;

/** Reads the first number of packed facts (see facts.ts), of at most three bytes, which is more than half an hour. */
const admittedMs = `case when get_byte(facts, 1) < 128 then get_byte(facts, 1)
  when get_byte(facts, 2) < 128 then get_byte(facts, 1) - 128 + get_byte(facts, 2) * 128
  else get_byte(facts, 1) - 128 + (get_byte(facts, 2) - 128) * 128 + (get_byte(facts, 3) & 127) * 16384 end`;

/**
 * Matches requests that a replica of ours answered. Its short id is the seven bytes before the last three (see
 * facts.ts).
 */
const hasReplica = `facts is not null and get_byte(facts, 0) & 160 = 32`;

/**
 * Returns the time in which requests ran on each replica, from their start there to the end of their answer. Overlaps
 * count once. Requests count once they have ended. `toMs` is excluded.
 */
export async function readBusy(
  { sql }: Db,
  { fromMs, toMs }: { readonly fromMs: number; readonly toMs: number },
): Promise<Busy> {
  const bounds = [String(fromMs), String(toMs), uuidLowerBound(fromMs - lookBackMs), uuidLowerBound(toMs)];
  const rows = await sql.begin('isolation level repeatable read read only', async (tx) => {
    // Millions of rows are sorted.
    await tx`set local work_mem = '64MB'`;
    return tx.unsafe<{ model: string; replica: string; busy_ms: string }[]>(busyText, bounds);
  });
  return {
    replicas: rows.map(({ model, replica, busy_ms: busy }) => ({ model, replicaId: replica, busyMs: Number(busy) })),
    keptFromMs: await readFloorMs(sql),
  };
}

const busyText = `
  with served as (
    select model, substring(facts from octet_length(facts) - 9 for 7) as replica,
      greatest($1::text::bigint, ${idMs} + ${admittedMs} + queued_ms) as since,
      least($2::text::bigint, ${idMs} + total_ms) as until
    from usage_requests
    where id >= $3::text::uuid and id < $4::text::uuid and ${hasReplica}
  ), stretches as (
    select model, replica, since, until, max(until) over (
      partition by replica order by since, until rows between unbounded preceding and 1 preceding) as covered
    from served where since < until
  ), sums as (
    select min(model) as model, encode(replica, 'hex') as replica, sum(greatest(0, until - greatest(since, coalesce(covered, since))))
      as busy_ms
    from stretches group by 2
  )
  select n.name as model, substr(s.replica, 1, 6) || '-' || substr(s.replica, 7) as replica, s.busy_ms::text
  from sums s join usage_names n on n.code = s.model order by 1, 2`;
