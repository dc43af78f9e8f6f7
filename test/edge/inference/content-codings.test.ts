import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { type Body, chatPath, errorOf, json, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bodyBytesMax = 4_000_000;
const bench = useInference(() => ({
  engines: { chat: standinFile('chat', { flags: ['--output-tokens', '2'] }) },
  env: { HEADGATE_MAX_BODY_BYTES: String(bodyBytesMax) },
}));

const chatBody = (content: string): string =>
  JSON.stringify({ model: 'chat', messages: [{ role: 'user', content }], max_tokens: 4 });

function send(coding: string, body: Uint8Array<ArrayBuffer>, path = chatPath): Promise<Response> {
  const headers = { ...json, authorization: `Bearer ${bench.gateway.key}`, 'content-encoding': coding };
  return fetch(new URL(path, bench.gateway.url), { method: 'POST', headers, body });
}

/** Text that does not get smaller by much. */
const dense = (chars: number): string =>
  Array.from({ length: chars }, (_, index) =>
    String.fromCodePoint(0x4e00 + ((index * 7919 + (index >> 3) * 104_729) % 20_000)),
  ).join('');

describe('a body with Content-Encoding', () => {
  it.each([
    ['gzip', gzipSync],
    ['x-gzip', gzipSync],
    ['GZIP', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
    ['zstd', zstdCompressSync],
  ] as const)('is decoded, small and large: %s', async (coding, encode) => {
    for (const content of ['Hello', dense(3000), 'word '.repeat(4000)]) {
      const answer = await send(coding, new Uint8Array(encode(chatBody(content))));
      expect(await answer.json()).toMatchObject({ choices: [{ finish_reason: expect.any(String) }] });
    }
    const named = await send(coding, new Uint8Array(encode('{"name":"compressed","scope":"inference"}')), '/v1/keys');
    const key: Body = await named.json();
    expect([named.status, key.name]).toEqual([201, 'compressed']);
    await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' });
  });

  it.each(['compress', 'gzip, br', 'snappy'])(
    'returns 415 with the supported codings in Accept-Encoding: %s',
    async (coding) => {
      for (const path of [chatPath, '/v1/keys']) {
        const answer = await send(coding, new Uint8Array(Buffer.from('{}')), path);
        expect([answer.status, answer.headers.get('accept-encoding')]).toEqual([415, 'gzip, deflate, br, zstd']);
        await answer.text();
      }
    },
  );

  it('returns 400 when the body is not encoded so, or is cut off', async () => {
    const whole = gzipSync(chatBody(dense(3000)));
    for (const bytes of [Buffer.from(chatBody('Hello')), whole.subarray(0, whole.length - 20)]) {
      expect(await errorOf(await send('gzip', new Uint8Array(bytes)))).toMatchObject({
        status: 400,
        code: 'invalid_request_error',
        message: 'The body does not match its Content-Encoding header.',
      });
    }
  });

  it('returns 413 when it decodes to more than a body may have, or expands far too much', async () => {
    const large = gzipSync(chatBody(dense(bodyBytesMax / 2)));
    const bomb = gzipSync(chatBody('x'.repeat(bodyBytesMax - 1000)));
    expect(bomb.length).toBeLessThan(6000);
    for (const bytes of [large, bomb]) {
      expect(await errorOf(await send('gzip', new Uint8Array(bytes)))).toMatchObject({
        status: 413,
        code: 'request_too_large',
      });
    }
  });
});
