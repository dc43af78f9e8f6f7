import { afterEach, describe, expect, it } from 'vitest';
import type { ByteServer, SeenRequest } from '#test/proxy/byte-server.ts';
import { createGround, start, until } from './recorded-call.ts';

const hello = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello';
const chunkedHead = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

const ground = createGround();
const client = ground.client;
afterEach(() => ground.clear());

function serve(answer: (request: SeenRequest) => void, transport: 'tcp' | 'unix' = 'tcp'): Promise<ByteServer> {
  return ground.serve({ transport, answer });
}

const answerHello = ({ socket }: SeenRequest): void => void socket.write(hello);

describe('a reused connection', () => {
  it('serves consecutive calls, the most recently used connection first', async () => {
    const waiting: SeenRequest[] = [];
    const server = await serve((request) => void waiting.push(request));
    const using = client();
    const calls = [start(using, server.endpoint), start(using, server.endpoint), start(using, server.endpoint)];
    await until(() => waiting.length === 3);
    expect(using.stats()).toEqual({ open: 3, idle: 0 });
    const order = waiting.map(({ connection }) => connection);
    for (const { socket } of waiting.splice(0)) {
      const over = calls.filter(({ outcome }) => outcome.callbacks.length > 0).length;
      socket.write(hello);
      await until(() => calls.filter(({ outcome }) => outcome.callbacks.includes('end')).length === over + 1);
    }
    expect(using.stats()).toEqual({ open: 3, idle: 3 });
    const next = start(using, server.endpoint);
    await until(() => waiting.length === 1);
    expect(waiting[0]?.connection).toBe(order[2]);
    waiting[0]?.socket.write(hello);
    await next.over;
    expect(server.sockets).toHaveLength(3);
  });

  it('serves a call that begins inside onEnd', async () => {
    const server = await serve(answerHello, 'unix');
    const using = client();
    const { promise, resolve } = Promise.withResolvers<string>();
    let left = 50;
    const again = (): void => {
      left -= 1;
      const { outcome } = start(
        using,
        server.endpoint,
        {},
        { onEnd: () => (left === 0 ? resolve(outcome.body) : again()) },
      );
    };
    again();
    expect(await promise).toBe('hello');
    expect({ connections: server.sockets.length, requests: server.requests.length }).toEqual({
      connections: 1,
      requests: 50,
    });
  });

  it('serves a call after answers in chunks, without a body and behind interim ones', async () => {
    const answers = [
      `${chunkedHead}1\r\na\r\n0\r\nX: y\r\n\r\n`,
      'HTTP/1.1 204 No\r\n\r\n',
      `HTTP/1.1 100 Continue\r\n\r\n${hello}`,
      hello,
    ];
    const server = await serve(({ socket }) => void socket.write(answers[server.requests.length - 1] ?? ''));
    const using = client();
    for (const _ of answers) expect((await start(using, server.endpoint).over).callbacks.at(-1)).toBe('end');
    expect(server.sockets).toHaveLength(1);
  });

  it('serves a call after one that was paused when its answer ended', async () => {
    const server = await serve(answerHello, 'unix');
    const using = client();
    for (let round = 0; round < 2; round += 1) {
      const { over, call } = start(using, server.endpoint, {}, { onData: () => call.pause() });
      expect((await over).callbacks).toEqual(['head', 'data', 'end']);
    }
    expect(server.sockets).toHaveLength(1);
  });

  it('serves equal endpoints, and no other', async () => {
    const server = await serve(answerHello);
    const using = client();
    await start(using, server.endpoint).over;
    await start(using, { ...server.endpoint, basePath: '/other' }).over;
    expect(server.sockets).toHaveLength(1);
    expect(server.requests.map(({ head }) => head.split(' ')[1])).toEqual(['/v1/x', '/other/v1/x']);
    const other = await serve(answerHello);
    await start(using, other.endpoint).over;
    expect({ first: server.sockets.length, other: other.sockets.length }).toEqual({ first: 1, other: 1 });
  });
});

describe('a connection that is not reused', () => {
  it.each([
    ['when the answer says close', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na'],
    ['when the answer is of HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na'],
    ['when bytes follow the answer', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na!'],
  ])('is closed %s', async (_name, bytes) => {
    const server = await serve(({ socket }) => void socket.write(bytes));
    const using = client();
    for (let round = 1; round <= 2; round += 1) {
      const { body, callbacks } = await start(using, server.endpoint).over;
      expect({ body, callbacks }).toEqual({ body: 'a', callbacks: ['head', 'data', 'end'] });
      expect(using.stats()).toEqual({ open: 0, idle: 0 });
      expect(server.sockets).toHaveLength(round);
    }
  });

  it('is closed when its end ends the body', async () => {
    const server = await serve(({ socket }) => socket.end('HTTP/1.1 200 OK\r\n\r\nuntil here'), 'unix');
    const using = client();
    expect(await start(using, server.endpoint).over).toMatchObject({
      body: 'until here',
      callbacks: ['head', 'data', 'end'],
    });
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
  });

  it('is closed when bytes arrive while it is idle', async () => {
    const server = await serve(answerHello);
    const using = client();
    await start(using, server.endpoint).over;
    server.sockets[0]?.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
    await until(() => using.stats().open === 0);
    expect((await start(using, server.endpoint).over).status).toBe(200);
  });

  it('is closed when the answer is complete before the request is written', async () => {
    // The server answers the head at once and never reads the body.
    const server = await ground.serve({
      transport: 'unix',
      answer: () => undefined,
      onConnection: (socket) => socket.once('data', () => void socket.pause().write(hello)),
    });
    const using = client();
    const { callbacks } = await start(using, server.endpoint, { body: Buffer.alloc(16 * 1024 * 1024) }).over;
    expect(callbacks).toEqual(['head', 'data', 'end']);
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
  });

  it('is closed each time it has been idle for idleSocketMs', async () => {
    const server = await serve(answerHello);
    const using = client({ idleSocketMs: 40 });
    for (let round = 1; round <= 3; round += 1) {
      await start(using, server.endpoint).over;
      expect(using.stats()).toEqual({ open: 1, idle: 1 });
      await until(() => server.sockets[round - 1]?.destroyed === true);
      expect(using.stats()).toEqual({ open: 0, idle: 0 });
      expect(server.sockets).toHaveLength(round);
    }
  });
});

describe('a kept connection that the engine has closed', () => {
  /** Serves one request a connection and drops it at the next, as an engine does whose idle time is over. */
  const once = ({ socket, connection }: SeenRequest, requests: readonly SeenRequest[]): void => {
    if (requests.filter((request) => request.connection === connection).length > 1) socket.destroy();
    else socket.write(hello);
  };

  it.each(['tcp', 'unix'] as const)(
    'is replaced over %s, and the whole request is sent once more',
    async (transport) => {
      const server = await serve((request) => once(request, server.requests), transport);
      const using = client();
      const body = Buffer.from('{"n":2}');
      for (let round = 0; round < 3; round += 1) {
        const { callbacks } = await start(using, server.endpoint, { body }).over;
        expect(callbacks).toEqual(['head', 'data', 'end']);
      }
      expect(server.requests.map((request) => request.body)).toEqual(Array.from({ length: 5 }, () => '{"n":2}'));
      expect(server.requests.map((request) => request.connection)).toEqual([1, 1, 2, 2, 3]);
    },
  );

  it.each(['tcp', 'unix'] as const)(
    'is replaced over %s when its end was not seen before the write',
    async (transport) => {
      const server = await serve(answerHello, transport);
      const using = client();
      await start(using, server.endpoint).over;
      server.sockets[0]?.destroy();
      expect((await start(using, server.endpoint).over).callbacks).toEqual(['head', 'data', 'end']);
      expect(server.sockets).toHaveLength(2);
    },
  );

  it('is replaced by a paused connection when the call is paused', async () => {
    const server = await serve(answerHello, 'unix');
    const using = client();
    await start(using, server.endpoint).over;
    server.sockets[0]?.destroy();
    const paused = start(using, server.endpoint);
    paused.call.pause();
    await until(() => server.requests.length === 2);
    await start(using, server.endpoint).over;
    expect(paused.outcome.callbacks).toEqual([]);
    paused.call.resume();
    expect((await paused.over).callbacks).toEqual(['head', 'data', 'end']);
  });

  it('leads to one retry only, on a fresh connection', async () => {
    const waiting: SeenRequest[] = [];
    const server = await serve((request) => void waiting.push(request));
    const using = client();
    const first = [start(using, server.endpoint), start(using, server.endpoint)];
    await until(() => waiting.length === 2);
    for (const { socket } of waiting.splice(0)) socket.write(hello);
    await Promise.all(first.map(({ over }) => over));
    const next = start(using, server.endpoint);
    for (let tries = 1; tries <= 2; tries += 1) {
      await until(() => waiting.length === 1);
      waiting.pop()?.socket.destroy();
    }
    expect((await next.over).fault).toEqual({ kind: 'reset', headSeen: false, bodySeen: false });
    expect(server.requests).toHaveLength(4);
    expect(server.sockets).toHaveLength(3);
    expect(using.stats()).toEqual({ open: 1, idle: 1 });
  });

  it('leads to no retry after one byte of an answer', async () => {
    const server = await serve(({ socket }) => {
      if (server.requests.length === 1) socket.write(hello);
      else socket.end('H');
    });
    const using = client();
    await start(using, server.endpoint).over;
    expect((await start(using, server.endpoint).over).fault).toEqual({ kind: 'cut', headSeen: false, bodySeen: false });
    expect(server.requests).toHaveLength(2);
  });

  it('is removed as soon as its end is seen', async () => {
    const server = await serve(answerHello, 'unix');
    const using = client();
    await start(using, server.endpoint).over;
    server.sockets[0]?.end();
    await until(() => using.stats().open === 0);
    expect((await start(using, server.endpoint).over).callbacks).toEqual(['head', 'data', 'end']);
    expect(server.requests).toHaveLength(2);
  });
});
