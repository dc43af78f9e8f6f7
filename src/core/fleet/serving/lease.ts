import type { Replica } from '#core/fleet/drivers/drivers.ts';

/** The right to send one request to a replica; the replica is not stopped while it is held, up to its drain time. */
export interface Lease {
  readonly replica: Replica;
  /** The request had to wait for the engine to start. */
  readonly cold: boolean;
  /** Since when the replica is ready, in milliseconds since the Unix epoch; null where that is not known. */
  readonly readySinceMs: number | null;
  /** Gives the lease back; calls after the first do nothing. */
  release(): void;
}

export interface AcquireRefusal {
  readonly code: 'start_failed' | 'start_timeout' | 'queue_full' | 'no_other_replica' | 'taken_away' | 'shutting_down';
  /** Plain words for the client; says nothing of the machine. */
  readonly publicText: string;
  /** null: waiting does not mend it. */
  readonly retryAfterSeconds: number | null;
}

export type AcquireResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };

/** Files do not have the engine any more, or not enabled, while a request was under way that had it. */
export const takenAway: AcquireRefusal = {
  code: 'taken_away',
  publicText: 'This model is not served here any more.',
  retryAfterSeconds: null,
};
