import type { IncomingMessage, ServerResponse } from 'node:http';
import type { MemberValues } from '#base/json/json.ts';
import type { Grant } from '#core/admission/admission.ts';
import type { InFlightEntry } from '#core/cache/cache.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Lease } from '#core/fleet/fleet.ts';
import type { CountedMost } from '#core/gateways/gateways.ts';
import type { Durable } from '#core/metering/metering.ts';
import type { IdempotentRun } from '#core/stored-requests/stored-requests.ts';
import type { FlexLease } from '#core/routing/routing.ts';
import type { BodyHold, InferenceCaller } from '#edge/http/http.ts';
import {
  type Answer,
  type AnswerCollector,
  type AnswerPlace,
  createAnswer,
  StopControl,
  type Transcript,
} from '#edge/inference/answer/answer.ts';
import type { EndUser } from '#edge/inference/end-user.ts';
import type { DroppedTools, Endpoint, InputPart, RequestFields } from '#edge/inference/request/request.ts';
import type { CallTrace } from './observer.ts';

export { type CallTrace, noTrace, type RequestObserver, type RequestSummary } from './observer.ts';
export { createRunning, type Running, type RunningRequest } from './requests-in-flight.ts';

/** One inference request while it runs. */
export interface Call {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly incoming: IncomingMessage;
  readonly answer: Answer;
  readonly clientRequestId: string | null;
  readonly trace: CallTrace;
  readonly stop: StopControl;
  readonly found: CallFindings;
  readonly held: CallHoldings;
  readonly timings: CallTimings;
  /** The texts of the request that this call sends; null for all of them. */
  readonly part: CallPart | null;
  readonly terms: CallTerms;
}

/** Terms that only requests made by the gateway itself may change. Requests from a connection have `commonTerms`. */
export interface CallTerms {
  /** Only a complete answer is charged, and a charged answer is always delivered: no client gets a part of one. */
  readonly isWholeOrFree: boolean;
  /** The answer shows every limit that bounds it, not only the tightest: batches leave half of each limit to others. */
  readonly showsEachLimit: boolean;
  /** Bytes of the body that the gateway added and no client sent. The limit on body sizes does not count them. */
  readonly addedBytes: number;
}

export const commonTerms: CallTerms = { isWholeOrFree: false, showsEachLimit: false, addedBytes: 0 };

/** One of the calls into which a request with many texts is divided. */
export interface CallPart {
  readonly input: InputPart;
  /** Creates the collector for the answer to one try. */
  collect(): AnswerCollector;
}

/** A request whose body was read and accepted. */
export interface InferenceRequest {
  readonly caller: InferenceCaller;
  readonly fields: RequestFields;
  readonly model: Model;
  readonly price: PriceVersion;
  /** Most that the caller pays, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  /** Null if the request names no end user. */
  readonly endUser: EndUser | null;
  /** Turns that the engine may take. Kept here, because the tools that decide it are released with the body. */
  readonly turns: number;
  /** Tools that the engine does not get; null if none was left out. */
  readonly dropped: DroppedTools | null;
}

/**
 * Results of the steps. Each is written once, except that a fallback replaces the requested model. The end of a request
 * reads the results that exist, however early it comes.
 */
export interface CallFindings {
  caller: InferenceCaller | null;
  model: Model | null;
  /** Id of the requested model if the fallback in `model` answers; else null. */
  fallbackFor: string | null;
  /** Also null for a dry run. */
  request: InferenceRequest | null;
  /** Null if the answer is neither taken from, kept for nor shared with other requests. */
  reuse: CallReuse | null;
  /** Null on routes without stored responses, and where none are stored. */
  storing: Storing | null;
  grant: Grant | null;
}

/** Decisions about the stored response of a request. */
export interface Storing {
  readonly isStored: boolean;
  /** UUID of the response that this one continues. */
  readonly previousId: string | null;
  /** Members that the response shows in place of the engine's. */
  readonly shown: MemberValues;
  /** JSON list of the request's own input items, if its body has further items by now; else null. */
  own: Buffer | null;
  /** The list of its own items, compressed; null until the request is admitted. */
  input: { readonly packed: Promise<Buffer>; readonly bytes: number } | null;
  /** Stores the complete response once its charge is recorded; null without one. Does not throw. */
  keep: (() => Promise<void>) | null;
}

/** Shared resources of a request, released when the request ends. */
export interface CallHoldings {
  /** Memory of the body; null for a small body. */
  body: BodyHold | null;
  /** Place of a large JSON answer, until the client has read the answer. */
  answerPlace: AnswerPlace | null;
  /** Right to use a replica; a retry replaces it. */
  lease: Lease | null;
  /** Flex lease of a request of the tier `flex`, beside its lease. */
  flexLease: FlexLease | null;
  /**
   * Most tokens that engines may count for the request, with the ids of engines it was sent to; until its record is
   * durable.
   */
  readonly tokenWatermarks: [engineId: string, most: CountedMost][];
  /** Removes the request from the list of running requests. */
  leave: (() => void) | null;
}

/** Durations of the parts of a request, in milliseconds. */
export interface CallTimings {
  /** Start, on the monotonic clock. */
  readonly startedMs: number;
  /** Wait for the body. */
  bodyMs: number;
  /** From the start to admission; null if the request was not admitted, or needed no admission. */
  admittedMs: number | null;
  /** Wait for replicas. */
  queuedMs: number;
  /** The part of `queuedMs` that was spent waiting for engines to start. */
  coldMs: number;
  /** Time that engines had the request, all tries together; null if no engine had it. */
  engineMs: number | null;
  /** Replicas that the request was sent to after the first. */
  retries: number;
  /** From the start to the first byte of the engine's answer; null if none has arrived. */
  firstByteMs: number | null;
  /** The request waited for another request's answer; that wait is not measured. */
  waitedForOther: boolean;
}

/** State of a request whose answer is reused, until its end. */
export interface CallReuse {
  readonly transcript: Transcript;
  /** Entry in the response cache, which other requests may wait for; ended with the answer. */
  cacheEntry: InFlightEntry | null;
  /** The answer came from the response cache. */
  cacheHit: boolean;
  idempotentRun: IdempotentRun | null;
  /** The whole answer as it was sent, once complete; only with an Idempotency-Key, and up to `replayBytesMax`. */
  answer: string | null;
  /** The whole answer, compressed for storage; for a batch also if the answer is too large to be shared from memory. */
  packed: Buffer | null;
  /** The answer was stored before the settlement, which does not carry it. */
  keptAhead: boolean;
  /** Resolves with the place of the record once it is durable. Rejects if the record will never be stored. */
  durable: Promise<Durable> | null;
}

export interface CallOrigin {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly trace: CallTrace;
  readonly startedMs: number;
  readonly terms: CallTerms;
}

const noteBytesMax = 200;

/** Returns the client's own id, which is only a note in the record: printable ASCII, cut to 200 characters. */
function clientRequestId(incoming: IncomingMessage): string | null {
  const given = incoming.headers['x-client-request-id'] ?? incoming.headers['x-request-id'];
  if (typeof given !== 'string' || !/^[\x20-\x7e]+$/.test(given)) return null;
  return given.slice(0, noteBytesMax);
}

/** @param startedMs time on the monotonic clock */
export function timingsFrom(startedMs: number): CallTimings {
  return {
    startedMs,
    bodyMs: 0,
    admittedMs: null,
    queuedMs: 0,
    coldMs: 0,
    engineMs: null,
    retries: 0,
    firstByteMs: null,
    waitedForOther: false,
  };
}

export function createCall(origin: CallOrigin): Call {
  const { requestId, endpoint, incoming, outgoing, trace, startedMs, terms } = origin;
  const answer = createAnswer(outgoing, endpoint.answers);
  answer.setHeader('x-request-id', requestId);
  const stop = new StopControl();
  answer.onGone(() => stop.clientLeft());
  return {
    requestId,
    endpoint,
    incoming,
    answer,
    clientRequestId: clientRequestId(incoming),
    trace,
    stop,
    found: { caller: null, model: null, fallbackFor: null, request: null, reuse: null, storing: null, grant: null },
    held: { body: null, answerPlace: null, lease: null, flexLease: null, tokenWatermarks: [], leave: null },
    timings: timingsFrom(startedMs),
    part: null,
    terms,
  };
}

/** True if the request has a record: it was admitted, or answered from the response cache. */
export function hasRecord({ grant, reuse }: CallFindings): boolean {
  return grant !== null || reuse?.cacheHit === true;
}
