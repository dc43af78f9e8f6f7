import type { Db } from '#base/db.ts';
import type { LedgerEntry, LedgerPageRequest, Wallet } from '#core/wallet/wallet.ts';

/** A line of an organization's ledger: an entry, or one request of those that an entry stands for. */
export interface LedgerLine extends Omit<LedgerEntry, 'groupId'> {
  /** Where the next page begins when this is the last line of one. */
  readonly position: LedgerPosition;
}

export interface LedgerPosition {
  readonly number: number;
  /** The last of an entry's requests that was shown; null when all of it was. */
  readonly requestId: string | null;
}

export interface LedgerLinesRequest extends Pick<LedgerPageRequest, 'type' | 'limit'> {
  /** Null for the newest. */
  readonly after: LedgerPosition | null;
}

export interface LedgerLines {
  /** Newest first; requests of one entry in the order of their ids, newest first. */
  readonly lines: readonly LedgerLine[];
  readonly more: boolean;
}

interface GroupRow {
  readonly group_id: string;
  readonly id: string;
  readonly cost: string;
}

/**
 * One page of a ledger. An entry of several requests is shown request by request as long as all their records are
 * there, as one line after that.
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

/** As many of the entries as have that many requests, beside the one that a page before has begun. */
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
  // An entry is named after its first request: months before it are not looked at.
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
    // What a page before has shown in part is gone since.
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
