import type { Endpoint } from '#base/net/net.ts';

/** A body of a request. A string has one byte per character (latin1); several buffers are sent one after another. */
export type EngineBody = string | Buffer | readonly Buffer[];

/** One HTTP/1.1 request to an engine. */
export interface EngineRequest {
  readonly method: 'GET' | 'POST';
  /** Begins with '/', and is appended to the endpoint's base path. */
  readonly path: string;
  /** Header lines, each ending in \r\n, without Host, Content-Length, Transfer-Encoding and Connection. */
  readonly headerLines: string;
  readonly body: EngineBody | null;
  /** Replaces the client's own limit, for probes and control calls. */
  readonly firstByteTimeoutMs?: number;
  /** Maximum bytes of the answer's body; a larger body ends with the fault too_large. Absent for no maximum. */
  readonly answerBytesMax?: number;
}

export interface AnswerHeaders {
  /** Returns the value of a header by its lower-case name; repeated headers are joined by ', '. */
  get(name: string): string | undefined;
}

/**
 * Kind of failure of a call; contains no address.
 * - refused: no connection was made (refused, unknown host, TLS not trusted, connect limit)
 * - reset: the connection was lost before any byte of an answer
 * - cut: the connection was lost in the middle of an answer
 * - garbage: the answer is not correctly framed HTTP/1.1
 * - first_byte_timeout: no byte of a body within the limit since the request was sent
 * - idle_timeout: no further byte within the limit
 * - too_large: the body grew beyond answerBytesMax
 * - sink_error: the receiver threw; the error itself goes to onSinkError
 */
export type EngineFaultKind =
  | 'refused'
  | 'reset'
  | 'cut'
  | 'garbage'
  | 'first_byte_timeout'
  | 'idle_timeout'
  | 'too_large'
  | 'sink_error';

export interface EngineFault {
  readonly kind: EngineFaultKind;
  /** True if onHead was called. */
  readonly headSeen: boolean;
  /** True if onData was called. */
  readonly bodySeen: boolean;
}

/**
 * Receives an answer. Never called from inside call(). Exactly one of onEnd and onFault is called, as the last
 * callback, unless the call is destroyed: then no callback follows.
 */
export interface AnswerSink {
  /** Status 200 to 599; answers of 1xx are skipped. */
  onHead(status: number, headers: AnswerHeaders): void;
  /** All body bytes of one read event, without chunk framing, one character per byte (latin1); never ''. */
  onData(text: string): void;
  /** The body is complete by its own framing. */
  onEnd(): void;
  onFault(fault: EngineFault): void;
  /**
   * Returns true if the received part of the body begins the answer; until then the limit for the first byte applies.
   * If absent, the first byte begins the answer.
   */
  hasBegun?(): boolean;
}

export interface EngineCall {
  /**
   * Stops reading; the data of the current read event is still delivered. Time limits do not apply to a paused call.
   */
  pause(): void;
  resume(): void;
  /** Closes the connection, which makes the engine abort. No callback follows. */
  destroy(): void;
}

export interface EngineClient {
  /** Starts a call; throws an Error if the path or header lines are malformed. */
  call(endpoint: Endpoint, request: EngineRequest, sink: AnswerSink): EngineCall;
  /**
   * Gives up an endpoint where nothing listens any more. Calls without a connection end with `refused` at once, instead
   * of waiting for the connect limit.
   */
  giveUp(endpoint: Endpoint): void;
  /** Closes all connections; running calls and all later calls end with a fault. */
  close(): void;
  /** Returns the number of connections, and how many of them are idle. */
  stats(): { open: number; idle: number };
}

export interface EngineClientOptions {
  /** Time limit for the first body byte, counted from the moment that the request was sent. */
  readonly firstByteTimeoutMs: number;
  /** Time limit between two reads of an answer. */
  readonly idleTimeoutMs: number;
  readonly connectTimeoutMs: number;
  /** A connection unused for this long is closed; vLLM closes its side after 5 s. */
  readonly idleSocketMs: number;
  /** Maximum bytes of all header blocks of one answer together, and of its trailers. */
  readonly maxHeaderBytes: number;
  /** Additional trusted certificate authorities in PEM, besides those of Node and of NODE_EXTRA_CA_CERTS. */
  readonly tlsCa?: string;
  /** Receives errors that a sink throws; without it, they become process warnings. */
  readonly onSinkError?: (error: unknown) => void;
}
