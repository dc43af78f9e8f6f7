import { once } from 'node:events';
import { type IncomingMessage, type RequestListener, request } from 'node:http';
import { connect } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { useWebGateway } from '#test/web/web-gateway.ts';

/** Requests to an application: their content, their senders and their time limits. */

const firstByteMs = 1000;
const web = useWebGateway({
  HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: String(firstByteMs / 1000),
  HEADGATE_HEADERS_SECONDS: '1',
  HEADGATE_TRUSTED_PROXIES: '127.0.0.1',
});

/** Answers with what it got when all of it is there. */
const counting: RequestListener = (incoming, outgoing) => {
  let bytes = 0;
  incoming.on('data', (chunk: Buffer) => (bytes += chunk.length));
  incoming.on('end', () => outgoing.end(`got ${bytes}`));
};

interface Upload {
  readonly status: number;
  readonly text: string;
  readonly tookMs: number;
}

/** Sends parts with pauses until so much time has gone by. */
async function upload(host: string, forMs: number): Promise<Upload & { readonly bytes: number }> {
  const startMs = performance.now();
  const asked = request({ host: '127.0.0.1', port: web.webPort, method: 'PUT', path: '/', headers: { host } });
  const answered = new Promise<{ status: number; text: string }>((resolve, reject) => {
    asked.on('error', reject);
    asked.on('response', (response: IncomingMessage) => {
      let text = '';
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
  });
  let bytes = 0;
  for (const part = Buffer.alloc(70_000); performance.now() - startMs < forMs; bytes += part.length) {
    asked.write(part);
    await sleep(firstByteMs / 5);
  }
  asked.end();
  return { ...(await answered), bytes, tookMs: performance.now() - startMs };
}

it('returns 504 when the application sends no first byte in time', async () => {
  const { host } = await web.exposed(await web.application((_, outgoing) => outgoing.on('close', () => undefined)));
  expect(await web.get(host, '/')).toMatchObject({
    status: 504,
    text: expect.stringContaining('did not answer in time'),
  });
});

it("waits for a long upload, and starts the application's time limit at its last part", async () => {
  const { host } = await web.exposed(await web.application(counting));
  const sent = await upload(host, 3 * firstByteMs);
  expect([sent.status, sent.text]).toEqual([200, `got ${sent.bytes}`]);
  expect(sent.tookMs).toBeGreaterThan(2 * firstByteMs);
  const silent = await web.exposed(await web.application((incoming) => incoming.resume()));
  const refused = await upload(silent.host, 2 * firstByteMs);
  expect(refused.status).toBe(504);
  expect(refused.tookMs).toBeGreaterThan(2.5 * firstByteMs);
});

it("sends the application the visitor's full address, from the trusted proxies", async () => {
  const { host } = await web.exposed(
    await web.application((incoming, outgoing) => outgoing.end(String(incoming.headers['x-forwarded-for']))),
  );
  const addresses = [
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2:3:4:5:6'],
    ['1.2.3.4, 2001:DB8::7', '2001:DB8::7'],
    ['::ffff:203.0.113.9', '203.0.113.9'],
    ['fe80::1%eth0', 'fe80::1'],
    ['203.0.113.9, 127.0.0.1', '203.0.113.9'],
    ['nobody', '127.0.0.1'],
  ] as const;
  for (const [said, told] of addresses) {
    const { text } = await web.get(host, '/', { 'x-forwarded-for': said });
    expect([said, text]).toEqual([said, told]);
  }
});

it('returns 408 for unfinished headers, and serves a whole request that came while the process was stopped', async () => {
  const { host } = await web.exposed(await web.application((_, outgoing) => outgoing.end('served')));
  const request = `GET / HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`;
  for (;;) {
    const beganMs = performance.now();
    const sockets = [connect(web.webPort, '127.0.0.1'), connect(web.webPort, '127.0.0.1')];
    await Promise.all(sockets.map((socket) => once(socket, 'connect')));
    // Connections are accepted in their order: those above before the one of this request.
    expect((await web.get(host, '/')).text).toBe('served');
    // Later than that their second may be over, rightly.
    if (performance.now() - beganMs > 500) {
      for (const socket of sockets) socket.destroy();
      continue;
    }
    sockets[0]?.write(request.slice(0, 20));
    sockets[1]?.write(request);
    // Gateway and clients are one process here: what is written lies on the wire, and nobody reads it.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
    const [half, whole] = await Promise.all(sockets.map((socket) => textOf(socket)));
    expect(half).toMatch(/^HTTP\/1\.1 408 /);
    expect(whole).toMatch(/^HTTP\/1\.1 200 /);
    return;
  }
});
