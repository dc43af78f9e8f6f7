import type { ISql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import { holdPartitions, idCodeSql, readFloorMs } from '#core/metering/tables/tables.ts';
import type { LedgerSpan, Wallet } from '#core/wallet/wallet.ts';

/** Ledger, requests and usage of an organization's month. */
export interface Statement {
  readonly ledger: LedgerSpan;
  readonly requests: number;
  /** Usage that was not charged; null if the month's requests are no longer stored individually. */
  readonly writtenOffPicoUsd: bigint | null;
  /** Usage by day of admission, key and model, in this order. */
  readonly usage: readonly StatementUsage[];
}

export interface StatementUsage {
  /** YYYY-MM-DD, of UTC. */
  readonly day: string;
  readonly keyId: string;
  readonly model: string;
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
}

export interface StatementRequest {
  readonly organizationId: string;
  /** Start of a UTC month and of the next, in milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

/** Reads a statement in one snapshot, so that its lines and totals agree while requests are settled. */
export async function readStatement(
  { db, wallet }: { readonly db: Db; readonly wallet: Pick<Wallet, 'ledgerSpan'> },
  request: StatementRequest,
): Promise<Statement> {
  return db.sql.begin('isolation level repeatable read read only', async (tx) => {
    await holdPartitions(tx);
    const usage = await readUsage(tx, request);
    return {
      ledger: await wallet.ledgerSpan(tx, request),
      requests: usage.reduce((sum, { requests }) => sum + requests, 0),
      writtenOffPicoUsd: await readWrittenOff(tx, request),
      usage,
    };
  });
}

interface UsageRow {
  readonly day: string;
  readonly key_id: string;
  readonly model: string;
  readonly requests: string;
  readonly input_tokens: string;
  readonly output_tokens: string;
  readonly cost: string;
}

async function readUsage(tx: ISql, request: StatementRequest): Promise<StatementUsage[]> {
  const [from, to] = [request.fromMs, request.toMs].map((ms) => new Date(ms).toISOString().slice(0, 10));
  const rows = await tx<UsageRow[]>`
    select to_char(day, 'YYYY-MM-DD') as day, k.id::text as key_id, m.name as model, sum(requests)::text as requests,
      sum(input_tokens)::text as input_tokens, sum(output_tokens)::text as output_tokens, sum(cost)::text as cost
    from usage_daily s join usage_ids k on k.code = s.key join usage_names m on m.code = s.model
    where organization = ${idCodeSql(tx, request.organizationId)} and day >= ${from ?? ''}::date and day < ${to ?? ''}::date
    group by s.day, k.id, m.name order by s.day, k.id, m.name collate "C"`;
  return rows.map((row) => ({
    day: row.day,
    keyId: row.key_id,
    model: row.model,
    requests: Number(row.requests),
    inputTokens: Number(row.input_tokens),
    outputTokens: Number(row.output_tokens),
    costPicoUsd: BigInt(row.cost),
  }));
}

async function readWrittenOff(tx: ISql, { organizationId, fromMs, toMs }: StatementRequest): Promise<bigint | null> {
  const [row] = await tx<{ written_off: string }[]>`
    select coalesce(sum(written_off), 0)::text as written_off from usage_requests
    where organization = ${idCodeSql(tx, organizationId)} and id >= ${uuidLowerBound(fromMs)}
      and id < ${uuidLowerBound(toMs)} and written_off is not null`;
  return fromMs < (await readFloorMs(tx)) ? null : BigInt(row?.written_off ?? 0);
}
