import type { Db } from '#base/database/database.ts';
import type { LedgerEntry, LedgerPageRequest, Wallet } from '#core/wallet/wallet.ts';

/** A line of an organization's ledger: an entry, or one of the requests that an entry stands for. */
export interface LedgerLine extends Omit<LedgerEntry, 'groupId'> {
  /** Position at which the next page begins if this is the last line of a page. */
  readonly position: LedgerPosition;
}

export interface LedgerPosition {
  readonly number: number;
  /** The last shown request of an entry; null if all of the entry was shown. */
  readonly requestId: string | null;
}

export interface LedgerLinesRequest extends Pick<LedgerPageRequest, 'type' | 'limit'> {
  /** Position after which the page begins; null for the newest lines. */
  readonly after: LedgerPosition | null;
}

export interface LedgerLines {
  /** Newest first; requests of one entry by descending id. */
  readonly lines: readonly LedgerLine[];
  readonly more: boolean;
}

interface GroupRow {
  readonly group_id: string;
  readonly id: string;
  readonly cost: string;
}

/**
 * Returns one page of a ledger. An entry of several requests has a line per request while all their records exist, and
 * one line after that.
 */
export async function readLedgerLines(
  { db, wallet }: { readonly db: Db; readonly wallet: Pick<Wallet, 'ledger'> },
  organizationId: string,
  { after, limit, ...page }: LedgerLinesRequest,
): Promise<LedgerLines> {
  const isWithin = after !== null && after.requestId !== null;
  const before = after === null ? null : after.number + (isWithin ? 1 : 0);
  const read = await wallet.ledger(organizationId, { ...page, limit: limit + 2, before });
  const entries = takeEnough(read.entries, limit + 1, isWithin ? after.number : null);
  const groups = await readGroups(db, entries);
  const all = entries.flatMap((entry) => linesOf(entry, groups.get(entry.groupId ?? -1) ?? [], after));
  const more = all.length > limit || entries.length < read.entries.length || read.more;
  return { lines: all.slice(0, limit), more };
}

/**
 * Returns the first entries that have this many requests in total, not counting the entry that the previous page began.
 */
function takeEnough(entries: readonly LedgerEntry[], linesMin: number, begun: number | null): readonly LedgerEntry[] {
  let lines = 0;
  const last = entries.findIndex((entry) => {
    if (entry.number !== begun) lines += entry.groupId === null ? 1 : (entry.requests ?? 1);
    return lines >= linesMin;
  });
  return last === -1 ? entries : entries.slice(0, last + 1);
}

async function readGroups(
  { sql }: Db,
  entries: readonly LedgerEntry[],
): Promise<ReadonlyMap<number, readonly GroupRow[]>> {
  const groups = entries.filter(({ groupId }) => groupId !== null);
  if (groups.length === 0) return new Map();
  // An entry's id is that of its first request: earlier months are not searched.
  const first = groups.map(({ id }) => id).reduce((least, id) => (id < least ? id : least));
  const rows = await sql<GroupRow[]>`
    select group_id::text, id::text, cost::text from usage_requests r
    where r.group_id = any(${`{${groups.map(({ groupId }) => groupId).join(',')}}`}::bigint[]) and r.id >= ${first}
    order by r.id desc`;
  return Map.groupBy(rows, (row) => Number(row.group_id));
}

function linesOf(entry: LedgerEntry, rows: readonly GroupRow[], after: LedgerPosition | null): LedgerLine[] {
  const { groupId, ...whole } = entry;
  const begun = after?.number === entry.number ? after.requestId : null;
  if (groupId === null || rows.length !== entry.requests) {
    // Records that the previous page showed in part have been deleted since.
    return begun === null ? [{ ...whole, position: { number: entry.number, requestId: null } }] : [];
  }
  let balanceAfterPicoUsd = entry.balanceAfterPicoUsd;
  const lines = rows.map((row): LedgerLine => {
    const amountPicoUsd = -BigInt(row.cost);
    const line = {
      ...whole,
      id: row.id,
      requestId: row.id,
      requests: 1,
      amountPicoUsd,
      balanceAfterPicoUsd,
      position: { number: entry.number, requestId: row.id },
    };
    balanceAfterPicoUsd -= amountPicoUsd;
    return line;
  });
  return begun === null ? lines : lines.filter(({ id }) => id < begun);
}
