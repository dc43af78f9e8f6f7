import { afterEach, describe, expect, it } from 'vitest';
import type { Clock } from '#base/clock.ts';
import { createAborter } from '#core/engine-client/engine-client.ts';
import type { ByteServer, SeenRequest } from '#test/proxy/byte-server.ts';
import { createGround } from './recorded-call.ts';

const ground = createGround();
afterEach(() => ground.clear());

function serve(answer: (request: SeenRequest) => void): Promise<ByteServer> {
  return ground.serve({ transport: 'unix', answer });
}

function aborterAt(clock: Clock = { now: () => 0, monotonicMs: () => 0 }): ReturnType<typeof createAborter> {
  return createAborter({ client: ground.client(), clock });
}

const say = (status: string, body = '{"detail":"Not Found"}'): string =>
  `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

describe('an abort by id', () => {
  it.each(['401 Unauthorized', '500 Internal Server Error', '503 Unavailable'])(
    'fails on %s, and is sent again next time',
    async (status) => {
      const server = await serve(({ socket }) => void socket.write(say(status)));
      const aborter = aborterAt();
      expect(await aborter.abort(server.endpoint, '', ['chatcmpl-1'])).toBe('failed');
      expect(await aborter.abort(server.endpoint, '', ['chatcmpl-1'])).toBe('failed');
      expect(server.requests).toHaveLength(2);
    },
  );

  it('fails when the engine closes the connection or does not listen', async () => {
    const server = await serve(({ socket }) => socket.destroy());
    const aborter = aborterAt();
    expect(await aborter.abort(server.endpoint, '', ['chatcmpl-1'])).toBe('failed');
    await server.close();
    expect(await aborter.abort(server.endpoint, '', ['chatcmpl-1'])).toBe('failed');
  });

  it('sends nothing without ids', async () => {
    const server = await serve(({ socket }) => void socket.write(say('200 OK')));
    expect(await aborterAt().abort(server.endpoint, '', [])).toBe('failed');
    expect(server.requests).toEqual([]);
  });

  it.each(['404 Not Found', '405 Method Not Allowed'])(
    'is unsupported after %s, for ten minutes and this engine only',
    async (status) => {
      const server = await serve(({ socket }) => void socket.write(say(status)));
      const other = await serve(({ socket }) => void socket.write(say('200 OK')));
      let nowMs = 1_000;
      const aborter = aborterAt({ now: () => 0, monotonicMs: () => nowMs });
      expect(await aborter.abort(server.endpoint, '', ['a'])).toBe('unsupported');
      nowMs += 599_999;
      expect(await aborter.abort(server.endpoint, '', ['b'])).toBe('unsupported');
      expect(server.requests).toHaveLength(1);
      expect(await aborter.abort(other.endpoint, '', ['b'])).toBe('sent');
      nowMs += 1;
      expect(await aborter.abort(server.endpoint, '', ['c'])).toBe('unsupported');
      expect(server.requests).toHaveLength(2);
    },
  );

  it('is sent with the ids, the headers and the base path', async () => {
    const server = await serve(({ socket }) => void socket.write(say('200 OK', '{"status":"aborted","aborted":2}')));
    const endpoint = { ...server.endpoint, basePath: '/root' };
    expect(await aborterAt().abort(endpoint, 'Authorization: Bearer k\r\n', ['cmpl-é-0', 'cmpl-é-1'])).toBe('sent');
    expect(server.requests[0]?.head).toBe(
      'POST /root/abort_requests HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n' +
        'Authorization: Bearer k\r\nContent-Length: 41\r\n\r\n',
    );
    const body: unknown = JSON.parse(Buffer.from(server.requests[0]?.body ?? '', 'latin1').toString('utf8'));
    expect(body).toEqual({ request_ids: ['cmpl-é-0', 'cmpl-é-1'] });
  });
});
