import type { ISql } from 'postgres';

/** Reads balances in pico-dollars by organization; an organization without a wallet has no entry. */
export async function readBalances(
  sql: ISql,
  organizationIds: readonly string[],
): Promise<ReadonlyMap<string, bigint>> {
  const rows = await sql<{ organization_id: string; balance: string }[]>`
    SELECT organization_id::text, balance::text FROM wallets
    WHERE organization_id = ANY(${`{${organizationIds.join(',')}}`}::uuid[]) AND currency = 'USD'`;
  return new Map(rows.map((row) => [row.organization_id, BigInt(row.balance)]));
}

/** An organization's balance as a scalar SQL expression, for statements that read other rows in the same snapshot. */
export function balanceSql(sql: ISql, organizationId: string) {
  return sql`(SELECT coalesce(max(balance), 0)::text FROM wallets
    WHERE organization_id = ${organizationId} AND currency = 'USD')`;
}
