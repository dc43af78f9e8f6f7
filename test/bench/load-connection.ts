import { connect, type Socket } from 'node:net';
import { monotonicMs } from './clock.ts';

/** Receives the events of a stream. */
export interface StreamSink {
  /** Milliseconds that a content frame was on its way. */
  frame(delayMs: number): void;
}

export interface AnswerTimes {
  /** From the request to the first event of a stream. */
  readonly firstMs: number;
  /** From the finish event of a stream to the end of its answer. */
  readonly tailMs: number;
  readonly totalMs: number;
}

export interface Connection {
  /** Sends a request and checks its answer; throws an Error that says what was wrong with it. */
  ask(request: string, expected: Expected): Promise<AnswerTimes>;
  close(): void;
}

/** Events that a stream must have, `[DONE]` not counted; null for a JSON answer. */
export interface Expected {
  readonly events: number | null;
}

interface Waiting {
  readonly expected: Expected;
  readonly resolve: (times: AnswerTimes) => void;
  readonly reject: (error: Error) => void;
}

/** One keep-alive connection over a plain socket: a client that costs little, so that what is measured is the server. */
export function openConnection(port: number, sink: StreamSink): Promise<Connection> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.setEncoding('latin1');
  return new Promise((resolve, reject) => {
    socket.once('error', reject);
    socket.once('connect', () => {
      socket.off('error', reject);
      resolve(createConnection(socket, sink));
    });
  });
}

function createConnection(socket: Socket, sink: StreamSink): Connection {
  let waiting: Waiting | null = null;
  let reader = createReader(sink);
  let startedMs = 0;

  function fail(reason: string): void {
    const failed = waiting;
    waiting = null;
    socket.destroy();
    failed?.reject(new Error(reason));
  }

  socket.on('error', (error) => fail(error.message));
  socket.on('close', () => fail('the connection was closed'));
  socket.on('data', (text: string) => {
    const nowMs = monotonicMs();
    if (waiting === null) return fail('bytes came that nobody asked for');
    if (!reader.feed(text, nowMs)) return;
    const { expected, resolve } = waiting;
    const fault = reader.fault(expected);
    if (fault !== null) return fail(fault);
    waiting = null;
    resolve({ firstMs: reader.firstMs - startedMs, tailMs: nowMs - reader.finishMs, totalMs: nowMs - startedMs });
  });

  return {
    ask(request, expected) {
      return new Promise((resolve, reject) => {
        waiting = { expected, resolve, reject };
        reader = createReader(sink);
        startedMs = monotonicMs();
        socket.write(request, 'latin1');
      });
    },
    close: () => socket.destroy(),
  };
}

function createReader(sink: StreamSink) {
  let head = '';
  let body = '';
  let bodyBytes: number | null = null;
  let events = 0;
  let done = false;
  const reader = { firstMs: 0, finishMs: 0, feed, fault };

  function feedEvents(nowMs: number): boolean {
    let from = 0;
    for (let end = body.indexOf('\n\n'); end !== -1; end = body.indexOf('\n\n', from)) {
      const at = body.indexOf('data: ', from);
      if (at !== -1 && at < end) event(at + 6, end, nowMs);
      from = end + 2;
    }
    body = body.slice(from);
    // The last chunk of a chunked body.
    return body.endsWith('0\r\n\r\n');
  }

  function event(start: number, end: number, nowMs: number): void {
    if (body.startsWith('[DONE]', start)) {
      done = true;
      return;
    }
    events += 1;
    if (events === 1) reader.firstMs = nowMs;
    const stamp = body.indexOf('"content":"@', start);
    if (stamp !== -1 && stamp < end) sink.frame(nowMs - Number.parseFloat(body.slice(stamp + 12, stamp + 32)));
    const finish = body.indexOf('"finish_reason":"', start);
    if (finish !== -1 && finish < end) reader.finishMs = nowMs;
  }

  function feed(text: string, nowMs: number): boolean {
    body += text;
    if (head === '') {
      const end = body.indexOf('\r\n\r\n');
      if (end === -1) return false;
      head = body.slice(0, end + 2).toLowerCase();
      body = body.slice(end + 4);
      const length = /\r\ncontent-length: *(\d+)\r\n/.exec(head);
      bodyBytes = length === null ? null : Number(length[1]);
    }
    return bodyBytes === null ? feedEvents(nowMs) : body.length >= bodyBytes;
  }

  function fault(expected: Expected): string | null {
    if (!head.startsWith('http/1.1 200')) return `${head.slice(0, 12)} ${body.slice(0, 300)}`;
    if (expected.events === null) {
      const whole = body.length === bodyBytes && body.endsWith('}') && body.includes('"completion_tokens"');
      return whole ? null : 'a JSON answer is not whole';
    }
    if (!done) return 'a stream ended without [DONE]';
    return events === expected.events ? null : `a stream had ${events} events in place of ${expected.events}`;
  }

  return reader;
}
