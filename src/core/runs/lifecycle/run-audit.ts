import type { Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Run } from './run-rows.ts';

export type NotedRun = Pick<Run, 'id' | 'organizationId' | 'stackName' | 'clusterId' | 'operation'> & {
  readonly driftOf?: string | null;
};

export interface Noted {
  readonly author: Author;
  readonly action:
    | 'created'
    | 'confirmed'
    | 'discarded'
    | 'canceled'
    | 'forgotten'
    | 'expiry_changed'
    | 'drift_check_changed';
  /** For `expiry_changed`; ISO. */
  readonly expiresAt?: string | null;
  /** For `drift_check_changed`. */
  readonly checkDrift?: boolean;
}

/** Records an action on a run in the audit log, in the transaction of the action. */
export async function noteRun(
  audit: Audit,
  tx: Transaction,
  run: NotedRun,
  { author, action, expiresAt, checkDrift }: Noted,
): Promise<void> {
  const driftOf = run.driftOf ?? null;
  await audit.record(tx, {
    organizationId: run.organizationId,
    author,
    action: `run.${action}`,
    targetType: 'run',
    targetId: formatId('run', run.id),
    before: null,
    after: {
      operation: run.operation,
      stack: run.stackName,
      cluster: formatId('cluster', run.clusterId),
      ...(expiresAt !== undefined && { expires_at: expiresAt }),
      ...(checkDrift !== undefined && { check_drift: checkDrift }),
      ...(driftOf !== null && { drift_check_of: formatId('run', driftOf) }),
    },
  });
}
