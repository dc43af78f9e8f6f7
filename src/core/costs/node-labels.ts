import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { dbNowMs } from './locks.ts';

/** Labels of a node, with those of its cluster. */
export interface LabeledNode {
  /** Public id. */
  readonly nodeId: string;
  readonly labels: Readonly<Record<string, string>>;
}

/**
 * Records labels for hours from now on; the first labels of a node also apply to earlier hours. Labels that have not
 * changed are not written again. The caller has the lock of the nodes' cluster.
 */
export async function recordLabels(tx: Transaction, nodes: readonly LabeledNode[]): Promise<void> {
  if (nodes.length === 0) return;
  const nowMs = await dbNowMs(tx);
  await tx.execute(sql`
    insert into node_labels (node_id, since_ms, labels)
    select t."nodeId", case when last.labels is null then 0 else ${nowMs}::bigint end, t.labels
    from json_to_recordset(${JSON.stringify(nodes)}::text::json) as t("nodeId" text, labels jsonb)
    left join lateral (
      select l.labels from node_labels l where l.node_id = t."nodeId" order by l.since_ms desc limit 1) last on true
    where last.labels is distinct from t.labels
    on conflict (node_id, since_ms) do update set labels = excluded.labels`);
}

/** Renames a node in its recorded allocations. The caller has the lock of the node's cluster. */
export async function renameNode(tx: Transaction, nodeId: string, name: string): Promise<void> {
  await tx.execute(sql`
    update usage_allocations set node_name = ${name}
    where source = 'node' and node_id = ${nodeId} and node_name is not null`);
}
