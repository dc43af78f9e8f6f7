/** The endpoints that batches are for. */
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

/** How a batch ends. */
export type BatchEnding = 'completed' | 'failed' | 'expired' | 'cancelled';

/** Why a batch is not run, or not to its end. */
export interface BatchError {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** From 1; null where no line is at fault. */
  readonly line: number | null;
}

/** Ids are UUIDs, times milliseconds since the Unix epoch; null for what has not happened. */
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

/** Those that somebody works at, or will. */
export const openStatuses = ['validating', 'in_progress', 'finalizing', 'cancelling'] as const;
