import { describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi({ maxActiveKeys: 100 });
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);
interface Entry {
  readonly id: string;
  readonly action: string;
  readonly target_id: string;
}
const actions = ({ body }: Answer): string[] => body.data.map(({ action }: Entry) => action);

describe('GET /v1/audit', () => {
  it.each([
    ['limit=0', 'limit', 'whole number'],
    ['limit=501', 'limit', 'at most 500'],
    ['after=x', 'after', 'is not a cursor of this list'],
    [
      'cursor=x',
      'cursor',
      'is unknown; allowed query parameters: organization_id, all_organizations, action, target_id, actor_id, from, to, limit, after',
    ],
    ['actor_id=proj_1', 'actor_id', 'of a user, service account or key'],
    ['from=yesterday', 'from', 'must be a date'],
    ['from=2026-01-02&to=2026-01-01', 'to', 'must be after "from"'],
    ['action=a&action=b', 'action', 'string'],
    ['all_organizations=yes', 'all_organizations', 'true'],
    [`all_organizations=true&organization_id=${formatId('org', uuidv7())}`, 'all_organizations', 'cannot be combined'],
  ])('returns 400 for ?%s', async (query, param, text) => {
    const { status, body } = await ask(`/v1/audit?${query}`);
    expect([status, body.error.param]).toEqual([400, param]);
    expect(body.error.message).toContain(text);
  });

  it('rejects inference keys, and shows other organizations to platform administrators only', async () => {
    const [one, two] = [await api().organization(), await api().organization()];
    const app = (await ask('/v1/keys', { key: one.key, body: {} })).body.secret;
    expect((await ask('/v1/audit', { key: app })).status).toBe(403);
    for (const id of [two.id, formatId('org', uuidv7()), 'org_1', '']) {
      const { status, body } = await ask(`/v1/audit?organization_id=${id}`, { key: one.key });
      expect([status, body.error.code]).toEqual([404, 'not_found']);
    }
    expect((await ask(`/v1/audit?organization_id=${formatId('org', uuidv7())}`)).status).toBe(404);
    expect(actions(await ask('/v1/audit', { key: two.key }))).toEqual([
      'api_key.created',
      'project.created',
      'organization.created',
    ]);
  });

  it('returns the entries of all organizations to platform administrators only', async () => {
    const [one, two] = [await api().organization(), await api().organization()];
    expect((await ask('/v1/audit?all_organizations=true', { key: one.key })).status).toBe(403);
    expect((await ask('/v1/audit?all_organizations=false', { key: one.key })).status).toBe(200);
    for (const { id } of [one, two]) {
      await ask(`/v1/organizations/${id}`, { method: 'PATCH', body: { status: 'suspended' } });
      await ask('/v1/wallet/credits', { body: { organization_id: id, amount: '3', reference: `all-${id}` } });
    }
    for (const action of ['organization.suspended', 'wallet.credited']) {
      const first = await ask(`/v1/audit?all_organizations=true&action=${action}&limit=1`);
      const next = await ask(
        `/v1/audit?all_organizations=true&action=${action}&limit=1&after=${first.body.next_cursor}`,
      );
      const found = [first, next].flatMap(({ body }) => body.data);
      expect(found.map((entry) => [entry.action, entry.organization_id])).toEqual([
        [action, two.id],
        [action, one.id],
      ]);
    }
    const ofOne = await ask(`/v1/audit?all_organizations=true&target_id=${one.id}&action=organization.suspended`);
    expect(ofOne.body.data).toHaveLength(1);
  });

  it("filters by a user with that user's keys, or by one key", async () => {
    const { key } = await api().organization();
    const owner = formatId('user', (await api().keys.verify(key))?.userId ?? '');
    const made = await ask('/v1/keys', { key, body: { name: 'second', scope: 'management' } });
    const body = { name: 'by the second' };
    expect((await ask('/v1/projects', { key: made.body.secret, body })).status).toBe(201);
    expect(actions(await ask(`/v1/audit?actor_id=${made.body.id}`, { key }))).toEqual(['project.created']);
    const ofUser = actions(await ask(`/v1/audit?actor_id=${owner}`, { key }));
    expect(ofUser).toEqual(['project.created', 'api_key.created']);
    const nobody = formatId('user', uuidv7());
    expect(actions(await ask(`/v1/audit?actor_id=${nobody}`, { key }))).toEqual([]);
  });

  it('returns actor, target, values before and after, request and time, and no secret', async () => {
    const { id, key } = await api().organization();
    const owner = await api().keys.verify(key);
    const made = await ask('/v1/keys', { key, body: { name: 'one' } });
    const changed = await ask(`/v1/keys/${made.body.id}`, { method: 'PATCH', key, body: { name: 'two' } });
    const report = await ask('/v1/keys/report', { key: null, body: { secret: made.body.secret } });
    const { status, body } = await ask(`/v1/audit?target_id=${made.body.id}`, { key });
    expect(status).toBe(200);
    const common = {
      object: 'audit.entry',
      organization_id: id,
      target_type: 'api_key',
      target_id: made.body.id,
      created_at: expect.any(Number),
    };
    const actor = {
      type: 'key',
      id: formatId('key', owner?.id ?? ''),
      user_id: formatId('user', owner?.userId ?? ''),
    };
    expect(body.data).toMatchObject([
      { ...common, action: 'api_key.reported', actor: { type: 'system', id: null, user_id: null } },
      { ...common, action: 'api_key.changed', actor, before: { name: 'one' }, after: { name: 'two' } },
      { ...common, action: 'api_key.created', actor, before: null, after: { name: 'one' } },
    ]);
    expect(body.data.map((entry: { request_id: string }) => entry.request_id)).toEqual(
      [report, changed, made].map(({ headers }) => headers.get('x-request-id')),
    );
    const [row] = await api().db.sql`select encode(secret_hash, 'hex') as hash from api_keys
      where id = ${parseId('key', made.body.id)}`;
    for (const secret of [made.body.secret, row?.['hash']]) expect(JSON.stringify(body)).not.toContain(secret);
  });

  it('has an entry for each change by PATCH, and none when PATCH changes nothing', async () => {
    const { key } = await api().organization();
    const create = async (path: string, body: object): Promise<string> =>
      `${path}/${(await ask(path, { key, body })).body.id}`;
    const changes = [
      { path: await create('/v1/projects', { name: 'P' }), same: { name: 'P' }, other: { name: 'Q' } },
      { path: await create('/v1/keys', { name: 'K' }), same: { name: 'K' }, other: { name: 'L' } },
      {
        path: await create('/v1/budgets', { scope: { type: 'user', id: null }, period: 'daily', amount: '1' }),
        same: { amount: '1' },
        other: { amount: '2' },
      },
      {
        path: await create('/v1/webhooks', { url: 'https://hooks.test/a', events: ['engine.failed'] }),
        same: { url: 'https://hooks.test/a' },
        other: { url: 'https://hooks.test/b' },
      },
    ];
    for (const { path, same, other } of changes) {
      for (const body of [same, other, other]) await ask(path, { method: 'PATCH', key, body });
      const { body } = await ask(`/v1/audit?target_id=${path.split('/').at(-1)}`, { key });
      const changed = body.data.filter(({ action }: Entry) => action.endsWith('.changed'));
      expect([path, changed.length]).toEqual([path, 1]);
    }
  });

  it("names the operator's key for a change by an operator", async () => {
    const { id, key } = await api().organization();
    const operator = await api().keys.verify(api().admin);
    await ask('/v1/wallet/credits', { body: { organization_id: id, amount: '3', reference: 'r' } });
    const { body } = await ask('/v1/audit?action=wallet.credited', { key });
    expect(body.data).toMatchObject([
      {
        target_id: id,
        actor: { type: 'key', id: formatId('key', operator?.id ?? '') },
        before: { balance: '0' },
        after: { balance: '3', reference: 'r' },
      },
    ]);
  });

  it('returns pages, filtered by action, target and time', async () => {
    const { key } = await api().organization();
    for (let index = 0; index < 5; index += 1) await ask('/v1/projects', { key, body: { name: `p${index}` } });
    api().turnClock(3_600_000);
    const from = new Date(Date.now() + 3_600_000 - 1000).toISOString();
    await ask('/v1/projects', { key, body: { name: 'late' } });
    const path = '/v1/audit?action=project.created&limit=3';
    const first = await ask(path, { key });
    expect([first.body.data.length, first.body.has_more]).toEqual([3, true]);
    const second = await ask(`${path}&after=${first.body.next_cursor}`, { key });
    expect([second.body.data.length, second.body.has_more]).toEqual([3, true]);
    const third = await ask(`${path}&after=${second.body.next_cursor}`, { key });
    expect([third.body.data.length, third.body.next_cursor]).toEqual([1, null]);
    const ids = [first, second, third].flatMap(({ body }) => body.data.map((entry: Entry) => entry.id));
    expect(ids).toEqual(ids.toSorted((a: string, b: string) => (a < b ? 1 : -1)));
    expect(new Set(ids).size).toBe(7);
    const late = await ask(`/v1/audit?from=${from}`, { key });
    expect(late.body.data).toMatchObject([{ after: { name: 'late' } }]);
    const before = await ask(`/v1/audit?to=${from}&target_id=${late.body.data[0].target_id}`, { key });
    expect(before.body.data).toEqual([]);
  });
});
