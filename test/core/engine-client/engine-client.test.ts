import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import type { Endpoint } from '#base/net/endpoint.ts';
import type { ByteServer, SeenRequest } from '#test/proxy/byte-server.ts';
import { clientWith, createGround, post, start, until } from './recorded-call.ts';

const hello = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello';
const chunkedHead = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

const ground = createGround();
const client = ground.client;
afterEach(() => ground.clear());

function serve(answer: (request: SeenRequest) => void, transport: 'tcp' | 'unix' = 'tcp'): Promise<ByteServer> {
  return ground.serve({ transport, answer });
}

const answerHello = ({ socket }: SeenRequest): void => void socket.write(hello);

describe('the fault of an incomplete engine call', () => {
  const nothingSeen = { headSeen: false, bodySeen: false };

  it('has the kind refused when no server listens', async () => {
    const server = await serve(answerHello);
    await server.close();
    const { callbacks, fault } = await start(client(), server.endpoint).over;
    expect({ callbacks, fault }).toEqual({ callbacks: ['fault'], fault: { kind: 'refused', ...nothingSeen } });
  });

  it('has the kind refused when the socket file is missing or its path is too long', async () => {
    for (const socketPath of ['/nowhere/engine.sock', `/${'x'.repeat(300)}`]) {
      const endpoint: Endpoint = { socketPath, host: '', port: 0, tls: false, basePath: '' };
      expect((await start(client(), endpoint).over).fault).toEqual({ kind: 'refused', ...nothingSeen });
    }
  });

  it('has the kind refused for an unknown host name', async () => {
    const endpoint: Endpoint = { socketPath: null, host: 'engine.invalid', port: 1, tls: false, basePath: '' };
    expect((await start(client(), endpoint).over).fault).toEqual({ kind: 'refused', ...nothingSeen });
  });

  it.each(['tcp', 'unix'] as const)(
    'is reset without a retry when a fresh %s connection ends before an answer',
    async (transport) => {
      const server = await serve(({ socket }) => socket.destroy(), transport);
      expect((await start(client(), server.endpoint).over).fault).toEqual({ kind: 'reset', ...nothingSeen });
      expect(server.requests).toHaveLength(1);
    },
  );

  it('is cut when the connection ends within the head', async () => {
    const server = await serve(({ socket }) => socket.end('HTTP/1.1 200 OK\r\nX-A'));
    expect((await start(client(), server.endpoint).over).fault).toEqual({ kind: 'cut', ...nothingSeen });
  });

  it('is cut when the connection ends after the head', async () => {
    const server = await serve(({ socket }) => socket.end('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'));
    const { callbacks, fault } = await start(client(), server.endpoint).over;
    expect({ callbacks, fault }).toEqual({
      callbacks: ['head', 'fault'],
      fault: { kind: 'cut', headSeen: true, bodySeen: false },
    });
  });

  it.each([
    ['by length', 'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello'],
    ['in chunks, in a chunk', `${chunkedHead}6\r\nhello`],
    ['in chunks, between two', `${chunkedHead}5\r\nhello\r\n`],
    ['in chunks, before the last line end', `${chunkedHead}5\r\nhello\r\n0\r\n`],
  ])('is cut when the connection ends within a body %s', async (_name, bytes) => {
    const server = await serve(({ socket }) => socket.end(bytes));
    const { callbacks, fault, body } = await start(client(), server.endpoint).over;
    expect({ callbacks, fault, body }).toEqual({
      callbacks: ['head', 'data', 'fault'],
      fault: { kind: 'cut', headSeen: true, bodySeen: true },
      body: 'hello',
    });
  });

  it('is cut when a reset ends a body without a length', async () => {
    const server = await serve(({ socket }) => socket.write('HTTP/1.1 200 OK\r\n\r\nhello'));
    const { over } = start(client(), server.endpoint, {}, { onData: () => server.sockets[0]?.resetAndDestroy() });
    expect((await over).fault?.kind).toBe('cut');
  });

  it('is garbage after an invalid chunk size, with the valid data delivered and the connection closed', async () => {
    const server = await serve(({ socket }) => socket.write(`${chunkedHead}5\r\nhello\r\nnot a size\r\n`));
    const using = client();
    const { callbacks, fault, body } = await start(using, server.endpoint).over;
    expect({ callbacks, body, kind: fault?.kind }).toEqual({
      callbacks: ['head', 'data', 'fault'],
      body: 'hello',
      kind: 'garbage',
    });
    await until(() => server.sockets[0]?.destroyed === true);
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
  });

  it('is garbage when the server sends a greeting first', async () => {
    const server = await ground.serve({
      transport: 'tcp',
      answer: answerHello,
      onConnection: (socket) => socket.write('220 mail ready\r\n'),
    });
    expect((await start(client(), server.endpoint).over).fault?.kind).toBe('garbage');
  });

  it('is too_large before data beyond answerBytesMax is delivered', async () => {
    const server = await serve(answerHello);
    const within = await start(client(), server.endpoint, { answerBytesMax: 5 }).over;
    expect(within.callbacks).toEqual(['head', 'data', 'end']);
    const beyond = await start(client(), server.endpoint, { answerBytesMax: 4 }).over;
    expect(beyond).toMatchObject({ callbacks: ['head', 'fault'], body: '', fault: { kind: 'too_large' } });
  });
});

describe('a malformed request', () => {
  it.each([
    { path: 'v1' },
    { path: '/v1 HTTP/1.1\r\nX: y' },
    { path: '/é' },
    { headerLines: 'X-A: b' },
    { headerLines: 'X-A: b\r\n\r\nGET /' },
    { headerLines: 'X-A: b\nX-B: c\r\n' },
    { headerLines: 'no colon\r\n' },
    { headerLines: ' X-A: folded\r\n' },
    // Cut down to eight bits these two would be a line end.
    { headerLines: 'X-A: b\u010d\u010aX-B: c\r\n' },
  ])('throws before anything is sent: %j', async (request) => {
    const server = await serve(answerHello);
    const using = client();
    expect(() => using.call(server.endpoint, { ...post, ...request }, sinkThatFails)).toThrow(/malformed/);
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
  });

  it('throws for invalid client limits', () => {
    expect(() => clientWith({ idleTimeoutMs: 0 })).toThrow(/idleTimeoutMs/);
    expect(() => clientWith({ maxHeaderBytes: Number.NaN })).toThrow(/maxHeaderBytes/);
  });
});

const unexpected = (): never => {
  throw new Error('no callback was expected');
};
const sinkThatFails = { onHead: unexpected, onData: unexpected, onEnd: unexpected, onFault: unexpected };

describe('a request to an engine', () => {
  it.each(['tcp', 'unix'] as const)(
    'arrives over %s with its line, headers and body, and the base path in front',
    async (transport) => {
      const server = await serve(answerHello, transport);
      const endpoint = { ...server.endpoint, basePath: '/base' };
      const { callbacks, status, body, headers } = await start(client(), endpoint, { body: 'é\xff\0' }).over;
      expect({ callbacks, status, body, a: headers?.get('x-a') }).toEqual({
        callbacks: ['head', 'data', 'end'],
        status: 200,
        body: 'hello',
        a: 'b',
      });
      const host = transport === 'unix' ? 'localhost' : `127.0.0.1:${endpoint.port}`;
      expect(server.requests[0]?.head).toBe(
        `POST /base/v1/x HTTP/1.1\r\nHost: ${host}\r\nX-Test: 1\r\nContent-Length: 3\r\n\r\n`,
      );
      expect(server.requests[0]?.body).toBe('\xe9\xff\0');
    },
  );

  it('has neither body nor length when it is a GET', async () => {
    const server = await serve(answerHello);
    await start(client(), server.endpoint, { method: 'GET', body: null, headerLines: '' }).over;
    expect(server.requests[0]?.head).toBe(`GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1:${server.endpoint.port}\r\n\r\n`);
  });

  it.each(['string', 'buffer'])('carries a body of 8 MiB as %s', async (kind) => {
    const server = await serve(answerHello, 'unix');
    const bytes = Buffer.alloc(8 * 1024 * 1024, Buffer.from([0, 10, 13, 127, 128, 255, 65]));
    const body = kind === 'string' ? bytes.toString('latin1') : bytes;
    const { callbacks } = await start(client(), server.endpoint, { body }).over;
    expect(callbacks).toEqual(['head', 'data', 'end']);
    expect(Buffer.from(server.requests[0]?.body ?? '', 'latin1').equals(bytes)).toBe(true);
  });
});

describe('a destroyed call', () => {
  const frames = `${chunkedHead}5\r\nhello\r\n`;

  it.each(['tcp', 'unix'] as const)(
    'gets no more callbacks when destroyed inside onHead with a body in the same read, over %s',
    async (transport) => {
      const server = await serve(({ socket }) => void socket.write(hello), transport);
      const using = client();
      const { outcome, call } = start(using, server.endpoint, {}, { onHead: () => call.destroy() });
      await until(() => server.sockets[0]?.destroyed === true);
      expect(outcome.callbacks).toEqual(['head']);
      expect(using.stats()).toEqual({ open: 0, idle: 0 });
    },
  );

  it.each([
    ['of a whole answer', hello],
    ['of a stream', frames],
    ['before garbage', `${chunkedHead}5\r\nhello\r\nX`],
  ])('gets no more callbacks when destroyed inside onData %s', async (_name, bytes) => {
    const server = await serve(({ socket }) => void socket.write(bytes));
    const { outcome, call } = start(client(), server.endpoint, {}, { onData: () => call.destroy() });
    await until(() => server.sockets[0]?.destroyed === true);
    expect(outcome.callbacks).toEqual(['head', 'data']);
  });

  it('changes nothing when destroyed inside onEnd or onFault, and keeps the idle connection', async () => {
    const server = await serve(({ socket }) => {
      if (server.requests.length === 2) socket.destroy();
      else socket.write(hello);
    });
    const using = client();
    const whole = start(using, server.endpoint, {}, { onEnd: () => whole.call.destroy() });
    await whole.over;
    expect(using.stats()).toEqual({ open: 1, idle: 1 });
    using.close();
    const other = client();
    const faulty = start(other, server.endpoint, {}, { onFault: () => faulty.call.destroy() });
    expect((await faulty.over).callbacks).toEqual(['fault']);
  });

  it('gets no callbacks when destroyed twice before it is connected', async () => {
    const server = await serve(answerHello);
    const using = client();
    const { call, outcome } = start(using, server.endpoint);
    call.destroy();
    call.destroy();
    call.pause();
    call.resume();
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
    expect((await start(using, server.endpoint).over).status).toBe(200);
    expect(outcome.callbacks).toEqual([]);
  });

  it('closes the connection to the engine when destroyed before the answer', async () => {
    const server = await serve(() => undefined, 'unix');
    const { call, outcome } = start(client(), server.endpoint);
    await until(() => server.requests.length === 1);
    call.destroy();
    await until(() => server.sockets[0]?.destroyed === true);
    expect(outcome.callbacks).toEqual([]);
  });
});

describe('a sink that throws', () => {
  it.each(['onHead', 'onData'] as const)(
    'ends only its own call with sink_error when it throws in %s',
    async (name) => {
      const server = await serve(({ socket }) => void socket.write(`${chunkedHead}1\r\na\r\n`));
      const thrown: unknown[] = [];
      const using = client({ onSinkError: (error) => thrown.push(error) });
      const other = start(using, server.endpoint);
      await until(() => other.outcome.body === 'a');
      const { callbacks, fault } = await start(using, server.endpoint, {}, { [name]: unexpected }).over;
      expect({ last: callbacks.at(-1), kind: fault?.kind, thrown: thrown.length }).toEqual({
        last: 'fault',
        kind: 'sink_error',
        thrown: 1,
      });
      server.sockets[0]?.end('1\r\nb\r\n0\r\n\r\n');
      expect(await other.over).toMatchObject({ body: 'ab', callbacks: ['head', 'data', 'end'] });
    },
  );

  it('is reported without harm when it throws in onEnd or onFault', async () => {
    const server = await serve(({ socket }) => {
      if (server.requests.length === 1) socket.write(hello);
      else socket.end('X');
    });
    const thrown: unknown[] = [];
    const using = client({ onSinkError: (error) => thrown.push(error) });
    const hooks = { onEnd: unexpected, onFault: unexpected };
    expect((await start(using, server.endpoint, {}, hooks).over).callbacks).toEqual(['head', 'data', 'end']);
    expect((await start(using, server.endpoint, {}, hooks).over).callbacks).toEqual(['fault']);
    expect(thrown).toHaveLength(2);
  });
});

describe('an answer in pieces', () => {
  it('is read the same, over one connection, wherever the pieces end', async () => {
    const pieces = new Map<string, readonly string[]>();
    const server = await serve(({ socket, body }) => {
      const left = [...(pieces.get(body) ?? [])];
      const writeNext = (): void => {
        const piece = left.shift();
        if (piece === undefined) return;
        socket.write(piece, 'latin1');
        setImmediate(writeNext);
      };
      writeNext();
    }, 'unix');
    const using = client();
    const chunks = fc.array(fc.string({ unit: 'binary-ascii', minLength: 1, maxLength: 60 }), { maxLength: 6 });
    const cuts = fc.array(fc.nat({ max: 500 }), { maxLength: 12 });
    let runs = 0;
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 400, max: 499 }), chunks, cuts, async (status, data, places) => {
        runs += 1;
        const body = data.map((text) => `${text.length.toString(16)}\r\n${text}\r\n`).join('');
        const answer = `HTTP/1.1 ${status} x\r\nX-A: ${runs}\r\nTransfer-Encoding: chunked\r\n\r\n${body}0\r\n\r\n`;
        const ends = [...places.filter((place) => place < answer.length).toSorted((a, b) => a - b), answer.length];
        pieces.set(
          String(runs),
          ends.map((end, index) => answer.slice(ends[index - 1] ?? 0, end)),
        );
        const outcome = await start(using, server.endpoint, { body: String(runs) }).over;
        const read = { status: outcome.status, a: outcome.headers?.get('x-a'), body: outcome.body };
        expect(read).toEqual({ status, a: String(runs), body: data.join('') });
        expect(outcome.callbacks.at(-1)).toBe('end');
      }),
      { numRuns: 200 },
    );
    expect(server.sockets).toHaveLength(1);
  });
});

describe('close', () => {
  it('ends idle connections, running calls and every later call', async () => {
    const server = await serve(({ socket, body }) => void socket.write(body === 'hang' ? chunkedHead : hello));
    const using = client();
    const running = start(using, server.endpoint, { body: 'hang' });
    await until(() => running.outcome.status === 200);
    await start(using, server.endpoint).over;
    const connecting = start(using, { ...server.endpoint, basePath: '/c' });
    using.close();
    expect((await running.over).fault?.kind).toBe('cut');
    expect((await connecting.over).callbacks).toEqual(['fault']);
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
    const later = start(using, server.endpoint);
    expect(later.outcome.callbacks).toEqual([]);
    expect((await later.over).fault?.kind).toBe('refused');
  });
});
