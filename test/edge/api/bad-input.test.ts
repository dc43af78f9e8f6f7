import { describe, expect, it } from 'vitest';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

const bytes = (...parts: (string | number[])[]): Uint8Array<ArrayBuffer> =>
  new Uint8Array(Buffer.concat(parts.map((part) => Buffer.from(part as string))));

describe.each([
  ['/v1/keys', 'POST'],
  ['/v1/keys/report', 'POST'],
  ['/v1/organizations', 'POST'],
  ['/v1/projects', 'POST'],
  ['/v1/clusters', 'POST'],
  ['/api/v1/projects', 'POST'],
  ['/v1/users', 'POST'],
])('the body of %s', (path, method) => {
  const generic = /projects|users|clusters/.test(path);
  /** An answer as [status, code, field, text]. */
  const read = ({ status, body }: Answer): unknown[] => {
    const { error } = body;
    return generic
      ? [status, error.code, error.details[0]?.field ?? null, error.message]
      : [status, error.code, error.param, error.message];
  };
  const code = generic ? 'VALIDATION_ERROR' : 'invalid_request_error';

  it.each([
    ['nothing', undefined, 'is missing'],
    ['nothing but a type', '', 'is missing'],
    ['half a document', '{"name":', 'not valid JSON'],
    ['two documents', '{}{}', 'not valid JSON'],
    ['a list', '[]', 'must be a JSON object'],
    ['null', 'null', 'must be a JSON object'],
    ['a text', '"name"', 'must be a JSON object'],
    ['a constructor', '{"__proto__":', 'not valid JSON'],
    ['bytes that are not UTF-8', bytes('{"name":"', [0xff, 0xfe], '"}'), 'not UTF-8'],
    ['an overlong encoding', bytes('{"name":"', [0xc0, 0x80], '"}'), 'not UTF-8'],
    ['a surrogate in UTF-8', bytes('{"name":"', [0xed, 0xa0, 0x80], '"}'), 'not UTF-8'],
  ])('is rejected with 400 when it is %s', async (_, body, text) => {
    const answer = await ask(path, { method, body });
    // A body that is no JSON at all has a code of its own there.
    const own = generic && text.startsWith('not ') ? 'INVALID_JSON' : code;
    expect(read(answer)).toEqual([400, own, 'body', expect.stringContaining(text)]);
  });

  it('is rejected with 400 for a duplicate or unknown field', async () => {
    const twice = await ask(path, { method, body: '{"name":"a","secret":"a","n\\u0061me":"b"}' });
    expect(read(twice)).toEqual([400, code, 'name', 'name: appears twice']);
    const unknown = await ask(path, { method, body: '{"name":"a","secret":"a","__proto__":{},"nmae":"b"}' });
    expect(unknown.status).toBe(400);
    expect(JSON.stringify(unknown.body)).toMatch(/nmae|name|secret|__proto__/);
  });

  it('is rejected with 415 for another content type', async () => {
    for (const type of [
      'text/plain',
      'application/x-www-form-urlencoded',
      'multipart/form-data; boundary=x',
      'application/jsonx',
      'json',
    ]) {
      const answer = await ask(path, { method, body: '{"name":"a"}', headers: { 'content-type': type } });
      expect(read(answer).slice(0, 2)).toEqual([415, generic ? 'UNSUPPORTED_MEDIA_TYPE' : 'unsupported_media_type']);
    }
  });

  it('is rejected with 413 when it is too large, and the client can read the response', async () => {
    const most = generic && !path.includes('clusters') ? 102_400 : 1_048_576;
    for (const size of [most + 1, 50_000_000]) {
      const answer = await ask(path, { method, body: `{"name":"${'x'.repeat(size)}"}` });
      expect(read(answer).slice(0, 2)).toEqual([413, generic ? 'PAYLOAD_TOO_LARGE' : 'request_too_large']);
      expect(read(answer)[3]).toContain(`${most} bytes`);
    }
  });

  it('is accepted when Content-Type has a charset', async () => {
    const answer = await ask(path, {
      method,
      body: '{"x":1}',
      headers: { 'content-type': 'Application/JSON; charset=utf-8' },
    });
    expect(answer.status).toBe(400);
    expect(JSON.stringify(answer.body)).toContain('x: is not a known field');
  });
});

describe('paths and methods', () => {
  it('return 405 with Allow when the path exists for other methods', async () => {
    for (const [method, path, allow] of [
      ['PUT', '/v1/keys', 'GET, HEAD, POST'],
      ['DELETE', '/v1/keys', 'GET, HEAD, POST'],
      ['POST', '/v1/keys/key_1', 'DELETE, GET, HEAD, PATCH'],
      ['GET', '/v1/keys/report', 'POST'],
      ['DELETE', '/v1/keys/report', 'POST'],
      ['DELETE', '/v1/organizations', 'GET, HEAD, POST'],
      ['POST', '/docs', 'GET, HEAD'],
      ['POST', '/openapi.json', 'GET, HEAD'],
    ] as const) {
      const answer = await ask(path, { method });
      expect([method, path, answer.status, answer.headers.get('allow')]).toEqual([method, path, 405, allow]);
      expect(answer.body.error).toMatchObject({
        type: 'invalid_request_error',
        code: 'method_not_allowed',
        param: null,
      });
    }
    const generic = await ask('/api/v1/projects/proj_1/archive', { method: 'GET' });
    expect([generic.status, generic.headers.get('allow'), generic.body.error.code]).toEqual([
      405,
      'POST',
      'METHOD_NOT_ALLOWED',
    ]);
  });

  it('return 404 in the error format of the API for an unknown path', async () => {
    for (const path of [
      '/v1',
      '/v1/nothing',
      '/v1/keys/',
      '/v1/keys/a/b',
      '/v1//keys',
      '/',
      '/v2/keys',
      '/v1/Keys',
      '/v1/%zz',
    ]) {
      const answer = await ask(path);
      expect([path, answer.status]).toEqual([path, 404]);
      expect(answer.body.error).toEqual({
        message: expect.any(String),
        type: 'invalid_request_error',
        code: 'not_found',
        param: null,
      });
      expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
    }
    for (const path of ['/api/v1', '/api/v1/nothing', '/v1/projects/a/b', '/api/v1/keys']) {
      expect((await ask(path)).body).toEqual({
        error: { code: 'NOT_FOUND', message: expect.any(String), details: [] },
      });
    }
  });

  it('return a unique x-request-id on every response', async () => {
    const answers = await Promise.all([
      ask('/v1/keys'),
      ask('/v1/keys'),
      ask('/nothing'),
      ask('/docs'),
      ask('/openapi.json'),
    ]);
    const ids = answers.map(({ headers }) => headers.get('x-request-id'));
    expect(ids).toEqual(answers.map(() => expect.stringMatching(/^[0-9a-f-]{36}$/)));
    expect(new Set(ids).size).toBe(5);
  });
});

describe('an internal error', () => {
  it('returns 500 without details, and is logged with the request id', async () => {
    const { db } = api();
    const { key } = await api().organization();
    await db.sql`alter table api_keys add constraint broken_on_purpose check (false) not valid`;
    try {
      const answer = await ask('/v1/keys', { key, body: { name: 'app' } });
      expect(answer.status).toBe(500);
      expect(answer.body.error).toMatchObject({ message: 'An internal error occurred.' });
      expect(JSON.stringify(answer.body)).not.toMatch(/broken_on_purpose|api_keys/);
      const id = answer.headers.get('x-request-id') ?? 'none';
      const isOfIt = (line: string): boolean => line.includes(id) && line.includes('broken_on_purpose');
      expect(api().logLines.filter(isOfIt)).toHaveLength(1);
    } finally {
      await db.sql`alter table api_keys drop constraint broken_on_purpose`;
    }
    expect((await ask('/v1/keys', { key, body: { name: 'app' } })).status).toBe(201);
  });
});
