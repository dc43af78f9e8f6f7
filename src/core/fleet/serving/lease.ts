import type { Replica } from '#core/fleet/drivers/drivers.ts';

/**
 * The right to send one request to a replica. The replica is not stopped while the lease lasts, up to its drain time.
 */
export interface Lease {
  readonly replica: Replica;
  /** True if the request waited for the engine to start. */
  readonly cold: boolean;
  /** When the replica became ready, in milliseconds since the Unix epoch; null if unknown. */
  readonly readySinceMs: number | null;
  /** True once the replica is known to generate nothing. */
  readonly isWedged: boolean;
  /**
   * Describes the request that uses the lease.
   * @param promptTokens estimated tokens that the replica still has to read before it generates; 0 once it generates
   * @param onWedged called at most once, when the replica is found to generate nothing
   */
  describe(promptTokens: number, onWedged?: () => void): void;
  /** Returns the lease; calls after the first do nothing. */
  release(): void;
}

export interface AcquireRefusal {
  readonly code: 'start_failed' | 'start_timeout' | 'queue_full' | 'no_other_replica' | 'taken_away' | 'shutting_down';
  /** Text for the client; reveals nothing about the machine. */
  readonly publicText: string;
  /** null if waiting does not help. */
  readonly retryAfterSeconds: number | null;
}

export type AcquireResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };

/** Refusal for an engine that the files dropped or disabled while a request was running. */
export const takenAway: AcquireRefusal = {
  code: 'taken_away',
  publicText: 'This model is no longer served.',
  retryAfterSeconds: null,
};
