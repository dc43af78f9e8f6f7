import type { TransactionSql } from 'postgres';

/** A division of usage by values that can differ between nodes of a cluster, and over time. */
export type Split =
  /** By id of the node or replica. */
  | { readonly by: 'node' }
  /** By the value of one label. */
  | { readonly by: 'label'; readonly key: string }
  /** By all labels of a node, as JSON. */
  | { readonly by: 'labels' }
  /** By spans of time with values. Spans of one node do not overlap. */
  | { readonly by: 'spans'; readonly spans: readonly ValueSpan[] };

/** A value of a node in [fromMs, toMs), milliseconds since the Unix epoch. */
export interface ValueSpan {
  readonly nodeId: string;
  readonly fromMs: number;
  /** Null has no end. */
  readonly toMs: number | null;
  readonly value: string;
}

type Sql = TransactionSql;

/**
 * Returns usage_intervals with a column `split`. Intervals are cut where the value of their node changes; the parts of
 * an interval cover it exactly. Usage without a value has null.
 */
export function splitUsage(sql: Sql, split: Split | null): ReturnType<Sql> {
  if (split === null) return sql`(select *, null::text as split from usage_intervals)`;
  if (split.by === 'node') return sql`(select *, node_id as split from usage_intervals)`;
  // A value lasts until the next one, so spans of a node cover all time.
  const spans = split.by === 'spans' ? spansOf(sql, split.spans) : labelSpans(sql, split);
  return sql`(
    select i.source, i.snapshot_id, i.nodes, i.gpus, i.gpu_share, p.value as split,
      greatest(i.started_ms, p.from_ms) as started_ms, least(i.ended_ms, p.to_ms) as ended_ms,
      i.estimated and (p.to_ms is null or p.to_ms >= i.ended_ms) as estimated
    from usage_intervals i left join (${spans}) as p on i.source = 'node' and p.node_id = i.node_id
      and (p.to_ms is null or p.to_ms > i.started_ms) and (i.ended_ms is null or p.from_ms < i.ended_ms))`;
}

function labelSpans(sql: Sql, split: { readonly by: 'labels' } | { readonly by: 'label'; readonly key: string }) {
  const value = split.by === 'labels' ? sql`nullif(labels::text, '{}')` : sql`labels ->> ${split.key}`;
  // The first labels also apply to earlier hours, so that the spans of a node cover all its time.
  return sql`select node_id, case when lag(since_ms) over own is null then 0 else since_ms end as from_ms,
    lead(since_ms) over own as to_ms, ${value} as value
    from node_labels window own as (partition by node_id order by since_ms)`;
}

/** Fills the time between spans with null, so that every moment of a node has one row. */
function spansOf(sql: Sql, spans: readonly ValueSpan[]) {
  const rows = [...Map.groupBy(spans, ({ nodeId }) => nodeId)].flatMap(([nodeId, own]) => {
    const sorted = own.toSorted((a, b) => a.fromMs - b.fromMs);
    const filled: { nodeId: string; fromMs: number; toMs: number | null; value: string | null }[] = [];
    let until: number | null = 0;
    for (const span of sorted) {
      if (until !== null && span.fromMs > until) filled.push({ nodeId, fromMs: until, toMs: span.fromMs, value: null });
      filled.push(span);
      until = span.toMs;
    }
    if (until !== null) filled.push({ nodeId, fromMs: until, toMs: null, value: null });
    return filled;
  });
  return sql`select "nodeId" as node_id, "fromMs" as from_ms, "toMs" as to_ms, value
    from json_to_recordset(${JSON.stringify(rows)}::text::json)
      as t("nodeId" text, "fromMs" bigint, "toMs" bigint, value text)`;
}
