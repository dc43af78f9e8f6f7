import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorCode } from '#base/errors.ts';
import type { Model } from '#core/catalog/catalog.ts';
import type { OutcomeKind } from '#core/metering/metering.ts';
import type { Outcome } from '#edge/inference/answer/answer.ts';
import type { Endpoint } from '#edge/inference/request/request.ts';

/**
 * Metrics, the log and traces. They observe requests and change nothing. Their work is on the path of every request.
 */
export interface RequestObserver {
  /** Starts the trace of a request that has just arrived, by its headers. */
  trace(endpoint: Endpoint, headers: IncomingHttpHeaders, requestId: string): CallTrace;
  /** Counts one more, or one less, request that waits for an engine. */
  waiting(modelId: string, change: 1 | -1): void;
  /** Called once for every request, when its last byte was handed to the socket. */
  ended(summary: RequestSummary, trace: CallTrace, cause: unknown): void;
}

/** A request's place in a distributed trace. */
export interface CallTrace {
  /** Null outside any trace. */
  readonly traceId: string | null;
  /**
   * Called when the request is about to be sent to an engine.
   * @returns header lines that pass the trace on, each with its CRLF; '' outside any trace
   */
  toEngine(model: Model, replicaId: string): string;
  engineEnded(outcome: Outcome): void;
  /** Returns the trace of a part of the request that is sent beside others. */
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

/** Facts about one request for observers, without its content. Times are in milliseconds. */
export interface RequestSummary {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  /** Path of the endpoint. */
  readonly route: string;
  /** Catalog id; null if the request named no known model. */
  readonly model: string | null;
  /** Catalog id of the requested model, if the fallback in `model` answered; else null. */
  readonly fallbackFor: string | null;
  readonly keyId: string | null;
  readonly organizationId: string | null;
  readonly projectId: string | null;
  /** Status that the client got; 499 if it left before it got one. */
  readonly status: number;
  readonly code: ErrorCode | null;
  /** Field of the request that is at fault, as reported to the client; it may contain names that the client made up. */
  readonly param: string | null;
  /** Limit or setting that rejected the request. */
  readonly reason: string | null;
  readonly outcome: OutcomeKind;
  readonly stream: boolean;
  readonly inputTokens: number;
  /** Input tokens that the engine had in its prefix cache. */
  readonly cachedTokens: number;
  readonly outputTokens: number;
  readonly costPicoUsd: bigint;
  /** `off` if the cache was not used. */
  readonly cache: 'hit' | 'miss' | 'off';
  /** The request waited for its engine to start. */
  readonly cold: boolean;
  /** From admission until a replica was available. */
  readonly queuedMs: number;
  /** From arrival to the engine's first byte; null if none came. */
  readonly firstByteMs: number | null;
  readonly totalMs: number;
  /**
   * The gateway's own time, computed in call-end.ts: without the engine, and without the waits for it and for the body.
   * Null if no engine was asked.
   */
  readonly addedMs: number | null;
  readonly replicaId: string | null;
  readonly retries: number;
  readonly abortedByClient: boolean;
}
