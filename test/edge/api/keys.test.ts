import { describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

const dayS = 86_400;

/** The error of an answer, as [status, code, type, param]. */
const refusal = ({ status, body }: Answer): unknown[] => [
  status,
  body.error?.code,
  body.error?.type,
  body.error?.param,
];

describe('POST /v1/keys', () => {
  it.each([
    [{ scope: 'root' }, 'scope'],
    [{ expiry: '2d' }, 'expiry'],
    [{ expires_at: 1 }, 'expires_at'],
    [{ expires_at: 1.5 }, 'expires_at'],
    [{ expires_at: '2030-01-01' }, 'expires_at'],
    [{ expires_at: 1e15 }, 'expires_at'],
    [{ expiry: '7d', expires_at: 4_000_000_000 }, 'expires_at'],
    [{ requests_per_minute: 0 }, 'requests_per_minute'],
    [{ max_concurrency: -1 }, 'max_concurrency'],
    [{ tokens_per_minute: 1.5 }, 'tokens_per_minute'],
    [{ monthly_token_limit: '5' }, 'monthly_token_limit'],
    [{ requests_per_minute: 3_000_000_000 }, 'requests_per_minute'],
    [{ tokens_per_minute: 1e16 }, 'tokens_per_minute'],
    [{ expires_at: 1e300 }, 'expires_at'],
    [{ store_requests: 1 }, 'store_requests'],
    [{ cache_responses: null }, 'cache_responses'],
    [{ name: '' }, 'name'],
    [{ name: '   ' }, 'name'],
    [{ name: 'a\0b' }, 'name'],
    [{ name: 'a\nb' }, 'name'],
    [{ name: '\ud800' }, 'name'],
    [{ name: 'x'.repeat(201) }, 'name'],
    [{ name: 5 }, 'name'],
    [{ project_id: 'default' }, 'project_id'],
    [{ organisation_id: 'org_1' }, 'organisation_id'],
  ])('returns 400 with the field for %j', async (fields, param) => {
    const answer = await ask('/v1/keys', { body: { name: 'bad', ...fields } });
    expect(refusal(answer)).toEqual([400, 'invalid_request_error', 'invalid_request_error', param]);
    expect(answer.body.error.message).toMatch(new RegExp(`^${param}: `));
    expect(answer.body.error.message).not.toMatch(/Invalid|Too big|expected/);
  });

  it('returns the same error for a project of another organization and an unknown one', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const projects = await ask('/v1/projects', { key: other.key });
    const answers = [];
    for (const id of [projects.body.data[0].id, formatId('proj', uuidv7())]) {
      answers.push(await ask('/v1/keys', { key: mine.key, body: { project_id: id } }));
    }
    for (const answer of answers)
      expect(refusal(answer)).toEqual([400, 'invalid_request_error', 'invalid_request_error', 'project_id']);
    expect(answers[0]?.body).toEqual(answers[1]?.body);
  });

  it('rejects an archived project', async () => {
    const { key } = await api().organization();
    const { body: project } = await ask('/v1/projects', { key, body: { name: 'closed' } });
    await ask(`/v1/projects/${project.id}/archive`, { key, method: 'POST' });
    const answer = await ask('/v1/keys', { key, body: { project_id: project.id } });
    expect(refusal(answer)).toEqual([409, 'conflict', 'invalid_request_error', 'project_id']);
  });

  it('returns the secret once, and the default limits', async () => {
    const { key } = await api().organization();
    const nowS = Math.floor(Date.now() / 1000);
    const { status, body } = await ask('/v1/keys', { key, body: { name: '  web app ' } });
    expect(status).toBe(201);
    const { secret, ...record } = body;
    expect(record).toEqual({
      id: expect.stringMatching(/^key_[0-9a-f]{32}$/),
      object: 'api_key',
      name: 'web app',
      prefix: `sk-hg-${body.project_id.slice(-12)}`,
      last4: secret.slice(-4),
      scope: 'inference',
      held: false,
      project_id: expect.stringMatching(/^proj_[0-9a-f]{32}$/),
      user_id: expect.stringMatching(/^user_[0-9a-f]{32}$/),
      service_account_id: null,
      status: 'active',
      created_at: expect.any(Number),
      expires_at: null,
      last_used_at: null,
      revoked_at: null,
      rotated_at: null,
      former_secrets_end_at: null,
      requests_per_minute: 60,
      max_concurrency: 10,
      tokens_per_minute: null,
      monthly_token_limit: null,
      store_requests: false,
      models: null,
      cache_responses: false,
      unserved_tools: null,
      end_user_from_header: false,
      confined: null,
    });
    expect(secret).toMatch(new RegExp(`^${body.prefix}-[0-9A-Za-z]{32}$`));
    expect(Math.abs(body.created_at - nowS)).toBeLessThan(60);
    expect((await ask(`/v1/keys/${body.id}`, { key })).body).toEqual(record);
    expect((await ask('/v1/keys', { key })).body.data).toContainEqual(record);
  });

  it('keeps the given limits, toggles and scope, including null', async () => {
    const { key } = await api().organization();
    const fields = {
      scope: 'management',
      requests_per_minute: null,
      max_concurrency: null,
      tokens_per_minute: 9_007_199_254_740_991,
      monthly_token_limit: 1,
      store_requests: true,
      cache_responses: true,
    };
    expect((await ask('/v1/keys', { key, body: fields })).body).toMatchObject(fields);
  });

  it.each([
    ['7d', 7],
    ['30d', 30],
    ['90d', 90],
    ['1y', 365],
  ])('creates a key with expiry %s that ends after %i days', async (expiry, days) => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { expiry } });
    expect(body.expires_at - body.created_at).toBe(days * dayS);
  });

  it('accepts an expiry time, and null or "never" for no expiry', async () => {
    const { key } = await api().organization();
    const moment = Math.floor(Date.now() / 1000) + 100 * dayS;
    expect((await ask('/v1/keys', { key, body: { expires_at: moment } })).body.expires_at).toBe(moment);
    expect((await ask('/v1/keys', { key, body: { expires_at: null } })).body.expires_at).toBeNull();
    expect((await ask('/v1/keys', { key, body: { expiry: 'never' } })).body.expires_at).toBeNull();
  });

  it('creates the key in the project of the body or of X-Project-ID', async () => {
    const { key } = await api().organization();
    const { body: project } = await ask('/v1/projects', { key, body: { name: 'search' } });
    const byBody = await ask('/v1/keys', { key, body: { project_id: project.id } });
    const byHeader = await ask('/v1/keys', { key, body: {}, headers: { 'x-project-id': project.id } });
    expect([byBody.body.project_id, byHeader.body.project_id]).toEqual([project.id, project.id]);
  });

  it('stores no secret: not in the table of keys, the audit log or the log', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    await ask('/v1/keys/report', { key: null, body: { secret: body.secret } });
    const random = body.secret.slice(body.prefix.length + 1, -6);
    const rows = await api().db.sql`select row_to_json(api_keys)::text as row from api_keys
      union all select row_to_json(audit_log)::text from audit_log`;
    expect(rows.length).toBeGreaterThan(2);
    expect(rows.filter(({ row }) => String(row).includes(random))).toEqual([]);
    const [stored] = await api().db.sql`select encode(secret_hash, 'hex') as hash from api_keys
      where id = ${parseId('key', body.id)}`;
    expect(rows.filter(({ row }) => String(row).includes(stored?.['hash']))).toHaveLength(1);
    expect(api().logLines.filter((line) => line.includes(random))).toEqual([]);
  });
});

describe('the limit of active keys', () => {
  it('rejects the sixth key and says to revoke one; a revoked or expired key frees a place', async () => {
    const { key } = await api().organization();
    const made = [];
    for (let index = 2; index <= 5; index += 1) made.push(await ask('/v1/keys', { key, body: { expiry: '7d' } }));
    expect(made.map(({ status }) => status)).toEqual([201, 201, 201, 201]);
    const sixth = await ask('/v1/keys', { key, body: {} });
    expect(refusal(sixth)).toEqual([409, 'key_limit_reached', 'invalid_request_error', null]);
    expect(sixth.body.error.message).toContain('Revoke one');
    await ask(`/v1/keys/${made[0]?.body.id}`, { key, method: 'DELETE' });
    expect((await ask('/v1/keys', { key, body: { scope: 'management' } })).status).toBe(201);
    expect((await ask('/v1/keys', { key, body: {} })).status).toBe(409);
    api().turnClock(8 * dayS * 1000);
    const afterExpiry = await Promise.all([1, 2, 3, 4].map(() => ask('/v1/keys', { key, body: {} })));
    expect(afterExpiry.filter(({ status }) => status === 201)).toHaveLength(3);
    expect(afterExpiry.filter(({ status }) => status === 409)).toHaveLength(1);
  });

  it('is exact for concurrent requests', async () => {
    const { key } = await api().organization();
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask('/v1/keys', { key, body: {} })));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(4);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(16);
    expect((await ask('/v1/keys?status=active', { key })).body.data).toHaveLength(5);
  });
});

describe('PATCH /v1/keys/{id}', () => {
  it.each([
    [{ scope: 'management' }, 'scope', 'cannot be changed'],
    [{ expiry: 'never' }, 'expiry', 'cannot be changed'],
    [{ expires_at: 4_000_000_000 }, 'expires_at', 'cannot be changed'],
    [{ project_id: 'proj_1' }, 'project_id', 'cannot be changed'],
    [{ colour: 'red' }, 'colour', 'not a known field'],
    [{ requests_per_minute: 0 }, 'requests_per_minute', '1 or more'],
    [{ store_requests: 'yes' }, 'store_requests', 'boolean'],
    [{ name: null }, 'name', 'string'],
  ])('returns 400 for %j', async (fields, param, text) => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    const answer = await ask(`/v1/keys/${body.id}`, { key, method: 'PATCH', body: fields });
    expect(refusal(answer)).toEqual([400, 'invalid_request_error', 'invalid_request_error', param]);
    expect(answer.body.error.message).toContain(text);
  });

  it('keeps the fields that the body omits', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { name: 'first', tokens_per_minute: 5 } });
    const { secret, ...before } = body;
    const patch = { name: 'second', requests_per_minute: null, cache_responses: true };
    const after = await ask(`/v1/keys/${before.id}`, { key, method: 'PATCH', body: patch });
    expect([after.status, after.body]).toEqual([200, { ...before, ...patch }]);
    expect((await ask(`/v1/keys/${before.id}`, { key, method: 'PATCH', body: {} })).body).toEqual(after.body);
    expect(await api().keys.verify(secret)).toMatchObject({
      name: 'second',
      requestsPerMinute: null,
      cacheResponses: true,
    });
  });

  it('applies to the next request of a key in use', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    expect(await api().keys.verify(body.secret)).toMatchObject({ maxConcurrency: 10 });
    await ask(`/v1/keys/${body.id}`, { key, method: 'PATCH', body: { max_concurrency: 3 } });
    expect(api().keys.verify(body.secret)).toMatchObject({ maxConcurrency: 3 });
  });
});

describe('the end of a key', () => {
  it('rejects a revoked key on its next request, and notifies the listeners', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { scope: 'management' } });
    expect((await ask('/v1/keys', { key: body.secret })).status).toBe(200);
    const told: string[] = [];
    const off = api().keys.onRevoked((keyId) => told.push(formatId('key', keyId)));
    const revoked = await ask(`/v1/keys/${body.id}`, { key, method: 'DELETE' });
    expect([revoked.status, revoked.body.status, revoked.body.revoked_at]).toEqual([
      200,
      'revoked',
      expect.any(Number),
    ]);
    expect(refusal(await ask('/v1/keys', { key: body.secret }))).toEqual([401, 'unauthorized', 'auth_error', null]);
    const again = await ask(`/v1/keys/${body.id}`, { key, method: 'DELETE' });
    expect(again.body).toEqual(revoked.body);
    expect((await ask(`/v1/keys/${body.id}`, { key })).body).toEqual(revoked.body);
    off();
    // A poll in between also reports other keys, and this one again.
    expect(told).toContain(body.id);
  });

  it('lets a key revoke itself', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { scope: 'management' } });
    expect((await ask(`/v1/keys/${body.id}`, { key: body.secret, method: 'DELETE' })).status).toBe(200);
    expect((await ask('/v1/keys', { key: body.secret })).status).toBe(401);
  });

  it('rejects an expired key from that second on, and shows it as expired', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { scope: 'management', expiry: '7d' } });
    expect((await ask('/v1/keys', { key: body.secret })).status).toBe(200);
    api().turnClock(7 * dayS * 1000 + 1);
    expect(refusal(await ask('/v1/keys', { key: body.secret }))).toEqual([401, 'unauthorized', 'auth_error', null]);
    expect((await ask(`/v1/keys/${body.id}`, { key })).body.status).toBe('expired');
    expect((await ask('/v1/keys?status=expired', { key })).body.data).toHaveLength(1);
  });

  it('follows a report of the secret without authentication', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    const told: string[] = [];
    const off = api().keys.onRevoked((keyId) => told.push(formatId('key', keyId)));
    const report = { key: null, body: { secret: body.secret } };
    expect((await ask('/v1/keys/report', report)).body).toEqual({ object: 'key_report', revoked: true });
    expect(await api().keys.verify(body.secret)).toBeNull();
    expect((await ask('/v1/keys/report', report)).body).toEqual({ object: 'key_report', revoked: false });
    expect((await ask(`/v1/keys/${body.id}`, { key })).body.status).toBe('revoked');
    off();
    // A poll in between also reports other keys, and this one again.
    expect(told).toContain(body.id);
  });

  it('returns 400 for a report of a malformed or missing secret', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: {} });
    const mistyped = `${body.secret.slice(0, -1)}${body.secret.endsWith('a') ? 'b' : 'a'}`;
    for (const secret of [mistyped, 'sk-hg-nonsense', 'x']) {
      const answer = await ask('/v1/keys/report', { key: null, body: { secret } });
      expect(refusal(answer)).toEqual([400, 'invalid_value', 'invalid_request_error', 'secret']);
    }
    expect((await ask('/v1/keys/report', { key: null, body: {} })).body.error.param).toBe('secret');
    expect((await ask(`/v1/keys/${body.id}`, { key })).body.status).toBe('active');
  });
});

describe('GET /v1/keys', () => {
  it.each(['limit=0', 'limit=501', 'limit=1.5', 'limit=', 'limit=1&limit=2', 'cursor=bm8', 'status=lost', 'page=1'])(
    'returns 400 for ?%s',
    async (query) => {
      const answer = await ask(`/v1/keys?${query}`);
      expect(refusal(answer)).toEqual([400, 'invalid_request_error', 'invalid_request_error', query.split('=')[0]]);
    },
  );

  it('returns each key once, newest first, in pages', async () => {
    const { key } = await api().organization();
    const made = [];
    for (const name of ['one', 'two', 'three', 'four'])
      made.push((await ask('/v1/keys', { key, body: { name } })).body.id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Answer = await ask(`/v1/keys?limit=2${cursor === null ? '' : `&cursor=${cursor}`}`, { key });
      expect(page.body.object).toBe('list');
      expect(page.body.has_more).toBe(page.body.next_cursor !== null);
      seen.push(...page.body.data.map(({ id }: { id: string }) => id));
      cursor = page.body.next_cursor;
    } while (cursor !== null);
    expect(seen.slice(0, 4)).toEqual(made.toReversed());
    expect(new Set(seen).size).toBe(5);
  });

  it('returns 404 for ids of other organizations and for unknown ids', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const { body } = await ask('/v1/keys', { key: other.key, body: {} });
    for (const id of [body.id, formatId('key', uuidv7()), 'key_1', body.id.toUpperCase(), 'nonsense', '%00']) {
      for (const [method, sent] of [['GET'], ['PATCH', { name: 'mine now' }], ['DELETE']] as const) {
        const answer = await ask(`/v1/keys/${id}`, { key: mine.key, method, ...(sent && { body: sent }) });
        expect(refusal(answer)).toEqual([404, 'not_found', 'invalid_request_error', null]);
      }
    }
    expect((await ask(`/v1/keys/${body.id}`, { key: other.key })).body).toMatchObject({
      status: 'active',
      name: 'API key',
    });
  });

  it('shows the last use of a key, before and after it is stored', async () => {
    const { key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { scope: 'management' } });
    await ask('/v1/keys', { key: body.secret });
    const unwritten = (await ask(`/v1/keys/${body.id}`, { key })).body.last_used_at;
    expect(unwritten).toBeGreaterThanOrEqual(body.created_at);
    await api().keys.flush();
    const [row] = await api().db.sql`select extract(epoch from last_used_at) as at from api_keys
      where id = ${parseId('key', body.id)}`;
    expect(Math.floor(Number(row?.['at']))).toBe(unwritten);
    expect((await ask(`/v1/keys/${body.id}`, { key })).body.last_used_at).toBe(unwritten);
  });
});

describe('the audit entries of keys', () => {
  it('have actor and values before and after, one entry for each change', async () => {
    const { id, key } = await api().organization();
    const { body } = await ask('/v1/keys', { key, body: { name: 'first' } });
    await ask(`/v1/keys/${body.id}`, { key, method: 'PATCH', body: { name: 'second' } });
    await ask(`/v1/keys/${body.id}`, { key, method: 'PATCH', body: {} });
    const revoked = await ask(`/v1/keys/${body.id}`, { key, method: 'DELETE' });
    await ask(`/v1/keys/${body.id}`, { key, method: 'DELETE' });
    const rows = await api().db.sql`select * from audit_log where target_id = ${body.id} order by id`;
    expect(rows.map(({ action }) => action)).toEqual(['api_key.created', 'api_key.changed', 'api_key.revoked']);
    const [created, changed, ended] = rows;
    expect(created).toMatchObject({ organization_id: parseId('org', id), before: null, after: { name: 'first' } });
    expect(changed).toMatchObject({ before: { name: 'first' }, after: { name: 'second' } });
    expect(ended).toMatchObject({ before: { revoked_at: null }, after: { revoked_at: expect.any(String) } });
    expect(ended?.['request_id']).toBe(revoked.headers.get('x-request-id'));
    const caller = await api().keys.verify(key);
    expect(rows.every((row) => row['actor_key_id'] === caller?.id && row['actor_user_id'] === caller?.userId)).toBe(
      true,
    );
  });
});

it('lists keys by project and by user, with 400 for a malformed id', async () => {
  const { key } = await api().organization();
  const project = await ask('/v1/projects', { key, body: { name: 'Reports' } });
  const made = await ask('/v1/keys', { key, body: { name: 'reporter', project_id: project.body.id } });
  const names = async (query: string): Promise<string[]> => {
    const { status, body } = await ask(`/v1/keys?${query}`, { key });
    expect([query, status]).toEqual([query, 200]);
    return body.data.map(({ name }: { name: string }) => name);
  };
  expect(await names(`project_id=${project.body.id}`)).toEqual(['reporter']);
  expect(await names(`user_id=${made.body.user_id}`)).toEqual(['reporter', 'Management key']);
  expect(await names(`user_id=${made.body.user_id}&project_id=${project.body.id}`)).toEqual(['reporter']);
  for (const query of [`user_id=${formatId('user', uuidv7())}`, `project_id=${formatId('proj', uuidv7())}`]) {
    expect(await names(query)).toEqual([]);
  }
  expect(refusal(await ask('/v1/keys?user_id=me', { key }))[0]).toBe(404);
});
