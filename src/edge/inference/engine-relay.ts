import { AppError } from '#base/errors.ts';
import type { RequestHold } from '#core/admission/admission.ts';
import type { Replica } from '#core/fleet/fleet.ts';
import { type CountTerms, nothingSeen, type Seen, type StreamMeter, usageOf } from '#core/metering/metering.ts';
import type {
  Aborter,
  AnswerHeaders,
  AnswerSink,
  EngineBody,
  EngineCall,
  EngineClient,
  EngineFault,
} from '#core/proxy/proxy.ts';
import { abortAtEngine, waitForCount } from './abort-at-engine.ts';
import type { AnswerPlace } from './answer-room.ts';
import type { Answer } from './answer.ts';
import type { Endpoint } from './endpoints.ts';
import { engineError } from './engine-error.ts';
import type { EngineRefusalText } from './engine-text.ts';
import type { SentRequest } from './sent-request.ts';
import {
  answerBytesMax,
  type AnswerCollector,
  type AnswerText,
  LargeAnswer,
  type LargeAnswerResult,
} from './large-answer.ts';
import { type Outcome, outcomeOf } from './outcome.ts';
import { SlowReader } from './slow-reader.ts';
import { clientLeft, outOfFunds, type Stop } from './stop.ts';

export interface RelayParts {
  readonly client: EngineClient;
  readonly aborter: Aborter;
  /** A client that takes nothing of a stream for so long has left without saying so, in milliseconds. */
  readonly answerStallTimeoutMs: number;
  /** Takes what an engine says of a request that it refuses; null where nobody wants that. */
  readonly onEngineText: ((refusal: EngineRefusalText) => void) | null;
}

export interface RelayJob {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly prompts: number;
  readonly turns: number;
  /** Empty once the client was sent a part of a stream. */
  readonly sent: SentRequest;
  readonly replica: Replica;
  /** Emptied once it is handed to the proxy, so that a long stream does not keep it. */
  body: EngineBody;
  readonly headerLines: string;
  readonly answer: Answer;
  /** A client that leaves, or takes nothing, does not end the request. */
  readonly outlivesClient: boolean;
  /** Null for a JSON answer. */
  readonly meter: StreamMeter | null;
  /** What takes in a part of a JSON answer, whatever its size; null for a whole answer. */
  readonly collect: (() => AnswerCollector) | null;
  readonly hold: RequestHold;
  readonly countTerms: CountTerms;
  /** The client asked for `usage.cost`. */
  readonly wantsCost: boolean;
  /** Headgate started the engine. */
  readonly isOurs: boolean;
  /** The catalog id where the engine calls the model otherwise. */
  readonly rename: string | null;
  /** Called when the first byte of an answer's body is here. */
  readonly onFirstByte: () => void;
  /** Called when the client was sent a part of a stream: no other replica will be asked. */
  readonly onCommitted: () => void;
  /** Called with the bytes of a JSON answer that are kept until it is whole, where they are many. */
  readonly onKept: (bytes: number) => void;
  /** Called when a JSON answer has grown to so many bytes that there must be room for more. */
  readonly enterRoom: (bytes: number, onTurn: () => void) => AnswerPlace;
}

export interface ProxiedCall {
  /** Ends the engine's request by its id and bills what it counted; the first call counts. */
  stop(stop: Stop): void;
  /** The client left: that is an abort, unless it has all it waited for. */
  clientGone(): void;
}

const keptBytesMin = 65_536;
/** A larger JSON answer is metered while it comes, a smaller one in one piece, in milliseconds. No error is larger. */
const largeBytesMin = 1_048_576;
/** A larger JSON answer waits for room; so much may be kept of every one that runs. */
const roomBytesMin = 8_388_608;

const upstreamFailed = (status = 502, reason = 'engine_answer'): AppError =>
  new AppError('upstream_error', { status, reason });

function faultError(fault: EngineFault): AppError {
  const isLate = fault.kind === 'first_byte_timeout' || fault.kind === 'idle_timeout';
  return upstreamFailed(isLate ? 504 : 502, `engine_${fault.kind}`);
}

/**
 * Sends a request to a replica and its answer to the client, counting on the way.
 * @param onOutcome called once with how it ended
 */
export function startRelay(parts: RelayParts, job: RelayJob, onOutcome: (outcome: Outcome) => void): ProxiedCall {
  return new EngineRelay(parts, job, onOutcome);
}

type Finish = Pick<Outcome, 'kind' | 'error'> & Partial<Outcome>;

/** The state of one request at one replica; it receives the answer as the sink of the call. */
class EngineRelay implements ProxiedCall, AnswerSink {
  readonly #aborter: Aborter;
  readonly #job: RelayJob;
  readonly #onEngineText: RelayParts['onEngineText'];
  readonly #call: EngineCall;
  /** Null once the request is over. */
  #conclude: ((outcome: Outcome) => void) | null;
  /** Resolves the wait for the end of an aborted request. */
  #onOver: (() => void) | null = null;
  #stopped: Stop | null = null;
  #status = 0;
  #retryAfter: string | undefined;
  /** The body of a JSON answer or of an error, so far. */
  #collected = '';
  /** Has a JSON answer that has become large, in the place of `#collected`. */
  #large: AnswerCollector | null = null;
  #place: AnswerPlace | null = null;
  /** Of a JSON answer. */
  #seen: Seen = nothingSeen;
  #firstByteSeen = false;
  /** Nothing has come of a body. */
  #isEmpty = true;
  readonly #reader: SlowReader;

  constructor(parts: RelayParts, job: RelayJob, onOutcome: (outcome: Outcome) => void) {
    const { client, aborter, answerStallTimeoutMs } = parts;
    this.#onEngineText = parts.onEngineText;
    this.#aborter = aborter;
    this.#job = job;
    this.#reader = new SlowReader({
      stallMs: answerStallTimeoutMs,
      onStalled: () => this.#readerStalled(),
      onUnread: () => void this.#coverUnread(),
    });
    this.#conclude = onOutcome;
    job.answer.onDrain(() => this.#readerCaughtUp());
    const { replica, endpoint, headerLines, body } = job;
    const path = endpoint.enginePath ?? endpoint.path;
    job.body = '';
    this.#call = client.call(replica.endpoint, { method: 'POST', path, headerLines, body }, this);
  }

  stop(reason: Stop): void {
    if (this.#concluded || this.#stopped !== null) return;
    this.#stopped = reason;
    this.#job.meter?.expectAbort();
    // Of a large answer only the count is still wanted, which needs no room.
    this.#large?.drop();
    this.#place?.end();
    this.#call.resume();
    void this.#endAtEngine();
  }

  clientGone(): void {
    if (this.#job.meter?.finished !== true || this.#stopped !== null) {
      this.stop(clientLeft);
      return;
    }
    // The client had the end of every choice: the answer is complete, and only the final count is to come.
    this.#call.resume();
    void waitForCount().then(() => {
      if (this.#concluded) return;
      this.#call.destroy();
      this.#finish({ kind: 'completed', error: null });
    });
  }

  onHead(status: number, headers: AnswerHeaders): void {
    if (this.#concluded) return;
    this.#status = status;
    if (status !== 200) {
      this.#retryAfter = headers.get('retry-after');
      return;
    }
    const isStream = headers.get('content-type')?.toLowerCase().startsWith('text/event-stream') ?? false;
    if (isStream !== (this.#job.meter !== null)) this.#giveUp({ unanswered: true });
    else this.#large = this.#job.collect?.() ?? null;
  }

  onData(text: string): void {
    if (this.#concluded) return;
    this.#isEmpty = false;
    const { meter } = this.#job;
    if (this.#status === 200 && meter !== null) {
      this.#streamData(text, meter);
      return;
    }
    this.#noteFirstByte();
    if (this.#large !== null) {
      this.#largeData(text, this.#large);
      return;
    }
    this.#collected += text;
    if (this.#collected.length > keptBytesMin) this.#job.onKept(text.length);
    if (this.#collected.length <= largeBytesMin) return;
    if (this.#status === 200) this.#becomeLarge();
    else {
      this.#call.destroy();
      this.#collected = '';
      this.#refused();
    }
  }

  onEnd(): void {
    if (this.#concluded) return;
    if (this.#status !== 200) this.#refused();
    else if (this.#job.meter === null) this.#jsonEnd();
    else if (this.#job.meter.lacksEmptyLine) this.#streamData('\n\n', this.#job.meter);
    // A stream that ends without [DONE] was cut.
    else this.#fail(upstreamFailed(), { unanswered: this.#isEmpty || !this.hasBegun() });
  }

  onFault(fault: EngineFault): void {
    if (this.#concluded) return;
    // The status says whose fault it is, however much has come of the words.
    if (this.#status !== 0 && this.#status !== 200) {
      this.#refused();
      return;
    }
    // Of a part nothing leaves before all parts are here.
    const isLost = fault.bodySeen && this.hasBegun() && !(this.#job.collect !== null && fault.kind === 'cut');
    const retry = !isLost && fault.kind !== 'first_byte_timeout';
    this.#fail(faultError(fault), { retry, unanswered: !isLost, unreachable: fault.kind === 'refused' });
  }

  #refused(): void {
    const answer = { status: this.#status, text: this.#collected, retryAfter: this.#retryAfter };
    const { requestId, replica } = this.#job;
    this.#onEngineText?.({ requestId, replicaId: replica.id, status: answer.status, text: answer.text });
    const { error, ...verdict } = engineError(answer, this.#job.sent, this.#job.isOurs);
    this.#fail(error, { ...verdict, unanswered: error.code === 'upstream_error' });
  }

  /** An engine may say at once that it has taken a request, which then waits for its turn. */
  hasBegun(): boolean {
    return this.#job.meter?.isOpening !== true;
  }

  get #concluded(): boolean {
    return this.#conclude === null;
  }

  #finish(result: Finish): void {
    const conclude = this.#conclude;
    if (conclude === null) return;
    this.#conclude = null;
    this.#reader.caughtUp();
    if (result.kind === 'completed') this.#place?.collected();
    else this.#place?.end();
    const seen = this.#job.meter?.seen() ?? this.#seen;
    conclude(outcomeOf({ ...usageOf(seen, this.#job.countTerms, result.kind === 'completed'), ...result }));
    this.#onOver?.();
  }

  #complete(write: (costText: string | null) => AnswerText, more: Partial<Outcome> = {}): void {
    const writeCost = this.#job.wantsCost ? write : null;
    this.#finish({ kind: 'completed', error: null, last: write(null), writeCost, ...more });
  }

  #fail(error: AppError, more: Partial<Outcome> = {}): void {
    const stopped = this.#stopped;
    const isOpen = stopped === null && !this.#job.answer.frameSent;
    const again = { retry: isOpen && more.retry === true, unanswered: isOpen && more.unanswered === true };
    const ending = stopped ?? { kind: 'failed', error };
    this.#finish({ ...more, kind: ending.kind, error: ending.error, ...again });
  }

  /** The answer is no good: nothing more of it is wanted. */
  #giveUp(more: Partial<Outcome> = {}): void {
    this.#call.destroy();
    this.#fail(upstreamFailed(), more);
  }

  #noteFirstByte(): void {
    if (this.#firstByteSeen) return;
    this.#firstByteSeen = true;
    this.#job.onFirstByte();
  }

  /** Frames that are held back say nothing yet of how long the engine took. */
  #noteFirstFrame(out: string, { done, failure }: StreamMeter): void {
    if (out !== '' || done || failure !== null) this.#noteFirstByte();
  }

  #streamData(text: string, meter: StreamMeter): void {
    const { answer, hold, endpoint } = this.#job;
    const wasSent = answer.frameSent;
    const out = meter.feed(text);
    this.#noteFirstFrame(out, meter);
    // The hold follows every count, the last one included: what comes with the end, or after a stop, is paid as well.
    const isPaid = hold.covers(meter);
    const stopped = this.#stopped;
    if (stopped === null && out !== '' && !answer.frames(out)) this.#waitForReader();
    if (!wasSent && answer.frameSent) this.#job.onCommitted();
    const isTold = meter.failure === 'error_frame';
    if (meter.failure !== null)
      this.#giveUp({ retry: isTold, unanswered: isTold, isDoubtful: isTold && answer.frameSent });
    else if (meter.done) {
      const write = (costText: string | null): string => meter.lastFrames(costText) + endpoint.answers.streamEnd;
      if (stopped === null) this.#complete(write, { remark: meter.remark });
      else this.#finish({ kind: stopped.kind, error: stopped.error });
    } else if (!isPaid && stopped === null && !meter.finished) this.stop(outOfFunds(hold));
  }

  #waitForReader(): void {
    this.#call.pause();
    this.#reader.waits();
  }

  /** What the engine makes while nothing of it is read is paid for beforehand, or is not made. */
  async #coverUnread(): Promise<void> {
    const { hold, meter } = this.#job;
    if ((await hold.coverTurn(meter?.likelyTokens ?? 0)) || meter?.finished === true) return;
    this.stop(outOfFunds(hold));
  }

  #readerStalled(): void {
    if (!this.#job.outlivesClient) this.stop(clientLeft);
    else this.#job.answer.cut();
  }

  #readerCaughtUp(): void {
    this.#reader.caughtUp();
    if (!this.#concluded && this.#place?.waits !== true) this.#call.resume();
  }

  #becomeLarge(): void {
    const { rename, endpoint } = this.#job;
    const large = new LargeAnswer(endpoint.answers.meterPieces({ rename }));
    if (this.#stopped !== null) large.drop();
    large.add(this.#collected);
    this.#collected = '';
    this.#large = large;
  }

  #largeData(text: string, large: AnswerCollector): void {
    large.add(text);
    if (large.bytes > answerBytesMax) {
      this.#giveUp();
      return;
    }
    if (this.#stopped !== null) return;
    this.#job.onKept(text.length);
    if (this.#place !== null) {
      this.#place.add(text.length);
    } else if (large.bytes > roomBytesMin) {
      this.#place = this.#job.enterRoom(large.bytes, () => this.#call.resume());
      // A call that is paused runs into no time limit.
      if (this.#place.waits) this.#call.pause();
    }
  }

  #meterJson(): LargeAnswerResult {
    if (this.#large !== null) return this.#large.end();
    const { rename, endpoint } = this.#job;
    return endpoint.answers.meterJson(this.#collected, { rename });
  }

  #jsonEnd(): void {
    const metered = this.#meterJson();
    if (!metered.ok) {
      this.#fail(upstreamFailed(), { unanswered: this.#isEmpty });
      return;
    }
    this.#seen = metered.seen;
    if (this.#stopped !== null || metered.aborted) this.#fail(upstreamFailed());
    else this.#complete(metered.write);
  }

  /** Whatever the engine has still to say of its count comes first, as long as that is waited for. */
  async #endAtEngine(): Promise<void> {
    const over = new Promise<void>((resolve) => {
      this.#onOver = resolve;
    });
    const isPatient = this.#stopped === clientLeft;
    // An answer of which nothing can be ended any more: all of it was computed, and its end says how much that was.
    const isMade = isPatient && this.#job.collect !== null && this.#firstByteSeen;
    await abortAtEngine(this.#aborter, this.#job, { over, isOver: () => this.#concluded, isPatient, isMade });
    if (this.#concluded) return;
    this.#call.destroy();
    this.#finish({ kind: this.#stopped?.kind ?? 'aborted', error: this.#stopped?.error ?? null });
  }
}
