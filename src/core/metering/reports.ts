import type { Db } from '#base/db.ts';
import { listRecords, readRecord, type RecordFilter, type RecordPage, type RecordRef } from './record-list.ts';
import type { UsageRecord } from './record.ts';
import { summarize, type Summary, type SummaryRequest } from './summary.ts';

/** What the books of usage say: single requests, newest admission first, and sums over any span of time. */
export interface Reports {
  listRecords(filter: RecordFilter): Promise<RecordPage>;
  /** Null when the organization (or the key, where one is named) has no such request. */
  readRecord(ref: RecordRef): Promise<UsageRecord | null>;
  summarize(request: SummaryRequest): Promise<Summary>;
  /** Input and output tokens of a key since the start of an hour. */
  countTokens(span: TokenSpan): Promise<number>;
}

export function createReports({ db }: { readonly db: Db }): Reports {
  return {
    listRecords: (filter) => listRecords(db, filter),
    readRecord: (ref) => readRecord(db, ref),
    summarize: (request) => summarize(db, request),
    countTokens: (span) => countTokens(db, span),
  };
}

export interface TokenSpan {
  readonly organizationId: string;
  readonly keyId: string;
  /** Milliseconds since the Unix epoch, at the start of an hour. */
  readonly sinceMs: number;
}

async function countTokens({ sql }: Db, { organizationId, keyId, sinceMs }: TokenSpan): Promise<number> {
  const since = new Date(sinceMs).toISOString();
  const [row] = await sql<{ tokens: string }[]>`
    select coalesce(sum(input_tokens + output_tokens), 0)::text as tokens from usage_hourly
    where organization_id = ${organizationId} and hour >= ${since}::timestamptz and key_id = ${keyId}`;
  return Number(row?.tokens ?? 0);
}
