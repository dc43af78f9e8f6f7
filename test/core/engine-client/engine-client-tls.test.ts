import { readFileSync } from 'node:fs';
import { afterEach, describe, expect, it } from 'vitest';
import type { ByteServer, SeenRequest } from '#test/proxy/byte-server.ts';
import { createGround, start, until } from './recorded-call.ts';

// Made for these tests only and trusted nowhere: localhost and 127.0.0.1, valid until 2126.
const key = readFileSync(new URL('./fixtures/test-only-key.pem', import.meta.url), 'utf8');
const cert = readFileSync(new URL('./fixtures/test-only-cert.pem', import.meta.url), 'utf8');

const hello = 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello';
const chunkedHead = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

const ground = createGround();
const client = ground.client;
afterEach(() => ground.clear());

function serve(answer: (request: SeenRequest) => void): Promise<ByteServer> {
  return ground.serve({ transport: { key, cert }, answer });
}

describe('an engine call over TLS', () => {
  it('fails for an untrusted engine, which gets no byte of the request', async () => {
    const server = await serve(({ socket }) => void socket.write(hello));
    const outcome = await start(client({}), server.endpoint).over;
    expect(outcome).toMatchObject({ callbacks: ['fault'], fault: { kind: 'refused' } });
    expect(server.requests).toEqual([]);
  });

  it('fails for an engine whose certificate has another name', async () => {
    const server = await serve(({ socket }) => void socket.write(hello));
    const outcome = await start(client({ tlsCa: cert }), { ...server.endpoint, host: '127.0.0.2' }).over;
    expect(outcome.fault?.kind).toBe('refused');
    expect(server.requests).toEqual([]);
  });

  it.each(['127.0.0.1', 'localhost'])(
    'is answered by a trusted engine at %s, and its connection is reused',
    async (host) => {
      const server = await serve(({ socket }) => void socket.write(hello));
      const using = client({ tlsCa: cert });
      for (let round = 0; round < 3; round += 1) {
        expect(await start(using, { ...server.endpoint, host }).over).toMatchObject({ status: 200, body: 'hello' });
      }
      expect({ connections: server.sockets.length, requests: server.requests.length }).toEqual({
        connections: 1,
        requests: 3,
      });
      expect(using.stats()).toEqual({ open: 1, idle: 1 });
    },
  );

  it('sends and receives a body of 4 MiB unchanged', async () => {
    const server = await serve(({ socket, body }) => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n`, 'latin1');
      socket.write(body, 'latin1');
    });
    const body = Buffer.alloc(4 * 1024 * 1024, Buffer.from([0, 10, 13, 127, 128, 255, 65]));
    const outcome = await start(client({ tlsCa: cert }), server.endpoint, { body }).over;
    expect(Buffer.from(outcome.body, 'latin1').equals(body)).toBe(true);
  });

  it('gets no data while it is paused, and the rest after it resumes', async () => {
    const data = 'x'.repeat(1024 * 1024);
    const server = await serve(({ socket }) => void socket.write(`${chunkedHead}100000\r\n${data}\r\n0\r\n\r\n`));
    const read = start(
      client({ tlsCa: cert }),
      server.endpoint,
      {},
      {
        onData: () => {
          read.call.pause();
          setImmediate(() => read.call.resume());
        },
      },
    );
    const outcome = await read.over;
    expect(outcome.callbacks).toEqual(['head', 'data', 'end']);
    expect(outcome.body === data).toBe(true);
  });

  it('gets no data when it is paused from the beginning', async () => {
    const server = await serve(({ socket }) => void socket.write(hello));
    const using = client({ tlsCa: cert });
    const paused = start(using, server.endpoint);
    paused.call.pause();
    await start(using, server.endpoint).over;
    expect(paused.outcome.callbacks).toEqual([]);
    paused.call.resume();
    expect((await paused.over).callbacks).toEqual(['head', 'data', 'end']);
  });

  it('ends with cut when the engine closes, and closes the connection when it is destroyed', async () => {
    const server = await serve(({ socket, body }) => {
      socket.write(`${chunkedHead}5\r\nhello\r\n`);
      if (body === 'cut') socket.destroySoon();
    });
    const using = client({ tlsCa: cert });
    expect((await start(using, server.endpoint, { body: 'cut' }).over).fault?.kind).toBe('cut');
    const { call, outcome } = start(using, server.endpoint, {}, { onData: () => call.destroy() });
    await until(() => server.sockets[1]?.destroyed === true);
    expect(outcome.callbacks).toEqual(['head', 'data']);
    expect(using.stats()).toEqual({ open: 0, idle: 0 });
  });
});
