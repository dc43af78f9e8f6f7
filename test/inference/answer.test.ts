import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createAnswer } from '#edge/inference/answer.ts';
import { eventually } from './kit.ts';

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
  answerWith: (outgoing: ServerResponse) => void,
): Promise<{ client: Socket; server: Server; taken: ServerResponse }> {
  const server = createServer();
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

it('leave no limit behind for the next request of their connection', async () => {
  let text = '';
  const stallMs = 1000;
  const { client, server, taken } = await ask((outgoing) => createAnswer(outgoing, stallMs).json(200, long));
  const next = once(server, 'request');
  client.write('GET /next HTTP/1.1\r\nhost: a\r\n\r\n');
  const outgoing: ServerResponse = (await next)[1];
  client.on('data', (chunk: Buffer) => (text = (text + chunk.toString('latin1')).slice(-200)));
  await eventually(async () => taken.closed);
  expect(taken.writableFinished).toBe(true);
  await new Promise((resolve) => setTimeout(resolve, stallMs * 2));
  createAnswer(outgoing, stallMs).json(200, '"the next"');
  await eventually(async () => text.endsWith('"the next"'));
});

describe.each([
  ['JSON', (outgoing: ServerResponse, stallMs: number) => createAnswer(outgoing, stallMs).json(200, long)],
  ['streamed', (outgoing: ServerResponse, stallMs: number) => createAnswer(outgoing, stallMs).endStream(long)],
])('the last bytes of an answer, %s', (_, end) => {
  it('are not kept for ever for a client that takes nothing of them', async () => {
    const { client, taken } = await ask((outgoing) => end(outgoing, 100));
    client.pause();
    await eventually(async () => taken.closed);
    expect(taken.writableFinished).toBe(false);
  });

  it('all reach a client that is slow', async () => {
    const { client, taken } = await ask((outgoing) => end(outgoing, 20_000));
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
