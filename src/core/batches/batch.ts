/** Endpoints that batches can use. */
export const batchEndpoints = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] as const;
export type BatchEndpoint = (typeof batchEndpoints)[number];

export const batchStatuses = [
  'validating',
  'failed',
  'in_progress',
  'finalizing',
  'completed',
  'expired',
  'cancelling',
  'cancelled',
] as const;
export type BatchStatus = (typeof batchStatuses)[number];

/** Ways in which a batch ends. */
export type BatchEnding = 'completed' | 'failed' | 'expired' | 'cancelled';

/** Reason why a batch is not run, or not completely. */
export interface BatchError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** Line number from 1; null if no line is the reason. */
  readonly line: number | null;
}

/** A batch. Ids are UUIDs, times are milliseconds since the Unix epoch; null for what has not happened. */
export interface Batch {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  readonly endpoint: BatchEndpoint;
  readonly inputFileId: string;
  readonly model: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly outputKeepSeconds: number | null;
  readonly status: BatchStatus;
  readonly ending: BatchEnding | null;
  readonly errors: readonly BatchError[];
  readonly waitingFor: string | null;
  readonly waitingSinceMs: number | null;
  readonly counts: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly outputFileId: string | null;
  readonly errorFileId: string | null;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
  readonly inProgressAtMs: number | null;
  readonly finalizingAtMs: number | null;
  readonly completedAtMs: number | null;
  readonly failedAtMs: number | null;
  readonly expiredAtMs: number | null;
  readonly cancellingAtMs: number | null;
  readonly cancelledAtMs: number | null;
}

/** Statuses of batches that are not finished. */
export const openStatuses = ['validating', 'in_progress', 'finalizing', 'cancelling'] as const;
