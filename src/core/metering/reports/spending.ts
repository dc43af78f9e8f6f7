import type { Db } from '#base/database/database.ts';

/** Number and cost of an organization's requests. */
export interface Spending {
  readonly requests: number;
  readonly costPicoUsd: bigint;
}

/**
 * Returns the spending by organization (UUID), from the daily sums: one sum for each start, in their order; none for an
 * organization without requests since the earliest start.
 * @param sinceMs starts of UTC days, milliseconds since the Unix epoch
 */
export async function readSpending(
  { sql }: Db,
  sinceMs: readonly number[],
): Promise<ReadonlyMap<string, readonly Spending[]>> {
  const days = sinceMs.map((ms) => new Date(ms).toISOString().slice(0, 10));
  const first = days.toSorted()[0];
  if (first === undefined) return new Map();
  // Steps from one organization to the next by the primary key, and there reads its days: years of others are not read.
  const rows = await sql<{ id: string; start: string; requests: string; cost: string }[]>`
    WITH RECURSIVE seen AS (
      (SELECT organization FROM usage_daily ORDER BY organization LIMIT 1)
      UNION ALL
      SELECT (SELECT organization FROM usage_daily WHERE organization > seen.organization ORDER BY organization LIMIT 1)
      FROM seen WHERE organization IS NOT NULL
    ), sums AS MATERIALIZED (
      SELECT seen.organization, own.day, own.requests, own.cost FROM seen CROSS JOIN LATERAL (
        SELECT day, sum(requests) AS requests, sum(cost) AS cost FROM usage_daily
        WHERE organization = seen.organization AND day >= ${first}::date GROUP BY day
      ) own
    )
    SELECT i.id::text, d.start::text, sum(s.requests)::text AS requests, sum(s.cost)::text AS cost
    FROM sums s
      JOIN usage_ids i ON i.code = s.organization
      JOIN unnest(${`{${days.join(',')}}`}::date[]) AS d (start) ON s.day >= d.start
    GROUP BY i.id, d.start`;
  const byId = Map.groupBy(rows, ({ id }) => id);
  return new Map(
    [...byId].map(([id, sums]) => [
      id,
      days.map((day) => {
        const sum = sums.find(({ start }) => start === day);
        return { requests: Number(sum?.requests ?? 0), costPicoUsd: BigInt(sum?.cost ?? 0) };
      }),
    ]),
  );
}
