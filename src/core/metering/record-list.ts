import { and, desc, eq, gte, lt, type SQL } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';
import type { OutcomeKind, UsageRecord } from './record.ts';
import { toRecord } from './rows.ts';
import { usageRecords } from './schema.ts';

/** Null leaves a filter out. Times are milliseconds since the Unix epoch of admission, `fromMs` in, `toMs` not. */
export interface RecordFilter {
  readonly organizationId: string;
  readonly keyId: string | null;
  readonly projectId: string | null;
  readonly model: string | null;
  readonly outcome: OutcomeKind | null;
  readonly fromMs: number | null;
  readonly toMs: number | null;
  /** Only requests admitted before this one: its id, the last of the page before. */
  readonly before: string | null;
  readonly limit: number;
}

export interface RecordPage {
  /** Newest admission first, whenever they settled. */
  readonly records: readonly UsageRecord[];
  readonly more: boolean;
}

export interface RecordRef {
  readonly organizationId: string;
  readonly id: string;
  /** Only a request of this key. */
  readonly keyId: string | null;
}

function conditionsOf(filter: RecordFilter): SQL[] {
  const conditions = [eq(usageRecords.organizationId, filter.organizationId)];
  // An id carries the moment of its admission, so that bounds of time are bounds of the index and of partitions.
  if (filter.fromMs !== null) conditions.push(gte(usageRecords.id, uuidLowerBound(filter.fromMs)));
  if (filter.toMs !== null) conditions.push(lt(usageRecords.id, uuidLowerBound(filter.toMs)));
  if (filter.before !== null) conditions.push(lt(usageRecords.id, filter.before));
  if (filter.keyId !== null) conditions.push(eq(usageRecords.keyId, filter.keyId));
  if (filter.projectId !== null) conditions.push(eq(usageRecords.projectId, filter.projectId));
  if (filter.model !== null) conditions.push(eq(usageRecords.model, filter.model));
  if (filter.outcome !== null) conditions.push(eq(usageRecords.outcome, filter.outcome));
  return conditions;
}

export async function listRecords(db: Db, filter: RecordFilter): Promise<RecordPage> {
  const rows = await db.orm
    .select()
    .from(usageRecords)
    .where(and(...conditionsOf(filter)))
    .orderBy(desc(usageRecords.id))
    .limit(filter.limit + 1);
  return { records: rows.slice(0, filter.limit).map(toRecord), more: rows.length > filter.limit };
}

export async function readRecord(db: Db, ref: RecordRef): Promise<UsageRecord | null> {
  const conditions = [eq(usageRecords.organizationId, ref.organizationId), eq(usageRecords.id, ref.id)];
  if (ref.keyId !== null) conditions.push(eq(usageRecords.keyId, ref.keyId));
  const [row] = await db.orm
    .select()
    .from(usageRecords)
    .where(and(...conditions));
  return row === undefined ? null : toRecord(row);
}
