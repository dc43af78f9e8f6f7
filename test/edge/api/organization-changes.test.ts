import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);
const change = (id: string, body: object, key?: string): Promise<Answer> =>
  ask(`/v1/organizations/${id}`, { method: 'PATCH', body, ...(key !== undefined && { key }) });
const close = (id: string): Promise<Answer> => ask(`/v1/organizations/${id}`, { method: 'DELETE' });

async function platformsOwn(): Promise<string> {
  const { body } = await ask('/v1/organizations?limit=500');
  return body.data.at(-1).id;
}

/** Audited actions on an organization, oldest first. */
async function actionsOn(id: string): Promise<string[]> {
  const { body } = await ask(`/v1/audit?organization_id=${id}&target_id=${id}`);
  return body.data.map(({ action }: { action: string }) => action).toReversed();
}

describe('PATCH /v1/organizations/{id}', () => {
  it.each([
    [{ name: '' }, 'name', 'empty'],
    [{ name: 7 }, 'name', 'string'],
    [{ status: 'closed' }, 'status', 'active, suspended'],
    [{ status: null }, 'status', 'active, suspended'],
    [{ default_limits: { requests_per_minute: 0 } }, 'default_limits.requests_per_minute', '1 or more'],
    [{ default_limits: { rpm: 1 } }, 'default_limits.rpm', 'not a known field'],
    [{ default_limits: 5 }, 'default_limits', 'object'],
    [{ max_active_keys: 0 }, 'max_active_keys', '1 or more'],
    [{ max_active_keys: 1.5 }, 'max_active_keys', 'integer'],
    [{ models: [] }, 'models', 'must contain a model'],
    [{ models: 'model-a' }, 'models', 'array'],
    [{ models: ['model-a', 'other'] }, 'models.1', 'the model "other" does not exist'],
    [{ wallet_alert_below: 5 }, 'wallet_alert_below', 'a JSON number may lose digits'],
    [{ wallet_alert_below: '0' }, 'wallet_alert_below', 'above 0'],
    [{ wallet_alert_below: '-1' }, 'wallet_alert_below', 'above 0'],
    [{ balance: '5' }, 'balance', 'not a known field'],
  ])('returns 400 for %j', async (body, param, text) => {
    const { id } = await api().organization();
    const answer = await change(id, body);
    expect([answer.status, answer.body.error.param]).toEqual([400, param]);
    expect(answer.body.error.message).toContain(text);
    expect(await actionsOn(id)).toEqual(['organization.created']);
  });

  it("rejects changes by the organization's own administrators, except its name", async () => {
    const { id, key } = await api().organization('before');
    for (const [field, value] of Object.entries({
      status: 'active',
      default_limits: null,
      max_active_keys: null,
      models: null,
    })) {
      const { status, body } = await change(id, { name: 'after', [field]: value }, key);
      expect([status, body.error.code, body.error.param]).toEqual([403, 'insufficient_scope', field]);
    }
    expect((await ask(`/v1/organizations/${id}`, { key })).body.name).toBe('before');
    expect((await change(id, { name: 'after' }, key)).body.name).toBe('after');
  });

  it('returns the same error to organizations for another organization and an unknown one', async () => {
    const [{ key }, other] = [await api().organization(), await api().organization()];
    for (const id of [other.id, formatId('org', uuidv7()), 'org_1', 'x']) {
      for (const answer of [await change(id, { name: 'x' }, key), await ask(`/v1/organizations/${id}`, { key })]) {
        expect([answer.status, answer.body.error]).toEqual([
          404,
          { type: 'invalid_request_error', code: 'not_found', message: 'There is no such organization.', param: null },
        ]);
      }
    }
    expect((await close(formatId('org', uuidv7()))).status).toBe(404);
  });

  it("returns 409 for suspending or closing the platform's own organization", async () => {
    const id = await platformsOwn();
    const suspended = await change(id, { status: 'suspended' });
    expect([suspended.status, suspended.body.error.param]).toEqual([409, 'status']);
    const closed = await close(id);
    expect([closed.status, closed.body.error.code]).toEqual([409, 'conflict']);
    expect((await ask('/v1/wallet')).status).toBe(200);
  });

  it('returns 409 once the organization is closed', async () => {
    const { id } = await api().organization();
    await close(id);
    for (const body of [{ status: 'active' }, { name: 'again' }, { models: null }]) {
      const answer = await change(id, body);
      expect([answer.status, answer.body.error.code]).toEqual([409, 'conflict']);
    }
    const key = await ask(`/v1/keys?organization_id=${id}`, { body: {} });
    expect([key.status, key.body.error.code]).toEqual([409, 'conflict']);
    const credit = { organization_id: id, amount: '1', reference: 'late' };
    expect((await ask('/v1/wallet/credits', { body: credit })).status).toBe(409);
  });
});

describe('a suspended organization', () => {
  it('gets its own error code on every route with a key, and works again after reactivation', async () => {
    const { id, key } = await api().organization();
    const app = (await ask('/v1/keys', { key, body: {} })).body.secret;
    expect((await change(id, { status: 'suspended' })).body.status).toBe('suspended');
    for (const secret of [key, app]) {
      for (const path of ['/v1/wallet', '/v1/usage/requests', `/v1/organizations/${id}`]) {
        const { status, body } = await ask(path, { key: secret });
        expect([status, body.error.code, body.error.type]).toEqual([403, 'organization_suspended', 'auth_error']);
      }
    }
    const generic = await ask('/v1/projects', { key });
    expect([generic.status, generic.body.error.code]).toEqual([403, 'FORBIDDEN']);
    expect((await change(id, { status: 'active' })).body.status).toBe('active');
    expect((await ask('/v1/wallet', { key: app })).status).toBe(200);
    expect(await actionsOn(id)).toEqual(['organization.created', 'organization.suspended', 'organization.reactivated']);
  });

  it('is rejected for a request that is still loading its project', async () => {
    const { id, key } = await api().organization();
    const asked = await api().db.sql.begin(async (tx) => {
      await tx`lock table projects in access exclusive mode`;
      const answer = ask('/v1/wallet', { key });
      for (let waiting = 0; waiting === 0;) {
        const [row] = await tx`select count(*)::int as waiting from pg_locks
          where relation = 'projects'::regclass and not granted`;
        waiting = row?.['waiting'];
      }
      expect((await change(id, { status: 'suspended' })).status).toBe(200);
      return { answer };
    });
    const { status, body } = await asked.answer;
    expect([status, body.error.code]).toEqual([403, 'organization_suspended']);
  });

  it('has one audit entry, even if suspended repeatedly', async () => {
    const { id } = await api().organization();
    for (let time = 0; time < 3; time += 1) expect((await change(id, { status: 'suspended' })).status).toBe(200);
    expect(await actionsOn(id)).toEqual(['organization.created', 'organization.suspended']);
  });

  it('is rejected on gateways with and without its key in the cache', async () => {
    const { id, key } = await api().organization();
    const fresh = api().secondRooms().keys;
    expect(await fresh.verify(key)).toMatchObject({ organizationStatus: 'active' });
    await change(id, { status: 'suspended' });
    expect(await api().secondRooms().keys.verify(key)).toMatchObject({ organizationStatus: 'suspended' });
    await fresh.refreshOrganizations();
    expect(await fresh.verify(key)).toMatchObject({ organizationStatus: 'suspended' });
  });
});

describe('a closed organization', () => {
  it('has no keys, and its ledger stays readable for platform administrators', async () => {
    const { id, key } = await api().organization('closing');
    const app = (await ask('/v1/keys', { key, body: {} })).body;
    await ask('/v1/wallet/credits', { body: { organization_id: id, amount: '7', reference: 'one' } });
    const { status, body } = await close(id);
    expect([status, body.status, body.closed_at]).toEqual([200, 'closed', expect.any(Number)]);
    for (const secret of [key, app.secret]) {
      expect((await ask('/v1/wallet', { key: secret })).status).toBe(401);
      expect(await api().secondRooms().keys.verify(secret)).toBeNull();
    }
    const keys = await ask(`/v1/keys?organization_id=${id}`);
    expect(keys.body.data.map((one: { status: string }) => one.status)).toEqual(['revoked', 'revoked']);
    expect((await ask(`/v1/wallet?organization_id=${id}`)).body.balance).toBe('7');
    expect((await ask(`/v1/wallet/ledger?organization_id=${id}`)).body.data).toHaveLength(1);
    expect((await ask(`/v1/wallet/statements/2026-01?organization_id=${id}`)).body.organization_id).toBe(id);
    expect((await ask(`/v1/usage/requests?organization_id=${id}`)).body.data).toEqual([]);
    expect((await ask(`/v1/organizations/${id}`)).body).toMatchObject({ name: 'closing', status: 'closed' });
    expect(await actionsOn(id)).toEqual(['organization.created', 'wallet.credited', 'organization.closed']);
    // Its name is free, and closing it again changes nothing.
    expect((await ask('/v1/organizations', { body: { name: 'closing' } })).status).toBe(201);
    expect((await close(id)).body).toEqual(body);
    expect(await actionsOn(id)).toEqual(['organization.created', 'wallet.credited', 'organization.closed']);
  });

  it('accepts an adjustment that pays out the remaining balance, with a reason', async () => {
    const { id } = await api().organization();
    await ask('/v1/wallet/credits', { body: { organization_id: id, amount: '7', reference: 'one' } });
    await close(id);
    const more = { organization_id: id, amount: '0.01', reason: 'a gift', reference: 'more' };
    const refused = await ask('/v1/wallet/adjustments', { body: more });
    expect([refused.status, refused.body.error.code]).toEqual([409, 'conflict']);
    expect(refused.body.error.message).toContain('closed');
    expect((await ask(`/v1/wallet?organization_id=${id}`)).body.balance).toBe('7');
    const refund = { organization_id: id, amount: '-7', reason: 'paid back', reference: 'refund' };
    expect((await ask('/v1/wallet/adjustments', { body: refund })).body.balance_after).toBe('0');
  });
});

describe('the limits of an organization', () => {
  const limits = { requests_per_minute: 60, max_concurrency: 10, tokens_per_minute: null, monthly_token_limit: null };
  const keyLimits = (body: object): object => ({
    ...limits,
    ...Object.fromEntries(Object.entries(body).filter(([name]) => name in limits)),
  });

  it('are the default for new keys', async () => {
    const { id, key } = await api().organization();
    const wanted = { requests_per_minute: 5, tokens_per_minute: 1000, max_concurrency: null };
    const changed = await change(id, { default_limits: wanted });
    expect(changed.body.default_limits).toEqual({ ...limits, ...wanted });
    const made = await ask('/v1/keys', { key, body: { tokens_per_minute: null } });
    expect(keyLimits(made.body)).toEqual({ ...limits, ...wanted, tokens_per_minute: null });
    const more = await change(id, { default_limits: { monthly_token_limit: 9 } });
    expect(more.body.default_limits).toEqual({ ...limits, ...wanted, monthly_token_limit: 9 });
    expect((await change(id, { default_limits: null })).body.default_limits).toEqual(limits);
    expect(keyLimits((await ask('/v1/keys', { key, body: {} })).body)).toEqual(limits);
  });

  it("limit its active keys, above and below the gateway's own setting", async () => {
    const { id, key } = await api().organization();
    await change(id, { max_active_keys: 2 });
    expect((await ask('/v1/keys', { key, body: {} })).status).toBe(201);
    const refused = await ask('/v1/keys', { key, body: {} });
    expect([refused.status, refused.body.error.code]).toEqual([409, 'key_limit_reached']);
    expect(refused.body.error.message).toContain('has 2 active API keys; the limit is 2');
    await change(id, { max_active_keys: 7 });
    for (let keys = 2; keys < 7; keys += 1) expect((await ask('/v1/keys', { key, body: {} })).status).toBe(201);
    await change(id, { max_active_keys: null });
    expect((await ask('/v1/keys', { key, body: {} })).status).toBe(409);
  });
});

describe('allowed models of an organization and its keys', () => {
  it('are rejected for a key like unknown models when the organization lacks them', async () => {
    const { id, key } = await api().organization();
    await change(id, { models: ['model-a', 'model-b', 'model-a'] });
    expect((await ask(`/v1/organizations/${id}`, { key })).body.models).toEqual(['model-a', 'model-b']);
    const made = await ask('/v1/keys', { key, body: { models: ['model-b'] } });
    expect([made.status, made.body.models]).toEqual([201, ['model-b']]);
    for (const name of ['model-c', 'nothing']) {
      for (const answer of [
        await ask('/v1/keys', { key, body: { models: ['model-a', name] } }),
        await ask(`/v1/keys/${made.body.id}`, { method: 'PATCH', key, body: { models: ['model-a', name] } }),
      ]) {
        expect([answer.status, answer.body.error.param]).toEqual([400, 'models.1']);
        expect(answer.body.error.message).toBe(`models.1: the model "${name}" does not exist`);
      }
    }
    const all = await ask(`/v1/keys/${made.body.id}`, { method: 'PATCH', key, body: { models: null } });
    expect(all.body.models).toBeNull();
  });

  it('apply to the key at once, as the intersection of both lists', async () => {
    const { id, key } = await api().organization();
    const made = await ask('/v1/keys', { key, body: { models: ['model-a', 'model-b'] } });
    const usable = async (): Promise<string[] | null> => {
      const known = await api().keys.verify(made.body.secret);
      return known === null || known.usableModels === null ? null : [...known.usableModels];
    };
    expect(await usable()).toEqual(['model-a', 'model-b']);
    await change(id, { models: ['model-b', 'model-c'] });
    expect(await usable()).toEqual(['model-b']);
    await ask(`/v1/keys/${made.body.id}`, { method: 'PATCH', key, body: { models: null } });
    expect(await usable()).toEqual(['model-b', 'model-c']);
    await change(id, { models: null });
    expect(await usable()).toBeNull();
    const [row] = await api().db.sql`select before, after from audit_log where target_id = ${made.body.id}
      and action = 'api_key.changed'`;
    expect(row).toMatchObject({ before: { models: ['model-a', 'model-b'] }, after: { models: null } });
  });
});
