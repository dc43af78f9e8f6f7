import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { passwordOf, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_MAX_ACTIVE_KEYS: '100' } });
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

interface Organization {
  readonly id: string;
  readonly management_key: string;
}

async function json<T>(path: string, init: Parameters<TestGateway['request']>[1] = {}): Promise<T> {
  const answer = await gateway.request(path, init);
  expect(answer.status, path).toBeLessThan(300);
  return (await answer.json()) as T;
}

const open = (name: string): Promise<Organization> => json<Organization>('/v1/organizations', { body: { name } });

/** Somebody of another organization, signed in, with this role there and none on the platform. */
async function withRole<T>(role: 'member' | 'admin' | 'owner', run: (visitor: Visitor) => Promise<T>): Promise<T> {
  const visitor = await signInVisitor(gateway);
  const { sql } = gateway.db;
  const [kept] = await sql`select id, organization_id from sessions order by created_at desc limit 1`;
  const organization = await open(`Of a ${role}`);
  const email = `${randomUUID()}@example.com`;
  const user = await json<{ id: string }>('/v1/users', {
    key: organization.management_key,
    body: { name: `A ${role}`, email, password: 'correct horse' },
  });
  const uuidOf = (id: string): string => id.slice(id.indexOf('_') + 1);
  await sql`update memberships set role = ${role} where user_id = ${uuidOf(user.id)}::uuid`;
  await sql`update sessions set user_id = ${uuidOf(user.id)}::uuid, organization_id = ${uuidOf(organization.id)}::uuid
    where id = ${String(kept?.['id'])}`;
  return run(visitor);
}

const ofPlatform = [
  '/portal/engines',
  '/portal/engine-file',
  '/portal/engines/standin-chat',
  '/portal/engines/standin-chat/log',
  '/portal/engines/standin-chat/charts',
  '/portal/engines/standin-chat/stop',
  '/portal/organizations',
];

describe('a user without the right', () => {
  it('to operate the platform gets none of its pages, menu entries or changes', async () => {
    for (const role of ['member', 'admin', 'owner'] as const) {
      await withRole(role, async (visitor) => {
        const overview = await visitor.get('/');
        expect(overview.text).not.toContain('/portal/engines');
        expect(overview.text).not.toContain('/portal/organizations');
        const own = await open('Untouched');
        for (const path of [
          ...ofPlatform,
          `/portal/organizations/${own.id}`,
          `/portal/organizations/${own.id}/close`,
        ]) {
          expect((await visitor.get(path)).status, `${role} ${path}`).toBeGreaterThanOrEqual(403);
        }
        const changes = [
          '/portal/engines/standin-chat/stop',
          '/portal/engines-reload',
          '/portal/organizations',
          `/portal/organizations/${own.id}`,
          `/portal/organizations/${own.id}/status`,
          `/portal/organizations/${own.id}/close`,
        ];
        for (const path of changes) {
          const fields = { name: 'forged', status: 'suspended' };
          expect((await visitor.post(path, fields)).status, `${role} ${path}`).toBeGreaterThanOrEqual(403);
        }
        expect((await visitor.post('/portal/view', { organization_id: own.id })).status).toBe(403);
        const after = await json<object>(`/v1/organizations/${own.id}`);
        expect(after).toMatchObject({ name: 'Untouched', status: 'active' });
      });
    }
    expect(await json('/v1/admin/engines/standin-chat')).not.toMatchObject({ state: 'held' });
  });

  it('to administer an organization sees only their own user, and cannot change it', async () => {
    await withRole('member', async (visitor) => {
      const users = await visitor.get('/portal/users');
      expect(users.status).toBe(200);
      expect(users.text).toContain('A member');
      expect(users.text).not.toContain('owner@');
      expect(users.text).not.toContain('New user');
      const projects = await visitor.get('/portal/projects');
      expect([projects.status, projects.text.includes('New project')]).toEqual([200, false]);
      for (const path of ['/portal/audit', '/portal/organization']) {
        expect([path, (await visitor.get(path)).status]).toEqual([path, 403]);
        expect((await visitor.get('/')).text).not.toContain(`href="${path}"`);
      }
      // A rejected page has no filters either.
      expect((await visitor.get('/portal/audit')).text).not.toContain('<select');
      const user = { name: 'x', email: 'x@example.com', password: 'correct horse', role: 'member' };
      expect((await visitor.post('/portal/users', user)).status).toBe(403);
      expect(
        (await visitor.post('/portal/projects', { name: 'x', description: '', visibility: 'public' })).status,
      ).toBe(403);
      expect((await visitor.post('/portal/organization', { name: 'x' })).status).toBe(403);
    });
  });

  it('to give the owner role is not offered it, and is rejected with it', async () => {
    await withRole('admin', async (visitor) => {
      const form = await visitor.get('/portal/users/new');
      expect(form.text).toContain('value="admin"');
      expect(form.text).not.toContain('value="owner"');
      const user = { name: 'x', email: `${randomUUID()}@example.com`, password: 'correct horse', role: 'owner' };
      expect((await visitor.post('/portal/users', user)).status).toBe(403);
    });
  });
});

it('lets administrators set and clear the balance below which they get alert emails', async () => {
  await withRole('admin', async (visitor) => {
    const { text } = await visitor.get('/portal/organization');
    const name = /name="name"[^>]*value="([^"]*)"/.exec(text)?.[1] ?? '';
    const save = (below: string) => visitor.post('/portal/organization', { name, wallet_alert_below: below });
    const refused = await save('plenty');
    expect([refused.status, refused.text.includes('value="plenty"')]).toEqual([400, true]);
    expect((await save('7.25')).status).toBe(303);
    expect((await visitor.get('/portal/organization')).text).toMatch(/name="wallet_alert_below"[^>]*value="7.25"/);
    expect((await save(' ')).status).toBe(303);
    expect((await visitor.get('/portal/organization')).text).toMatch(/name="wallet_alert_below"[^>]*value=""/);
  });
});

describe('two organizations', () => {
  it("never see each other's keys, users, projects and audit entries", async () => {
    const other = await open('The Other One');
    const key = other.management_key;
    const [project, user, made] = await Promise.all([
      json<{ id: string }>('/v1/projects', { key, body: { name: 'secret project' } }),
      json<{ id: string }>('/v1/users', {
        key,
        body: { name: 'Secret Person', email: `${randomUUID()}@example.com`, password: 'correct horse' },
      }),
      json<{ id: string }>('/v1/keys', { key, body: { name: 'secret key' } }),
    ]);
    await withRole('owner', async (visitor) => {
      for (const path of [
        '/portal/keys',
        '/portal/users',
        '/portal/projects',
        '/portal/audit',
        '/portal/organization',
        '/portal/users?of=all',
        `/portal/audit?target_id=${made.id}`,
        `/portal/keys?organization_id=${other.id}`,
      ]) {
        const { status, text } = await visitor.get(path);
        expect([path, status]).toEqual([path, 200]);
        expect(text.replaceAll(made.id, ''), path).not.toMatch(/[Ss]ecret (?:project|Person|key)|The Other One/);
      }
      for (const path of [`/portal/keys/${made.id}`, `/portal/users/${user.id}`, `/portal/projects/${project.id}`]) {
        expect([path, (await visitor.get(path)).status]).toEqual([path, 404]);
      }
      const path = `/portal/users/${user.id}/remove`;
      expect((await visitor.post(path, { organization_id: other.id })).status).toBe(404);
      expect((await visitor.post(`/portal/projects/${project.id}/archive`, { archived: 'yes' })).status).toBe(404);
    });
    expect(await json(`/v1/projects/${project.id}`, { key })).toMatchObject({ archived: false });
  });
});

it('mentions no other organization on the page that removes a user', async () => {
  const tenant = await open('One of two');
  const other = await open('The second of two');
  const person = { name: 'Both', email: 'both@example.com', password: passwordOf };
  const both = await json<{ id: string }>('/v1/users', { key: tenant.management_key, body: person });
  const path = `/portal/users/${both.id}/remove?organization_id=${tenant.id}`;
  expect((await admin.get(path)).text).toContain(
    'and the account is deleted, because it belongs to no other organization',
  );
  const { sql } = gateway.db;
  await sql`insert into memberships (user_id, organization_id, role, created_at)
    select user_id, ${parseId('org', other.id)}, 'member', now() from memberships where user_id = ${parseId('user', both.id)}`;
  expect((await admin.get(path)).text).toContain('but stays a member of other organizations');
  const boss = { name: 'Boss', email: 'boss@example.com', password: passwordOf, role: 'admin' };
  await json('/v1/users', { key: tenant.management_key, body: boss });
  const { text } = await (await signInPerson(gateway, boss.email)).get(path);
  expect(text).toContain('and the account is deleted, unless it belongs to another organization');
  expect(text).not.toContain('second of two');
});

describe('viewing another organization', () => {
  /** The cookie that begins it, beside that of the session. */
  async function look(id: string): Promise<string> {
    const begun = await admin.post('/portal/view', { organization_id: id, to: '/portal/keys' });
    expect([begun.status, begun.headers.location]).toEqual([303, '/portal/keys']);
    const [set = ''] = begun.headers['set-cookie'] ?? [];
    expect(set).toMatch(/; Path=\/; HttpOnly; SameSite=Lax$/);
    return `${admin.cookie}; ${set.split(';')[0]}`;
  }

  it('shows its keys, wallet and audit log, and applies forms to it', async () => {
    const tenant = await open('Tenant');
    const key = tenant.management_key;
    await json('/v1/keys', { key, body: { name: 'of the tenant' } });
    const cookie = await look(tenant.id);
    expect((await admin.get('/portal/keys', { cookie })).text).toContain('of the tenant');
    expect((await admin.get('/portal/keys')).text).not.toContain('of the tenant');
    for (const path of [
      '/',
      '/portal/wallet',
      '/portal/usage',
      '/portal/users',
      '/portal/projects',
      '/portal/audit',
      '/portal/organization',
    ]) {
      const { status, text } = await admin.get(path, { cookie });
      expect([path, status, text.includes('You are viewing')]).toEqual([path, 200, true]);
    }
    // A person is the same in all organizations: links to one lead there whatever is looked at.
    const { data: people } = await json<{ data: { id: string }[] }>('/v1/users?limit=1');
    expect((await admin.get(`/portal/users/${people[0]?.id}`, { cookie })).status).toBe(200);
    const credit = { amount: '3', reference: 'looked', note: '' };
    const sent = await admin.post('/portal/wallet/credits', { ...credit, viewed: tenant.id }, { cookie });
    expect(sent.status).toBe(303);
    expect(await json('/v1/wallet', { key })).toMatchObject({ balance: '3' });
  });

  it('rejects a form of a page about another organization than the one viewed now', async () => {
    const [one, two] = [await open('One'), await open('Two')];
    const cookie = await look(two.id);
    const credit = { amount: '3', reference: 'wrong', note: '' };
    for (const viewed of [one.id, '']) {
      const { status } = await admin.post('/portal/wallet/credits', { ...credit, viewed }, { cookie });
      expect(status).toBe(409);
    }
    // The page was made while One was looked at, and since then that ended in another tab.
    expect((await admin.post('/portal/wallet/credits', { ...credit, viewed: one.id })).status).toBe(409);
    for (const { management_key: key } of [one, two]) {
      expect(await json('/v1/wallet', { key })).toMatchObject({ balance: '0' });
    }
  });

  it('cannot be started by a planted cookie, another session or a user who is not a platform admin', async () => {
    const tenant = await open('Planted');
    const cookie = await look(tenant.id);
    const [, view = ''] = cookie.split('; ');
    const [name = '', value = ''] = view.split('=');
    const other = await signInVisitor(gateway);
    const planted = [view, `${name}=${tenant.id}`, `${name}=${tenant.id}.${value.split('.')[1]?.toUpperCase()}`];
    for (const one of planted) {
      const { status, text } = await other.get('/portal/keys', { cookie: `${other.cookie}; ${one}` });
      expect([one, status, text.includes('You are viewing')]).toEqual([one, 200, false]);
    }
    await withRole('owner', async (visitor) => {
      const { text } = await visitor.get('/portal/keys', { cookie: `${visitor.cookie}; ${view}` });
      expect(text).not.toContain('You are viewing');
    });
  });
});

describe('the service account form of a project', () => {
  const project = async (): Promise<string> =>
    `/portal/projects/${(await json<{ id: string }>('/v1/projects', { body: { name: randomUUID() } })).id}`;
  const keysTaken = async (): Promise<string> => {
    const { text } = await admin.get('/portal/keys');
    return /Active \(\d+ of \d+\)/.exec(text)?.[0] ?? text;
  };

  it('keeps the typed values when it is rejected, and rejects an unknown expiry', async () => {
    const path = `${await project()}/service-accounts`;
    for (const fields of [
      { name: '', expiry: '7d' },
      { name: 'x'.repeat(101), expiry: 'never' },
      { name: 'kept', expiry: 'constructor' },
      { name: 'kept', expiry: '' },
    ]) {
      const { status, text } = await admin.post(path, fields);
      expect([status, text.includes(`value="${fields.name}"`), text.includes('sk-hg-')]).toEqual([400, true, false]);
    }
    expect((await admin.get(`${path}/svc_acct_1/delete`)).status).toBe(404);
    expect((await admin.post(`${path}/svc_acct_1/delete`)).status).toBe(404);
  });

  it('creates accounts whose secret is shown once, lists them, and deletes them after a warning', async () => {
    const path = await project();
    const before = await keysTaken();
    const name = '<b onclick="x()">nightly</b>';
    const made = await admin.post(`${path}/service-accounts`, { name, expiry: '30d' });
    const secret = /sk-hg-[\w-]+/.exec(made.text)?.[0] ?? '';
    expect([made.status, made.text.includes('<b onclick'), secret]).toEqual([
      200,
      false,
      expect.stringMatching(/.{40}/),
    ]);
    expect((await gateway.request('/v1/models', { key: secret })).status).toBe(200);
    // A form that comes twice makes one.
    expect((await admin.post(`${path}/service-accounts`, { name, expiry: '30d' })).status).toBe(409);
    const shown = await admin.get(path);
    expect(shown.text).toContain('&lt;b onclick=');
    expect(shown.text).toContain('service account</span>');
    expect([shown.text.includes('<b onclick'), shown.text.includes(secret)]).toEqual([false, false]);
    expect(await keysTaken()).toBe(before);
    const [, keyPath = ''] = /href="(\/portal\/keys\/key_\w+)"/.exec(shown.text) ?? [];
    expect((await admin.get(keyPath)).text).toMatch(/Owner[^]*&lt;b onclick/);
    const [, ending = ''] = /href="(\/portal\/projects\/\w+\/service-accounts\/\w+\/delete)"/.exec(shown.text) ?? [];
    const warned = await admin.get(ending);
    expect(warned.text).toContain('Requests with these keys will return 401');
    expect((await admin.post(ending)).headers.location).toBe(`${path}?notice=account_deleted`);
    expect((await gateway.request('/v1/models', { key: secret })).status).toBe(401);
    expect((await admin.get(ending)).status).toBe(404);
    expect((await admin.get(`${path}?notice=account_deleted`)).text).toContain('Service account deleted.');
    expect((await admin.get('/portal/audit')).text).toMatch(/deleted the service account/);
    expect((await admin.get(keyPath)).text).toMatch(/Owner[^]*svc_acct_/);
  });
});

describe('administrator pages', () => {
  it('sort and page like the API, and accept unknown values', async () => {
    for (const sort of ['name', '-name', 'balance', '-spent_month', 'nonsense', '<script>']) {
      const { status, text } = await admin.get(`/portal/organizations?sort=${encodeURIComponent(sort)}`);
      expect([sort, status, text.includes('<script>')]).toEqual([sort, 200, false]);
    }
    for (const path of [
      '/portal/users?page=0',
      '/portal/organizations?page=x',
      '/portal/audit?after=x',
      '/portal/audit?from=never',
    ]) {
      expect([path, (await admin.get(path)).status]).toEqual([path, 400]);
    }
    expect((await admin.get('/portal/organizations?page=99999')).text).toContain('No organizations found');
  });

  it('return 404 for unknown objects', async () => {
    const missing = [
      '/portal/engines/none',
      '/portal/engines/none/stop',
      '/portal/organizations/org_1',
      '/portal/users/user_1',
      '/portal/projects/proj_1',
    ];
    for (const path of missing) expect([path, (await admin.get(path)).status]).toEqual([path, 404]);
    const shown: Shown = await admin.post('/portal/engines/none/start');
    expect(shown.status).toBe(404);
  });

  it('keep the typed values of a rejected form, except passwords', async () => {
    const typed = { name: 'Kept', email: 'no address', password: 'a very secret word', role: 'member' };
    const { status, text } = await admin.post('/portal/users', typed);
    expect(status).toBe(400);
    expect(text).toContain('value="Kept"');
    expect(text).toContain('value="no address"');
    expect(text).not.toContain('a very secret word');
    expect(gateway.logLines.join('')).not.toContain('a very secret word');
  });

  it('change the default limits and the number of keys', async () => {
    const tenant = await open('Limited');
    const fields = {
      name: 'Limited',
      max_active_keys: '2',
      requests_per_minute: '7',
      tokens_per_minute: '',
      max_concurrency: '',
      monthly_token_limit: '1,000',
      models: '',
    };
    expect((await admin.post(`/portal/organizations/${tenant.id}`, fields)).status).toBe(303);
    const key = tenant.management_key;
    const made = await json('/v1/keys', { key, body: { name: 'second' } });
    expect(made).toMatchObject({
      requests_per_minute: 7,
      tokens_per_minute: null,
      max_concurrency: null,
      monthly_token_limit: 1000,
    });
    expect((await gateway.request('/v1/keys', { key, body: { name: 'third' } })).status).toBe(409);
    const refused = await admin.post(`/portal/organizations/${tenant.id}`, {
      ...fields,
      models: 'no-such-model',
      max_active_keys: '0',
    });
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('id="max_active_keys-problem"');
  });
});
