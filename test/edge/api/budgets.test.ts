import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type MailServer, startMailServer } from '#test/mail.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, signInPerson } from '#test/portal/visitor.ts';
import { type Body, chatBody, standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

let mail: MailServer;
let gateway: TestGateway;

beforeAll(async () => {
  mail = await startMailServer();
  gateway = await startGateway({
    enginesDir: writeEngines({
      chat: standinFile('chat', { lines: ['aliases: [chat-alias]'] }),
      other: standinFile('other'),
    }),
    env: {
      HEADGATE_SMTP_URL: mail.url,
      HEADGATE_PUBLIC_URL: 'https://gateway.example.com',
      HEADGATE_MAX_ACTIVE_KEYS: '1000',
    },
  });
});

afterAll(async () => {
  await gateway.stop();
  await mail.stop();
});

interface Answer {
  readonly status: number;
  readonly body: Body;
}

async function ask(path: string, options: Parameters<TestGateway['request']>[1] = {}): Promise<Answer> {
  const response = await gateway.request(path, options);
  return { status: response.status, body: await response.json() };
}

interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly projectId: string;
  readonly inference: { readonly id: string; readonly secret: string };
}

async function openTenant(name = 'Tenant'): Promise<Tenant> {
  const { body: made } = await ask('/v1/organizations', { body: { name } });
  await ask('/v1/wallet/credits', { body: { organization_id: made.id, amount: '10', reference: 'opening' } });
  const key: string = made.management_key;
  const { body: inference } = await ask('/v1/keys', { key, body: { name: 'app' } });
  return { id: made.id, key, projectId: inference.project_id, inference };
}

const each = { scope: { type: 'user', id: null }, period: 'daily', amount: '1' };
const make = ({ key }: Tenant, body: object): Promise<Answer> => ask('/v1/budgets', { key, body });

describe('/v1/budgets', () => {
  it('returns 400 with the field for an invalid budget', async () => {
    const tenant = await openTenant();
    const refused: readonly (readonly [object, string])[] = [
      [{ ...each, amount: '0' }, 'amount'],
      [{ ...each, amount: '-1' }, 'amount'],
      [{ ...each, amount: 1 }, 'amount'],
      [{ ...each, amount: '0.0000001' }, 'amount'],
      [{ ...each, period: 'hourly' }, 'period'],
      [{ ...each, models: [] }, 'models'],
      [{ ...each, models: ['chat', 'unknown'] }, 'models.1'],
      [{ ...each, models: Array.from({ length: 101 }, () => 'chat') }, 'models'],
      [{ ...each, opening_spent: '1' }, 'opening_spent'],
      [{ ...each, mode: 'firm' }, 'mode'],
      [{ ...each, alert_percents: [0] }, 'alert_percents'],
      [{ ...each, scope: { type: 'team', id: null } }, 'scope'],
      [{ ...each, scope: { type: 'project', id: null } }, 'scope.id'],
      [{ ...each, scope: { type: 'api_key', id: tenant.projectId } }, 'scope.id'],
      [{ ...each, scope: { type: 'user', id: '' } }, 'scope'],
    ];
    for (const [body, field] of refused) {
      const { status, body: answer } = await make(tenant, body);
      expect([status, answer.error?.code]).toEqual([400, 'invalid_request_error']);
      expect(answer.error.message).toContain(field);
    }
  });

  it('hides budgets, projects and keys of other organizations', async () => {
    const [own, other] = [await openTenant(), await openTenant()];
    const { body: made } = await make(own, each);
    for (const scope of [
      { type: 'project', id: own.projectId },
      { type: 'api_key', id: own.inference.id },
    ]) {
      expect((await make(other, { ...each, scope })).status).toBe(404);
    }
    const path = `/v1/budgets/${made.id}`;
    expect((await ask(path, { key: other.key })).status).toBe(404);
    expect((await ask(path, { key: other.key, method: 'PATCH', body: { amount: '2' } })).status).toBe(404);
    expect((await ask(path, { key: other.key, method: 'DELETE' })).status).toBe(404);
    expect((await ask(`/v1/budgets?organization_id=${own.id}`, { key: other.key })).status).toBe(404);
    expect((await ask('/v1/budgets', { key: other.key })).body.data).toEqual([]);
    expect((await ask(`${path}?organization_id=${own.id}`)).body).toEqual(made);
  });

  it.each(['0.0000001', 'five', '1e3', ''])(
    'returns 400 with the allowed decimal places for the amount %j',
    async (amount) => {
      const { status, body } = await make(await openTenant(), { ...each, amount });
      expect([status, body.error.message]).toEqual([400, expect.stringContaining('with at most 6 places')]);
    },
  );

  it('accepts one budget for each scope, period and mode', async () => {
    const tenant = await openTenant();
    expect((await make(tenant, each)).status).toBe(201);
    expect((await make(tenant, { ...each, amount: '2' })).body.error.code).toBe('conflict');
    const { body: soft } = await make(tenant, { ...each, mode: 'soft' });
    expect((await make(tenant, { ...each, period: 'monthly' })).status).toBe(201);
    const { body: named } = await make(tenant, { ...each, scope: { type: 'user', id: 'anna' } });
    expect(named).toMatchObject({ scope: { type: 'user', id: 'anna' }, spent: '0', remaining: '1' });
    const hardened = await ask(`/v1/budgets/${soft.id}`, { key: tenant.key, method: 'PATCH', body: { mode: 'hard' } });
    expect(hardened.status).toBe(409);
  });

  it('accepts a budget for each list of models, whatever its order and aliases', async () => {
    const tenant = await openTenant();
    const scope = { type: 'api_key', id: tenant.inference.id };
    const body = { scope, period: 'weekly', amount: '1' };
    expect((await make(tenant, body)).body.models).toBeNull();
    const { body: made } = await make(tenant, { ...body, models: ['other', 'chat-alias', 'chat'] });
    expect(made).toMatchObject({ models: ['chat', 'other'], period: 'weekly' });
    const again = await make(tenant, { ...body, models: ['chat', 'other'] });
    expect([again.status, again.body.error.message]).toEqual([409, expect.stringContaining('for these models')]);
    expect((await make(tenant, { ...body, models: ['chat'] })).status).toBe(201);
  });

  it('returns the current period in UTC, and null for the end of a budget for its life', async () => {
    const tenant = await openTenant();
    const [year, month] = [new Date().getUTCFullYear(), new Date().getUTCMonth()];
    const spans: Readonly<Record<string, readonly [number, number]>> = {
      monthly: [Date.UTC(year, month), Date.UTC(year, month + 1)],
      quarterly: [Date.UTC(year, month - (month % 3)), Date.UTC(year, month - (month % 3) + 3)],
      yearly: [Date.UTC(year, 0), Date.UTC(year + 1, 0)],
    };
    for (const [period, span] of Object.entries(spans)) {
      const { body } = await make(tenant, { ...each, period });
      expect([body.period_start * 1000, body.resets_at * 1000]).toEqual(span);
    }
    const { body: week } = await make(tenant, { ...each, period: 'weekly' });
    expect(new Date(week.period_start * 1000).getUTCDay()).toBe(1);
    expect(week.resets_at - week.period_start).toBe(7 * 86_400);
    expect((await make(tenant, { ...each, period: 'total' })).body.resets_at).toBeNull();
  });

  it('raises a budget until a moment, resets it, and records both', async () => {
    const tenant = await openTenant();
    const { key, inference } = tenant;
    const scope = { type: 'api_key', id: inference.id };
    const { body: made } = await make(tenant, { scope, period: 'yearly', amount: '1', opening_spent: '0.4' });
    expect(made).toMatchObject({ spent: '0.4', remaining: '0.6', raise: null });
    const path = `/v1/budgets/${made.id}`;
    const patch = (raise: object | null): Promise<Answer> => ask(path, { key, method: 'PATCH', body: { raise } });
    const until = Math.floor(Date.now() / 1000) + 3600;
    expect((await patch({ amount: '2', until: 1 })).body.error.message).toContain('raise.until');
    expect((await patch({ amount: '2', until: 9e15 })).status).toBe(400);
    expect((await patch({ amount: '2', until })).body).toMatchObject({
      raise: { amount: '2', until },
      remaining: '2.6',
    });
    const reset = await ask(`${path}/reset`, { key, method: 'POST' });
    expect(reset.body).toMatchObject({ amount: '1', spent: '0', remaining: '3' });
    expect((await patch(null)).body).toMatchObject({ raise: null, remaining: '1' });
    const { body: ofAll } = await make(tenant, each);
    const refused = await ask(`/v1/budgets/${ofAll.id}/reset`, { key, method: 'POST' });
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining('each end user')]);
    const { data } = (await ask('/v1/audit', { key })).body;
    const rows = data.filter(({ target_id: id }: Body) => id === made.id).map((one: Body) => [one.action, one.after]);
    expect(rows.slice(0, 3)).toEqual([
      ['budget.changed', expect.not.objectContaining({ raise_amount: '2' })],
      ['budget.reset', expect.objectContaining({ raise_amount: '2' })],
      ['budget.changed', expect.objectContaining({ raise_amount: '2', forgiven: '-0.4' })],
    ]);
  });

  it('counts the life of a budget from its creation', async () => {
    const tenant = await openTenant();
    const { key, inference } = tenant;
    const scope = { type: 'api_key', id: inference.id };
    const { body: day } = await make(tenant, { scope, period: 'daily', amount: '1' });
    const spent = async (id: string): Promise<number> => Number((await ask(`/v1/budgets/${id}`, { key })).body.spent);
    const chat = async (model: string): Promise<void> => {
      const answer = await gateway.request('/v1/chat/completions', {
        key: inference.secret,
        body: chatBody({ model }),
      });
      expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('choices')]);
    };
    await chat('chat');
    const before = await spent(day.id);
    expect(before).toBeGreaterThan(0);
    const { body: life } = await make(tenant, { scope, period: 'total', amount: '1' });
    const { body: other } = await make(tenant, { scope, period: 'total', amount: '1', models: ['other'] });
    expect([life.spent, other.spent]).toEqual(['0', '0']);
    await chat('chat');
    const after = (await spent(day.id)) - before;
    expect(await spent(life.id)).toBeCloseTo(after, 12);
    expect(await spent(other.id)).toBe(0);
    await chat('other');
    expect(await spent(other.id)).toBeGreaterThan(0);
    expect(await spent(life.id)).toBeCloseTo((await spent(day.id)) - before, 12);
  });

  it('lists budgets newest first, in pages and by scope', async () => {
    const tenant = await openTenant();
    const ids: string[] = [];
    for (const name of ['a', 'b', 'c']) {
      ids.unshift((await make(tenant, { ...each, scope: { type: 'user', id: name } })).body.id);
    }
    ids.unshift((await make(tenant, { ...each, scope: { type: 'project', id: tenant.projectId } })).body.id);
    const first = (await ask('/v1/budgets?limit=3', { key: tenant.key })).body;
    expect(first.data.map(({ id }: Body) => id)).toEqual(ids.slice(0, 3));
    expect([first.has_more, first.first_id, first.last_id]).toEqual([true, ids[0], ids[2]]);
    const rest = (await ask(`/v1/budgets?limit=3&after=${first.last_id}`, { key: tenant.key })).body;
    expect([rest.data.map(({ id }: Body) => id), rest.has_more]).toEqual([ids.slice(3), false]);
    const users = (await ask('/v1/budgets?scope_type=user', { key: tenant.key })).body;
    expect(users.data).toHaveLength(3);
    const project = `/v1/budgets?scope_type=project&scope_id=${tenant.projectId}`;
    expect((await ask(project, { key: tenant.key })).body.data.map(({ id }: Body) => id)).toEqual([ids[0]]);
    expect((await ask('/v1/budgets?scope_id=x', { key: tenant.key })).status).toBe(400);
  });

  it('shows members only the budgets of their own key and project, and rejects their changes', async () => {
    const tenant = await openTenant();
    const { body: other } = await ask('/v1/keys', { key: tenant.key, body: { name: 'other' } });
    const own = (await make(tenant, { ...each, scope: { type: 'api_key', id: tenant.inference.id } })).body;
    const project = (await make(tenant, { ...each, scope: { type: 'project', id: tenant.projectId } })).body;
    const foreign = (await make(tenant, { ...each, scope: { type: 'api_key', id: other.id } })).body;
    const users = (await make(tenant, each)).body;
    const key = tenant.inference.secret;
    const seen = (await ask('/v1/budgets', { key })).body.data.map(({ id }: Body) => id);
    expect(seen).toEqual([project.id, own.id]);
    for (const { id } of [foreign, users]) expect((await ask(`/v1/budgets/${id}`, { key })).status).toBe(404);
    expect((await ask(`/v1/budgets/${own.id}`, { key })).status).toBe(200);
    expect((await ask(`/v1/budgets/${own.id}`, { key, method: 'DELETE' })).status).toBe(403);
  });

  it('writes an audit entry for every change', async () => {
    const tenant = await openTenant();
    const { body: made } = await make(tenant, each);
    await ask(`/v1/budgets/${made.id}`, { key: tenant.key, method: 'PATCH', body: { amount: '2.5' } });
    await ask(`/v1/budgets/${made.id}`, { key: tenant.key, method: 'DELETE' });
    const { data } = (await ask('/v1/audit', { key: tenant.key })).body;
    const rows = data
      .filter(({ target_id: id }: Body) => id === made.id)
      .map((one: Body) => [one.action, one.before?.amount, one.after?.amount]);
    expect(rows).toEqual([
      ['budget.deleted', '2.5', undefined],
      ['budget.changed', '1', '2.5'],
      ['budget.created', undefined, '1'],
    ]);
  });
});

describe('budget alerts', () => {
  const chat = ({ inference }: Tenant, fields: object = {}): Promise<Response> =>
    gateway.request('/v1/chat/completions', { key: inference.secret, body: chatBody(fields) });

  it('notify owners and admins once for each percentage of a soft budget, and no members', async () => {
    const tenant = await openTenant('Soft');
    const { email: admin } = await makePerson(gateway, { role: 'admin' }, tenant.key);
    const { email: member } = await makePerson(gateway, { role: 'member' }, tenant.key);
    const scope = { type: 'project', id: tenant.projectId };
    const amounts = { amount: '0.000001', mode: 'soft', alert_percents: [50, 100] };
    const { body: soft } = await make(tenant, { scope, period: 'daily', ...amounts });
    await make(tenant, { ...each, scope, period: 'monthly', amount: '1000' });
    for (const _ of [1, 2, 3]) expect((await chat(tenant)).status).toBe(200);
    const subjects = [await mail.next(admin), await mail.next(admin)].map(
      ({ text }) => /reached (\d+) %/.exec(text)?.[1],
    );
    expect(new Set(subjects)).toEqual(new Set(['100', '50']));
    const alerted = (await ask('/v1/budgets?alerted=true', { key: tenant.key })).body.data;
    expect(alerted.map(({ id }: Body) => id)).toEqual([soft.id]);
    // The other member gets the same after another poll: no notice was sent anew.
    const second = await openTenant('Second');
    const { email: other } = await makePerson(gateway, { role: 'admin' }, second.key);
    await make(second, {
      ...each,
      scope: { type: 'api_key', id: second.inference.id },
      amount: '0.000001',
      alert_percents: [],
    });
    expect((await chat(second)).status).toBe(402);
    const { text } = await mail.next(other);
    expect(text).toContain('has rejected a request: 0 USD of 0.000001 USD is spent');
    expect(text).not.toContain(' %');
    expect(text).toContain('Requests that would exceed the budget are rejected');
    expect(mail.letters.filter(({ to }) => to.includes(admin))).toHaveLength(2);
    expect(mail.letters.filter(({ to }) => to.includes(member))).toHaveLength(0);
  });

  it('name the end user for a budget of each end user', async () => {
    const tenant = await openTenant('Users');
    const { email: admin } = await makePerson(gateway, { role: 'admin' }, tenant.key);
    await make(tenant, { ...each, mode: 'soft', amount: '0.000001', alert_percents: [100] });
    await (await chat(tenant, { user: 'anna' })).text();
    // Lines of a mail are folded.
    expect((await mail.next(admin)).text.replaceAll('=\r\n', '')).toContain('the end user "anna"');
  });
});

describe('the budgets page', () => {
  it('creates, changes and deletes budgets, and shows their key and project', async () => {
    const tenant = await openTenant('Page');
    const visitor = await signInPerson(gateway, (await makePerson(gateway, { role: 'admin' }, tenant.key)).email);
    const typed = {
      type: 'project',
      id: tenant.projectId,
      period: 'daily',
      amount: '5',
      mode: 'hard',
      alerts: '80, 100',
    };
    const refused = await visitor.post('/portal/budgets/new', { ...typed, amount: 'five' });
    expect([refused.status, refused.text.includes('value="five"')]).toEqual([400, true]);
    const both = await visitor.post('/portal/budgets/new', { ...typed, type: 'each_user', id: 'anna' });
    expect([both.status, both.text.includes('must be empty for each end user')]).toEqual([400, true]);
    const made = await visitor.post('/portal/budgets/new', typed);
    expect([made.status, made.headers.location]).toEqual([303, '/portal/budgets?notice=made']);
    const list = await visitor.get('/portal/budgets');
    const id = /\/portal\/budgets\/(budget_[0-9a-f]+)"/.exec(list.text)?.[1] ?? '';
    expect(list.text).toContain('<meter');
    expect((await visitor.get(`/portal/projects/${tenant.projectId}`)).text).toContain(id);
    expect((await visitor.get(`/portal/keys/${tenant.inference.id}`)).text).toContain('New budget');
    const raised = { raise_amount: '3', raise_until: 'soon' };
    const unraised = await visitor.post(`/portal/budgets/${id}/raise`, raised);
    expect([unraised.status, unraised.text.includes('raise_until-problem')]).toEqual([400, true]);
    const year = new Date().getUTCFullYear() + 1;
    await visitor.post(`/portal/budgets/${id}/raise`, { ...raised, raise_until: `${year}-01-31 18:00` });
    const { raise } = (await ask(`/v1/budgets/${id}`, { key: tenant.key })).body;
    expect(raise).toEqual({ amount: '3', until: Date.UTC(year, 0, 31, 18) / 1000 });
    expect((await visitor.get(`/portal/budgets/${id}`)).text).toContain('End the raise');
    expect((await visitor.post(`/portal/budgets/${id}/raise`, { end: 'true' })).status).toBe(303);
    expect((await visitor.get(`/portal/budgets/${id}/reset`)).text).toContain('no longer');
    expect((await visitor.post(`/portal/budgets/${id}/reset`)).headers.location).toBe('/portal/budgets?notice=reset');
    const ofModels = { ...typed, period: 'total', models: 'chat, other' };
    expect((await visitor.post('/portal/budgets/new', { ...ofModels, models: 'chat, no' })).text).toContain(
      'models-problem',
    );
    expect((await visitor.post('/portal/budgets/new', ofModels)).status).toBe(303);
    expect((await visitor.get('/portal/budgets')).text).toContain('chat, other');
    const changed = await visitor.post(`/portal/budgets/${id}`, { amount: '7', mode: 'soft', alerts: '' });
    expect(changed.status).toBe(303);
    expect((await ask(`/v1/budgets/${id}`, { key: tenant.key })).body).toMatchObject({
      amount: '7',
      mode: 'soft',
      alert_percents: [],
    });
    expect((await visitor.post(`/portal/budgets/${id}/delete`)).status).toBe(303);
    expect((await ask(`/v1/budgets/${id}`, { key: tenant.key })).status).toBe(404);
  });
});
