import type { Sql } from 'postgres';
import { isRemoving } from './run-rows.ts';
import { type RunAccess, statusesBefore } from './run-status.ts';
import type { WebPort } from './sources.ts';

/** Services that APPLIED runs declare in their outputs, as far as nobody has asked to destroy them. */

/** A web port whose software is installed, as far as runs know. */
export interface DeclaredWebPort {
  readonly runId: string;
  readonly installationId: string;
  readonly clusterId: string;
  readonly stackName: string;
  /** A node's name; empty for the whole cluster. */
  readonly node: string;
  readonly web: WebPort;
  readonly access: RunAccess;
}

/** An inference engine that a run of a platform administrator has started. */
export interface DeclaredEngine {
  readonly runId: string;
  readonly clusterId: string;
  readonly stackName: string;
  /** Name of the run's node; empty for the whole cluster. */
  readonly node: string;
  /** The output `engine`, not checked yet. */
  readonly engine: unknown;
}

function isInstalled(db: Sql) {
  return db`r.status = 'APPLIED' and not exists (
    select 1 from runs d
    where d.installation_id = r.installation_id and ${db.unsafe(isRemoving)}
      and d.status in ${db(['PENDING', ...statusesBefore('DESTROYED')])})`;
}

export async function listWebPorts(db: Sql): Promise<readonly DeclaredWebPort[]> {
  return db<DeclaredWebPort[]>`
    select r.id as "runId", r.installation_id as "installationId", r.cluster_id as "clusterId",
      i.stack_name as "stackName", i.node, r.web, r.access
    from runs r join installations i on i.id = r.installation_id
    where r.web is not null and ${isInstalled(db)}
    order by r.installation_id`;
}

export async function listEngines(db: Sql): Promise<readonly DeclaredEngine[]> {
  return db<DeclaredEngine[]>`
    select r.id as "runId", r.cluster_id as "clusterId", i.stack_name as "stackName", i.node,
      r.outputs -> 'engine' -> 'value' as engine
    from runs r join installations i on i.id = r.installation_id
    where r.may_serve and r.outputs ? 'engine' and ${isInstalled(db)}
    order by r.installation_id`;
}
