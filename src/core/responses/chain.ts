import { inArray } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { answered } from './answered.ts';
import { itemsToSend } from './items.ts';
import { storedResponses } from './schema.ts';

export interface ChainOptions {
  /** The last response of the conversation. */
  readonly id: string;
  readonly turnsMax: number;
  /** Maximum bytes of all turns. */
  readonly bytesMax: number;
  /** Called with the bytes of all turns before they are in memory; an error ends the reading. */
  readonly reserve: (bytes: number) => void;
}

/** JSON of the items of one turn. */
export interface Turn {
  /** List of the input items. */
  readonly input: string;
  readonly output: readonly string[];
}

export type Chain =
  /** All turns, the first one first. */
  | { readonly kind: 'found'; readonly turns: readonly Turn[] }
  /** A turn is deleted, expired, or was never stored; `id` is the missing response. */
  | { readonly kind: 'missing'; readonly id: string }
  | { readonly kind: 'too_long' };

interface ChainRow {
  readonly id: string;
  readonly organizationId: string;
  readonly dataKeyId: string;
  readonly previousId: string | null;
  readonly expiresAtMs: number;
  readonly input: Buffer;
  readonly response: Buffer;
}

interface FoundRow extends ChainRow {
  readonly isWithin: boolean;
  /** Bytes of all turns. */
  readonly bytes: number;
}

export interface ChainQuery extends ChainOptions {
  readonly organizationId: string;
  readonly projectId: string | null;
  readonly nowMs: number;
  readonly ageMaxMs: number;
  readonly open: (row: ChainRow, part: 'input' | 'response') => Promise<string>;
}

/** The expiry of a turn is postponed at most once in this time. */
const postponeEveryMs = 86_400_000;

/** Reads a conversation in one query. Content is read only if the conversation is within its bounds. */
export async function readChain(db: Db, query: ChainQuery): Promise<Chain> {
  const { id } = query;
  const rows = await answered(readRows(db, query));
  const missingId = findMissing(rows, id);
  const [last] = rows;
  if (last?.isWithin === false) return { kind: 'too_long' };
  if (last === undefined || missingId !== null) return { kind: 'missing', id: missingId ?? id };
  query.reserve(last.bytes);
  await answered(postpone(db, query, rows));
  const turns: Turn[] = [];
  for (const row of rows.toReversed()) {
    turns.push({ input: await query.open(row, 'input'), output: itemsToSend(await query.open(row, 'response')) });
  }
  return { kind: 'found', turns };
}

async function readRows(db: Db, query: ChainQuery): Promise<readonly FoundRow[]> {
  const { organizationId, projectId, id, turnsMax, bytesMax, nowMs } = query;
  const now = new Date(nowMs).toISOString();
  return db.sql<FoundRow[]>`
    with recursive turns as (
      select id, previous_id, project_id, expires_at, bytes, 1 as place from stored_responses
      where id = ${id} and organization_id = ${organizationId}
      union all
      select r.id, r.previous_id, r.project_id, r.expires_at, r.bytes, place + 1
      from turns t join stored_responses r on r.id = t.previous_id
      where r.organization_id = ${organizationId} and place <= ${turnsMax}
    ), seen as (
      select id, place, (sum(bytes) over ())::float8 as bytes,
        sum(bytes) over () <= ${bytesMax} and count(*) over () <= ${turnsMax} as is_within
      from turns
      where expires_at > ${now}::timestamptz and (${projectId}::uuid is null or project_id = ${projectId})
    )
    select s.is_within as "isWithin", s.bytes, r.id::text, r.organization_id::text as "organizationId",
      r.data_key_id::text as "dataKeyId", r.previous_id::text as "previousId",
      (extract(epoch from r.expires_at) * 1000)::float8 as "expiresAtMs",
      case when s.is_within then r.input end as input, case when s.is_within then r.response end as response
    from seen s join stored_responses r on r.id = s.id
    order by s.place`;
}

/** Returns the first response of the conversation, from its end, that is not among the rows. */
function findMissing(rows: readonly ChainRow[], lastId: string): string | null {
  let expected: string | null = lastId;
  for (const { id, previousId } of rows) {
    if (id !== expected) break;
    expected = previousId;
  }
  return expected;
}

async function postpone(db: Db, { nowMs, ageMaxMs }: ChainQuery, rows: readonly ChainRow[]): Promise<void> {
  const due = rows.filter(({ expiresAtMs }) => expiresAtMs < nowMs + ageMaxMs - postponeEveryMs);
  if (due.length === 0) return;
  const ids = due.map(({ id }) => id);
  await db.orm
    .update(storedResponses)
    .set({ expiresAt: new Date(nowMs + ageMaxMs) })
    .where(inArray(storedResponses.id, ids));
}
