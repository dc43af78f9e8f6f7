import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode } from '#base/errors.ts';
import type { Model } from '#core/catalog/catalog.ts';
import type { OutcomeKind } from '#core/metering/metering.ts';
import type { Endpoint } from './endpoints.ts';
import type { Outcome } from './outcome.ts';

/**
 * Who looks on while requests are served: metrics, the log, traces. It is told what happened and changes nothing; what
 * it does is paid by every request.
 */
export interface RequestObserver {
  /** The trace of a request that has just come, from what its headers say. */
  trace(endpoint: Endpoint, headers: IncomingHttpHeaders, requestId: string): CallTrace;
  /** One more request waits for an engine, or one less. */
  waiting(modelId: string, change: 1 | -1): void;
  /** Once for every request, when its last byte was handed out. */
  ended(summary: RequestSummary, trace: CallTrace, cause: unknown): void;
}

/** A request's place in a distributed trace. */
export interface CallTrace {
  /** Null outside any trace. */
  readonly traceId: string | null;
  /**
   * The request is about to be sent to an engine.
   * @returns header lines that hand the trace on, each with its CRLF; '' outside any trace
   */
  toEngine(model: Model, replicaId: string): string;
  engineEnded(outcome: Outcome): void;
  ended(summary: RequestSummary): void;
}

/** Of a request that nobody traces. */
export const noTrace: CallTrace = {
  traceId: null,
  toEngine: () => '',
  engineEnded: () => undefined,
  ended: () => undefined,
};

/** All there is to tell of one request, but for what it said. Times are milliseconds. */
export interface RequestSummary {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  /** Path of its endpoint. */
  readonly route: string;
  /** Catalog id; null where the request named none that is known. */
  readonly model: string | null;
  readonly keyId: string | null;
  readonly organizationId: string | null;
  readonly projectId: string | null;
  /** What the client got, 499 where it left before it got anything. */
  readonly status: number;
  readonly code: ErrorCode | null;
  readonly outcome: OutcomeKind;
  readonly stream: boolean;
  readonly inputTokens: number;
  /** Those of the input that the engine had already. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
  /** `off` where the cache was not asked. */
  readonly cache: 'hit' | 'miss' | 'off';
  /** It waited for its engine to start. */
  readonly cold: boolean;
  /** From admission until a replica was there. */
  readonly queuedMs: number;
  /** From its arrival to the engine's first byte; null where none came. */
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  /** What the gateway itself took: without the engine, the wait for it, and the client's body. Null without an engine. */
  readonly addedMs: number | null;
  readonly replicaId: string | null;
  readonly retries: number;
  readonly abortedByClient: boolean;
}
