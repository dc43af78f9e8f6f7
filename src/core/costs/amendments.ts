import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import { type AllocationKey, rebuildIntervals, type UsageSource } from './interval-rows.ts';
import { dbNowMs, lockClusters } from './locks.ts';
import { allocationAmendments } from './schema.ts';
import { aheadMsMax } from './usage-events.ts';

/** Recorded times of an allocation. Milliseconds since the Unix epoch. */
export interface AllocationTimes {
  /** Null if only the release was reported. */
  readonly allocatedMs: number | null;
  /** Null while the node is allocated. */
  readonly releasedMs: number | null;
  /** True if the release is inferred, not reported. */
  readonly estimated: boolean;
}

/** A correction of an allocation. `after` null: it was voided. */
export interface Amendment {
  readonly amendedMs: number;
  readonly reason: string;
  readonly before: AllocationTimes;
  readonly after: AllocationTimes | null;
}

/** An allocation with its corrections, oldest first. A voided one keeps the times that it had. */
export interface AllocationHistory extends AllocationKey {
  readonly nodeName: string | null;
  readonly times: AllocationTimes;
  readonly isVoided: boolean;
  readonly amendments: readonly Amendment[];
}

export interface AmendmentRequest extends AllocationKey {
  readonly clusterId: string;
  /**
   * New times; undefined leaves a time as it is, and `releasedMs` null withdraws the release. Null voids the
   * allocation.
   */
  readonly to: { readonly allocatedMs: number | undefined; readonly releasedMs: number | null | undefined } | null;
  readonly reason: string;
  /** Allows changes of hours before the current month (UTC), whose reports may have been read. */
  readonly retroactive: boolean;
}

export interface Amended {
  readonly history: AllocationHistory;
  /** Null if the allocation has the requested times already. */
  readonly amendment: Amendment | null;
}

export interface AllocationList {
  readonly clusterId: string;
  /** Null: of all nodes. */
  readonly node: { readonly id: string } | { readonly name: string } | null;
  /** Counts from 1. */
  readonly page: number;
  readonly limit: number;
}

export interface AllocationPage {
  readonly allocations: readonly AllocationHistory[];
  readonly total: number;
}

const source: UsageSource = 'node';

export async function amendAllocation(tx: Transaction, request: AmendmentRequest): Promise<Amended | null> {
  const { clusterId, nodeId, generation, to } = request;
  await lockClusters(tx, source, [clusterId]);
  const ofNode = await readHistories(tx, sql`a.cluster_id = ${clusterId} and a.node_id = ${nodeId}`);
  const before = ofNode.find((one) => one.generation === generation);
  if (before === undefined) return null;
  if (before.isVoided && to !== null) throw conflict(`Allocation ${generation} of this node was voided.`);
  const after = to === null ? null : timesAfter(before.times, to);
  if (after === null ? before.isVoided : isSame(before.times, after)) return { history: before, amendment: null };
  const nowMs = await dbNowMs(tx);
  const others = ofNode.filter((one) => one !== before && !one.isVoided);
  if (after !== null) requireValid(after, others, nowMs);
  requireRetroactive(request, firstChange(before.times, after, nowMs), nowMs);
  const amendment: Amendment = { amendedMs: nowMs, reason: request.reason, before: before.times, after };
  await write(tx, request, amendment);
  const valid = after === null ? others : [...others, before];
  await tx.execute(sql`delete from usage_intervals where source = ${source} and node_id = ${nodeId}`);
  await rebuildIntervals(tx, source, valid);
  const times = after ?? before.times;
  const amendments = [...before.amendments, amendment];
  return { history: { ...before, times, isVoided: after === null, amendments }, amendment };
}

function timesAfter(before: AllocationTimes, to: NonNullable<AmendmentRequest['to']>): AllocationTimes {
  if (before.allocatedMs === null) {
    throw conflict('Only the release of this allocation was reported. Report its allocation, or void it.');
  }
  const { allocatedMs = before.allocatedMs, releasedMs = before.releasedMs } = to;
  return { allocatedMs, releasedMs, estimated: before.estimated && to.releasedMs === undefined };
}

const isSame = (one: AllocationTimes, other: AllocationTimes): boolean =>
  one.allocatedMs === other.allocatedMs && one.releasedMs === other.releasedMs && one.estimated === other.estimated;

const conflict = (message: string): AppError => new AppError('conflict', { message });
const never = Number.POSITIVE_INFINITY;

/** @throws AppError invalid_value for times in the future or an empty allocation, conflict for an overlap */
function requireValid(
  { allocatedMs, releasedMs }: AllocationTimes,
  others: readonly AllocationHistory[],
  nowMs: number,
): void {
  for (const [param, timeMs] of [
    ['allocated_at', allocatedMs],
    ['released_at', releasedMs],
  ] as const) {
    if (timeMs === null || timeMs <= nowMs + aheadMsMax) continue;
    throw new AppError('invalid_value', { message: `${param} must not be in the future.`, param });
  }
  const [startMs, endMs] = [allocatedMs ?? 0, releasedMs ?? never];
  if (endMs <= startMs) {
    const message = 'released_at must be later than allocated_at. To remove the hours, void the allocation.';
    throw new AppError('invalid_value', { message, param: 'released_at' });
  }
  const overlapping = others.find(
    ({ times }) => times.allocatedMs !== null && times.allocatedMs < endMs && (times.releasedMs ?? never) > startMs,
  );
  if (overlapping === undefined) return;
  const { generation, times } = overlapping;
  throw conflict(`Allocation ${generation} of this node ${spanText(times)} overlaps. Amend or void it first.`);
}

const iso = (timeMs: number): string => new Date(timeMs).toISOString();

/** Returns "from … to …", for messages. */
export function spanText({ allocatedMs, releasedMs }: Pick<AllocationTimes, 'allocatedMs' | 'releasedMs'>): string {
  const start = allocatedMs === null ? '' : `from ${iso(allocatedMs)} `;
  return `${start}${releasedMs === null ? 'until now' : `to ${iso(releasedMs)}`}`;
}

/** Returns the first moment whose costs change; now if none do. */
function firstChange(before: AllocationTimes, after: AllocationTimes | null, nowMs: number): number {
  if (before.allocatedMs === null) return nowMs;
  const starts = [before.allocatedMs, after?.allocatedMs ?? nowMs];
  const ends = [before.releasedMs ?? nowMs, after?.releasedMs ?? nowMs];
  return Math.min(...(starts[0] === starts[1] ? ends : starts));
}

/** @throws AppError invalid_value if costs of earlier months change unexpectedly */
function requireRetroactive({ retroactive }: AmendmentRequest, changedMs: number, nowMs: number): void {
  const now = new Date(nowMs);
  if (retroactive || changedMs >= Date.UTC(now.getUTCFullYear(), now.getUTCMonth())) return;
  const message = `This changes costs from ${iso(changedMs)} on, before this month (UTC). Set "retroactive" to true to allow it.`;
  throw new AppError('invalid_value', { message, param: 'retroactive' });
}

async function write(
  tx: Transaction,
  { nodeId, generation, reason }: AmendmentRequest,
  { amendedMs, before, after }: Amendment,
): Promise<void> {
  await tx.insert(allocationAmendments).values({
    id: uuidv7(),
    nodeId,
    generation,
    kind: after === null ? 'voided' : 'amended',
    reason,
    amendedMs,
    allocatedMsBefore: before.allocatedMs,
    releasedMsBefore: before.releasedMs,
    estimatedBefore: before.estimated,
    allocatedMsAfter: after?.allocatedMs ?? null,
    releasedMsAfter: after?.releasedMs ?? null,
    estimatedAfter: after?.estimated ?? false,
  });
  const { allocatedMs, releasedMs, estimated } = after ?? before;
  await tx.execute(sql`
    update usage_allocations set voided = ${after === null}, allocated_ms = ${allocatedMs}::bigint,
      released_ms = ${releasedMs}::bigint, release_estimated = ${estimated}
    where source = ${source} and node_id = ${nodeId} and generation = ${generation}`);
}

interface HistoryRow {
  readonly node_id: string;
  readonly generation: number;
  readonly node_name: string | null;
  readonly allocated_ms: string | null;
  readonly released_ms: string | null;
  readonly release_estimated: boolean;
  readonly voided: boolean;
  readonly amendments: readonly AmendmentRow[] | null;
  readonly [column: string]: unknown;
}

/** A row of the table as JSON, whose numbers are exact up to 2^53. */
interface AmendmentRow {
  readonly kind: 'amended' | 'voided';
  readonly reason: string;
  readonly amended_ms: number;
  readonly allocated_ms_before: number | null;
  readonly released_ms_before: number | null;
  readonly estimated_before: boolean;
  readonly allocated_ms_after: number | null;
  readonly released_ms_after: number | null;
  readonly estimated_after: boolean;
}

type Condition = ReturnType<typeof sql>;

async function readHistories(
  tx: Pick<Transaction, 'execute'>,
  chosen: Condition,
  page: Condition = sql``,
): Promise<readonly AllocationHistory[]> {
  const rows = await tx.execute<HistoryRow>(sql`
    select a.node_id, a.generation, a.node_name, a.allocated_ms, a.released_ms, a.release_estimated, a.voided,
      (select json_agg(m order by m.id) from allocation_amendments m
        where m.node_id = a.node_id and m.generation = a.generation) as amendments
    from usage_allocations a where a.source = ${source} and ${chosen}
    order by coalesce(a.allocated_ms, a.released_ms) desc, a.node_id, a.generation desc ${page}`);
  return rows.map(toHistory);
}

const numberOrNull = (text: string | null): number | null => (text === null ? null : Number(text));

function toHistory(row: HistoryRow): AllocationHistory {
  return {
    nodeId: row.node_id,
    generation: row.generation,
    nodeName: row.node_name,
    times: {
      allocatedMs: numberOrNull(row.allocated_ms),
      releasedMs: numberOrNull(row.released_ms),
      estimated: row.release_estimated,
    },
    isVoided: row.voided,
    amendments: (row.amendments ?? []).map(toAmendment),
  };
}

function toAmendment(row: AmendmentRow): Amendment {
  return {
    amendedMs: row.amended_ms,
    reason: row.reason,
    before: {
      allocatedMs: row.allocated_ms_before,
      releasedMs: row.released_ms_before,
      estimated: row.estimated_before,
    },
    after:
      row.kind === 'voided'
        ? null
        : {
            allocatedMs: row.allocated_ms_after,
            releasedMs: row.released_ms_after,
            estimated: row.estimated_after,
          },
  };
}

export async function listAllocations(db: Db, list: AllocationList): Promise<AllocationPage> {
  const { clusterId, node, page, limit } = list;
  const named =
    node === null ? sql`` : 'id' in node ? sql`and a.node_id = ${node.id}` : sql`and a.node_name = ${node.name}`;
  const chosen = sql`a.cluster_id = ${clusterId} ${named}`;
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.execute<{ total: number }>(
        sql`select count(*)::integer as total from usage_allocations a where a.source = ${source} and ${chosen}`,
      );
      const paging = sql`limit ${limit} offset ${(page - 1) * limit}`;
      return { allocations: await readHistories(tx, chosen, paging), total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}
