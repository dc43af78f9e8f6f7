import type { IncomingMessage, ServerResponse } from 'node:http';
import type { InFlightEntry } from '#core/cache/cache.ts';
import type { Model, PriceVersion } from '#core/catalog/catalog.ts';
import type { Lease } from '#core/fleet/fleet.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import type { IdempotentTurn } from '#core/requests/requests.ts';
import type { FlexLease } from '#core/routing/routing.ts';
import type { BodyHold, InferenceCaller } from '#edge/http/http.ts';
import type { AnswerPlace } from './answer-room.ts';
import { createAnswer, type Answer } from './answer.ts';
import type { Endpoint } from './endpoints.ts';
import type { Stop } from './engine-relay.ts';
import type { RequestFields } from './fields.ts';
import { noTrace, type CallTrace } from './observer.ts';
import type { SpendingOptions } from './spending.ts';
import type { StreamHold } from './stream-hold.ts';
import type { Transcript } from './transcript.ts';

/** What admission granted. */
export interface Grant {
  readonly heldMicroUsd: bigint;
  /** The key's limits after this request was counted. */
  readonly view: LimitsView;
  /** Output tokens per choice that the wallet or the caller's cap pays for; null where its own limit stands. */
  readonly outputTokensMax: number | null;
  /** Null where the hold is the worst case: a JSON answer, a stream whose counts come too late. */
  readonly streamHold: StreamHold | null;
}

/** One inference request on its way; each step of the path fills in what it finds out. */
export interface Call {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly incoming: IncomingMessage;
  readonly answer: Answer;
  readonly clientRequestId: string | null;
  /** Monotonic milliseconds. */
  readonly startedMs: number;
  caller: InferenceCaller | null;
  spending: SpendingOptions;
  fields: RequestFields | null;
  /** The memory of its body; null for a small one. */
  bodyHold: BodyHold | null;
  /** Of a large JSON answer, until it is read. */
  answerPlace: AnswerPlace | null;
  model: Model | null;
  price: PriceVersion | null;
  grant: Grant | null;
  lease: Lease | null;
  /** Of a request of the tier `flex`, beside its lease. */
  flexLease: FlexLease | null;
  /** Null where no other request has to do with this one's answer. */
  reuse: CallReuse | null;
  /** It does not end when its client leaves: a repetition will ask for its answer. */
  runsOn: boolean;
  /** The answer came from the response cache. */
  cacheHit: boolean;
  trace: CallTrace;
  /** How long the body was waited for, in milliseconds. */
  bodyMs: number;
  /** The answer of another request was waited for. */
  waitedForOther: boolean;
  /** How long engines had the request, in milliseconds, all tries together; null when none had it. */
  engineMs: number | null;
  /** Replicas that it was sent to after the first. */
  retries: number;
  /** How long replicas were waited for, in milliseconds. */
  queuedMs: number;
  firstByteMs: number | null;
  /** Why it must end early, once something wants that; the step that is waiting listens on `onStop`. */
  stopped: Stop | null;
  onStop: ((stop: Stop) => void) | null;
  /** Takes the request out of the list of running ones. */
  leave: (() => void) | null;
}

export interface CallOrigin {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly startedMs: number;
}

const noteBytesMax = 200;

/** A client's own id is only a note on the record: printable ASCII, cut to 200 characters. */
function clientRequestId(incoming: IncomingMessage): string | null {
  const given = incoming.headers['x-client-request-id'] ?? incoming.headers['x-request-id'];
  if (typeof given !== 'string' || !/^[\x20-\x7e]+$/.test(given)) return null;
  return given.slice(0, noteBytesMax);
}

export function createCall({ requestId, endpoint, incoming, outgoing, startedMs }: CallOrigin): Call {
  const answer = createAnswer(outgoing, endpoint.answers);
  answer.setHeader('x-request-id', requestId);
  return {
    requestId,
    endpoint,
    incoming,
    answer,
    clientRequestId: clientRequestId(incoming),
    startedMs,
    caller: null,
    spending: { maxCostPicoUsd: null, dryRun: false },
    fields: null,
    bodyHold: null,
    answerPlace: null,
    model: null,
    price: null,
    grant: null,
    lease: null,
    flexLease: null,
    reuse: null,
    runsOn: false,
    cacheHit: false,
    trace: noTrace,
    bodyMs: 0,
    waitedForOther: false,
    engineMs: null,
    retries: 0,
    queuedMs: 0,
    firstByteMs: null,
    stopped: null,
    onStop: null,
    leave: null,
  };
}

/** Makes the request end early; a step that can be interrupted hears of it, the others look before they go on. */
export function stopCall(call: Call, stop: Stop): void {
  if (call.stopped !== null) return;
  call.stopped = stop;
  call.onStop?.(stop);
}

/** What a request that is reused keeps until its end. */
export interface CallReuse {
  readonly transcript: Transcript;
  /** To be ended with the answer, while others may be waiting for it. */
  cacheEntry: InFlightEntry | null;
  idempotentTurn: IdempotentTurn | null;
  /** The whole answer as it was sent, once it is complete; only for a request with an Idempotency-Key. */
  answer: string | null;
}
