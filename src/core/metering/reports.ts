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
}

export function createReports({ db }: { readonly db: Db }): Reports {
  return {
    listRecords: (filter) => listRecords(db, filter),
    readRecord: (ref) => readRecord(db, ref),
    summarize: (request) => summarize(db, request),
  };
}
