import type { ValueSpan } from './split-usage.ts';
import type { UsageView } from './rated-usage.ts';

/** The time in which a stack was applied on a cluster or one of its nodes, milliseconds since the Unix epoch. */
export interface StackSpan {
  readonly clusterId: string;
  /** Name of the node; null for the whole cluster. */
  readonly node: string | null;
  readonly stack: string;
  readonly fromMs: number;
  /** Null while the stack is applied. */
  readonly toMs: number | null;
}

/** A node of a cluster, as recorded with its last allocation. */
export interface StackNode {
  readonly nodeId: string;
  readonly clusterId: string;
  readonly name: string;
}

/** Reads all nodes of clusters that were ever allocated. */
export async function readStackNodes({ sql }: UsageView, clusterIds: readonly string[]): Promise<readonly StackNode[]> {
  return sql<StackNode[]>`
    select distinct on (a.node_id) a.node_id as "nodeId", a.cluster_id as "clusterId", a.node_name as name
    from json_array_elements_text(${JSON.stringify(clusterIds)}::text::json) as t(id)
    join usage_allocations a on a.cluster_id = t.id and a.source = 'node' and a.node_name is not null
    order by a.node_id, a.generation desc`;
}

/**
 * Returns the stacks of each node over time: their names, sorted and joined by " + ". Costs of a node with several
 * stacks cannot be divided between them, so the stacks are one group.
 */
export function stacksOfNodes(nodes: readonly StackNode[], spans: readonly StackSpan[]): readonly ValueSpan[] {
  const byCluster = Map.groupBy(spans, ({ clusterId }) => clusterId);
  return nodes.flatMap(({ nodeId, clusterId, name }) => {
    const own = (byCluster.get(clusterId) ?? []).filter(({ node }) => node === null || node === name);
    const edges = own.flatMap(({ fromMs, toMs }) => (toMs === null ? [fromMs] : [fromMs, toMs]));
    const borders = [...new Set(edges)].toSorted((a, b) => a - b);
    return borders.flatMap((fromMs, index): ValueSpan[] => {
      const stacks = own.filter((span) => span.fromMs <= fromMs && (span.toMs === null || fromMs < span.toMs));
      const names = [...new Set(stacks.map(({ stack }) => stack))].toSorted();
      return names.length === 0 ? [] : [{ nodeId, fromMs, toMs: borders[index + 1] ?? null, value: names.join(' + ') }];
    });
  });
}
