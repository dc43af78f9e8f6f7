import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { guardConnections } from '#base/net/connections.ts';
import { eventually } from '#test/inference/inference-gateway.ts';

const open: (Server | Socket)[] = [];

afterEach(async () => {
  for (const one of open.splice(0)) {
    if ('destroy' in one) one.destroy();
    else await new Promise((resolve) => one.close(resolve));
  }
});

/** More than the buffers of both sides of a connection hold. */
const long = 'x'.repeat(64 * 1_048_576);

/** A connection on which one request was sent, and the server's side of it. */
async function ask(
  stallMs: number,
  answerWith: (outgoing: ServerResponse) => void,
): Promise<{ client: Socket; server: Server; taken: ServerResponse }> {
  const server = createServer();
  const connections = guardConnections(server, {
    connectionsMax: 100,
    stallMs,
    refuse: (outgoing) => outgoing.destroy(),
  });
  server.on('request', (incoming, outgoing) => connections.accept(incoming, outgoing));
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const client = connect(typeof address === 'object' && address !== null ? address.port : 0, '127.0.0.1');
  open.unshift(client);
  client.on('error', () => undefined);
  const asked = once(server, 'request');
  client.write('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  const taken: ServerResponse = (await asked)[1];
  answerWith(taken);
  return { client, server, taken };
}

it('waits for a slow answer, with another answer before it on its connection', async () => {
  let text = '';
  const stallMs = 500;
  const { client, server, taken } = await ask(stallMs, (outgoing) => outgoing.end(long));
  const next = once(server, 'request');
  client.write('GET /next HTTP/1.1\r\nhost: a\r\n\r\n');
  const outgoing: ServerResponse = (await next)[1];
  client.on('data', (chunk: Buffer) => (text = (text + chunk.toString('latin1')).slice(-200)));
  await eventually(async () => taken.closed);
  expect(taken.writableFinished).toBe(true);
  await new Promise((resolve) => setTimeout(resolve, stallMs * 3));
  outgoing.end('"the next"');
  await eventually(async () => text.endsWith('"the next"'));
});

describe.each([
  ['whole', (outgoing: ServerResponse) => outgoing.setHeader('content-length', long.length).end(long)],
  ['in chunks', (outgoing: ServerResponse) => (outgoing.write('x'), outgoing.end(long))],
])('the last bytes of an answer, %s,', (_, end) => {
  it('are dropped after a time for a client that reads none of them', async () => {
    const { client, taken } = await ask(100, (outgoing) => void end(outgoing));
    client.pause();
    await eventually(async () => taken.closed);
    expect(taken.writableFinished).toBe(false);
  });

  it('all reach a slow client', async () => {
    const { client, taken } = await ask(20_000, (outgoing) => void end(outgoing));
    let bytes = 0;
    client.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      client.pause();
      setImmediate(() => client.resume());
    });
    await eventually(async () => taken.closed || taken.writableFinished);
    expect(taken.writableFinished).toBe(true);
    await eventually(async () => bytes > long.length);
  });
});

it('closes an idle connection when its time is over, unless a request on it waits to be read', async () => {
  const keepAliveTimeout = 1000;
  const server = createServer({ keepAliveTimeout, keepAliveTimeoutBuffer: 0 });
  const connections = guardConnections(server, {
    connectionsMax: 100,
    stallMs: 20_000,
    refuse: (outgoing) => outgoing.destroy(),
  });
  server.on('request', (incoming, outgoing) => {
    connections.accept(incoming, outgoing);
    outgoing.end(incoming.url);
  });
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const client = connect(typeof address === 'object' && address !== null ? address.port : 0, '127.0.0.1');
  open.unshift(client);
  const closed = new Promise((resolve) => client.on('error', () => undefined).on('close', resolve));
  let text = '';
  client.on('data', (chunk: Buffer) => {
    text += chunk.toString('latin1');
    if (!text.endsWith('/first')) return;
    client.write('GET /second HTTP/1.1\r\nhost: a\r\n\r\n');
    // Both sides are one process, which stands still: what was written lies on the wire for longer than the limit.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, keepAliveTimeout * 1.5);
  });
  client.write('GET /first HTTP/1.1\r\nhost: a\r\n\r\n');
  await closed;
  expect(text).toMatch(/\/first[^]*\/second$/);
});

it('closes no websocket, event stream or busy connection for a new connection', async () => {
  const server = createServer();
  const connections = guardConnections(server, {
    connectionsMax: 3,
    stallMs: 20_000,
    refuse: (outgoing) => outgoing.destroy(),
  });
  server.on('request', (incoming, outgoing) => {
    connections.accept(incoming, outgoing);
    if (incoming.url === '/events')
      outgoing.writeHead(200, { 'content-type': 'text/event-stream' }).write('data: a\n\n');
    else outgoing.end('ok');
  });
  server.on('upgrade', (_, socket) => {
    connections.upgraded(socket);
    socket.write('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
    socket.on('data', (chunk: Buffer) => socket.write(chunk)).on('end', () => socket.end());
  });
  open.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const send = async (text: string): Promise<Socket> => {
    const socket = connect(port, '127.0.0.1').on('error', () => undefined);
    open.unshift(socket);
    socket.write(text);
    await once(socket, 'data');
    return socket;
  };
  const websocket = await send('GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
  const events = await send('GET /events HTTP/1.1\r\nhost: a\r\n\r\n');
  const idle = await send('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  const gone = once(idle, 'close');
  await send('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  await gone;
  await send('GET / HTTP/1.1\r\nhost: a\r\n\r\n');
  expect([websocket.destroyed, events.destroyed]).toEqual([false, false]);
  websocket.write('still here');
  expect(String((await once(websocket, 'data'))[0])).toBe('still here');
});
