import type { Db } from '#base/database/database.ts';
import { type DetailedRecord, findQuarantined } from '#core/metering/records/records.ts';
import {
  type AskedOfHours,
  type HourSpan,
  readRecord,
  readUsageHours,
  type RecordRef,
  type UsageHours,
} from '#core/metering/reports/reports.ts';
import { idCodeSql, nameCodeSql } from '#core/metering/tables/tables.ts';
import type { Wallet } from '#core/wallet/wallet.ts';

/**
 * Queries of admission to the records of usage while requests wait: a few rows each. Reads for callers are in
 * history.ts.
 */
export interface Reports {
  /** Returns null if the organization (or the key, if one is given) has no such request. */
  readRecord(ref: RecordRef): Promise<DetailedRecord | null>;
  /**
   * Returns the records, sums and ledger between two full hours, and the tokens of requests that were running at edges.
   */
  usageHours(span: HourSpan, asked: AskedOfHours): Promise<UsageHours>;
  /** Returns the balance, and which of these requests it was charged for, in one snapshot. */
  balanceWith(organizationId: string, requestIds: readonly string[]): Promise<ChargedBalance>;
  /** Returns the input and output tokens of a key since the start of an hour. */
  countTokens(span: TokenSpan): Promise<number>;
  /** Returns these tokens, and which of these requests are included, in one snapshot. */
  tokensWith(span: TokenSpan, requestIds: readonly string[]): Promise<CountedTokens>;
  /**
   * Returns the requests of a model in a project on a UTC day without cache hits, and which of these are among them, in
   * one snapshot.
   */
  requestsWith(day: RequestDay, requestIds: readonly string[]): Promise<CountedRequests>;
  /**
   * Returns the results of requests, by id: cost in pico-dollars, input and output tokens together. A request whose
   * record was rejected by the database, or discarded by an operator, has used nothing; a later retry charges it
   * without its hold.
   */
  findSettled(organizationId: string, requestIds: readonly string[]): Promise<ReadonlyMap<string, SettledRequest>>;
}

export interface ChargedBalance {
  readonly balancePicoUsd: bigint;
  readonly charged: readonly string[];
}

export interface CountedTokens {
  readonly tokens: number;
  readonly counted: readonly string[];
}

export interface CountedRequests {
  readonly requests: number;
  readonly counted: readonly string[];
}

/** Charge and tokens of a recorded request. */
export interface SettledRequest {
  readonly chargedPicoUsd: bigint;
  /** Input and output together. */
  readonly tokens: number;
}

export function createReports({ db, wallet }: { readonly db: Db; readonly wallet: Wallet }): Reports {
  return {
    balanceWith: (organizationId, requestIds) => readChargedBalance({ db, wallet }, organizationId, requestIds),
    usageHours: (span, asked) => readUsageHours(db, span, asked),
    readRecord: (ref) => readRecord(db, ref),
    countTokens: async (span) => (await tokensWith(db, span, [])).tokens,
    tokensWith: (span, requestIds) => tokensWith(db, span, requestIds),
    requestsWith: (day, requestIds) => requestsWith(db, day, requestIds),
    findSettled: (organizationId, requestIds) => findSettled(db, organizationId, requestIds),
  };
}

export interface TokenSpan {
  readonly organizationId: string;
  readonly keyId: string;
  /** Milliseconds since the Unix epoch, at the start of an hour. */
  readonly sinceMs: number;
}

/** Returns a list of ids in Postgres' text form. */
const idList = (ids: readonly string[]): string => `{${ids.join(',')}}`;

async function tokensWith(
  { sql }: Db,
  { organizationId, keyId, sinceMs }: TokenSpan,
  requestIds: readonly string[],
): Promise<CountedTokens> {
  const since = new Date(sinceMs).toISOString();
  const [row] = await sql<{ tokens: string; counted: string }[]>`
    select (select coalesce(sum(input_tokens + output_tokens), 0) from usage_hourly
        where organization = ${idCodeSql(sql, organizationId)} and hour >= ${since}::timestamptz
          and key = ${idCodeSql(sql, keyId)})::text as tokens,
      coalesce((select string_agg(id::text, ' ') from usage_requests
        where organization = ${idCodeSql(sql, organizationId)} and id = any(${idList(requestIds)}::uuid[])), '') as counted`;
  const counted = row === undefined || row.counted === '' ? [] : row.counted.split(' ');
  return { tokens: Number(row?.tokens ?? 0), counted };
}

export interface RequestDay {
  readonly organizationId: string;
  readonly projectId: string;
  /** Catalog id. */
  readonly model: string;
  /** Milliseconds since the Unix epoch, at the start of a UTC day. */
  readonly dayMs: number;
}

async function requestsWith(
  { sql }: Db,
  { organizationId, projectId, model, dayMs }: RequestDay,
  requestIds: readonly string[],
): Promise<CountedRequests> {
  const day = new Date(dayMs).toISOString().slice(0, 10);
  const organization = idCodeSql(sql, organizationId);
  const [row] = await sql<{ requests: string; counted: string }[]>`
    select (select coalesce(sum(requests - cache_hits), 0) from usage_daily
        where organization = ${organization} and day = ${day}::date and project = ${idCodeSql(sql, projectId)}
          and model = ${nameCodeSql(sql, model)})::text as requests,
      coalesce((select string_agg(id::text, ' ') from usage_requests
        where organization = ${organization} and model = ${nameCodeSql(sql, model)}
          and id = any(${idList(requestIds)}::uuid[])), '') as counted`;
  const counted = row === undefined || row.counted === '' ? [] : row.counted.split(' ');
  return { requests: Number(row?.requests ?? 0), counted };
}

async function readChargedBalance(
  { db: { sql }, wallet }: { readonly db: Db; readonly wallet: Wallet },
  organizationId: string,
  requestIds: readonly string[],
): Promise<ChargedBalance> {
  const [row] = await sql<{ balance: string; charged: string }[]>`
    select ${wallet.balanceSql(sql, organizationId)} as balance, coalesce((select string_agg(id::text, ' ')
      from usage_requests where organization = ${idCodeSql(sql, organizationId)}
        and id = any(${idList(requestIds)}::uuid[]) and cost > 0), '') as charged`;
  const charged = row === undefined || row.charged === '' ? [] : row.charged.split(' ');
  return { balancePicoUsd: BigInt(row?.balance ?? '0'), charged };
}

async function findSettled(
  { sql }: Db,
  organizationId: string,
  requestIds: readonly string[],
): Promise<ReadonlyMap<string, SettledRequest>> {
  const [refused, rows] = await Promise.all([
    findQuarantined(sql, organizationId, requestIds),
    sql<{ id: string; cost: string; tokens: string }[]>`
      select id::text, cost::text, (input_tokens::bigint + output_tokens)::text as tokens from usage_requests
      where organization = ${idCodeSql(sql, organizationId)} and id = any(${idList(requestIds)}::uuid[])`,
  ]);
  const booked = rows.map((row) => [row.id, { chargedPicoUsd: BigInt(row.cost), tokens: Number(row.tokens) }] as const);
  return new Map([...refused.map((id) => [id, { chargedPicoUsd: 0n, tokens: 0 }] as const), ...booked]);
}
