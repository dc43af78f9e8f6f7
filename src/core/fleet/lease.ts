import type { Endpoint } from '#base/endpoint.ts';
import type { EngineKind } from '#core/catalog/catalog.ts';

/** One running copy of an engine, as a request needs to know it. */
export interface Replica {
  /** New for every start, so that what is known of an ended process is never taken for its successor's. */
  readonly id: string;
  readonly engineId: string;
  readonly endpoint: Endpoint;
  /** What `model` must say upstream; null when the engine goes by the catalog id. */
  readonly upstreamModel: string | null;
  /** Header lines the engine needs, each with its CRLF; '' when there are none. Holds secrets: not for logs. */
  readonly headerLines: string;
  /** The engine was started so that every frame carries usage, whatever the client asked. */
  readonly forcedUsage: boolean;
  readonly kind: EngineKind;
}

/** The right to send one request to a replica; the replica is not stopped while it is held, up to its drain time. */
export interface Lease {
  readonly replica: Replica;
  /** The request had to wait for the engine to start. */
  readonly cold: boolean;
  /** Gives the lease back; calls after the first do nothing. */
  release(): void;
}

export interface AcquireRefusal {
  readonly code: 'start_failed' | 'start_timeout' | 'queue_full' | 'no_other_replica' | 'shutting_down';
  /** Plain words for the client; says nothing of the machine. */
  readonly publicText: string;
  readonly retryAfterSeconds: number;
}

export type AcquireResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };
