import { describe, expect, it } from 'vitest';
import { makeKey } from '#test/cache/caching-key.ts';
import { uuidOf } from '#test/metering/recorded-usage.ts';
import { type Body, errorOf, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));

interface Projects {
  readonly organizationId: string;
  /** A management key. */
  readonly key: string;
  /** The project of keys that name none. */
  readonly own: string;
  readonly other: string;
}

const confinedError = { status: 403, code: 'insufficient_scope', param: 'X-Project-ID' };

async function ask(path: string, key: string, body?: object, method?: string): Promise<Body> {
  const options = { key, ...(body !== undefined && { body }), ...(method !== undefined && { method }) };
  return (await bench.gateway.request(path, options)).json();
}

async function openProjects(): Promise<Projects> {
  const { id, key } = await openOrganization(bench.gateway, '1');
  const { data }: Body = await ask('/v1/projects', key);
  const { id: other } = await ask('/v1/projects', key, { name: 'other' });
  return { organizationId: id, key, own: data[0].id, other };
}

const bound = ({ key, own }: Projects, mode = 'hard'): Promise<Body> =>
  ask('/v1/budgets', key, { scope: { type: 'project', id: own }, period: 'monthly', amount: '1', mode });

const chatIn = (key: string, project: string): Promise<Response> =>
  bench.chat({}, { key, headers: { 'x-project-id': project } });

async function expectConfined(answer: Response): Promise<void> {
  const error = await errorOf(answer);
  expect(error).toMatchObject(confinedError);
  expect(error.message).toContain('works in its own project only');
}

describe('a key of a project with a hard budget', () => {
  it('returns 403 for X-Project-ID of another project while the budget is there', async () => {
    const projects = await openProjects();
    const { secret } = await makeKey(bench, projects.key, {});
    expect((await chatIn(secret, projects.other)).status).toBe(200);
    const { id: budget } = await bound(projects);
    await expectConfined(await chatIn(secret, projects.other));
    expect((await chatIn(secret, projects.own)).status).toBe(200);
    await ask(`/v1/budgets/${budget}`, projects.key, undefined, 'DELETE');
    const answer = await chatIn(secret, projects.other);
    expect(await bench.recordOf(answer, projects.key)).toMatchObject({ project_id: projects.other });
  });

  it('returns 403 on the routes of the JSON API too', async () => {
    const projects = await openProjects();
    const { secret } = await makeKey(bench, projects.key, {});
    await bound(projects);
    const headers = { 'x-project-id': projects.other };
    const answer = await bench.gateway.request('/v1/batches', { key: secret, headers });
    expect(await errorOf(answer)).toMatchObject(confinedError);
  });

  it('may name another project where its budget is soft, or where it is not confined', async () => {
    const projects = await openProjects();
    const { secret, id } = await makeKey(bench, projects.key, {});
    const { id: budget } = await bound(projects, 'soft');
    expect((await chatIn(secret, projects.other)).status).toBe(200);
    await ask(`/v1/budgets/${budget}`, projects.key, { mode: 'hard' }, 'PATCH');
    await expectConfined(await chatIn(secret, projects.other));
    await ask(`/v1/keys/${id}`, projects.key, { confined: false }, 'PATCH');
    expect((await chatIn(secret, projects.other)).status).toBe(200);
  });
});

describe('a key with confined: true', () => {
  it('stays in its project without a budget, shows the setting, and is audited', async () => {
    const { key, other } = await openProjects();
    const made = await makeKey(bench, key, { confined: true });
    expect(made.confined).toBe(true);
    await expectConfined(await chatIn(made.secret, other));
    expect(await ask(`/v1/keys/${made.id}`, key, { confined: null }, 'PATCH')).toMatchObject({ confined: null });
    expect((await chatIn(made.secret, other)).status).toBe(200);
    const { data }: Body = await ask('/v1/audit?action=api_key.changed', key);
    expect(data[0]).toMatchObject({ before: { confined: true }, after: { confined: null } });
  });

  it('is a field of the keys of the organization API', async () => {
    const { key, own, other } = await openProjects();
    const admin = await ask('/v1/organization/admin_api_keys', key, { name: 'manager', confined: true });
    expect(admin).toMatchObject({ confined: true });
    await expectConfined(
      await bench.gateway.request('/v1/keys', { key: admin.value, headers: { 'x-project-id': other } }),
    );
    await makeKey(bench, key, { confined: false });
    const { data }: Body = await ask(`/v1/organization/projects/${own}/api_keys`, key);
    expect(data.map(({ confined }: Body) => confined)).toEqual([false]);
  });

  it('gives a management key only what a member may do', async () => {
    const { key, own, other } = await openProjects();
    const manager = await ask('/v1/keys', key, { name: 'manager', scope: 'management', confined: true });
    const { id: free } = await ask('/v1/keys', key, { name: 'free' });
    const budget = await bound({ organizationId: '', key, own, other });
    const rateLimit = `/v1/organization/projects/${own}/rate_limits/rl-chat`;
    const refused: readonly [path: string, method: string, body?: object][] = [
      [`/v1/keys/${manager.id}`, 'PATCH', { confined: false }],
      [`/v1/keys/${manager.id}`, 'PATCH', { requests_per_minute: null }],
      [`/v1/keys/${free}/rotate`, 'POST', {}],
      ['/v1/keys', 'POST', { project_id: other }],
      ['/v1/keys', 'POST', {}],
      ['/v1/organization/admin_api_keys', 'POST', { name: 'free' }],
      [`/v1/budgets/${budget.id}`, 'DELETE'],
      [rateLimit, 'POST', { max_requests_per_1_minute: 1_000_000 }],
      ['/v1/projects', 'POST', { name: 'third' }],
      ['/v1/audit', 'GET'],
    ];
    for (const [path, method, body] of refused) {
      const answer = await bench.gateway.request(path, { key: manager.secret, method, ...(body && { body }) });
      expect([path, answer.status]).toEqual([path, 403]);
    }
    expect((await bench.chat({}, { key: manager.secret })).status).toBe(200);
    expect(await ask(`/v1/keys/${manager.id}`, key, { confined: false }, 'PATCH')).toMatchObject({ confined: false });
    expect((await bench.gateway.request('/v1/audit', { key: manager.secret })).status).toBe(200);
  });

  it("limits a platform administrator's key to its own organization", async () => {
    const { organizationId } = await openProjects();
    const manager = await ask('/v1/keys', bench.gateway.key, { scope: 'management', confined: true });
    const asked = { key: manager.secret };
    expect((await bench.gateway.request('/v1/organizations', asked)).status).toBe(403);
    const path = `/v1/usage/requests?organization_id=${organizationId}`;
    expect((await bench.gateway.request(path, asked)).status).toBe(404);
  });

  it('stays confined after a rotation', async () => {
    const { key, other } = await openProjects();
    const made = await makeKey(bench, key, { confined: true });
    const { secret, confined } = await ask(`/v1/keys/${made.id}/rotate`, key, { grace_seconds: 3600 });
    expect(confined).toBe(true);
    for (const one of [made.secret, secret]) await expectConfined(await chatIn(one, other));
  });

  it("is always set for a service account's key, and confined: false returns an error", async () => {
    const { key, own } = await openProjects();
    const { id: account } = await ask(`/v1/organization/projects/${own}/service_accounts`, key, { name: 'nightly' });
    const made = await ask('/v1/keys', key, { service_account_id: account });
    expect(made).toMatchObject({ confined: true });
    const refusal = { error: { code: 'invalid_request_error', param: 'confined' } };
    const free = { service_account_id: account, confined: false };
    expect(await ask('/v1/keys', key, free)).toMatchObject(refusal);
    expect(await ask(`/v1/keys/${made.id}`, key, { confined: false }, 'PATCH')).toMatchObject(refusal);
  });
});

describe('X-Project-ID with the key of a member', () => {
  it('returns 400 for a project that the member does not see', async () => {
    const { organizationId, key, own, other } = await openProjects();
    const { id: shared } = await ask('/v1/projects', key, { name: 'shared', visibility: 'public' });
    const { secret } = await makeKey(bench, key, {});
    await bench.gateway.db.sql`update memberships set role = 'member'
      where organization_id = ${uuidOf('org', organizationId)}`;
    const error = await errorOf(await chatIn(secret, other));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'X-Project-ID' });
    for (const project of [own, shared]) expect((await chatIn(secret, project)).status).toBe(200);
  });
});
