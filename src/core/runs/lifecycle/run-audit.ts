import type { Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Run } from './run-rows.ts';

export type NotedRun = Pick<Run, 'id' | 'organizationId' | 'stackName' | 'clusterId' | 'operation'>;

export interface Noted {
  readonly author: Author;
  readonly action: 'created' | 'confirmed' | 'discarded' | 'canceled' | 'forgotten' | 'expiry_changed';
  /** For `expiry_changed`; ISO. */
  readonly expiresAt?: string | null;
}

/** Records an action on a run in the audit log, in the transaction of the action. */
export async function noteRun(
  audit: Audit,
  tx: Transaction,
  run: NotedRun,
  { author, action, expiresAt }: Noted,
): Promise<void> {
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
    },
  });
}
