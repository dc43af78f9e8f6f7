import { and, desc, eq, gte, inArray, lt, type SQL, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import type { RejectedRequest } from '#core/metering/records/records.ts';
import { rejectedRequests } from '#core/metering/schema.ts';
import type { RecordFilter } from './record-list.ts';

/** Filter of rejected requests; null leaves a condition out. */
export interface RejectedFilter extends Omit<RecordFilter, 'outcome'> {
  readonly code: string | null;
  /** Only the request with this id. */
  readonly id: string | null;
}

export interface RejectedPage {
  /** Newest first. */
  readonly requests: readonly RejectedRequest[];
  readonly more: boolean;
}

/** Matches a text that contains another, ignoring case. */
const contains = (text: SQL, part: string): SQL => sql`strpos(lower(${text}), lower(${part}::text)) > 0`;

/** Lists the kept rejected requests of an organization. */
export async function listRejected({ orm }: Db, filter: RejectedFilter): Promise<RejectedPage> {
  const { organizationId, keyId, ofKeys, projectId, model, endUser, status, error, code, id } = filter;
  const { fromMs, toMs, before, limit } = filter;
  if (ofKeys?.length === 0) return { requests: [], more: false };
  const table = rejectedRequests;
  const rows = await orm
    .select()
    .from(table)
    .where(
      and(
        eq(table.organizationId, organizationId),
        id === null ? undefined : eq(table.id, id),
        keyId === null ? undefined : eq(table.keyId, keyId),
        ofKeys === undefined ? undefined : inArray(table.keyId, [...ofKeys]),
        projectId === null ? undefined : eq(table.projectId, projectId),
        model === null ? undefined : eq(table.model, model),
        code === null ? undefined : eq(table.code, code),
        endUser === null ? undefined : eq(table.endUser, endUser),
        status === null ? undefined : eq(table.status, status),
        error === null ? undefined : contains(sql`${table.code} || ' ' || ${table.message}`, error),
        fromMs === null ? undefined : gte(table.id, uuidLowerBound(fromMs)),
        toMs === null ? undefined : lt(table.id, uuidLowerBound(toMs)),
        before === null ? undefined : lt(table.id, before),
      ),
    )
    .orderBy(desc(table.id))
    .limit(limit + 1);
  return { requests: rows.slice(0, limit), more: rows.length > limit };
}
