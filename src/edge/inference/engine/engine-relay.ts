import type { AppError } from '#base/errors.ts';
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
} from '#core/engine-client/engine-client.ts';
import {
  type Answer,
  answerBytesMax,
  type AnswerCollector,
  type AnswerPlace,
  clientLeft,
  LargeAnswer,
  type LargeAnswerResult,
  type Outcome,
  outcomeOf,
  outOfFunds,
  SlowReader,
  type Stop,
  type WriteAnswer,
} from '#edge/inference/answer/answer.ts';
import type { EngineRefusalText } from '#edge/inference/engine-text.ts';
import type { Endpoint } from '#edge/inference/request/request.ts';
import { abortAtEngine, waitForCount } from './abort-at-engine.ts';
import { engineError, faultError, upstreamFailed } from './engine-error.ts';
import type { SentRequest } from './sent-request.ts';

export interface RelayParts {
  readonly client: EngineClient;
  readonly aborter: Aborter;
  /** Milliseconds for which a client may read nothing of a stream; after that, it counts as having left. */
  readonly answerStallTimeoutMs: number;
  /** Receives the engine's text about a request that it rejects; null if nobody wants the text. */
  readonly onEngineText: ((refusal: EngineRefusalText) => void) | null;
}

export interface RelayJob {
  readonly requestId: string;
  readonly endpoint: Endpoint;
  readonly prompts: number;
  readonly turns: number;
  /** Request as sent; empty once the client has got a part of a stream. */
  readonly sent: SentRequest;
  readonly replica: Replica;
  /** Emptied once the proxy has it, so that a long stream does not keep it in memory. */
  body: EngineBody;
  readonly headerLines: string;
  readonly answer: Answer;
  /** The request continues if its client leaves or reads nothing. */
  readonly outlivesClient: boolean;
  /** Null for a JSON answer. */
  readonly meter: StreamMeter | null;
  /** Creates the collector for a part of a JSON answer, whatever its size; null for a whole answer. */
  readonly collect: (() => AnswerCollector) | null;
  readonly hold: RequestHold;
  readonly countTerms: CountTerms;
  /** True if Headgate started the engine. */
  readonly isOurs: boolean;
  /** The catalog id, if the engine uses another name for the model; else null. */
  readonly rename: string | null;
  /** Called when the first byte of an answer's body is here. */
  readonly onFirstByte: () => void;
  /** Called when the client has got a part of a stream: no other replica is tried after that. */
  readonly onCommitted: () => void;
  /** Called with bytes of a JSON answer that are kept until the answer is complete, if they are many. */
  readonly onKept: (bytes: number) => void;
  /** Called when a JSON answer is so large that it needs room to grow further. */
  readonly enterRoom: (bytes: number, onTurn: () => void) => AnswerPlace;
}

export interface ProxiedCall {
  /** Ends the engine's request by its id and bills the tokens it counted. Calls after the first do nothing. */
  stop(stop: Stop): void;
  /** Handles a client that left: aborts the request, unless the client has everything it waited for. */
  clientGone(): void;
  /** Gives the request up for another replica, unless a part of the answer has arrived. */
  replicaWedged(): void;
}

const keptBytesMin = 65_536;
/**
 * A larger JSON answer is metered as it arrives; metering a smaller one at once takes milliseconds. No error is larger.
 */
const largeBytesMin = 1_048_576;
/** A larger JSON answer waits for room. Every running answer may keep this many bytes. */
const roomBytesMin = 8_388_608;

/**
 * Sends a request to a replica and its answer to the client, counting on the way.
 * @param onOutcome called once with how it ended
 */
export function startRelay(parts: RelayParts, job: RelayJob, onOutcome: (outcome: Outcome) => void): ProxiedCall {
  return new EngineRelay(parts, job, onOutcome);
}

type Finish = Pick<Outcome, 'kind' | 'error'> & Partial<Outcome>;

/** State of one request at one replica. Receives the engine's answer as the sink of the call. */
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
  /** Body of a JSON answer or of an error, as far as it has arrived. */
  #collected = '';
  /** Collects a JSON answer that has become large, in place of `#collected`. */
  #large: AnswerCollector | null = null;
  #place: AnswerPlace | null = null;
  /** Counts in a JSON answer. */
  #seen: Seen = nothingSeen;
  #firstByteSeen = false;
  /** True until the first byte of a body arrives. */
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
    // Only the count of a large answer is still needed, and it takes no room.
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
    // The client has the end of every choice: the answer is complete, and only the final count is pending.
    this.#call.resume();
    void waitForCount().then(() => {
      if (this.#concluded) return;
      this.#call.destroy();
      this.#finish({ kind: 'completed', error: null });
    });
  }

  replicaWedged(): void {
    if (this.#concluded || this.#stopped !== null || (!this.#isEmpty && this.hasBegun())) return;
    this.#call.destroy();
    this.#fail(upstreamFailed(502, 'engine_wedged'), { retry: true, unanswered: true });
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
    // A stream that ends without [DONE] was cut off.
    else this.#fail(upstreamFailed(), { unanswered: this.#isEmpty || !this.hasBegun() });
  }

  onFault(fault: EngineFault): void {
    if (this.#concluded) return;
    // The status shows whose fault it is, even if the error's text is cut off.
    if (this.#status !== 0 && this.#status !== 200) {
      this.#refused();
      return;
    }
    // Nothing of a part is sent before all parts are complete.
    const isLost = fault.bodySeen && this.hasBegun() && !(this.#job.collect !== null && fault.kind === 'cut');
    const retry = !isLost && fault.kind !== 'first_byte_timeout';
    this.#fail(faultError(fault.kind), { retry, unanswered: !isLost, unreachable: fault.kind === 'refused' });
  }

  #refused(): void {
    const answer = { status: this.#status, text: this.#collected, retryAfter: this.#retryAfter };
    const { requestId, replica } = this.#job;
    this.#onEngineText?.({ requestId, replicaId: replica.id, status: answer.status, text: answer.text });
    const { error, ...verdict } = engineError(answer, this.#job.sent, this.#job.isOurs);
    this.#fail(error, { ...verdict, unanswered: error.code === 'upstream_error' });
  }

  /** True once the answer has begun. An engine may open the stream of a request that still waits in its queue. */
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

  #complete(write: WriteAnswer, more: Partial<Outcome> = {}): void {
    this.#finish({ kind: 'completed', error: null, last: write(null), writeBill: write, ...more });
  }

  #fail(error: AppError, more: Partial<Outcome> = {}): void {
    const stopped = this.#stopped;
    const isOpen = stopped === null && !this.#job.answer.frameSent;
    const again = { retry: isOpen && more.retry === true, unanswered: isOpen && more.unanswered === true };
    const ending = stopped ?? { kind: 'failed', error };
    this.#finish({ ...more, kind: ending.kind, error: ending.error, ...again });
  }

  /** Ends the call and fails the request: the answer is unusable. */
  #giveUp(more: Partial<Outcome> = {}): void {
    this.#call.destroy();
    this.#fail(upstreamFailed(), more);
  }

  #noteFirstByte(): void {
    if (this.#firstByteSeen) return;
    this.#firstByteSeen = true;
    this.#job.onFirstByte();
  }

  /** Notes the first byte once a frame is out. Frames that are held back do not show how long the engine took. */
  #noteFirstFrame(out: string, { done, failure }: StreamMeter): void {
    if (out !== '' || done || failure !== null) this.#noteFirstByte();
  }

  #streamData(text: string, meter: StreamMeter): void {
    const { answer, hold, endpoint } = this.#job;
    const wasSent = answer.frameSent;
    const out = meter.feed(text);
    this.#noteFirstFrame(out, meter);
    // The hold follows every count, including the last: output that comes with the end, or after a stop, is paid for
    // too.
    const isPaid = hold.covers(meter);
    const stopped = this.#stopped;
    if (stopped === null && out !== '' && !answer.frames(out)) this.#waitForReader();
    if (!wasSent && answer.frameSent) this.#job.onCommitted();
    const isErrorFrame = meter.failure === 'error_frame';
    if (meter.failure !== null)
      this.#giveUp({ retry: isErrorFrame, unanswered: isErrorFrame, isDoubtful: isErrorFrame && answer.frameSent });
    else if (meter.done) {
      const write: WriteAnswer = (bill) => meter.lastFrames(bill) + endpoint.answers.streamEnd;
      if (stopped === null) this.#complete(write, { remark: meter.remark });
      else this.#finish({ kind: stopped.kind, error: stopped.error });
    } else if (!isPaid && stopped === null && !meter.finished) this.stop(outOfFunds(hold));
  }

  #waitForReader(): void {
    this.#call.pause();
    this.#reader.waits();
  }

  /** Pays beforehand for all output that the engine may generate while nothing is read, or stops the request. */
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
      // A paused call has no time limit.
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

  /**
   * Ends the request at the engine. First waits, for a limited time, for what the engine still reports of its count.
   */
  async #endAtEngine(): Promise<void> {
    const over = new Promise<void>((resolve) => {
      this.#onOver = resolve;
    });
    const isPatient = this.#stopped === clientLeft;
    // Nothing of this part can be saved any more: all of it was computed, and the answer's end has the count.
    const isMade = isPatient && this.#job.collect !== null && this.#firstByteSeen;
    await abortAtEngine(this.#aborter, this.#job, { over, isOver: () => this.#concluded, isPatient, isMade });
    if (this.#concluded) return;
    this.#call.destroy();
    this.#finish({ kind: this.#stopped?.kind ?? 'aborted', error: this.#stopped?.error ?? null });
  }
}
