import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';

const api = useApi({ bodyStallTimeoutMs: 100 });

/** Sends the beginning of a request and what follows, and reads until the gateway closes. */
function begin(lines: readonly string[], body: string): Promise<string> {
  const { hostname, port } = new URL(api().url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(text));
    socket.write(['POST /v1/keys HTTP/1.1', 'host: x', ...lines, '', body].join('\r\n'));
  });
}

describe('a body that stalls', () => {
  it('gets 408 and a closed connection, with a length or in chunks', async () => {
    const lines = [`authorization: Bearer ${api().admin}`, 'content-type: application/json'];
    for (const [framing, body] of [
      ['content-length: 100', '{"name":'],
      ['transfer-encoding: chunked', '8\r\n{"name":\r\n'],
      ['content-length: 100', ''],
    ] as const) {
      const answer = await begin([...lines, framing], body);
      expect(answer).toMatch(/^HTTP\/1\.1 408 /);
      expect(answer).toContain('"code":"request_timeout"');
      expect(answer.toLowerCase()).toContain('connection: close');
    }
  });
});
