import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';

/** The time in which a stack was applied on a cluster or one of its nodes, milliseconds since the Unix epoch. */
export interface AppliedSpan {
  /** Public id. */
  readonly clusterId: string;
  /** Name of the node; null for the whole cluster. */
  readonly node: string | null;
  readonly stack: string;
  readonly fromMs: number;
  /** Null while the stack is applied. */
  readonly toMs: number | null;
}

interface EventRow {
  readonly installation_id: string;
  readonly cluster_id: string;
  readonly node: string;
  readonly stack: string;
  readonly is_start: boolean;
  readonly at_ms: string;
}

/**
 * Reads from the end of each first successful apply to the end of the destroy, or until the state was forgotten. Who
 * forgets only what a superseded failed run has left marks no successful apply as forgotten.
 */
export async function readAppliedSpans({ sql }: Pick<Db, 'sql'>): Promise<readonly AppliedSpan[]> {
  const events = await sql<EventRow[]>`
    select e.installation_id, i.cluster_id, i.node, i.stack_name as stack, e.is_start,
      floor(extract(epoch from e.at) * 1000)::bigint as at_ms
    from (
      select installation_id, ended_at as at, true as is_start from runs
      where operation = 'apply' and status in ('APPLIED', 'SUPERSEDED')
      union all
      select installation_id, ended_at, false from runs where operation = 'destroy' and status = 'DESTROYED'
      union all
      select installation_id, forgotten_at, false from runs
      where operation = 'apply' and status in ('APPLIED', 'SUPERSEDED') and forgotten_at is not null
    ) e join installations i on i.id = e.installation_id
    where e.at is not null
    order by e.installation_id, e.at, e.is_start`;
  return [...Map.groupBy(events, (event) => event.installation_id).values()].flatMap(spansOf);
}

function spansOf(events: readonly EventRow[]): AppliedSpan[] {
  const spans: AppliedSpan[] = [];
  let fromMs: number | null = null;
  const add = (event: EventRow, startMs: number, toMs: number | null): void => {
    const { cluster_id: cluster, node, stack } = event;
    const place = { clusterId: formatId('cluster', cluster), node: node === '' ? null : node };
    spans.push({ ...place, stack, fromMs: startMs, toMs });
  };
  for (const event of events) {
    const atMs = Number(event.at_ms);
    if (event.is_start) fromMs ??= atMs;
    else if (fromMs !== null) {
      add(event, fromMs, atMs);
      fromMs = null;
    }
  }
  const last = events.at(-1);
  if (fromMs !== null && last !== undefined) add(last, fromMs, null);
  return spans;
}
