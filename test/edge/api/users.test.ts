import { describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { verifyPassword } from '#core/accounts/accounts.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';
import { anybody, password, refusal, userSteps } from './user-support.ts';

const api = useApi();
const { ask, make, ownerOf } = userSteps(api);

describe.each(['/v1/users', '/api/v1/users'])('%s', (path) => {
  it('lists all problems of a body at once', async () => {
    const answer = await ask(path, { body: { email: 'x', password: 'short', role: 'king', colour: 'red' } });
    expect([answer.status, answer.body.error]).toMatchObject([400, { code: 'VALIDATION_ERROR' }]);
    expect(answer.body.error.details).toEqual([
      { field: 'name', message: 'is missing' },
      { field: 'email', message: 'must be an address such as ada@example.com' },
      { field: 'password', message: 'must have 8 to 128 characters' },
      { field: 'role', message: 'must be one of owner, admin, member' },
      { field: 'colour', message: 'is not a known field' },
    ]);
    expect(JSON.stringify(answer.body)).not.toContain('short');
  });

  it.each([
    [{ name: ' ' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ name: 'a\0' }, 'name'],
    [{ name: null }, 'name'],
    [{ email: 'ada' }, 'email'],
    [{ email: '@example.com' }, 'email'],
    [{ email: 'ada@example' }, 'email'],
    [{ email: 'ada@.com' }, 'email'],
    [{ email: 'ada@example.' }, 'email'],
    [{ email: 'ada@b@example.com' }, 'email'],
    [{ email: 'ada＠b@example.com' }, 'email'],
    [{ email: ' ada@example.com' }, 'email'],
    [{ email: 'ada@example.com\n' }, 'email'],
    [{ email: 'a\u200bda@example.com' }, 'email'],
    [{ email: 'a\0@example.com' }, 'email'],
    [{ email: 'a\ud800@example.com' }, 'email'],
    [{ email: `${'x'.repeat(243)}@example.com` }, 'email'],
    // One character that NFKC makes 18 of.
    [{ email: `${'\ufdfa'.repeat(100)}@example.com` }, 'email'],
    [{ email: 5 }, 'email'],
    [{ password: '1234567' }, 'password'],
    [{ password: '🦙'.repeat(7) }, 'password'],
    [{ password: 'x'.repeat(129) }, 'password'],
    [{ password: 'abcdefgh\0' }, 'password'],
    [{ password: null }, 'password'],
    [{ email: '<a@x.org>' }, 'email'],
    [{ email: '"a b"@x.org' }, 'email'],
    [{ email: 'a,b@x.org' }, 'email'],
    [{ email: 'a@x.org>' }, 'email'],
    [{ email: 'mailto:a@x.org' }, 'email'],
    [{ password: '12345678' }, 'password'],
    [{ password: 'Password' }, 'password'],
    [{ email: 'someone.else@example.com', password: 'Someone.Else@example.com' }, 'password'],
  ])('returns 400 for the body %j', async (fields, field) => {
    const { key } = await api().organization();
    const sent = { ...anybody(), ...fields };
    expect(refusal(await ask(path, { key, body: sent }))).toEqual([400, 'VALIDATION_ERROR', field]);
    const owner = `${path}/${await ownerOf(key)}`;
    expect(refusal(await ask(owner, { key, method: 'PUT', body: fields }))).toEqual([400, 'VALIDATION_ERROR', field]);
  });

  it.each([
    'page=0',
    'page=1.5',
    'limit=',
    'limit=1&limit=2',
    'sort=password',
    'sort=',
    'sort=--name',
    'sort=constructor',
  ])('returns 400 for the list ?%s', async (query) => {
    const answer = await ask(`${path}?${query}`);
    expect(refusal(answer).slice(0, 3)).toEqual([400, 'VALIDATION_ERROR', query.split('=')[0]]);
  });

  it('rejects an address that has an account, in any spelling and any organization', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const name = uuidv7();
    await make(other.key, { email: `Ström.${name}@Example.com` }, path);
    const changed = await make(mine.key, {}, path);
    for (const email of [
      `Ström.${name}@Example.com`,
      `STRÖM.${name.toUpperCase()}@EXAMPLE.COM`,
      `Stro\u0308m.${name}@example.com`,
      `ström.${name}＠example.com`,
    ]) {
      const made = await ask(path, { key: mine.key, body: { ...anybody(), email } });
      const put = await ask(`${path}/${changed.id}`, { key: mine.key, method: 'PUT', body: { email } });
      for (const answer of [made, put]) {
        expect(refusal(answer)).toEqual([409, 'CONFLICT', 'email']);
        expect(answer.body.error.message).toBe('An account with this email address already exists.');
      }
    }
    const own = await ask(`${path}/${changed.id}`, {
      key: mine.key,
      method: 'PUT',
      body: { email: changed.email.toUpperCase() },
    });
    expect([own.status, own.body.email]).toEqual([200, changed.email.toUpperCase()]);
  });

  it('returns 404 for users of other organizations and for unknown ones', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const { id: theirs } = await make(other.key, {}, path);
    for (const id of [theirs, await ownerOf(api().admin), formatId('user', uuidv7()), 'user_1', '1', '%00']) {
      for (const answer of [
        await ask(`${path}/${id}`, { key: mine.key }),
        await ask(`${path}/${id}`, { key: mine.key, method: 'PUT', body: { name: 'mine' } }),
        await ask(`${path}/${id}`, { key: mine.key, method: 'DELETE' }),
      ]) {
        expect([answer.status, answer.body]).toEqual([
          404,
          { error: { code: 'NOT_FOUND', message: 'There is no such user.', details: [] } },
        ]);
      }
    }
    expect((await ask(`${path}/${theirs}`, { key: other.key })).body.name).toBe('Ada');
  });

  it('creates, reads, changes and deletes a user', async () => {
    const { id: organizationId, key } = await api().organization();
    const sent = { name: ' Ada ', email: `Ada.${uuidv7()}@Example.com`, password };
    const made = await ask(path, { key, body: sent });
    expect(made.status).toBe(201);
    expect(made.body).toEqual({
      id: expect.stringMatching(/^user_[0-9a-f]{32}$/),
      name: 'Ada',
      email: sent.email,
      platform_role: 'user',
      memberships: [{ organization_id: organizationId, role: 'member' }],
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    });
    const own = made.headers.get('location') ?? '';
    expect(own).toBe(`${path}/${made.body.id}`);
    expect((await ask(own, { key })).body).toEqual(made.body);
    const changed = await ask(own, { key, method: 'PUT', body: { name: 'Ada L.', password: 'another password' } });
    expect([changed.status, changed.body]).toEqual([200, { ...made.body, name: 'Ada L.' }]);
    const [row] = await api().db.sql`select password_hash from users where id = ${parseId('user', made.body.id)}`;
    expect(await verifyPassword('another password', row?.['password_hash'])).toBe(true);
    expect((await ask(own, { key, method: 'DELETE' })).status).toBe(204);
    expect((await ask(own, { key, method: 'DELETE' })).status).toBe(404);
    expect((await ask(own, { key })).status).toBe(404);
    const trail = await ask(`/v1/audit?target_id=${made.body.id}`, { key });
    expect(trail.body.data.map(({ action }: { action: string }) => action)).toEqual([
      'user.deleted',
      'user.changed',
      'user.created',
    ]);
    expect(trail.body.data[1].after).toMatchObject({ name: 'Ada L.', password_changed: true });
    // The address is free again.
    expect((await ask(path, { key, body: sent })).status).toBe(201);
  });

  it('changes the fields sent, and ignores read-only fields', async () => {
    const { id: organizationId, key } = await api().organization();
    const { id } = await make(key, {}, path);
    const put = (body: unknown, method = 'PUT'): Promise<Answer> => ask(`${path}/${id}`, { key, method, body });
    for (const body of [{}, '', { name: null }, { email: null }, { password: 5 }, { role: 'king' }, []]) {
      expect(refusal(await put(body)).slice(0, 2)).toEqual([400, 'VALIDATION_ERROR']);
    }
    expect((await put({ name: 'x' }, 'PATCH')).status).toBe(405);
    const { body: before } = await ask(`${path}/${id}`, { key });
    const sent = { id: 'user_x', platform_role: 'admin', memberships: [], created_at: 5, colour: 'red' };
    expect([(await put(sent)).status, (await put(sent)).body]).toEqual([200, before]);
    expect((await put({ ...before, name: 'Countess' })).body).toEqual({ ...before, name: 'Countess' });
    expect((await put({ role: 'admin' })).body.memberships).toEqual([
      { organization_id: organizationId, role: 'admin' },
    ]);
    expect((await put({ role: 'admin' })).status).toBe(200);
    expect((await put({ role: 'member' })).body.memberships).toEqual(before.memberships);
  });

  it('pages and sorts in both directions', async () => {
    const { key } = await api().organization();
    const tag = uuidv7();
    for (const [name, letter] of [
      ['Cleo', 'x'],
      ['Bob', 'Z'],
      ['Cleo', 'y'],
    ]) {
      await make(key, { name, email: `${letter}.${tag}@example.com` }, path);
    }
    const letters = async (query: string): Promise<unknown> => {
      const { body } = await ask(`${path}?${query}`, { key });
      return [body.data.map(({ email }: { email: string }) => email[0]).join(''), body.pagination];
    };
    const all = { page: 1, limit: 20, total: 4, pages: 1 };
    expect(await letters('')).toEqual(['oxZy', all]);
    expect(await letters('sort=created_at')).toEqual(['oxZy', all]);
    expect(await letters('sort=-created_at')).toEqual(['yZxo', all]);
    expect(await letters('sort=id')).toEqual(['oxZy', all]);
    expect(await letters('sort=email')).toEqual(['oxyZ', all]);
    expect(await letters('sort=name')).toEqual(['Zxyo', all]);
    expect(await letters('sort=-name&limit=3')).toEqual(['oyx', { page: 1, limit: 3, total: 4, pages: 2 }]);
    expect(await letters('limit=3&page=2')).toEqual(['y', { page: 2, limit: 3, total: 4, pages: 2 }]);
    expect(await letters('limit=500&page=9')).toEqual(['', { page: 9, limit: 100, total: 4, pages: 1 }]);
  });
});

describe('the hourly limit of /v1/users', () => {
  it('is in the headers of every response, in whole numbers', async () => {
    const { key } = await api().organization();
    const asked: readonly [number, Promise<Answer>][] = [
      [200, ask('/v1/users', { key })],
      [401, ask('/v1/users', { key: null })],
      [404, ask('/v1/users/none', { key })],
      [404, ask('/api/v1/none', { key })],
      [405, ask('/api/v1/users', { key, method: 'DELETE' })],
      [413, ask('/v1/users', { key, body: { name: 'x'.repeat(102_401) } })],
      [415, ask('/v1/users', { key, body: '{}', headers: { 'content-type': 'text/plain' } })],
      [201, ask('/v1/users', { key, body: anybody() })],
    ];
    for (const [status, asking] of asked) {
      const answer = await asking;
      const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map((name) =>
        answer.headers.get(`x-ratelimit-${name}`),
      );
      expect([answer.status, limit]).toEqual([status, status === 401 ? '100' : '1000']);
      expect([remaining, reset]).toEqual([expect.stringMatching(/^\d+$/), expect.stringMatching(/^\d{10}$/)]);
    }
  });
});

describe('user passwords', () => {
  it('are in no response, log or audit entry, and are stored as argon2id', async () => {
    const { key } = await api().organization();
    const secret = `secret-${uuidv7()}`;
    const asked = Array.from({ length: 30 }, () => ask('/v1/users', { key, body: { ...anybody(), password: secret } }));
    const answers = await Promise.all(asked);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(JSON.stringify(answers.map(({ body }) => body))).not.toMatch(/secret-|argon2/);
    const rows = await api().db.sql`select before, after from audit_log where target_type = 'user'`;
    expect(JSON.stringify([rows, api().logLines])).not.toMatch(/secret-|argon2/);
    const [user] = await api().db.sql`select password_hash from users order by id desc limit 1`;
    expect(user?.['password_hash']).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  });
});
