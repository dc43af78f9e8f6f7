import { describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';
import { anybody, password, refusal, userSteps } from './user-support.ts';

const api = useApi();
const { ask, make, keyOf, join, ownerOf } = userSteps(api);

describe('an inference key', () => {
  it('sees and changes only its own user, and cannot set a role', async () => {
    const { id: organizationId, key } = await api().organization();
    const user = await make(key);
    const other = await make(key);
    const own = await keyOf(organizationId, user.id);
    const { body: list } = await ask('/v1/users', { key: own });
    expect([list.data.map(({ id }: { id: string }) => id), list.pagination.total]).toEqual([[user.id], 1]);
    expect((await ask(`/v1/users/${other.id}`, { key: own })).status).toBe(404);
    expect((await ask(`/v1/users/${other.id}`, { key: own, method: 'PUT', body: { name: 'x' } })).status).toBe(404);
    expect((await ask(`/v1/users/${user.id}`, { key: own, method: 'DELETE' })).status).toBe(403);
    expect((await ask('/v1/users', { key: own, body: anybody() })).status).toBe(403);
    const put = { name: 'Renamed', role: 'owner', platform_role: 'admin' };
    const changed = await ask(`/v1/users/${user.id}`, { key: own, method: 'PUT', body: put });
    expect([changed.status, changed.body.name, changed.body.platform_role, changed.body.memberships]).toEqual([
      200,
      'Renamed',
      'user',
      [{ organization_id: organizationId, role: 'member' }],
    ]);
  });

  it("requires the user's password to change email or password", async () => {
    const { id: organizationId, key } = await api().organization();
    const user = await make(key);
    const own = await keyOf(organizationId, user.id);
    const put = (body: object): Promise<Answer> => ask(`/v1/users/${user.id}`, { key: own, method: 'PUT', body });
    for (const body of [
      { password: 'taken over' },
      { password: 'taken over', current_password: 'taken over' },
      { email: `x${user.email}` },
      { email: `x${user.email}`, current_password: '' },
    ]) {
      expect(refusal(await put(body))).toEqual([400, 'VALIDATION_ERROR', 'current_password']);
    }
    const changed = await put({ email: `x${user.email}`, password: 'my next one', current_password: password });
    expect([changed.status, changed.body.email]).toEqual([200, `x${user.email}`]);
    expect(refusal(await put({ password, current_password: password }))).toEqual([
      400,
      'VALIDATION_ERROR',
      'current_password',
    ]);
    expect((await put({ password, current_password: 'my next one' })).status).toBe(200);
  });

  it('is rejected after ten wrong passwords in an hour', async () => {
    const { id: organizationId, key } = await api().organization();
    const user = await make(key);
    const own = await keyOf(organizationId, user.id);
    const put = (current: string): Promise<Answer> =>
      ask(`/v1/users/${user.id}`, {
        key: own,
        method: 'PUT',
        body: { password: 'my next one', current_password: current },
      });
    expect((await put(password)).status).toBe(200);
    for (let guess = 1; guess <= 10; guess += 1) expect((await put(`guess ${guess}`)).status).toBe(400);
    const late = await put('my next one');
    expect([late.status, late.body.error.code]).toEqual([429, 'RATE_LIMITED']);
    expect(Number(late.headers.get('retry-after'))).toBeGreaterThan(3000);
  });

  it('cannot set a first password for an owner, unlike a management key', async () => {
    const { id: organizationId, key } = await api().organization();
    const owner = await ownerOf(key);
    const inference = await keyOf(organizationId, owner);
    const body = { email: `${uuidv7()}@example.com`, password };
    const put = (secret: string): Promise<Answer> => ask(`/v1/users/${owner}`, { key: secret, method: 'PUT', body });
    expect(refusal(await put(inference))).toEqual([403, 'FORBIDDEN']);
    expect((await put(key)).status).toBe(200);
    // Once there is one, it is asked for.
    const again = await ask(`/v1/users/${owner}`, { key, method: 'PUT', body: { password: 'another one' } });
    expect(refusal(again)).toEqual([400, 'VALIDATION_ERROR', 'current_password']);
  });
});

describe('an administrator of an organization', () => {
  it('creates members and administrators, and no owners', async () => {
    const { id: organizationId, key } = await api().organization();
    const answer = await ask('/v1/users', { key, body: { ...anybody(), role: 'owner' } });
    expect(refusal(answer)).toEqual([403, 'FORBIDDEN', 'role']);
    const user = await make(key, { role: 'admin' });
    expect(user.memberships[0].role).toBe('admin');
    const put = await ask(`/v1/users/${user.id}`, { key, method: 'PUT', body: { role: 'owner' } });
    expect(refusal(put)).toEqual([403, 'FORBIDDEN', 'role']);
    const owner = await make(api().admin, { role: 'owner' }, `/v1/users?organization_id=${organizationId}`);
    for (const change of [
      { method: 'PUT', body: { name: 'x' } },
      { method: 'PUT', body: { role: 'member' } },
      { method: 'PUT', body: { password: 'taken over' } },
      { method: 'DELETE' },
    ]) {
      expect(refusal(await ask(`/v1/users/${owner.id}`, { key, ...change }))).toEqual([403, 'FORBIDDEN']);
    }
  });

  it('cannot change a platform administrator in the same organization', async () => {
    const owner = await ownerOf(api().admin);
    const member = await make(api().admin, { role: 'admin' });
    const [row] = await api().db.sql`select organization_id from memberships where user_id = ${parseId('user', owner)}`;
    const organizationId = formatId('org', row?.['organization_id']);
    const key = await keyOf(organizationId, member.id, 'management');
    for (const change of [
      { method: 'PUT', body: { password: 'taken over' } },
      { method: 'PUT', body: { role: 'member' } },
      { method: 'DELETE' },
    ]) {
      expect(refusal(await ask(`/v1/users/${owner}`, { key, ...change }))).toEqual([403, 'FORBIDDEN']);
    }
  });

  it('removes a user of several organizations from their own only, and keeps the account', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const user = await make(mine.key);
    await join(other.id, user.id, 'member');
    const keys = [await keyOf(mine.id, user.id), await keyOf(other.id, user.id)];
    const seen = await ask(`/v1/users/${user.id}`, { key: mine.key });
    expect(seen.body.memberships).toEqual([{ organization_id: mine.id, role: 'member' }]);
    for (const body of [{ name: 'x' }, { email: `x${user.email}` }, { password: 'taken over' }]) {
      const answer = await ask(`/v1/users/${user.id}`, { key: mine.key, method: 'PUT', body });
      expect(refusal(answer)).toEqual([403, 'FORBIDDEN']);
    }
    const promoted = await ask(`/v1/users/${user.id}`, { key: mine.key, method: 'PUT', body: { role: 'admin' } });
    expect([promoted.status, promoted.body.memberships]).toEqual([200, [{ organization_id: mine.id, role: 'admin' }]]);
    expect((await ask(`/v1/users/${user.id}`, { key: other.key })).body.memberships[0].role).toBe('member');
    expect((await ask(`/v1/users/${user.id}`, { key: mine.key, method: 'DELETE' })).status).toBe(204);
    expect((await ask(`/v1/users/${user.id}`, { key: mine.key })).status).toBe(404);
    expect((await ask(`/v1/users/${user.id}`, { key: other.key })).status).toBe(200);
    const statuses = await Promise.all(keys.map(async (key) => (await ask('/v1/users', { key })).status));
    expect(statuses).toEqual([401, 200]);
    const [row] = await api().db
      .sql`select action from audit_log where target_id = ${user.id} order by id desc limit 1`;
    expect(row).toEqual({ action: 'user.removed' });
  });
});

describe('a platform administrator', () => {
  it('sees all users with all their memberships, and those of one organization', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    const user = await make(mine.key);
    await join(other.id, user.id, 'admin');
    const { body } = await ask(`/v1/users/${user.id}`);
    expect(body.memberships).toEqual([
      { organization_id: mine.id, role: 'member' },
      { organization_id: other.id, role: 'admin' },
    ]);
    const of = await ask(`/v1/users?organization_id=${other.id}`);
    expect(of.body.data.map(({ id }: { id: string }) => id)).toEqual([await ownerOf(other.key), user.id]);
    expect((await ask('/v1/users?limit=1')).body.pagination.total).toBeGreaterThan(4);
    expect((await ask(`/v1/users?organization_id=${mine.id}`, { key: other.key })).status).toBe(404);
    const role = await ask(`/v1/users/${user.id}`, { method: 'PUT', body: { role: 'admin' } });
    expect(refusal(role)).toEqual([400, 'VALIDATION_ERROR', 'role']);
    const path = `/v1/users/${user.id}?organization_id=${mine.id}`;
    const named = await ask(path, { method: 'PUT', body: { role: 'admin', name: 'Both' } });
    expect([named.status, named.body.memberships]).toEqual([200, [{ organization_id: mine.id, role: 'admin' }]]);
    expect((await ask(`/v1/users/${user.id}`, { method: 'DELETE' })).status).toBe(204);
    expect((await ask(`/v1/users/${user.id}`, { key: other.key })).status).toBe(404);
  });

  it('cannot be deleted as the last platform administrator', async () => {
    const owner = await ownerOf(api().admin);
    await make(api().admin, { role: 'owner' });
    const answer = await ask(`/v1/users/${owner}`, { method: 'DELETE' });
    expect([answer.status, answer.body.error]).toMatchObject([
      409,
      { message: 'This user is the last platform administrator. Make another user platform administrator first.' },
    ]);
    expect((await ask('/v1/users?limit=1')).status).toBe(200);
  });
});

describe('the last administrator of an organization', () => {
  it('cannot be removed or demoted until there is another one', async () => {
    const { id: organizationId, key } = await api().organization();
    const owner = await ownerOf(key);
    const path = `/v1/users/${owner}`;
    await make(key);
    expect(refusal(await ask(path, { key, method: 'DELETE' }))).toEqual([409, 'CONFLICT']);
    expect(refusal(await ask(path, { method: 'DELETE' }))).toEqual([409, 'CONFLICT']);
    const demotion = await ask(path, { method: 'PUT', body: { role: 'member' } });
    expect(refusal(demotion)).toEqual([409, 'CONFLICT']);
    const admin = await make(key, { role: 'admin' });
    expect((await ask(path, { method: 'PUT', body: { role: 'member' } })).status).toBe(200);
    expect(refusal(await ask(`/v1/users/${admin.id}`, { key, method: 'DELETE' }))).toEqual([409, 'CONFLICT']);
    expect((await ask(path, { key, method: 'DELETE' })).status).toBe(204);
    // The key acted for the deleted user.
    expect((await ask('/v1/users', { key })).status).toBe(401);
    const made = await ask(`/v1/keys?organization_id=${organizationId}`, { body: { scope: 'management' } });
    expect(await ownerOf(made.body.secret)).toBe(admin.id);
    expect((await ask('/v1/users', { key: made.body.secret })).body.pagination.total).toBe(2);
  });

  it('stays when two are removed at once', async () => {
    const { id: organizationId, key } = await api().organization();
    const owner = await ownerOf(key);
    const admin = await make(key, { role: 'admin' });
    const answers = await Promise.all([owner, admin.id].map((id) => ask(`/v1/users/${id}`, { method: 'DELETE' })));
    expect(answers.map(({ status }) => status)).toEqual(expect.arrayContaining([204, 409]));
    const left = await ask(`/v1/users?organization_id=${organizationId}`);
    expect(left.body.pagination.total).toBe(1);
  });
});

describe('a deleted user', () => {
  it('has no working key, on a second gateway neither', async () => {
    const { id: organizationId, key } = await api().organization();
    const user = await make(key);
    const own = await keyOf(organizationId, user.id);
    const second = api().secondRooms();
    await second.keys.start();
    expect(await second.keys.verify(own)).not.toBeNull();
    expect((await ask('/v1/users', { key: own })).status).toBe(200);
    expect((await ask(`/v1/users/${user.id}`, { key, method: 'DELETE' })).status).toBe(204);
    expect((await ask('/v1/users', { key: own })).status).toBe(401);
    await expect(keyOf(organizationId, user.id)).rejects.toMatchObject({ code: 'conflict' });
    await second.keys.lookForChanges();
    expect(await second.keys.verify(own)).toBeNull();
    const [row] = await api().db.sql`
      select action from audit_log where target_type = 'api_key' order by id desc limit 1`;
    expect(row).toEqual({ action: 'api_key.revoked' });
  });
});

it('deletes two platform administrators at the same time, while a third one stays', async () => {
  for (let round = 0; round < 6; round += 1) {
    const [one, two] = [await api().organization(), await api().organization()];
    const pair = [await make(one.key, { role: 'admin' }), await make(two.key, { role: 'admin' })];
    for (const { id } of pair) {
      await api().db.sql`update users set platform_role = 'admin' where id = ${parseId('user', id)}`;
    }
    const answers = await Promise.all(pair.map(({ id }) => ask(`/v1/users/${id}`, { method: 'DELETE' })));
    expect(answers.map(({ status }) => status)).toEqual([204, 204]);
  }
});
