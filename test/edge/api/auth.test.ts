import { connect } from 'node:net';
import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

/** Sends a request as it is written here, which no client library would. */
function askRaw(path: string, headerLines: readonly string[]): Promise<{ status: number; text: string }> {
  const { hostname, port } = new URL(api().url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname);
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.on('error', reject);
    socket.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      resolve({ status: Number(text.split(' ')[1]), text });
    });
    socket.write(
      [`GET ${path} HTTP/1.1`, 'host: x', 'connection: close', ...headerLines, '', ''].join('\r\n'),
      'latin1',
    );
  });
}

function mistype(secret: string): string {
  const at = secret.length - 10;
  const other = secret[at] === 'x' ? 'y' : 'x';
  return secret.slice(0, at) + other + secret.slice(at + 1);
}

describe('a request without a valid key', () => {
  it('returns 401 in the error format of the API, with WWW-Authenticate', async () => {
    for (const [path, error] of [
      ['/v1/keys', { type: 'auth_error', code: 'unauthorized', param: null }],
      ['/v1/organizations', { type: 'auth_error', code: 'unauthorized', param: null }],
      ['/v1/projects', { code: 'UNAUTHORIZED', details: [] }],
      ['/v1/runner', { code: 'UNAUTHORIZED', details: [] }],
      ['/api/v1/projects', { code: 'UNAUTHORIZED', details: [] }],
    ] as const) {
      const answer = await ask(path, { key: null });
      expect([path, answer.status]).toEqual([path, 401]);
      expect(answer.body.error).toEqual({ ...error, message: expect.any(String) });
      expect(answer.headers.get('www-authenticate')).toBe('Bearer');
      expect(answer.headers.get('x-request-id')).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
    }
  });

  it.each([
    ['empty', ''],
    ['without a secret', 'Bearer'],
    ['with blanks only', 'Bearer    '],
    ['of another scheme', 'Basic SECRET'],
    ['of no scheme', 'SECRET'],
    ['of a scheme that begins alike', 'Bearers SECRET'],
    ['with two secrets', 'Bearer SECRET, Bearer SECRET'],
    ['with something behind', 'Bearer SECRET x'],
    ['with a tab', 'Bearer\tSECRET'],
    ['quoted', 'Bearer "SECRET"'],
  ])('returns 401 when Authorization is %s', async (_, authorization) => {
    const headers = { authorization: authorization.replaceAll('SECRET', api().admin) };
    expect((await ask('/v1/keys', { headers })).status).toBe(401);
  });

  it('returns 401 for two Authorization headers, even of the same key', async () => {
    const line = `authorization: Bearer ${api().admin}`;
    expect((await askRaw('/v1/keys', [line])).status).toBe(200);
    for (const lines of [
      [line, line],
      [line, 'AUTHORIZATION: Bearer x'],
      ['authorization: Basic eDp5', line],
    ]) {
      const answer = await askRaw('/v1/keys', lines);
      expect(answer.status).toBe(401);
      expect(answer.text).toContain('several Authorization headers');
    }
  });

  it('returns 400 or 401 for bytes outside ASCII or control characters in the secret', async () => {
    for (const text of ['Bearer sk-hg-\u00e9\u00e9\u00e9', 'Bearer sk-hg-\u007f']) {
      expect([400, 401]).toContain((await askRaw('/v1/keys', [`authorization: ${text}`])).status);
    }
  });

  it('returns 401 for a wrong checksum, a wrong prefix or an unknown key', async () => {
    const { admin } = api();
    for (const secret of [mistype(admin), admin.slice(0, -1), `${admin}x`, admin.toUpperCase(), `x${admin}`, 'x']) {
      expect((await ask('/v1/keys', { key: secret })).status).toBe(401);
    }
  });

  it('accepts the Bearer scheme in any case', async () => {
    for (const scheme of ['bearer', 'BEARER', 'Bearer ']) {
      expect((await ask('/v1/keys', { headers: { authorization: `${scheme} ${api().admin}` } })).status).toBe(200);
    }
  });

  it('ignores keys outside the Authorization header', async () => {
    const secret = api().admin;
    expect((await ask(`/v1/keys?api_key=${secret}`, { key: null })).status).toBe(401);
    expect(
      (await ask('/v1/keys', { key: null, headers: { 'x-api-key': secret, cookie: `key=${secret}` } })).status,
    ).toBe(401);
  });
});

describe('key scopes', () => {
  it('reject inference keys for keys, organizations, credits, and changes of projects and users', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    for (const [method, path, sent] of [
      ['GET', '/v1/keys'],
      ['POST', '/v1/keys', {}],
      ['GET', `/v1/keys/${body.id}`],
      ['PATCH', `/v1/keys/${body.id}`, { name: 'x' }],
      ['DELETE', `/v1/keys/${body.id}`],
      ['GET', '/v1/organizations'],
      ['POST', '/v1/organizations', { name: 'x' }],
      ['POST', '/v1/wallet/credits', { amount: '1', reference: 'x' }],
    ] as const) {
      const answer = await ask(path, { key: body.secret, method, ...(sent && { body: sent }) });
      const { code, type } = answer.body.error;
      expect([method, path, answer.status, code, type]).toEqual([
        method,
        path,
        403,
        'insufficient_scope',
        'auth_error',
      ]);
    }
    for (const path of ['/v1/projects', '/api/v1/projects', '/v1/users', '/api/v1/users']) {
      const answer = await ask(path, { key: body.secret, body: { name: 'x' } });
      expect([answer.status, answer.body.error.code]).toEqual([403, 'FORBIDDEN']);
    }
    const changed = await ask(`/v1/projects/${body.project_id}`, {
      key: body.secret,
      method: 'PATCH',
      body: { name: 'x' },
    });
    expect([changed.status, changed.body.error.code]).toEqual([403, 'FORBIDDEN']);
    expect((await ask('/v1/wallet', { key: body.secret })).status).toBe(200);
  });

  it('are checked before the body is parsed', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    expect((await ask('/v1/keys', { key: body.secret, method: 'POST', body: '{' })).status).toBe(403);
    expect((await ask('/v1/keys', { key: null, method: 'POST', body: '{' })).status).toBe(401);
  });

  it("reject an organization's key for /v1/organizations", async () => {
    const { key } = await api().organization();
    for (const body of [undefined, { name: 'Mine' }]) {
      const answer = await ask('/v1/organizations', { key, body });
      expect([answer.status, answer.body.error.code]).toEqual([403, 'insufficient_scope']);
    }
  });
});

describe('X-Project-ID', () => {
  it('returns 400 for an unknown project, a project of another organization or a malformed id', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const { body: projects } = await ask('/v1/projects', { key: other.key });
    for (const value of [projects.data[0].id, formatId('proj', uuidv7()), 'default', '', 'proj_1, proj_2', '../..']) {
      const answer = await ask('/v1/keys', { key: mine.key, headers: { 'x-project-id': value } });
      expect([value, answer.status]).toEqual([value, 400]);
      const { code, param, message } = answer.body.error;
      expect([code, param]).toEqual(['invalid_request_error', 'X-Project-ID']);
      expect(message).toContain('project not found in this organization');
    }
  });

  it('returns 400 when it is sent twice or contains line breaks', async () => {
    const { body } = await ask('/v1/projects');
    const lines = [`authorization: Bearer ${api().admin}`, `x-project-id: ${body.data[0].id}`];
    expect((await askRaw('/v1/keys', lines)).status).toBe(200);
    expect((await askRaw('/v1/keys', [...lines, `x-project-id: ${body.data[0].id}`])).status).toBe(400);
    for (const value of ['proj_\rx-injected: 1', 'proj_\0', 'proj_\n folded']) {
      expect((await askRaw('/v1/keys', [...lines.slice(0, 1), `x-project-id: ${value}`])).status).toBe(400);
    }
  });
});
