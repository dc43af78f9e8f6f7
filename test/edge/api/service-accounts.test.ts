import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { defaultKeyToggles } from '#core/keys/keys.ts';
import { type Place, refusal, useServiceAccounts } from '#test/api/service-account-support.ts';
import type { Answer } from '#test/api/test-api.ts';

/** Accounts that act for a program. */

const { api, open, makeProject, sdkOf, ask, make, works } = useServiceAccounts();

const nobody = formatId('svc_acct', uuidv7());

describe('a service account request', () => {
  let untouched: Place;
  beforeAll(async () => {
    untouched = await open();
  });

  it.each([
    [{}, 'name'],
    [{ name: '' }, 'name'],
    [{ name: ' \t ' }, 'name'],
    [{ name: 'a\u0000b' }, 'name'],
    [{ name: '\ud800' }, 'name'],
    [{ name: 'x'.repeat(101) }, 'name'],
    [{ name: 'x', expires_in_seconds: 0 }, 'expires_in_seconds'],
    [{ name: 'x', expires_in_seconds: 10 ** 12 }, 'expires_in_seconds'],
    [{ name: 'x', expires_in_seconds: 60, create_service_account_only: true }, 'expires_in_seconds'],
    [{ name: 'x', create_service_account_only: 'yes' }, 'create_service_account_only'],
    [{ name: 'x', role: 'owner' }, 'role'],
  ])('returns 400 for %j', async (body, param) => {
    expect(refusal(await ask(untouched, '', { body }))).toEqual([400, 'invalid_request_error', param]);
    expect((await ask(untouched)).body.data).toEqual([]);
  });

  it('returns 400 for another role and for invalid paging parameters', async () => {
    const place = await open();
    const { id } = await make(place);
    const owner = await ask(place, `/${id}`, { body: { role: 'owner' } });
    expect(refusal(owner)).toEqual([400, 'invalid_request_error', 'role']);
    for (const [query, param] of [
      ['?limit=0', 'limit'],
      ['?after=key_1', 'after'],
      ['?order=asc', 'order'],
    ] as const) {
      expect(refusal(await ask(place, query))).toEqual([400, 'invalid_request_error', param]);
    }
  });

  it('returns the same error for another organization or project and an unknown account', async () => {
    const [mine, other] = [await open(), await open()];
    const beside: Place = { ...mine, projectId: await makeProject(mine.key) };
    const [theirs, own] = [await make(other), await make(mine)];
    const elsewhere = { ...mine, projectId: other.projectId };
    for (const [place, id] of [
      [mine, theirs.id],
      [elsewhere, theirs.id],
      [beside, own.id],
      [mine, nobody],
      [mine, 'x'],
      [{ ...mine, projectId: 'x' }, own.id],
    ] as const) {
      const asked = [
        ask(place, `/${id}`),
        ask(place, `/${id}`, { body: { name: 'mine' } }),
        ask(place, `/${id}/api_keys`, { body: {} }),
        ask(place, `/${id}`, { method: 'DELETE' }),
      ];
      for (const answer of await Promise.all(asked)) expect(refusal(answer)).toEqual([404, 'not_found', null]);
    }
    expect(refusal(await ask(elsewhere))).toEqual([404, 'not_found', null]);
    expect(refusal(await ask(elsewhere, '', { body: { name: 'x' } }))).toEqual([404, 'not_found', null]);
    expect((await ask(other, `/${theirs.id}`)).body.name).toBe(theirs.name);
    expect([await works(theirs.api_key.value), await works(own.api_key.value)]).toEqual([true, true]);
  });

  it('is rejected in an archived project and in a closed organization', async () => {
    const place = await open();
    await api().ask(`/v1/projects/${place.projectId}/archive`, { method: 'POST', key: place.key });
    expect(refusal(await ask(place, '', { body: { name: 'x' } }))).toEqual([409, 'conflict', null]);
    const { id, key } = await api().organization();
    const projectId = await makeProject(key);
    await api().ask(`/v1/organizations/${id}`, { method: 'DELETE' });
    const closed = await ask({ key: api().admin, projectId }, `?organization_id=${id}`, { body: { name: 'x' } });
    expect(refusal(closed)).toEqual([409, 'conflict', null]);
  });

  it('is rejected with a name used in its project, in any case, but not with one used in another project', async () => {
    const place = await open();
    const { id } = await make(place, { name: 'Nightly' });
    const other = await make(place);
    for (const answer of [
      await ask(place, '', { body: { name: 'nightly' } }),
      await ask(place, `/${other.id}`, { body: { name: 'NIGHTLY' } }),
    ]) {
      expect(refusal(answer)).toEqual([409, 'conflict', 'name']);
    }
    expect((await ask(place, `/${id}`, { body: { name: 'NIGHTLY' } })).body.name).toBe('NIGHTLY');
    await make({ ...place, projectId: await makeProject(place.key) }, { name: 'nightly' });
  });

  it('is rejected for the 21st account of a project, also when many are created at once', async () => {
    const place = await open();
    const asked = Array.from({ length: 24 }, (_, index) => ask(place, '', { body: { name: `number ${index}` } }));
    const statuses = (await Promise.all(asked)).map(({ status }) => status);
    expect([200, 409].map((one) => statuses.filter((status) => status === one).length)).toEqual([20, 4]);
    const { data } = (await ask(place, '?limit=100')).body;
    expect(data).toHaveLength(20);
    await ask(place, `/${data[0].id}`, { method: 'DELETE' });
    await make(place);
  });
});

describe('a service account key', () => {
  it('is rejected with another scope, project or organization, and cannot be changed into one', async () => {
    const [mine, other] = [await open(), await open()];
    const [own, theirs] = [await make(mine), await make(other)];
    const at = { key: mine.key };
    for (const [body, param] of [
      [{ service_account_id: own.id, scope: 'management' }, 'scope'],
      [{ service_account_id: own.id, project_id: await makeProject(mine.key) }, 'project_id'],
      [{ service_account_id: theirs.id }, 'service_account_id'],
      [{ service_account_id: nobody }, 'service_account_id'],
      [{ service_account_id: 'user_1' }, 'service_account_id'],
    ] as const) {
      expect(refusal(await api().ask('/v1/keys', { ...at, body }))).toEqual([400, 'invalid_request_error', param]);
    }
    const { body: made } = await api().ask('/v1/keys', { ...at, body: {} });
    const changed = await api().ask(`/v1/keys/${made.id}`, {
      method: 'PATCH',
      ...at,
      body: { service_account_id: own.id },
    });
    expect(refusal(changed)).toEqual([400, 'invalid_request_error', 'service_account_id']);
    const scoped = await ask(mine, `/${own.id}/api_keys`, { body: { scopes: ['api.all.read'] } });
    expect(refusal(scoped)).toEqual([400, 'invalid_request_error', 'scopes']);
  });

  it('is rejected as the sixth of its account, and counts for no other account', async () => {
    const place = await open();
    const { id } = await make(place);
    const more = (): Promise<Answer> => ask(place, `/${id}/api_keys`, { body: {} });
    const statuses = (await Promise.all(Array.from({ length: 6 }, more))).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(4);
    const sixth = await api().ask('/v1/keys', { key: place.key, body: { service_account_id: id } });
    expect(refusal(sixth)).toEqual([409, 'key_limit_reached', null]);
    expect(sixth.body.error.message).toContain('The service account has 5 active API keys; the limit is 5');
    // The organization has only its management key: four more are its own.
    for (let made = 0; made < 4; made += 1) {
      expect((await api().ask('/v1/keys', { key: place.key, body: {} })).status).toBe(201);
    }
    expect(refusal(await api().ask('/v1/keys', { key: place.key, body: {} }))).toEqual([
      409,
      'key_limit_reached',
      null,
    ]);
    expect((await make(place)).api_key.value).toMatch(/^sk-hg-/);
  });

  it('returns 400 for another project in X-Project-ID, and accepts its own', async () => {
    const place = await open();
    const { api_key: made } = await make(place);
    const at = (id: string): Promise<Answer> =>
      api().ask('/v1/usage/requests', { key: made.value, headers: { 'X-Project-ID': id } });
    expect((await at(place.projectId)).status).toBe(200);
    const beside = await makeProject(place.key);
    expect(refusal(await at(beside))).toEqual([400, 'invalid_request_error', 'X-Project-ID']);
  });

  it('cannot read users, keys, the audit log or project administration', async () => {
    const place = await open();
    const { id, api_key: made } = await make(place);
    expect((await api().ask('/v1/users', { key: made.value })).body.data).toEqual([]);
    for (const path of ['/v1/keys', '/v1/audit', `/v1/organization/projects/${place.projectId}`]) {
      expect(refusal(await api().ask(path, { key: made.value }))).toEqual([403, 'insufficient_scope', null]);
    }
    const { data } = (await api().ask('/v1/users', { key: place.key })).body;
    expect(data).toHaveLength(1);
    expect(JSON.stringify(data)).not.toContain(id);
    const [own] = (await api().ask('/v1/projects', { key: made.value })).body.data;
    expect(own.id).toBe(place.projectId);
  });
});

describe('a service account', () => {
  it('is created, read, listed, renamed and deleted by the unchanged SDK', async () => {
    const place = await open();
    const { serviceAccounts } = sdkOf(place);
    const { projectId: project_id } = place;
    const { api_key: key, ...made } = await serviceAccounts.create(project_id, {
      name: 'CI',
      expires_in_seconds: 3600,
    });
    expect(made).toEqual({
      object: 'organization.project.service_account',
      id: expect.stringMatching(/^svc_acct_[0-9a-f]{32}$/),
      name: 'CI',
      role: 'member',
      created_at: expect.any(Number),
    });
    expect(key).toMatchObject({ object: 'organization.project.service_account.api_key', name: 'CI' });
    expect((key?.expires_at ?? 0) - (key?.created_at ?? 0)).toBe(3600);
    expect(await works(key?.value ?? '')).toBe(true);
    expect(await serviceAccounts.retrieve(made.id, { project_id })).toEqual(made);
    expect(await serviceAccounts.update(made.id, { project_id, name: 'Builds', role: 'member' })).toEqual({
      ...made,
      name: 'Builds',
    });
    const another = await serviceAccounts.apiKeys.create(made.id, { project_id, name: 'second', scopes: [] });
    expect(another).toMatchObject({ object: key?.object, name: 'second', expires_at: null });
    expect(await works(another.value)).toBe(true);
    const bare = await serviceAccounts.create(project_id, { name: 'bare', create_service_account_only: true });
    expect(bare.api_key).toBeNull();
    expect(await serviceAccounts.delete(made.id, { project_id })).toEqual({
      object: 'organization.project.service_account.deleted',
      id: made.id,
      deleted: true,
    });
    await expect(serviceAccounts.delete(made.id, { project_id })).rejects.toMatchObject({ status: 404 });
    expect([await works(key?.value ?? ''), await works(another.value)]).toEqual([false, false]);
    expect((await serviceAccounts.list(project_id)).data.map(({ id }) => id)).toEqual([bare.id]);
  });

  it('is listed newest first, in pages, each once', async () => {
    const place = await open();
    const names = Array.from({ length: 7 }, (_, index) => `Number ${index}`);
    for (const name of names) await make(place, { name });
    const seen: string[] = [];
    for await (const { name } of sdkOf(place).serviceAccounts.list(place.projectId, { limit: 3 })) seen.push(name);
    expect(seen).toEqual(names.toReversed());
  });

  it('owns its keys, in the lists of its project and of /v1/keys', async () => {
    const place = await open();
    const { id, name, created_at: since, api_key: first } = await make(place);
    const { body: second } = await api().ask('/v1/keys', {
      key: place.key,
      body: { service_account_id: id, name: 'second', requests_per_minute: 7 },
    });
    expect(second).toMatchObject({ user_id: null, service_account_id: id, project_id: place.projectId });
    const { data } = await sdkOf(place).apiKeys.list(place.projectId);
    const owner = { type: 'service_account', service_account: { id, name, role: 'member', created_at: since } };
    expect(data.map((key) => [key.id, key.owner])).toEqual([
      [second.id, owner],
      [first.id, owner],
    ]);
    const own = await api().ask(`/v1/keys?service_account_id=${id}&status=active`, { key: place.key });
    expect(own.body.data.map((key: Answer['body']) => key.id)).toEqual([second.id, first.id]);
    const others = await api().ask(`/v1/keys?service_account_id=${nobody}`, { key: place.key });
    expect(others.body.data).toEqual([]);
    const rotated = await api().ask(`/v1/keys/${second.id}/rotate`, { key: place.key, body: { grace_seconds: 0 } });
    expect(rotated.body).toMatchObject({ id: second.id, service_account_id: id });
    expect([await works(second.secret), await works(rotated.body.secret)]).toEqual([false, true]);
  });

  it('outlives its creator, with its keys', async () => {
    const { id: organizationId, key } = await api().organization();
    const projectId = await makeProject(key);
    const email = `${uuidv7()}@example.com`;
    const person = { name: 'Ada', email, password: 'correct horse', role: 'owner' };
    const { body: user } = await api().ask(`/v1/users?organization_id=${organizationId}`, { body: person });
    const caller = await api().keys.verify(key);
    if (caller === null) throw new Error('no key');
    const userId = parseId('user', user.id) ?? '';
    const input = {
      ...caller,
      userId,
      serviceAccountId: null,
      expires: null,
      limits: {},
      toggles: defaultKeyToggles,
    };
    const author = { actor: { kind: 'system' }, requestId: null } as const;
    const { secret } = await api().keys.create({ ...input, scope: 'management' }, author);
    const made = await make({ key: secret, projectId });
    expect((await api().ask(`/v1/users/${user.id}`, { method: 'DELETE' })).status).toBe(204);
    expect([await works(secret), await works(made.api_key.value)]).toEqual([false, true]);
    const { body } = await api().ask(`/v1/keys/${made.api_key.id}`, { key });
    expect(body).toMatchObject({ status: 'active', service_account_id: made.id });
  });

  it('has audit entries for create, rename, delete and its keys, without secrets', async () => {
    const place = await open();
    const made = await make(place, { name: 'CI' });
    await ask(place, `/${made.id}`, { body: { name: 'CI' } });
    await ask(place, `/${made.id}`, { body: { name: 'Builds' } });
    await ask(place, `/${made.id}`, { method: 'DELETE' });
    const { body } = await api().ask('/v1/audit', { key: place.key });
    expect(body.data.slice(0, 5).map(({ action }: Answer['body']) => action)).toEqual([
      'api_key.revoked',
      'service_account.deleted',
      'service_account.changed',
      'api_key.created',
      'service_account.created',
    ]);
    const [revoked, deleted, changed, , created] = body.data;
    expect(created).toMatchObject({
      target_id: made.id,
      before: null,
      after: { name: 'CI', project_id: place.projectId },
    });
    expect(changed).toMatchObject({ before: { name: 'CI' }, after: { name: 'Builds' } });
    expect(deleted).toMatchObject({ before: { name: 'Builds' }, after: null, actor: { service_account_id: null } });
    expect(revoked).toMatchObject({ target_id: made.api_key.id, after: { service_account_id: made.id } });
    expect(JSON.stringify(body)).not.toContain(made.api_key.value);
    const asked = await api().ask(`/v1/audit?actor_id=${made.id}`, { key: place.key });
    expect(asked.body.data).toEqual([]);
  });
});
