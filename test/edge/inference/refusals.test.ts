import { once } from 'node:events';
import { connect } from 'node:net';
import { text as textOf } from 'node:stream/consumers';
import { describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  exchangeRaw,
  json,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    embed: standinFile('embed', { taskType: 'embedding' }),
    unpriced: standinFile('unpriced', { priced: false }),
    off: standinFile('off', { lines: ['enabled: false'] }),
  },
  env: { HEADGATE_BODY_STALL_SECONDS: '1', HEADGATE_HEADERS_SECONDS: '1' },
}));

const auth = (): string => `Authorization: Bearer ${bench.gateway.key}\r\n`;

describe('authentication', () => {
  it('returns 401 with WWW-Authenticate for no key, another scheme, a mistyped and an unknown key', async () => {
    const { key } = bench.gateway;
    const mistyped = key.slice(0, -1) + (key.endsWith('a') ? 'b' : 'a');
    for (const authorization of [null, 'Basic abc', 'Bearer', `Bearer ${mistyped}`, `Bearer sk-hg-nonsense`, key]) {
      const headers = authorization === null ? {} : { authorization };
      const answer = await bench.chat({}, { key: null, headers });
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
      expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
      expect(await errorOf(answer)).toMatchObject({
        status: 401,
        code: 'unauthorized',
        type: 'auth_error',
        param: null,
      });
    }
  });

  it('returns 401 for two Authorization headers, even when both are valid', async () => {
    const body = JSON.stringify(chatBody({}));
    const head = `POST ${chatPath} HTTP/1.1\r\nHost: x\r\n${auth()}${auth()}Content-Type: application/json\r\n`;
    const text = await exchangeRaw(bench.gateway.url, [
      `${head}Content-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    ]);
    expect(text).toMatch(/^HTTP\/1\.1 401 /);
    expect(text).toContain('"code":"unauthorized"');
  });

  it('returns an error for a project of another organization', async () => {
    const other = await openOrganization(bench.gateway, null);
    const projects: Body = await (await bench.gateway.request('/v1/projects', { key: other.key })).json();
    for (const id of [projects.data[0].id, 'proj_nonsense', '', 'proj_00000000-0000-7000-8000-000000000000']) {
      const answer = await bench.chat({}, { headers: { 'x-project-id': id } });
      expect(await errorOf(answer)).toMatchObject({
        status: 400,
        code: 'invalid_request_error',
        param: 'X-Project-ID',
      });
    }
  });

  it('returns 400 for control characters in X-Project-ID, and adds no header', async () => {
    const head = `POST ${chatPath} HTTP/1.1\r\nHost: x\r\n${auth()}Content-Type: application/json\r\n`;
    const body = JSON.stringify(chatBody({}));
    for (const value of ['a\0b', 'a\rX-Evil: 1', 'proj_\x01']) {
      const lines = `X-Project-ID: ${value}\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
      const text = await exchangeRaw(bench.gateway.url, [head + lines + body]);
      expect(text).toMatch(/^HTTP\/1\.1 400 /);
      expect(text).toContain('"code":"invalid_request_error"');
      expect(text.toLowerCase()).not.toContain('x-evil');
    }
  });
});

describe('a missing path, method or model', () => {
  it('returns 404 for an unknown path under /v1, with and without a key', async () => {
    for (const key of [bench.gateway.key, null]) {
      const answer = await bench.gateway.request('/v1/nothing', { key });
      expect(answer.headers.get('x-request-id')).not.toBeNull();
      expect(await errorOf(answer)).toMatchObject({ status: 404, code: 'not_found', type: 'invalid_request_error' });
    }
  });

  it('returns 405 with the right method for a wrong one', async () => {
    for (const [path, method, allow] of [
      [chatPath, 'GET', 'POST'],
      ['/v1/embeddings', 'DELETE', 'POST'],
      ['/v1/models', 'POST', 'GET, HEAD'],
    ] as const) {
      const answer = await bench.gateway.request(path, { method });
      expect(answer.headers.get('allow')).toBe(allow);
      expect(answer.headers.get('x-request-id')).not.toBeNull();
      expect(await errorOf(answer)).toMatchObject({ status: 405, code: 'method_not_allowed' });
    }
  });

  it.each([
    ['/v1/audio/transcriptions', 'coming soon'],
    ['/v1/audio/translations', 'coming soon'],
    ['/v1/audio/speech', 'coming soon'],
    ['/v1/images/generations', 'Image generation is not supported'],
    ['/v1/images/edits', 'Image generation is not supported'],
    ['/v1/images/variations', 'Image generation is not supported'],
    ['/v1/moderations', 'Moderation models are not supported'],
    ['/v1/responses/compact', 'Compacting a conversation is not supported'],
  ])('returns 501 without an error in the log for what no model serves: %s', async (path, says) => {
    const answer = await bench.post(path, {});
    expect(answer.headers.get('x-request-id')).not.toBeNull();
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 501, code: 'not_implemented', type: 'not_implemented' });
    expect(error.message).toContain(says);
    const id = answer.headers.get('x-request-id') ?? 'none';
    expect(bench.gateway.logLines.filter((line) => line.includes(id) && line.includes('"level":50'))).toEqual([]);
  });

  it('returns model_not_found with alternatives for a missing, unknown or disabled model, or the wrong route', async () => {
    const cases: [string, object, string][] = [
      [chatPath, { messages: [] }, 'model'],
      [chatPath, chatBody({ model: null }), 'model'],
      [chatPath, chatBody({ model: '' }), 'model'],
      [chatPath, chatBody({ model: 'nope' }), 'chat'],
      [chatPath, chatBody({ model: 'off' }), 'chat'],
      [chatPath, chatBody({ model: 'embed' }), 'chat'],
      ['/v1/embeddings', { model: 'chat', input: 'x' }, 'embed'],
    ];
    for (const [path, body, named] of cases) {
      const error = await errorOf(await bench.post(path, body));
      expect(error).toMatchObject({
        status: 400,
        code: 'model_not_found',
        type: 'invalid_request_error',
        param: 'model',
      });
      expect(error.message).toContain(named);
      expect(error.message).not.toContain('off,');
    }
  });

  it('returns 503 pricing_unavailable for a model without a price', async () => {
    const answer = await bench.chat({ model: 'unpriced' });
    // Nobody waits for a failure that only an operator can fix.
    expect([answer.headers.get('retry-after'), answer.headers.get('x-should-retry')]).toEqual([null, 'false']);
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 503, code: 'pricing_unavailable', type: 'server_error' });
  });
});

describe('a wallet that cannot pay', () => {
  it('returns 402 with balance, held and needed when it is empty', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    const error = await errorOf(await bench.chat({}, { key }));
    expect(error).toMatchObject({ status: 402, code: 'insufficient_funds', type: 'billing_error', param: null });
    expect(error.message).toMatch(/balance 0(?:\.0+)? USD.*held .*0(?:\.0+)? USD.*needed 0\.0\d+ USD/);
  });

  it('returns 402 when it pays for the prompt but not for one token', async () => {
    const { key } = await openOrganization(bench.gateway, '0.000001');
    for (const stream of [true, false]) {
      const error = await errorOf(await bench.chat({ stream }, { key }));
      expect(error).toMatchObject({ status: 402, code: 'insufficient_funds' });
      expect(error.message).toContain('balance 0.000001 USD');
    }
  });
});

describe('a malformed HTTP request', () => {
  const postHead = (more: string): string => `POST ${chatPath} HTTP/1.1\r\nHost: x\r\n${auth()}${more}\r\n`;

  it('returns 415 for another content type, none, or an unknown content encoding', async () => {
    for (const headers of [
      { 'content-type': 'text/plain' },
      { 'content-type': 'application/json-seq' },
      { 'content-type': 'multipart/form-data; boundary=x' },
      { ...json, 'content-encoding': 'compress' },
    ]) {
      const error = await errorOf(await bench.post(chatPath, '{}', { headers }));
      expect(error).toMatchObject({ status: 415, code: 'unsupported_media_type', type: 'invalid_request_error' });
    }
    const text = await exchangeRaw(bench.gateway.url, [postHead('Content-Length: 2\r\nConnection: close\r\n'), '{}']);
    expect(text).toMatch(/^HTTP\/1\.1 415 /);
  });

  it('returns 413 for a body of 50 MB, in a way that the client can read', async () => {
    const answer = await bench.post(chatPath, `{"model":"chat","x":"${'y'.repeat(50_000_000)}"}`);
    expect(await errorOf(answer)).toMatchObject({ status: 413, code: 'request_too_large' });
  });

  it('returns 413 for 50 MB in chunks without a length', async () => {
    const chunk = `100000\r\n${'y'.repeat(1_048_576)}\r\n`;
    const parts = [
      postHead('Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n'),
      ...Array(50).fill(chunk),
    ];
    const text = await exchangeRaw(bench.gateway.url, [...parts, '0\r\n\r\n'], (got) =>
      got.includes('request_too_large'),
    );
    expect(text).toMatch(/^HTTP\/1\.1 413 /);
  });

  it('returns 408 for a body that stalls', async () => {
    const head = postHead('Content-Type: application/json\r\nContent-Length: 100\r\n');
    const text = await exchangeRaw(bench.gateway.url, [head, '{"model":']);
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
    expect(text).toContain('"code":"request_timeout"');
  });

  it('returns 408 for headers that do not end', async () => {
    const text = await exchangeRaw(bench.gateway.url, [`POST ${chatPath} HTTP/1.1\r\nHost: x\r\nX-Slow: `]);
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
    expect(text).toContain('"code":"request_timeout"');
  });

  it('returns 408 for unfinished headers after the process was stopped, and serves a whole request', async () => {
    const { port, hostname } = new URL(bench.gateway.url);
    const request = `GET /v1/models HTTP/1.1\r\nHost: x\r\n${auth()}Connection: close\r\n\r\n`;
    for (;;) {
      const beganMs = performance.now();
      const sockets = [connect(Number(port), hostname), connect(Number(port), hostname)];
      await Promise.all(sockets.map((socket) => once(socket, 'connect')));
      // Connections are accepted in their order: those above before the one of this request.
      await exchangeRaw(bench.gateway.url, [request]);
      // Later than that their second may be over, rightly.
      if (performance.now() - beganMs > 500) {
        for (const socket of sockets) socket.destroy();
        continue;
      }
      sockets[0]?.write(request.slice(0, 40));
      sockets[1]?.write(request);
      // Gateway and clients are one process here: what is written lies on the wire, and nobody reads it.
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
      const [half, whole] = await Promise.all(sockets.map((socket) => textOf(socket)));
      expect(half).toMatch(/^HTTP\/1\.1 408 /);
      expect(whole).toMatch(/^HTTP\/1\.1 200 /);
      return;
    }
  });

  it('returns 417 in the error shape for an unknown expectation, and keeps the connection', async () => {
    const refused = `GET /v1/models HTTP/1.1\r\nHost: x\r\n${auth()}Expect: a-miracle\r\n\r\n`;
    const served = `GET /v1/models HTTP/1.1\r\nHost: x\r\n${auth()}Connection: close\r\n\r\n`;
    const text = await exchangeRaw(bench.gateway.url, [refused, served]);
    expect(text).toMatch(/^HTTP\/1\.1 417 .*\r\n/);
    expect(text).toContain('"type":"invalid_request_error"');
    expect(text).toMatch(/\r\nx-request-id: [0-9a-f-]{36}\r\n/);
    expect(text).toContain('HTTP/1.1 200 ');
    const body = JSON.stringify(chatBody({}));
    const head = `POST ${chatPath} HTTP/1.1\r\nHost: x\r\n${auth()}Content-Type: application/json\r\n`;
    const asked = `${head}Content-Length: ${body.length}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n`;
    const continued = await exchangeRaw(bench.gateway.url, [asked, body]);
    expect(continued).toMatch(/^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
  });

  it('returns 400 in the error shape for bytes that are not HTTP', async () => {
    for (const bytes of [
      'nonsense\r\n\r\n',
      `GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n`,
      'GET /v1/models HTTP/1.1\r\nHost: a b/<>\r\nConnection: close\r\n\r\n',
      'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n',
    ]) {
      const text = await exchangeRaw(bench.gateway.url, [bytes]);
      expect(text).toMatch(/^HTTP\/1\.1 400 /);
      expect(text).toContain('"type":"invalid_request_error"');
      expect(text).toMatch(/\r\nx-request-id: [0-9a-f-]{36}\r\n/);
    }
    const large = `GET / HTTP/1.1\r\nHost: x\r\nX-Large: ${'x'.repeat(100_000)}\r\n\r\n`;
    expect(await exchangeRaw(bench.gateway.url, [large])).toMatch(/^HTTP\/1\.1 431 /);
  });
});

describe('the address of a request', () => {
  it('returns 400 in the error shape, with an id, when it is malformed', async () => {
    for (const start of [
      'GET /v1/models HTTP/1.1\r\nHost: a b/',
      'GET /v1/models/x\\y HTTP/1.1\r\nHost: x',
      'POST http://[::1/v1/embeddings HTTP/1.1\r\nHost: x',
    ]) {
      const text = await exchangeRaw(bench.gateway.url, [`${start}\r\n${auth()}Connection: close\r\n\r\n`]);
      expect(text).toMatch(/^HTTP\/1\.1 400 /);
      expect(text).toContain('"message":"The address of the request, or its Host header, is not valid."');
      expect(text).toMatch(/\r\nx-request-id: [0-9a-f-]{36}\r\n/);
    }
  });

  it('returns 400 in the error shape, with an id, without exactly one Host in HTTP/1.1', async () => {
    for (const head of [
      `GET /v1/models HTTP/1.1\r\n${auth()}`,
      'GET /healthz HTTP/1.1\r\n',
      `GET /v1/models HTTP/1.1\r\nHost: x\r\n${auth()}hOST: x\r\n`,
      `GET /v1/models HTTP/1.0\r\nHost: x\r\nHost: y\r\n${auth()}`,
      `POST ${chatPath} HTTP/1.1\r\n${auth()}Content-Type: application/json\r\nContent-Length: 2\r\n`,
    ]) {
      const text = await exchangeRaw(bench.gateway.url, [`${head}Connection: close\r\n\r\n`, '{}']);
      expect(text).toMatch(/^HTTP\/1\.1 400 /);
      expect(text).toContain(
        '"message":"An HTTP/1.1 request must have exactly one Host header.","type":"invalid_request_error"',
      );
      expect(text).toMatch(/\r\nx-request-id: [0-9a-f-]{36}\r\n/);
    }
  });

  it('needs no Host in HTTP/1.0', async () => {
    expect(await exchangeRaw(bench.gateway.url, ['GET /healthz HTTP/1.0\r\n\r\n'])).toMatch(/^HTTP\/1\.1 200 /);
    const text = await exchangeRaw(bench.gateway.url, [`GET /v1/models HTTP/1.0\r\n${auth()}\r\n`]);
    expect(text).toMatch(/^HTTP\/1\.1 200 /);
  });
});

describe('rejected requests', () => {
  it('are counted per key and code, and leave no record', async () => {
    const { key } = await openOrganization(bench.gateway, null);
    const day = new Date().toISOString().slice(0, 10);
    for (let count = 0; count < 3; count += 1) await bench.chat({}, { key });
    for (let count = 0; count < 2; count += 1) await bench.chat({ model: 'nope' }, { key });
    await bench.chat({ priority: 1 }, { key });
    const nextDay = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    const wanted = { insufficient_funds: 3, model_not_found: 2, unsupported_parameter: 1 };
    const read = async (): Promise<Body> =>
      (await bench.gateway.request(`/v1/usage/summary?from=${day}&to=${nextDay}`, { key })).json();
    await expect.poll(async () => (await read()).totals.refusals).toEqual(wanted);
    const records: Body = await (await bench.gateway.request('/v1/usage/requests', { key })).json();
    expect(records.data).toEqual([]);
  });
});

describe('a wrong path', () => {
  it.each(['/chat/completions', '/models'])('returns 404 with the base URL: %s', async (path) => {
    const answer = await bench.gateway.request(path, path === '/models' ? {} : { body: {} });
    expect(answer.status).toBe(404);
    expect((await errorOf(answer)).message).toContain('The base URL of this API ends with /v1');
  });

  it.each([
    ['/v1/v1/messages', 'Use /v1/messages for /messages.'],
    ['/v1/chat/completions/chat/completions', 'Use /v1/chat/completions for /chat/completions.'],
    ['/openai/deployments/chat/chat/completions', 'Use /v1/chat/completions for /chat/completions.'],
  ])('returns 404 with the right path when a part is repeated: %s', async (path, said) => {
    const answer = await bench.gateway.request(path, { body: {} });
    expect(await errorOf(answer)).toMatchObject({ status: 404, message: `Path not found. ${said}` });
  });

  it.each([
    ['/v1/chat/completions/', 'Use /v1/chat/completions, without the final slash.'],
    ['/v1/chat/completions//', 'Use /v1/chat/completions, without the final slash.'],
    ['/v1/models/', 'Use /v1/models, without the final slash.'],
    ['/v1/keys/', 'Use /v1/keys, without the final slash.'],
    ['/v1/v1/messages/', 'Use /v1/messages for /messages.'],
  ])('returns 404 with the right path when it ends with a slash: %s', async (path, said) => {
    for (const method of ['GET', 'POST']) {
      const answer = await bench.gateway.request(path, { method });
      expect(await errorOf(answer)).toMatchObject({ status: 404, message: `Path not found. ${said}` });
    }
  });

  it('returns 404 without a suggestion when it resembles nothing', async () => {
    const answer = await bench.gateway.request('/nothing/of/it', { body: {} });
    expect((await errorOf(answer)).message).toBe('Nothing exists at this path.');
  });
});

describe('a route that OpenAI or Anthropic serve and Headgate does not', () => {
  it.each([
    ['/v1/messages/batches', 404, 'POST /v1/batches'],
    ['/v1/conversations', 501, '"previous_response_id"'],
    ['/v1/conversations/conv_1/items', 501, '"previous_response_id"'],
    ['/v1/responses/compact', 501, '"input"'],
  ])('names the alternative: %s', async (path, status, said) => {
    const error = await errorOf(await bench.gateway.request(path, { body: {} }));
    expect(error).toMatchObject({ status, code: status === 404 ? 'not_found' : 'not_implemented' });
    expect(error.message).toContain(said);
  });
});

describe('X-Should-Retry: false', () => {
  it.each([
    ['what nothing here serves', '/v1/organization/audit_logs', 501],
    ['what contradicts what is there', '/v1/organization/projects', 409],
  ])('is sent for %s', async (_what, path, status) => {
    const project = { name: 'There already' };
    const body = status === 409 ? { body: project } : {};
    if (status === 409) await bench.gateway.request(path, body);
    const answer = await bench.gateway.request(path, body);
    expect([answer.status, answer.headers.get('x-should-retry')]).toEqual([status, 'false']);
  });
});
