import type { Batch } from './batch.ts';
import type { batches } from './schema.ts';

export type BatchRow = typeof batches.$inferSelect;

const momentMs = (moment: Date | null): number | null => moment?.getTime() ?? null;

export function toBatch(row: BatchRow): Batch {
  return {
    id: row.id,
    organizationId: row.organizationId,
    projectId: row.projectId,
    keyId: row.keyId,
    endpoint: row.endpoint,
    inputFileId: row.inputFileId,
    model: row.model,
    metadata: row.metadata,
    outputKeepSeconds: row.outputKeepSeconds,
    status: row.status,
    ending: row.ending,
    errors: row.errors,
    waitingFor: row.waitingFor,
    waitingSinceMs: momentMs(row.waitingSince),
    counts: { total: row.total, completed: row.completed, failed: row.failed },
    outputFileId: row.outputFileId,
    errorFileId: row.errorFileId,
    createdAtMs: row.createdAt.getTime(),
    expiresAtMs: row.expiresAt.getTime(),
    inProgressAtMs: momentMs(row.inProgressAt),
    finalizingAtMs: momentMs(row.finalizingAt),
    completedAtMs: momentMs(row.completedAt),
    failedAtMs: momentMs(row.failedAt),
    expiredAtMs: momentMs(row.expiredAt),
    cancellingAtMs: momentMs(row.cancellingAt),
    cancelledAtMs: momentMs(row.cancelledAt),
  };
}
