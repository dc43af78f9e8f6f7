import { eq, sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Author } from '#core/audit/audit.ts';
import { aheadMsMax, type UsageOutcome } from '#core/costs/costs.ts';
import { type ClusterParts, dbNowMs, findNodeRow, lockActive, type NodeRef, requireOrganization } from './change.ts';
import { chooseAllocation } from './choose-allocation.ts';
import {
  clusterKey,
  type ClusterNode,
  type ClusterRow,
  type NodeAllocationView,
  nodeKey,
  type NodeRow,
  toAllocationView,
  toNode,
} from './cluster.ts';
import { clusterNodes } from './schema.ts';

export type NodeEventKind = 'allocate' | 'release';

/** The allocation or release of a node. */
export interface NodeEvent {
  readonly kind: NodeEventKind;
  /** Milliseconds since the Unix epoch; null for now, by the database's clock. */
  readonly atMs: number | null;
  /**
   * Number of the allocation that the event belongs to, counted from 1. With it, events may come in any order and
   * repeatedly; null: events come in the order of their moments.
   */
  readonly generation: number | null;
  readonly author: Author;
}

export interface NodeEventResult {
  /** `repeated`: the event was recorded before, and nothing changed. */
  readonly outcome: 'recorded' | 'repeated';
  /** The event's allocation, as recorded now. */
  readonly allocation: NodeAllocationView;
  readonly node: ClusterNode;
}

/**
 * Records an event and the resulting interval, or neither.
 * @returns null if the node does not exist
 * @throws AppError conflict for an archived cluster, and for a moment that could belong to several allocations;
 * invalid_value for a moment in the future
 */
export async function recordEvent(
  parts: ClusterParts,
  ref: NodeRef,
  event: NodeEvent,
): Promise<NodeEventResult | null> {
  const { db, costs } = parts;
  return db.orm.transaction(async (tx) => {
    const cluster = await lockActive(tx, ref.clusterId);
    const node = cluster === null ? null : await findNodeRow(tx, ref);
    if (cluster === null || node === null) return null;
    const nodeIds = [nodeKey(node.id)];
    const nowMs = await dbNowMs(tx);
    const atMs = event.atMs ?? nowMs;
    if (atMs > nowMs + aheadMsMax) throw liesAhead();
    const known = await costs.nodeAllocations({ nodeIds, which: 'all' }, tx);
    const moment = { atMs, isExplicit: event.atMs !== null };
    const choice = chooseAllocation(known, { kind: event.kind, generation: event.generation, moment });
    if (choice.kind === 'refused') throw new AppError('conflict', { message: choice.message, param: 'at' });
    const written = choice.kind === 'write' ? choice.generations : [];
    const outcomes = await write({ tx, parts, cluster, node }, { ...event, atMs }, written);
    const isRecorded = outcomes.some(({ kind }) => kind === 'recorded');
    if (isRecorded) await note({ tx, parts, cluster, node }, event, outcomes);
    const generation = choice.kind === 'repeated' ? choice.generation : Math.max(...choice.generations);
    return {
      outcome: isRecorded ? 'recorded' : 'repeated',
      ...(await readResult({ tx, parts, cluster, node }, generation)),
    };
  });
}

function liesAhead(): AppError {
  const message = 'must not be in the future: use a past time, or omit it for now';
  return new AppError('invalid_value', { message, param: 'at' });
}

interface Place {
  readonly tx: Transaction;
  readonly parts: ClusterParts;
  readonly cluster: ClusterRow;
  readonly node: NodeRow;
}

async function write(
  { tx, parts, cluster, node }: Place,
  { kind, atMs }: { readonly kind: NodeEventKind; readonly atMs: number },
  generations: readonly number[],
): Promise<readonly UsageOutcome[]> {
  if (generations.length === 0) return [];
  const [clusterId, nodeId] = [clusterKey(cluster.id), nodeKey(node.id)];
  if (kind === 'release') {
    const releases = generations.map((generation) => ({ nodeId, generation, atMs, estimated: false }));
    return parts.costs.release(tx, clusterId, releases);
  }
  const organization = await requireOrganization(tx, parts, cluster.organizationId);
  const { name: nodeName, hardwareProfile, gpus } = node;
  const allocations = generations.map((generation) => ({ nodeId, generation, nodeName, hardwareProfile, gpus, atMs }));
  const ref = { id: clusterId, name: cluster.name, organization: { id: organization.id, name: organization.name } };
  return parts.costs.allocate(tx, ref, allocations);
}

async function note(
  { tx, parts, cluster, node }: Place,
  { kind, author }: NodeEvent,
  outcomes: readonly UsageOutcome[],
): Promise<void> {
  const iso = (ms: number | null): string | null => (ms === null ? null : new Date(ms).toISOString());
  for (const { generation, allocatedMs, releasedMs } of outcomes.filter((outcome) => outcome.kind === 'recorded')) {
    await parts.audit.record(tx, {
      organizationId: cluster.organizationId,
      author,
      action: `cluster_node.${kind}d`,
      targetType: 'cluster_node',
      targetId: nodeKey(node.id),
      before: null,
      after: {
        cluster_id: clusterKey(cluster.id),
        generation,
        allocated_at: iso(allocatedMs),
        released_at: iso(releasedMs),
      },
    });
  }
}

async function readResult(
  { tx, parts, node }: Place,
  generation: number,
): Promise<Pick<NodeEventResult, 'allocation' | 'node'>> {
  const nodeIds = [nodeKey(node.id)];
  const all = await parts.costs.nodeAllocations({ nodeIds, which: 'all' }, tx);
  const [latest = null] = await parts.costs.nodeAllocations({ nodeIds, which: 'latest' }, tx);
  const own = all.find((one) => one.generation === generation);
  if (own === undefined) throw new Error('a stored event was not found');
  const priced = await parts.costs.pricedProfiles(tx, [node.hardwareProfile]);
  return { allocation: toAllocationView(own), node: toNode(node, latest, priced) };
}

/**
 * Records a heartbeat. Withdraws a release that was inferred from silence, so that the allocation continues without a
 * gap.
 * @returns false if the node does not exist
 * @throws AppError conflict for an archived cluster
 */
export async function heartbeat(parts: ClusterParts, ref: NodeRef, author: Author): Promise<boolean> {
  const { db, costs, audit } = parts;
  return db.orm.transaction(async (tx) => {
    const cluster = await lockActive(tx, ref.clusterId);
    const node = cluster === null ? null : await findNodeRow(tx, ref);
    if (cluster === null || node === null) return false;
    await tx
      .update(clusterNodes)
      .set({ lastSeenAt: sql`clock_timestamp()` })
      .where(eq(clusterNodes.id, node.id));
    const [latest] = await costs.nodeAllocations({ nodeIds: [nodeKey(node.id)], which: 'latest' }, tx);
    if (latest?.releaseEstimated !== true) return true;
    const { nodeId, generation } = latest;
    await costs.withdrawEstimate(tx, clusterKey(cluster.id), [{ nodeId, generation }]);
    await audit.record(tx, {
      organizationId: cluster.organizationId,
      author,
      action: 'cluster_node.estimate_withdrawn',
      targetType: 'cluster_node',
      targetId: nodeId,
      before: null,
      after: { cluster_id: clusterKey(cluster.id), generation },
    });
    return true;
  });
}
