import { type SQL, sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { lockRuns, unfinishedStatuses } from '#core/runs/lifecycle/lifecycle.ts';

/** A node, identified by its cluster and its name there. */
export interface NamedNode {
  readonly clusterId: string;
  readonly name: string;
}

/** Public ids of the runs for one node. */
export interface RunsOnNode {
  /** Pending and active runs. */
  readonly underWay: readonly string[];
  /** For each installation with resources on the node, the run to destroy or forget. */
  readonly standing: readonly string[];
}

/** Updates runs for a node when the node changes, in the transaction of that change, which has locked the cluster. */
export interface NodeRuns {
  /** Locks the node's runs until the transaction ends: none starts or is forgotten meanwhile. */
  hold(tx: Transaction, node: NamedNode): Promise<RunsOnNode>;
  /** Renames the installations with their node, and the node of the web addresses and engines there. */
  rename(tx: Transaction, node: NamedNode, name: string): Promise<void>;
  /**
   * Retires the installations, web addresses and engines of a removed node: a later node of the same name does not get
   * them.
   */
  retire(tx: Transaction, node: NamedNode): Promise<void>;
}

const underWay: SQL = sql.join(
  unfinishedStatuses.map((status) => sql`${status}`),
  sql`, `,
);

/** True if resources exist. A state that could not be stored lists resources that nothing else knows. */
const isStanding = sql`(
  exists (select from runs r where r.installation_id = i.id and r.status = 'APPLIED')
  or coalesce((select s.resources from stack_states s where s.installation_id = i.id order by s.serial desc limit 1), 0) > 0
  or exists (
    select from runs r where r.installation_id = i.id and r.failure_code = 'STATE_SAVE_FAILED' and r.forgotten_at is null
      and not exists (select from runs d where d.installation_id = i.id and d.status = 'DESTROYED' and d.id > r.id)))`;

const ofNode = ({ clusterId, name }: NamedNode): SQL =>
  sql`i.cluster_id = ${clusterId} and i.node = ${name} and i.retired_at is null`;

/** Engines of APPLIED runs that are on a node. */
const hasEngineOn = ({ clusterId, name }: NamedNode): SQL =>
  sql`cluster_id = ${clusterId} and status = 'APPLIED' and outputs -> 'engine' -> 'value' ->> 'node' = ${name}`;

const nodeGone = (name: string): string =>
  `the node ${name} was removed from the cluster: apply the stack again to get an address on another node`;

export const nodeRuns: NodeRuns = {
  async hold(tx, node) {
    await lockRuns(tx, node.clusterId);
    const rows = await tx.execute<{ id: string; is_under_way: boolean }>(sql`
      select r.id, r.status in (${underWay}) as is_under_way
      from installations i join runs r on r.installation_id = i.id
      where ${ofNode(node)} and (r.status in (${underWay}) or ${isStanding} and r.id = (
        select o.id from runs o where o.installation_id = i.id and o.drift_of is null and o.status not in ('DISCARDED', 'PLANNED_AND_FINISHED')
        order by o.status = 'APPLIED' desc, o.id desc limit 1))
      order by r.id`);
    const idsOf = (isUnderWay: boolean): string[] =>
      rows.filter((row) => row.is_under_way === isUnderWay).map(({ id }) => formatId('run', id));
    return { underWay: idsOf(true), standing: idsOf(false) };
  },
  async rename(tx, node, name) {
    await tx.execute(sql`update installations i set node = ${name} where ${ofNode(node)}`);
    await tx.execute(sql`
      update runs set web = jsonb_set(web, '{node}', to_jsonb(${name}::text))
      where cluster_id = ${node.clusterId} and status = 'APPLIED' and web ->> 'node' = ${node.name}`);
    await tx.execute(sql`
      update runs set outputs = jsonb_set(outputs, '{engine,value,node}', to_jsonb(${name}::text))
      where ${hasEngineOn(node)}`);
  },
  async retire(tx, node) {
    await tx.execute(sql`update installations i set retired_at = clock_timestamp() where ${ofNode(node)}`);
    await tx.execute(sql`
      update runs set web = null, web_problem = ${nodeGone(node.name)}
      where cluster_id = ${node.clusterId} and status = 'APPLIED' and web ->> 'node' = ${node.name}`);
    await tx.execute(sql`update runs set may_serve = false where ${hasEngineOn(node)}`);
  },
};
