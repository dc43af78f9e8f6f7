import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { ByteServer, SeenRequest } from '#test/proxy/byte-server.ts';
import { createGround, start, until } from './recorded-call.ts';

const chunkedHead = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

const ground = createGround();
const client = ground.client;
afterEach(() => ground.clear());

function serve(answer: (request: SeenRequest) => void, transport: 'tcp' | 'unix' = 'unix'): Promise<ByteServer> {
  return ground.serve({ transport, answer });
}

describe('a time limit of an engine call', () => {
  it.each([
    ['that gets no answer', '', ['fault'], false],
    ['that gets a head only', chunkedHead, ['head', 'fault'], true],
    ['that gets interim answers only', 'HTTP/1.1 100 Continue\r\n\r\n', ['fault'], false],
  ] as const)(
    'ends a call %s with first_byte_timeout and closes its connection',
    async (_name, bytes, callbacks, headSeen) => {
      const server = await serve(({ socket }) => void socket.write(bytes));
      const outcome = await start(client({ firstByteTimeoutMs: 40 }), server.endpoint).over;
      expect(outcome.callbacks).toEqual(callbacks);
      expect(outcome.fault).toEqual({ kind: 'first_byte_timeout', headSeen, bodySeen: false });
      await until(() => server.sockets[0]?.destroyed === true);
    },
  );

  it('ends a call with first_byte_timeout after the limit of the request itself', async () => {
    const server = await serve(() => undefined);
    const using = client({ idleSocketMs: 200 });
    const patient = start(using, server.endpoint);
    const hasty = start(using, server.endpoint, { firstByteTimeoutMs: 40 });
    expect((await hasty.over).fault?.kind).toBe('first_byte_timeout');
    expect(patient.outcome.callbacks).toEqual([]);
  });

  it('ends a call with idle_timeout when a body stops', async () => {
    const server = await serve(({ socket }) => void socket.write(`${chunkedHead}1\r\na\r\n`));
    const outcome = await start(client({ idleTimeoutMs: 40 }), server.endpoint).over;
    expect(outcome).toMatchObject({
      callbacks: ['head', 'data', 'fault'],
      fault: { kind: 'idle_timeout', headSeen: true, bodySeen: true },
    });
    await until(() => server.sockets[0]?.destroyed === true);
  });

  it('ends a call with refused when no connection is established in time', async () => {
    // It takes TCP connections and never says a word of TLS.
    const server = await serve(() => undefined, 'tcp');
    const outcome = await start(client({ connectTimeoutMs: 40 }), { ...server.endpoint, tls: true }).over;
    expect(outcome).toMatchObject({ callbacks: ['fault'], fault: { kind: 'refused' } });
  });
});

describe('an endpoint that is given up', () => {
  it('refuses the calls without a connection yet, and lets the others finish', async () => {
    const silent = await serve(() => undefined, 'tcp');
    const other = await serve(() => undefined, 'tcp');
    const server = await serve(({ socket }) => void socket.write(`${chunkedHead}1\r\na\r\n`), 'tcp');
    const using = client({});
    const unmade = { ...silent.endpoint, tls: true };
    const connecting = [start(using, unmade), start(using, unmade)];
    const elsewhere = start(using, { ...other.endpoint, tls: true });
    const answered = start(using, server.endpoint);
    await until(() => answered.outcome.body === 'a' && silent.sockets.length === 2);
    using.giveUp({ ...unmade, basePath: '/other' });
    using.giveUp(server.endpoint);
    for (const { over } of connecting) {
      expect(await over).toMatchObject({ callbacks: ['fault'], fault: { kind: 'refused' } });
    }
    expect(elsewhere.outcome.callbacks).toEqual([]);
    server.sockets[0]?.write('0\r\n\r\n');
    expect((await answered.over).callbacks).toEqual(['head', 'data', 'end']);
  });
});

describe('a call within its time limits', () => {
  it('completes when its answer is slow but continuous', async () => {
    const server = await serve(({ socket }) => void socket.write(chunkedHead + '1\r\na\r\n'));
    const begun = performance.now();
    const { over } = start(
      client({ idleTimeoutMs: 80 }),
      server.endpoint,
      {},
      {
        onData: () => {
          const enough = performance.now() - begun > 400;
          setTimeout(() => server.sockets[0]?.write(enough ? '0\r\n\r\n' : '1\r\na\r\n'), 10);
        },
      },
    );
    expect((await over).callbacks).toEqual(['head', 'data', 'end']);
  });

  it('is not timed while it is paused, and is timed anew when it resumes', async () => {
    const server = await serve(({ socket, body }) => {
      socket.write(body === 'no body' ? chunkedHead : `${chunkedHead}1\r\na\r\n`);
    });
    const using = client({ idleTimeoutMs: 40, firstByteTimeoutMs: 40 });
    const paused = start(using, server.endpoint, {}, { onData: () => paused.call.pause() });
    const pausedEarly = start(using, server.endpoint, { body: 'no body' }, { onHead: () => pausedEarly.call.pause() });
    const pausedAtOnce = start(using, server.endpoint);
    pausedAtOnce.call.pause();
    await until(() => paused.outcome.body === 'a' && pausedEarly.outcome.status === 200 && server.sockets.length === 3);
    // Two others run into the limits meanwhile, one after the other.
    for (let round = 0; round < 2; round += 1) {
      expect((await start(using, server.endpoint).over).fault?.kind).toBe('idle_timeout');
    }
    expect(paused.outcome.callbacks).toEqual(['head', 'data']);
    expect(pausedEarly.outcome.callbacks).toEqual(['head']);
    expect(pausedAtOnce.outcome.callbacks).toEqual([]);
    for (const { call } of [paused, pausedEarly, pausedAtOnce]) call.resume();
    expect((await paused.over).fault?.kind).toBe('idle_timeout');
    expect((await pausedEarly.over).fault?.kind).toBe('first_byte_timeout');
    expect((await pausedAtOnce.over).fault?.kind).toBe('idle_timeout');
    expect(pausedAtOnce.outcome.body).toBe('a');
  });
});

describe('a pause longer than the limit', () => {
  it('leaves the whole limit after the resume', async () => {
    const server = await serve(({ socket }) => void socket.write(`${chunkedHead}1\r\na\r\n`));
    const using = client({ idleTimeoutMs: 240 });
    const paused = start(using, server.endpoint, {}, { onData: () => paused.call.pause() });
    await until(() => paused.outcome.body === 'a');
    expect((await start(using, server.endpoint).over).fault?.kind).toBe('idle_timeout');
    paused.call.resume();
    // Long enough for the limits to be checked, and far from one.
    await sleep(80);
    server.sockets[0]?.write('0\r\n\r\n');
    expect((await paused.over).callbacks).toEqual(['head', 'data', 'end']);
  });
});

describe('a slow reader', () => {
  const frames = 100_000;
  const frame = `data: {"choices":[{"delta":{"content":"${'x'.repeat(150)}"}}]}\n\n`;
  const chunk = `${frame.length.toString(16)}\r\n${frame}\r\n`;

  it.each(['tcp', 'unix'] as const)(
    'slows the engine over %s, and gets all 100,000 frames',
    async (transport) => {
      let written = 0;
      let held = false;
      const server = await serve(({ socket }) => {
        const fill = (): void => {
          held = false;
          while (written < frames && !held) {
            written += 1;
            held = !socket.write(chunk);
          }
          if (written === frames) socket.write('0\r\n\r\n');
          else socket.once('drain', fill);
        };
        socket.write(chunkedHead);
        fill();
      }, transport);

      let mostUnread = 0;
      let readBytes = 0;
      let wrong = 0;
      const read = start(
        client({}),
        server.endpoint,
        {},
        {
          onData(text) {
            readBytes += text.length;
            mostUnread = Math.max(mostUnread, written * frame.length - readBytes);
            if (text.length > 64 * 1024) wrong += 1;
            read.call.pause();
            setImmediate(() => read.call.resume());
          },
        },
      );
      const outcome = await read.over;
      expect(outcome.callbacks).toEqual(['head', 'data', 'end']);
      expect(outcome.body === frame.repeat(frames)).toBe(true);
      expect({ written, wrong }).toEqual({ written: frames, wrong: 0 });
      // Bytes under way stand in the kernel's buffers and in the server's own, not here.
      expect(mostUnread).toBeLessThan(8 * 1024 * 1024);
    },
    60_000,
  );

  it('gets nothing while it is paused, and the engine waits', async () => {
    let heldBack = 0;
    const server = await serve(({ socket }) => {
      socket.write(chunkedHead);
      while (socket.write(chunk));
      heldBack = socket.bytesWritten;
    });
    const using = client({ idleTimeoutMs: 40 });
    const paused = start(using, server.endpoint, {}, { onHead: () => paused.call.pause() });
    await until(() => heldBack > 0 && paused.outcome.status === 200);
    const bytesBefore = paused.outcome.body.length;
    expect(bytesBefore).toBeLessThanOrEqual(64 * 1024);
    expect((await start(using, server.endpoint, {}, {}).over).fault?.kind).toBe('idle_timeout');
    expect(paused.outcome.body).toHaveLength(bytesBefore);
    paused.call.resume();
    await until(
      () => paused.outcome.body.length >= Math.floor((heldBack - chunkedHead.length) / chunk.length) * frame.length,
    );
    server.sockets[0]?.write('0\r\n\r\n');
    expect((await paused.over).callbacks).toEqual(['head', 'data', 'end']);
    expect(paused.outcome.body === frame.repeat(paused.outcome.body.length / frame.length)).toBe(true);
  });
});
