import type { Sql } from 'postgres';

/** The ledger at a moment, read past the gateways. Amounts are pico-dollars. */
export interface Books {
  readonly usage: readonly UsageRow[];
  readonly ledger: readonly LedgerRow[];
  readonly wallets: readonly WalletRow[];
  /** Sums by table (`usage_hourly`, and `usage_daily` where there is one), organization, key, project and model. */
  readonly sums: readonly SumRow[];
  /** Records that the books refused and that wait for an operator; null where there is no such place. */
  readonly quarantined: readonly string[] | null;
}

export interface UsageRow {
  readonly id: string;
  /** Null for what no organization asked for. */
  readonly organizationId: string | null;
  readonly keyId: string | null;
  readonly projectId: string | null;
  readonly model: string;
  readonly outcome: 'completed' | 'aborted' | 'ended' | 'failed';
  readonly reason: string | null;
  readonly cacheHit: boolean;
  readonly usageSource: string;
  readonly inputTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly cost: bigint;
  readonly writtenOff: bigint;
  readonly clientRequestId: string | null;
  /** Id of the ledger entry that charges it together with others; null where it has one of its own. */
  readonly groupId: string | null;
}

export interface LedgerRow {
  readonly id: string;
  readonly seq: number;
  readonly organizationId: string;
  readonly type: 'credit' | 'usage' | 'adjustment';
  /** Change of the wallet: below zero where something leaves it. */
  readonly change: bigint;
  readonly balanceAfter: bigint;
  readonly requestId: string | null;
  readonly groupId: string | null;
  /** How many requests it charges; null in entries that do not say. */
  readonly requests: number | null;
}

export interface WalletRow {
  readonly organizationId: string;
  readonly balance: bigint;
}

export interface SumRow {
  readonly table: string;
  /** Organization, key, project and model, with blanks between. */
  readonly name: string;
  readonly requests: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly cost: bigint;
}

/** One moment for all of it. */
export async function readBooks(sql: Sql): Promise<Books> {
  return sql.begin('isolation level repeatable read read only', async (tx) => ({
    usage: (await tx.unsafe(usageText)).map(toUsage),
    ledger: (await tx.unsafe(ledgerText)).map(toLedger),
    wallets: (await tx`select organization_id, balance::text from wallets`).map((row) => ({
      organizationId: String(row['organization_id']),
      balance: BigInt(String(row['balance'])),
    })),
    sums: [...(await readSums(tx, 'usage_hourly')), ...(await readSums(tx, 'usage_daily'))],
    quarantined: await readQuarantine(tx),
  }));
}

type Row = Readonly<Record<string, unknown>>;

// By way of JSON, so that a column that is not there is null.
const usageText = `select to_jsonb(u) || jsonb_build_object('cost', cost::text, 'written_off', written_off::text) as row
  from usage_records u order by id`;
const ledgerText = `select to_jsonb(e) || jsonb_build_object('amount', amount::text, 'balance_after', balance_after::text)
  as row from ledger_entries e order by organization_id, number`;

/** A text or a number of JSON. */
const text = (value: unknown): string | null =>
  typeof value === 'string' || typeof value === 'number' ? String(value) : null;

function toUsage(found: Row): UsageRow {
  const row = found['row'] as Row;
  return {
    id: String(row['id']),
    organizationId: text(row['organization_id']),
    keyId: text(row['key_id']),
    projectId: text(row['project_id']),
    model: String(row['model']),
    outcome: row['outcome'] as UsageRow['outcome'],
    reason: text(row['reason']),
    cacheHit: row['cache_hit'] === true,
    usageSource: String(row['usage_source']),
    inputTokens: Number(row['input_tokens']),
    cachedTokens: Number(row['input_cached_tokens']),
    outputTokens: Number(row['output_tokens']),
    cost: BigInt(String(row['cost'])),
    writtenOff: BigInt(text(row['written_off']) ?? 0),
    clientRequestId: text(row['client_request_id']),
    groupId: text(row['group_id']),
  };
}

function toLedger(found: Row): LedgerRow {
  const row = found['row'] as Row;
  const amount = BigInt(String(row['amount']));
  return {
    id: String(row['id']),
    seq: Number(row['number']),
    organizationId: String(row['organization_id']),
    type: row['type'] as LedgerRow['type'],
    change: row['debit_account'] === 'wallet' ? -amount : amount,
    balanceAfter: BigInt(String(row['balance_after'])),
    // An entry of one request has its id.
    requestId:
      text(row['request_id']) ?? (row['type'] === 'usage' && row['group_id'] === null ? text(row['id']) : null),
    groupId: text(row['group_id']),
    requests: typeof row['requests'] === 'number' ? row['requests'] : null,
  };
}

type Reading = Pick<Sql, 'unsafe'>;

async function exists(tx: Reading, table: string): Promise<boolean> {
  const [found] = await tx.unsafe(`select to_regclass($1) is not null as there`, [table]);
  return found?.['there'] === true;
}

async function readSums(tx: Reading, table: string): Promise<SumRow[]> {
  if (!(await exists(tx, table))) return [];
  const rows = await tx.unsafe(`select concat_ws(' ', o.id, k.id, p.id, m.name) as name,
      sum(requests)::text as requests, sum(input_tokens)::text as input, sum(output_tokens)::text as output,
      sum(cost)::text as cost from ${table} s join usage_ids o on o.code = s.organization
      join usage_ids k on k.code = s.key join usage_ids p on p.code = s.project join usage_names m on m.code = s.model
      group by 1`);
  return rows.map((row) => ({
    table,
    name: String(row['name']),
    requests: Number(row['requests']),
    inputTokens: Number(row['input']),
    outputTokens: Number(row['output']),
    cost: BigInt(String(row['cost'])),
  }));
}

async function readQuarantine(tx: Reading): Promise<string[] | null> {
  if (!(await exists(tx, 'usage_quarantine'))) return null;
  return (await tx.unsafe('select to_jsonb(q)::text as row from usage_quarantine q')).map((row) => String(row['row']));
}
