import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Grant } from '#core/admission/admission.ts';
import type { InFlightEntry } from '#core/cache/cache.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Lease } from '#core/fleet/fleet.ts';
import type { CountedMost } from '#core/gateways/gateways.ts';
import type { Durable } from '#core/metering/metering.ts';
import type { IdempotentTurn } from '#core/requests/requests.ts';
import type { FlexLease } from '#core/routing/routing.ts';
import type { BodyHold, InferenceCaller } from '#edge/http/http.ts';
import type { AnswerPlace } from './answer-room.ts';
import { createAnswer, type Answer } from './answer.ts';
import type { Endpoint } from './endpoints.ts';
import type { RequestFields } from './fields.ts';
import type { AnswerCollector } from './large-answer.ts';
import type { CallTrace } from './observer.ts';
import type { InputPart } from './split-input.ts';
import { StopControl } from './stop.ts';
import type { Transcript } from './transcript.ts';

/** One inference request on its way. */
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
  /** What it sends of a request's texts; null for all of them. */
  readonly part: CallPart | null;
  readonly terms: CallTerms;
}

/** What a request may have that the gateway itself makes, and none that came by a connection. */
export interface CallTerms {
  /** A complete answer alone is charged, and the one that is charged is given: nobody is handed a part of one. */
  readonly isWholeOrFree: boolean;
  /** The answer shows each limit that bounds it, not only those of which least is left: half of each is left to others. */
  readonly showsEachLimit: boolean;
  /** Bytes of its body that nobody has sent, and that count against no limit on what is. */
  readonly addedBytes: number;
}

export const commonTerms: CallTerms = { isWholeOrFree: false, showsEachLimit: false, addedBytes: 0 };

/** One of the calls that a request with many texts becomes. */
export interface CallPart {
  readonly input: InputPart;
  /** Takes in the answer to one try. */
  collect(): AnswerCollector;
}

/** A request that is understood, and may be served. */
export interface InferenceRequest {
  readonly caller: InferenceCaller;
  readonly fields: RequestFields;
  readonly model: Model;
  readonly price: PriceVersion;
  /** What its caller pays at most, in pico-dollars; null without a cap. */
  readonly capPicoUsd: bigint | null;
  /** The end user, where his spending is counted. */
  readonly endUser: string | null;
  /** Turns that its engine may take: kept, since the tools that say so are let go with the body. */
  readonly turns: number;
}

/**
 * What the steps have found out, each written once, but for what a fallback puts in the place of what was asked for. The
 * end of a request reads what is there, however early.
 */
export interface CallFindings {
  caller: InferenceCaller | null;
  model: Model | null;
  /** Id of the model that was asked for, where `model` answers in its place. */
  fallbackFor: string | null;
  /** Null also for one that only asks what would happen. */
  request: InferenceRequest | null;
  /** Null where no other request has to do with this one's answer. */
  reuse: CallReuse | null;
  grant: Grant | null;
}

/** What a request has of what others want as well, to be given back at its end. */
export interface CallHoldings {
  /** The memory of its body; null for a small one. */
  body: BodyHold | null;
  /** The place of a large JSON answer, until the client has read it. */
  answerPlace: AnswerPlace | null;
  /** The right to ask a replica; another one after a retry. */
  lease: Lease | null;
  /** What a request of the tier `flex` has beside its lease. */
  flexLease: FlexLease | null;
  /** What engines may count of it, by the ids of those that it was sent to; until its record is durable. */
  readonly underWay: [engineId: string, most: CountedMost][];
  /** Takes the request out of the list of running ones. */
  leave: (() => void) | null;
}

/** How long a request took for what, in milliseconds. */
export interface CallTimings {
  /** On the monotonic clock. */
  readonly startedMs: number;
  /** How long the body was waited for. */
  bodyMs: number;
  /** Until it was admitted, counted from the start; null where it was not, or needed not be. */
  admittedMs: number | null;
  /** How long replicas were waited for. */
  queuedMs: number;
  /** How long of that for engines to start. */
  coldMs: number;
  /** How long engines had the request, all tries together; null when none had it. */
  engineMs: number | null;
  /** Replicas that it was sent to after the first. */
  retries: number;
  /** The first byte of the engine's answer, counted from the start; null where none has come. */
  firstByteMs: number | null;
  /** The answer of another request was waited for; how long is not measured. */
  waitedForOther: boolean;
}

/** What a request that is reused keeps until its end. */
export interface CallReuse {
  readonly transcript: Transcript;
  /** Its entry in the response cache, which others may wait for: ended with the answer. */
  cacheEntry: InFlightEntry | null;
  /** The answer came from the response cache. */
  cacheHit: boolean;
  idempotentTurn: IdempotentTurn | null;
  /** The whole answer as it was sent, once it is complete; only for a request with an Idempotency-Key, and up to a bound. */
  answer: string | null;
  /** The same, compressed, as it is kept; of a batch also where it is too large to be given to others from memory. */
  packed: Buffer | null;
  /** It is kept before the settlement, which does not carry it. */
  keptAhead: boolean;
  /** Where its record is, once that is known. Rejects when the books will never have it. */
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

/** A client's own id is only a note on the record: printable ASCII, cut to 200 characters. */
function clientRequestId(incoming: IncomingMessage): string | null {
  const given = incoming.headers['x-client-request-id'] ?? incoming.headers['x-request-id'];
  if (typeof given !== 'string' || !/^[\x20-\x7e]+$/.test(given)) return null;
  return given.slice(0, noteBytesMax);
}

/** @param startedMs of the monotonic clock */
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
    found: { caller: null, model: null, fallbackFor: null, request: null, reuse: null, grant: null },
    held: { body: null, answerPlace: null, lease: null, flexLease: null, underWay: [], leave: null },
    timings: timingsFrom(startedMs),
    part: null,
    terms,
  };
}

/** Whether the books have a record of the request: it was admitted, or answered from the response cache. */
export function isBooked({ grant, reuse }: CallFindings): boolean {
  return grant !== null || reuse?.cacheHit === true;
}
