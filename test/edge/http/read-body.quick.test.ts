import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { getRequestListener } from '@hono/node-server';
import { Hono } from 'hono';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { createBodyShares } from '#edge/http/body-shares.ts';
import { createReadBody, type HttpEnv, installFallbacks, jsonBody, requestId } from '#edge/http/http.ts';
import type { BodyReader } from '#edge/http/read-body.ts';

const form: BodyReader = {
  mediaType: 'multipart/form-data',
  bodyBytesMax: 2_000_000,
  expected: 'a form',
  read: (bytes, contentType) => ({ contentType, body: Uint8Array.from(bytes) }),
};

const parts = {
  limits: { bodyStallTimeoutMs: 15_000, bodyBytesPerSecondMin: 1 },
  shares: createBodyShares({ bytesMax: 10_000_000, callerBytesMax: 10_000_000 }),
};

const sizeOf = (field: unknown): number => (typeof field === 'string' ? field.length : 0);

describe('a body', () => {
  const app = new Hono<HttpEnv>().use(requestId);
  app.post('/json', createReadBody(parts, [jsonBody]), async (context) => context.json(await context.req.json()));
  app.post('/both', createReadBody(parts, [jsonBody, form]), async (context) => {
    const body =
      context.req.header('content-type') === 'application/json' ? context.req.json() : context.req.formData();
    const sent = await body;
    return context.json(sent instanceof FormData ? { size: sizeOf(sent.get('file')) } : { json: true });
  });
  installFallbacks(app, createLog('silent'));
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false, autoCleanupIncoming: false });
  const server = createServer((incoming, outgoing) => void listener(incoming, outgoing));

  beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
  afterAll(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });

  /** Whole, with its length: a refused body is read to its end all the same. */
  async function send(path: string, body: string | FormData, contentType?: string) {
    const encoded = new Response(body);
    const bytes = Buffer.from(await encoded.arrayBuffer());
    const type = contentType ?? encoded.headers.get('content-type') ?? '';
    const { port } = server.address() as AddressInfo;
    const headers = { 'content-type': type, 'content-length': bytes.length };
    const outgoing = request({ host: '127.0.0.1', port, path, method: 'POST', headers, agent: false });
    outgoing.end(bytes);
    const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
    return { status: incoming.statusCode, body: (await json(incoming)) as { error?: object } };
  }

  const large = (bytes: number): FormData => {
    const data = new FormData();
    data.set('file', 'x'.repeat(bytes));
    return data;
  };
  const code = (value: string) => ({ error: expect.objectContaining({ code: value }) as unknown });

  it('returns 415 when its content type has no reader', async () => {
    for (const type of ['text/plain', 'application/jsonl', 'multipart/form-data; boundary=b', '']) {
      expect(await send('/json', '{}', type)).toEqual({ status: 415, body: code('unsupported_media_type') });
    }
    expect((await send('/both', '{}', 'text/plain')).status).toBe(415);
  });

  it('returns 400 when it is empty, for any content type', async () => {
    const message = 'body: is missing; send a JSON object';
    for (const type of ['application/json', 'text/plain']) {
      const { status, body } = await send('/json', '', type);
      expect([status, body]).toEqual([400, { error: expect.objectContaining({ message }) as unknown }]);
    }
  });

  it('is limited by the reader of its type, or else by the first reader', async () => {
    expect(await send('/json', large(1_500_000))).toEqual({ status: 413, body: code('request_too_large') });
    expect(await send('/both', large(2_500_000))).toEqual({ status: 413, body: code('request_too_large') });
    expect(await send('/both', large(1_500_000))).toEqual({ status: 200, body: { size: 1_500_000 } });
  });

  it('is read by the reader of its type, in any case and with parameters', async () => {
    expect(await send('/json', '{"a":1}', 'Application/JSON; charset=utf-8')).toEqual({ status: 200, body: { a: 1 } });
    expect(await send('/both', '{"a":1}', 'application/json')).toEqual({ status: 200, body: { json: true } });
  });
});
