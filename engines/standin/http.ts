import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { randomBytes } from 'node:crypto';

/** One request and the ways to answer it. */
export interface Exchange {
  req: IncomingMessage;
  /** The path without query and root path. */
  path: string;
  query: string;
  /** The `X-Request-Id` sent along, or null. */
  requestId: string | null;
  /** Runs once when the client has gone before its answer was complete. */
  onGone: (listener: () => void) => void;
  json: (status: number, body: string) => void;
  send: (status: number, contentType: string | null, body: string | Buffer, extra?: readonly string[]) => void;
  /** Sends the headers of an event stream. */
  openStream: () => void;
  /** Sends one frame, terminator included. */
  frame: (text: string) => void;
  endStream: () => void;
  /** Keeps frames from now on, to be written in one piece with the stream's end. */
  holdFrames: () => void;
  /** Sends a comment before each frame from now on. */
  sendComments: () => void;
  /** True while the client reads more slowly than frames come. */
  congested: () => boolean;
  /** Drops the connection, optionally after some raw bytes. */
  destroy: (lastBytes?: string) => void;
  /** Resets the connection; one of a unix socket, which knows no reset, is dropped. */
  reset: () => void;
}

let dateText = '';
let dateSecond = 0;

function httpDate(): string {
  const second = Math.floor(Date.now() / 1000);
  if (second !== dateSecond) {
    dateSecond = second;
    dateText = new Date(second * 1000).toUTCString();
  }
  return dateText;
}

const POOL_BYTES = 4096;
let pool = Buffer.alloc(0);
let pooledAt = 0;

/** Random hex digits, sixteen of them unless told otherwise, as vLLM's ids are. */
export function randomHex(bytes = 8): string {
  if (pooledAt + bytes > pool.length) {
    pool = randomBytes(POOL_BYTES);
    pooledAt = 0;
  }
  pooledAt += bytes;
  return pool.toString('hex', pooledAt - bytes, pooledAt);
}

interface HttpOptions {
  requestIdHeaders: boolean;
  keepAliveTimeoutMs: number;
  rootPath: string;
}

/** Options that change one answer's headers. */
interface Answer {
  vary: boolean;
}

/** Parts of the head of an answer. */
interface Head {
  res: ServerResponse;
  options: HttpOptions;
  answer: Answer;
  requestId: string | null;
}

/** uvicorn's headers in uvicorn's order; a null length is a chunked body. */
function headersOf(head: Head, length: number | null, contentType: string | null, extra: readonly string[]): string[] {
  const { res, options, answer, requestId } = head;
  const list = ['date', httpDate(), 'server', 'uvicorn', ...extra];
  if (length !== null) list.push('content-length', String(length));
  if (contentType !== null) list.push('content-type', contentType);
  if (answer.vary) list.push('vary', 'Origin');
  if (options.requestIdHeaders) list.push('x-request-id', requestId ?? randomHex(16));
  // uvicorn says nothing of a connection that stays open; Node would, unless the header was once removed.
  if (res.shouldKeepAlive) res.removeHeader('connection');
  else list.push('connection', 'close');
  if (length === null) list.push('transfer-encoding', 'chunked');
  return list;
}

function writeChunk(res: ServerResponse, text: string): void {
  if (res.destroyed || res.writableEnded) return;
  const { socket } = res;
  if (socket === null) {
    res.write(text);
    return;
  }
  const bytes = Buffer.byteLength(text);
  // Written past the response object, whose own chunking costs three writes a frame.
  socket.write(`${bytes.toString(16)}\r\n${text}\r\n`, bytes === text.length ? 'latin1' : 'utf8');
}

function pathOf(url: string, rootPath: string): { path: string; query: string } {
  const mark = url.indexOf('?');
  const path = mark < 0 ? url : url.slice(0, mark);
  const query = mark < 0 ? '' : url.slice(mark + 1);
  const rooted = rootPath !== '' && path.startsWith(`${rootPath}/`);
  return { path: rooted ? path.slice(rootPath.length) : path, query };
}

function createExchange(
  req: IncomingMessage,
  res: ServerResponse,
  options: HttpOptions,
): Exchange & { answer: Answer } {
  const header = req.headers['x-request-id'];
  const requestId = typeof header === 'string' && header !== '' ? header : null;
  const head: Head = { res, options, answer: { vary: true }, requestId };
  let held: string[] | null = null;
  let before = '';
  const send: Exchange['send'] = (status, contentType, body, extra = []) => {
    if (res.headersSent || res.destroyed) return;
    // vLLM streams its binary answers.
    const length = typeof body === 'string' ? Buffer.byteLength(body) : null;
    res.writeHead(status, headersOf(head, length, contentType, extra));
    if (typeof body === 'string') res.end(body, length === body.length ? 'latin1' : 'utf8');
    else res.end(body);
  };
  return {
    req,
    ...pathOf(req.url ?? '/', options.rootPath),
    requestId,
    answer: head.answer,
    onGone(listener) {
      res.once('close', () => {
        if (!res.writableFinished) listener();
      });
    },
    json: (status, body) => send(status, 'application/json', body),
    send,
    openStream() {
      if (res.headersSent || res.destroyed) return;
      res.writeHead(200, headersOf(head, null, 'text/event-stream; charset=utf-8', []));
      res.flushHeaders();
    },
    frame(text) {
      if (held !== null) held.push(before, text);
      else {
        if (before !== '') writeChunk(res, before);
        writeChunk(res, text);
      }
    },
    sendComments() {
      before = ': keep-alive\n\n';
    },
    holdFrames() {
      held ??= [];
    },
    endStream() {
      if (held !== null) writeChunk(res, held.join(''));
      if (!res.destroyed) res.end();
    },
    congested: () => res.socket?.writableNeedDrain === true,
    reset() {
      const { socket } = req;
      if (socket.remoteAddress === undefined) socket.destroy();
      else socket.resetAndDestroy();
    },
    destroy(lastBytes) {
      const { socket } = req;
      if (lastBytes === undefined) socket.destroy();
      else socket.write(lastBytes, 'utf8', () => socket.destroy());
    },
  };
}

/** Reads a whole body as text. vLLM has no limit of its own; this one only keeps the stand-in alive. */
export function readBody(req: IncomingMessage, done: (body: string) => void): void {
  const chunks: Buffer[] = [];
  req.on('data', (chunk: Buffer) => chunks.push(chunk));
  req.on('end', () => {
    const [first] = chunks;
    const text = chunks.length === 1 && first !== undefined ? first.toString() : Buffer.concat(chunks).toString();
    // Each chunk is a slice of a whole read buffer, which would live as long as the request.
    chunks.length = 0;
    done(text);
  });
}

/** Starts nothing yet: the server answers once `listen` is called on it. */
export function createHttpServer(
  options: HttpOptions,
  handle: (exchange: Exchange & { answer: Answer }) => void,
): Server {
  const limits = { keepAliveTimeout: options.keepAliveTimeoutMs, keepAliveTimeoutBuffer: 0, requestTimeout: 0 };
  const server = createServer(limits, (req, res) => {
    res.sendDate = false;
    handle(createExchange(req, res, options));
  });
  server.maxHeadersCount = 256;
  return server;
}
