import type { Endpoint } from '#base/endpoint.ts';

/** A string holds one byte per character (latin1); several buffers are sent one after the other. */
export type EngineBody = string | Buffer | readonly Buffer[];

/** One HTTP/1.1 request to an engine. */
export interface EngineRequest {
  readonly method: 'GET' | 'POST';
  /** Begins with '/'; the endpoint's base path is put before it. */
  readonly path: string;
  /** Header lines, each ending in \r\n, without Host, Content-Length, Transfer-Encoding and Connection. */
  readonly headerLines: string;
  readonly body: EngineBody | null;
  /** In place of the client's own limit, for probes and control calls. */
  readonly firstByteTimeoutMs?: number;
  /** An answer whose body grows beyond this ends with the fault too_large. Without it the body has no bound. */
  readonly answerBytesMax?: number;
}

export interface AnswerHeaders {
  /** The value of a header by its lower-case name; several of one name are joined by ', '. */
  get(name: string): string | undefined;
}

/**
 * What went wrong with a call, without any address in it.
 * - refused: no connection was made (refused, unknown host, TLS not trusted, connect limit)
 * - reset: the connection went before any byte of an answer
 * - cut: it went in the middle of an answer
 * - garbage: the answer is not HTTP/1.1 as it must be framed
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
  /** onHead was called. */
  readonly headSeen: boolean;
  /** onData was called. */
  readonly bodySeen: boolean;
}

/**
 * Receives an answer. Never called from inside call(). Exactly one of onEnd and onFault is called, as the last thing,
 * unless the call is destroyed: then nothing is called any more.
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
   * Whether what has come of the body begins the answer; until then the limit for the first byte holds. Absent: the
   * first byte does.
   */
  hasBegun?(): boolean;
}

export interface EngineCall {
  /** Stops reading: what the current read event brought is still delivered. A paused call runs into no time limit. */
  pause(): void;
  resume(): void;
  /** Closes the connection, which makes the engine abort. No callback follows. */
  destroy(): void;
}

export interface EngineClient {
  /** Starts a call; throws an Error when path or header lines are malformed. */
  call(endpoint: Endpoint, request: EngineRequest, sink: AnswerSink): EngineCall;
  /**
   * Nothing listens there any more: calls that have no connection yet end with `refused`, at once and not when a
   * connection to an address that is gone runs into its limit.
   */
  giveUp(endpoint: Endpoint): void;
  /** Closes all connections; running calls end with a fault, and so does every later one. */
  close(): void;
  /** Connections: all of them, and those of them that wait for a next call. */
  stats(): { open: number; idle: number };
}

export interface EngineClientOptions {
  /** Until the first body byte, counted from the moment that the request was sent. */
  readonly firstByteTimeoutMs: number;
  /** Between two reads of an answer. */
  readonly idleTimeoutMs: number;
  readonly connectTimeoutMs: number;
  /** A connection unused for this long is closed; vLLM closes its side after 5 s. */
  readonly idleSocketMs: number;
  /** Bound of all header blocks of one answer together, and of its trailers. */
  readonly maxHeaderBytes: number;
  /** Further trusted certificate authorities in PEM, beside those of Node and of NODE_EXTRA_CA_CERTS. */
  readonly tlsCa?: string;
  /** Hears what a sink threw; without it, the process' warning does. */
  readonly onSinkError?: (error: unknown) => void;
}
