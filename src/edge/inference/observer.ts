import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode } from '#base/errors.ts';
import type { Model } from '#core/catalog/catalog.ts';
import type { OutcomeKind } from '#core/metering/metering.ts';
import type { Endpoint } from './endpoints.ts';
import type { Outcome } from './outcome.ts';

/**
 * Metrics, the log and traces, which observe requests and change nothing of them. What they do is on every request's
 * path.
 */
export interface RequestObserver {
  /** The trace of a request that has just come, by its headers. */
  trace(endpoint: Endpoint, headers: IncomingHttpHeaders, requestId: string): CallTrace;
  /** One more request waits for an engine, or one less. */
  waiting(modelId: string, change: 1 | -1): void;
  /** Called once for every request, when its last byte was handed to the socket. */
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
  /** The trace of a part of the request that is sent beside others. */
  part(): CallTrace;
  ended(summary: RequestSummary): void;
}

/** Used when no trace is sampled. */
export const noTrace: CallTrace = {
  traceId: null,
  toEngine: () => '',
  engineEnded: () => undefined,
  part: () => noTrace,
  ended: () => undefined,
};

/** Everything about one request that observers get: none of its content. Times are milliseconds. */
export interface RequestSummary {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  /** Path of its endpoint. */
  readonly route: string;
  /** Catalog id; null where the request named none that is known. */
  readonly model: string | null;
  /** The same of the model that was asked for, where `model` answered in its place. */
  readonly fallbackFor: string | null;
  readonly keyId: string | null;
  readonly organizationId: string | null;
  readonly projectId: string | null;
  /** Status that the client got; 499 where it left before it had one. */
  readonly status: number;
  readonly code: ErrorCode | null;
  /** Field of the request that is at fault, as the client is told; it may hold names that the client made up. */
  readonly param: string | null;
  /** Which limit or setting refused it. */
  readonly reason: string | null;
  readonly outcome: OutcomeKind;
  readonly stream: boolean;
  readonly inputTokens: number;
  /** Input tokens that the engine had in its prefix cache. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
  /** `off` where the cache was not asked. */
  readonly cache: 'hit' | 'miss' | 'off';
  /** The request waited for its engine to start. */
  readonly cold: boolean;
  /** From admission until a replica was there. */
  readonly queuedMs: number;
  /** From its arrival to the engine's first byte; null where none came. */
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  /**
   * The gateway's own part, computed in call-end.ts: without the engine, the waits for it and for the body. Null where
   * no engine was asked.
   */
  readonly addedMs: number | null;
  readonly replicaId: string | null;
  readonly retries: number;
  readonly abortedByClient: boolean;
}
