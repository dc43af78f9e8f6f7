import type { Endpoint } from '#base/net/net.ts';
import type { SlotList, Slotted } from '#base/queues/queues.ts';
import { AnswerReader } from './answer-reader.ts';
import type { CoarseClock } from './coarse-clock.ts';
import type {
  AnswerSink,
  EngineBody,
  EngineCall,
  EngineClientOptions,
  EngineFaultKind,
  EngineRequest,
} from './engine-call.ts';
import type { EngineSocket, SocketUser } from './engine-socket.ts';
import type { Origin } from './origins.ts';
import type { SocketPool } from './socket-pool.ts';

/** State that all exchanges of one client share. */
export interface ClientContext {
  readonly options: EngineClientOptions;
  readonly clock: CoarseClock;
  readonly pool: SocketPool;
  /** Exchanges that are not over. */
  readonly running: SlotList<HttpExchange>;
  onSinkError(error: unknown): void;
}

type Phase = 'connecting' | 'sent' | 'over';

/** One request and its answer, over an idle connection or a new one. */
export class HttpExchange implements EngineCall, SocketUser, Slotted {
  slot = -1;
  readonly #context: ClientContext;
  readonly #origin: Origin;
  readonly #endpoint: Endpoint;
  readonly #sink: AnswerSink;
  readonly #reader: AnswerReader;
  readonly #firstByteTimeoutMs: number;
  readonly #answerBytesMax: number;
  /** Kept until the first byte of an answer: until then the request may have to be sent again. */
  #request: EngineRequest | null;
  #socket: EngineSocket | null = null;
  #phase: Phase = 'connecting';
  /** True if the connection has served another call before, so that the engine may have closed it meanwhile. */
  #mayBeStale = false;
  #headSeen = false;
  #bodySeen = false;
  #paused = false;
  #bodyBytes = 0;
  /** Time of the last event that the limits count from. */
  #sinceMs: number;

  constructor(context: ClientContext, endpoint: Endpoint, request: EngineRequest, sink: AnswerSink) {
    this.#context = context;
    this.#origin = context.pool.originOf(endpoint);
    this.#endpoint = endpoint;
    this.#request = request;
    this.#sink = sink;
    this.#reader = new AnswerReader(context.options.maxHeaderBytes);
    this.#firstByteTimeoutMs = request.firstByteTimeoutMs ?? context.options.firstByteTimeoutMs;
    this.#answerBytesMax = request.answerBytesMax ?? Number.POSITIVE_INFINITY;
    this.#sinceMs = context.clock.nowMs;
  }

  start(): void {
    const waiting = this.#context.pool.takeIdle(this.#origin, this);
    if (waiting === null) {
      this.#connect();
    } else {
      this.#socket = waiting;
      this.#mayBeStale = true;
      this.#send(waiting);
    }
    this.#context.running.add(this);
  }

  pause(): void {
    if (this.#phase === 'over' || this.#paused) return;
    this.#paused = true;
    this.#socket?.pause();
  }

  resume(): void {
    if (this.#phase === 'over' || !this.#paused) return;
    this.#paused = false;
    this.#sinceMs = this.#context.clock.nowMs;
    this.#socket?.resume();
  }

  destroy(): void {
    if (this.#phase === 'over') return;
    this.#leave()?.close();
  }

  /** Ends the exchange if one of its limits is exceeded. */
  checkLimits(): void {
    if (this.#paused) return;
    const { clock, options } = this.#context;
    // One step late, so that the coarse clock never shortens a limit.
    const waitedMs = clock.nowMs - this.#sinceMs - clock.stepMs;
    if (this.#phase === 'connecting') {
      if (waitedMs > options.connectTimeoutMs) this.fail('refused');
    } else if (this.#bodySeen && this.#sink.hasBegun?.() !== false) {
      if (waitedMs > options.idleTimeoutMs) this.fail('idle_timeout');
    } else if (waitedMs > this.#firstByteTimeoutMs) {
      this.fail('first_byte_timeout');
    }
  }

  /** Ends the exchange if it still waits for a connection of that origin. */
  giveUp(origin: Origin): void {
    if (this.#origin === origin && this.#phase === 'connecting') this.fail('refused');
  }

  /** Ends the exchange because the client itself closes. */
  abandon(): void {
    if (this.#phase === 'connecting') this.fail('refused');
    else this.fail(this.#headSeen ? 'cut' : 'reset');
  }

  fail(kind: EngineFaultKind): void {
    if (this.#phase === 'over') return;
    this.#leave()?.close();
    try {
      this.#sink.onFault({ kind, headSeen: this.#headSeen, bodySeen: this.#bodySeen });
    } catch (error) {
      this.#context.onSinkError(error);
    }
  }

  onOpen(): void {
    if (this.#socket !== null) this.#send(this.#socket);
  }

  onBytes(bytes: Buffer, length: number): void {
    this.#request = null;
    const reader = this.#reader;
    const text = reader.feed(bytes, length);
    try {
      if (!this.#headSeen && reader.head !== null) {
        this.#headSeen = true;
        this.#sink.onHead(reader.head.status, reader.head.headers);
        if (this.#over) return;
      }
      if (text !== '') {
        this.#sinceMs = this.#context.clock.nowMs;
        this.#bodyBytes += text.length;
        if (this.#bodyBytes > this.#answerBytesMax) {
          this.fail('too_large');
          return;
        }
        this.#bodySeen = true;
        this.#sink.onData(text);
        if (this.#over) return;
      }
    } catch (error) {
      this.#context.onSinkError(error);
      this.fail('sink_error');
      return;
    }
    if (reader.done) this.#finish();
    else if (reader.garbage) this.fail('garbage');
  }

  onLost(clean: boolean): void {
    this.#socket = null;
    if (this.#phase === 'connecting') {
      this.fail('refused');
    } else if (this.#request !== null) {
      if (this.#mayBeStale) this.#connect();
      else this.fail('reset');
    } else if (clean && this.#reader.endsWithConnection) {
      this.#finish();
    } else {
      this.fail('cut');
    }
  }

  /** Reads the field again: a callback may have ended the exchange without the compiler's knowledge. */
  get #over(): boolean {
    return this.#phase === 'over';
  }

  #connect(): void {
    this.#mayBeStale = false;
    this.#phase = 'connecting';
    this.#sinceMs = this.#context.clock.nowMs;
    this.#socket = this.#context.pool.open(this.#origin, this.#endpoint, this);
    // The pause applied to the previous connection.
    if (this.#paused) this.#socket.pause();
  }

  #send(socket: EngineSocket): void {
    const request = this.#request;
    if (request === null) return;
    this.#phase = 'sent';
    this.#sinceMs = this.#context.clock.nowMs;
    const { body } = request;
    const start = `${request.method} ${this.#endpoint.basePath}${request.path} HTTP/1.1\r\n`;
    const length = body === null ? '' : `Content-Length: ${lengthOf(body)}\r\n`;
    socket.write(`${start}${this.#origin.hostLine}${request.headerLines}${length}\r\n`, body);
  }

  #finish(): void {
    const socket = this.#leave();
    if (socket !== null) {
      const { head, surplus } = this.#reader;
      if (this.#paused) socket.resume();
      // The connection is kept before the sink's onEnd, so that a call from onEnd finds it.
      if (head !== null && head.keepAlive && !surplus) this.#context.pool.keep(this.#origin, socket);
      else socket.close();
    }
    try {
      this.#sink.onEnd();
    } catch (error) {
      this.#context.onSinkError(error);
    }
  }

  /** Ends the exchange and returns its connection, which then has no user. */
  #leave(): EngineSocket | null {
    const socket = this.#socket;
    this.#phase = 'over';
    this.#request = null;
    this.#socket = null;
    this.#context.running.remove(this);
    if (socket !== null) socket.user = null;
    return socket;
  }
}

function lengthOf(body: EngineBody): number {
  if (typeof body === 'string' || Buffer.isBuffer(body)) return body.length;
  return body.reduce((sum, { length }) => sum + length, 0);
}
