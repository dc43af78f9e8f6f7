import { describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { type Answer, type AskOptions, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string, options?: AskOptions): Promise<Answer> => api().ask(path, options);

describe('/v1/organizations', () => {
  it.each([
    [{}, 'name'],
    [{ name: '' }, 'name'],
    [{ name: ' \t' }, 'name'],
    [{ name: 'x'.repeat(201) }, 'name'],
    [{ name: 'a\0b' }, 'name'],
    [{ name: null }, 'name'],
    [{ name: 'ok', owner: 'me' }, 'owner'],
  ])('returns 400 for %j', async (body, param) => {
    const answer = await ask('/v1/organizations', { body });
    expect([answer.status, answer.body.error.param]).toEqual([400, param]);
  });

  it('stores nothing when one part of an organization cannot be created', async () => {
    const count = async (): Promise<unknown> =>
      (
        await api().db
          .sql`select (select count(*) from organizations) as organizations, (select count(*) from users) as users,
        (select count(*) from projects) as projects, (select count(*) from audit_log) as audit`
      )[0];
    const before = await count();
    await api().db.sql`alter table api_keys add constraint broken_on_purpose check (false) not valid`;
    try {
      const answer = await ask('/v1/organizations', { body: { name: 'Half' } });
      expect(answer.status).toBe(500);
    } finally {
      await api().db.sql`alter table api_keys drop constraint broken_on_purpose`;
    }
    expect(await count()).toEqual(before);
  });

  it('creates a project, a wallet and a management key for each organization', async () => {
    const { status, body } = await ask('/v1/organizations', { body: { name: 'Water Works' } });
    expect(status).toBe(201);
    expect(body).toEqual({
      id: expect.stringMatching(/^org_[0-9a-f]{32}$/),
      object: 'organization',
      name: 'Water Works',
      status: 'active',
      created_at: expect.any(Number),
      closed_at: null,
      default_limits: {
        requests_per_minute: 60,
        max_concurrency: 10,
        tokens_per_minute: null,
        monthly_token_limit: null,
      },
      max_active_keys: null,
      models: null,
      wallet_alert_below: null,
      alert_emails: null,
      members_may_apply: true,
      wallet_alerted_at: null,
      management_key: expect.stringMatching(/^sk-hg-[0-9a-f]{12}-[0-9A-Za-z]{32}$/),
    });
    const key = body.management_key;
    const projects = await ask('/v1/projects', { key });
    expect(projects.body.data.map(({ name }: { name: string }) => name)).toEqual(['default']);
    const keys = await ask('/v1/keys', { key });
    expect(keys.body.data).toMatchObject([{ scope: 'management', project_id: projects.body.data[0].id }]);
    expect((await ask('/v1/wallet', { key })).body).toMatchObject({ balance: '0', currency: 'USD' });
    const rows = await api().db.sql`select action, target_id from audit_log
      where organization_id = ${parseId('org', body.id)} order by id`;
    expect(rows.map(({ action }) => action)).toEqual(['organization.created', 'project.created', 'api_key.created']);
    expect(JSON.stringify(rows)).not.toContain(key);
  });

  it('lists organizations for the platform admin, newest first, without keys', async () => {
    const made = [];
    for (const name of ['one', 'two', 'three']) made.push(await api().organization(name));
    const first = await ask('/v1/organizations?limit=2');
    expect(first.body.data.map(({ name }: { name: string }) => name)).toEqual(['three', 'two']);
    expect(JSON.stringify(first.body)).not.toMatch(/sk-hg|balance/);
    const second = await ask(`/v1/organizations?limit=2&cursor=${first.body.next_cursor}`);
    expect(second.body.data[0]).toMatchObject({ id: made[0]?.id, name: 'one' });
  });

  it('counts the active keys of each organization separately', async () => {
    const [one, two] = [await api().organization(), await api().organization()];
    for (let index = 0; index < 4; index += 1) await ask('/v1/keys', { key: one.key, body: {} });
    expect((await ask('/v1/keys', { key: one.key, body: {} })).status).toBe(409);
    expect((await ask('/v1/keys', { key: two.key, body: {} })).status).toBe(201);
    expect((await ask('/v1/keys', { key: two.key })).body.data).toHaveLength(2);
  });
});
