import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pathFor, pathsOfAll, pathsOfOrganization, pathsOfPerson } from '#edge/portal/frame/view-paths.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_MAX_ACTIVE_KEYS: '100' } });
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

interface Tenant {
  readonly id: string;
  readonly key: string;
  /** The cookies of who looks at it. */
  readonly cookie: string;
}

async function openTenant(name: string): Promise<Tenant> {
  const opened = await gateway.request('/v1/organizations', { body: { name } });
  const { id, management_key: key } = (await opened.json()) as { id: string; management_key: string };
  const begun = await admin.post('/portal/view', { organization_id: id });
  const [set = ''] = begun.headers['set-cookie'] ?? [];
  return { id, key, cookie: `${admin.cookie}; ${set.split(';')[0]}` };
}

async function read<T>(path: string, key?: string): Promise<T> {
  const answer = await gateway.request(path, key === undefined ? {} : { key });
  expect([path, answer.status]).toEqual([path, 200]);
  return (await answer.json()) as T;
}

const emailsAt = async (path: string, key?: string): Promise<readonly string[]> =>
  (await read<{ data: { email: string }[] }>(path, key)).data.map(({ email }) => email);

const balanceOf = async (key?: string): Promise<string> => (await read<{ balance: string }>('/v1/wallet', key)).balance;

interface Operation {
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
}

describe('the path tables of the organization view', () => {
  const viewed = { id: 'org_1', name: 'One' };

  it('reject a path in neither table, and change no path without a view', () => {
    expect(() => pathFor(viewed, '/v1/new?x=1')).toThrow('/v1/new is missing from the path tables');
    expect(() => pathFor(viewed, '/v1/keysmith')).toThrow('missing from the path tables');
    expect(pathFor(null, '/v1/new?x=1')).toBe('/v1/new?x=1');
    expect(pathFor(viewed, '/v1/keys?organization_id=org_2')).toBe('/v1/keys?organization_id=org_2');
    expect(pathFor(viewed, '/v1/invitations/inv_1')).toBe('/v1/invitations/inv_1?organization_id=org_1');
  });

  it('match the OpenAPI document: every path once, by whether it accepts organization_id', async () => {
    const { paths } = await read<{ paths: Record<string, Record<string, Operation>> }>('/openapi.json');
    const takes = ({ parameters = [] }: Operation): boolean =>
      parameters.some((one) => one.in === 'query' && one.name === 'organization_id');
    const asked = Object.entries(paths).filter(
      ([path, operations]) =>
        path.startsWith('/v1/') &&
        !/^\/v1\/(?:chat|completions|responses|messages|tokenize|detokenize|embeddings|rerank|score|audio|images|moderations)\b/.test(
          path,
        ) &&
        operations,
    );
    const all = asked.filter(([, operations]) => Object.values(operations).every((one) => !takes(one)));
    const taking = asked.filter(([, operations]) => Object.values(operations).every(takes));
    expect(all.length + taking.length).toBe(asked.length);
    expect(all.map(([path]) => path).toSorted()).toEqual(pathsOfAll.toSorted());
    expect(taking.map(([path]) => path).toSorted()).toEqual([...pathsOfOrganization, ...pathsOfPerson].toSorted());
  });
});

describe('the view of another organization', () => {
  it('renders every page of the menu', async () => {
    const { cookie } = await openTenant('Walked');
    const { text } = await admin.get('/', { cookie });
    const links = [...text.matchAll(/href="(\/portal\/[a-z/-]+)"/g)].map(([, path = '']) => path);
    const pages = new Set([
      ...links.filter((path) => !path.startsWith('/portal/assets')),
      '/portal/keys/new',
      '/portal/projects/new',
      '/portal/users/new',
      '/portal/organizations/new',
      '/portal/stacks/new',
      '/portal/clusters/new',
      '/portal/costs/rates',
      '/portal/costs/series',
      '/portal/costs/margins',
      '/portal/account',
      '/portal/invitations',
    ]);
    expect(pages.size).toBeGreaterThan(15);
    for (const path of pages) expect([path, (await admin.get(path, { cookie })).status]).toEqual([path, 200]);
  });

  it('applies every form without an organization field to the viewed organization', async () => {
    const { id, key, cookie } = await openTenant('Acted for');
    const sent = async (path: string, fields: Readonly<Record<string, string>>): Promise<void> => {
      const { status } = await admin.post(path, { ...fields, viewed: id }, { cookie });
      expect([path, status < 400]).toEqual([path, true]);
    };
    const [invited, made] = [`${randomUUID()}@example.com`, `${randomUUID()}@example.com`];
    const before = await read<{ data: unknown[] }>('/v1/keys');
    await sent('/portal/invitations', { email: invited, role: 'admin' });
    await sent('/portal/users', { name: 'Made', email: made, password: 'correct horse', role: 'member' });
    await sent('/portal/projects', { name: 'Made here', description: '', visibility: 'private' });
    await sent('/portal/keys', { name: 'made here', scope: 'inference', expiry: 'never' });
    expect(await emailsAt('/v1/invitations', key)).toEqual([invited]);
    expect(await emailsAt('/v1/invitations')).not.toContain(invited);
    expect(await emailsAt('/v1/users', key)).toContain(made);
    expect((await admin.get('/portal/invitations', { cookie })).text).toContain(invited);
    expect((await read<{ data: unknown[] }>('/v1/keys')).data).toHaveLength(before.data.length);
    const { data } = await read<{ data: { id: string }[] }>('/v1/invitations', key);
    await sent(`/portal/invitations/${data[0]?.id}/revoke`, {});
    expect(await emailsAt('/v1/invitations', key)).toEqual([]);
  });

  it('posts credit to the organization that the form names, and keeps the typed values when rejected', async () => {
    const [looked, other] = [await openTenant('Looked at'), await openTenant('Named')];
    const { cookie } = looked;
    const path = `/portal/wallet?organization_id=${other.id}`;
    const shown = await admin.get(path, { cookie });
    const action = `/portal/wallet/credits?organization_id=${other.id}`;
    expect(shown.text).toMatch(/Applies to <strong>Named<\/strong>/);
    expect(shown.text).toContain(`action="${action}"`);
    expect(shown.text).toContain(`name="organization_id" value="${other.id}"`);
    const typed = { viewed: looked.id, organization_id: other.id, reference: 'ref-5', note: 'a gift' };
    const refused: Shown = await admin.post(action, { ...typed, amount: 'ten' }, { cookie });
    expect(refused.status).toBe(400);
    for (const text of [`action="${action}"`, 'value="ten"', 'value="ref-5"', 'value="a gift"', '>Named<']) {
      expect(refused.text).toContain(text);
    }
    expect((await admin.post(action, { ...typed, amount: '7' }, { cookie })).status).toBe(303);
    // A form of one page, sent to the address of another.
    const crossed = await admin.post(action, { ...typed, organization_id: looked.id, amount: '8' }, { cookie });
    expect(crossed.status).toBe(400);
    expect(crossed.text).not.toContain('/portal/wallet/credits');
    expect([await balanceOf(looked.key), await balanceOf(other.key)]).toEqual(['0', '7']);
    const own = await admin.get('/portal/wallet', { cookie });
    expect(own.text).toMatch(/Applies to <strong>Looked at<\/strong>/);
    expect((await admin.get(path)).text).toMatch(/Applies to <strong>Named<\/strong>/);
  });

  it('reloads an open page instead of mixing in another organization or session', async () => {
    const { cookie } = await openTenant('In another tab');
    const [looked, own] = [{ cookie }, { cookie: admin.cookie }];
    const stranger = await signInVisitor(gateway);
    const aboutOf = ({ text }: Shown): string => /<body[^>]*data-about="([^"]+)"/.exec(text)?.[1] ?? '';
    for (const path of ['/', '/portal/usage', '/portal/keys', '/portal/wallet']) {
      const [ofTenant, ofOwn] = [aboutOf(await admin.get(path, looked)), aboutOf(await admin.get(path, own))];
      const part = (about: string, cookies: object) =>
        admin.get(path, { 'hx-request': 'true', 'x-about': about, ...cookies });
      for (const [about, cookies] of [
        [ofOwn, looked],
        [ofTenant, own],
        [ofOwn, { cookie: stranger.cookie }],
      ] as const) {
        const { status, headers, text } = await part(about, cookies);
        expect([path, status, headers['hx-refresh'], text]).toEqual([path, 204, 'true', '']);
      }
      for (const [about, cookies] of [
        [ofOwn, own],
        [ofTenant, looked],
      ] as const) {
        const { status, headers } = await part(about, cookies);
        expect([path, status, headers['hx-refresh']]).toEqual([path, 200, undefined]);
      }
    }
  });

  it('downloads the CSV of the organization that the page shows', async () => {
    const { id, key, cookie } = await openTenant('Downloaded');
    await gateway.request('/v1/wallet/credits', {
      body: { organization_id: id, amount: '1', reference: randomUUID() },
    });
    const made = await gateway.request('/v1/keys', { key, body: { name: 'asks' } });
    const { secret } = (await made.json()) as { secret: string };
    const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 1 };
    expect((await gateway.request('/v1/chat/completions', { key: secret, body })).status).toBe(200);
    const linkIn = ({ text }: Shown): string =>
      (/href="(\/portal\/usage\/requests\.csv[^"]*)"/.exec(text)?.[1] ?? '').replaceAll('&amp;', '&');
    const [ofTenant, ofOwn] = [await admin.get('/portal/usage', { cookie }), await admin.get('/portal/usage')];
    const rowsOf = async (link: string, cookies: object): Promise<number> =>
      (await admin.get(link, { ...cookies })).text.trim().split('\n').length - 1;
    expect(await rowsOf(linkIn(ofTenant), {})).toBe(1);
    expect(await rowsOf(linkIn(ofOwn), { cookie })).toBe(0);
    // A user who may not see it gets nothing in its place.
    const person = await signInPerson(gateway, (await makePerson(gateway)).email);
    expect((await person.get(linkIn(ofTenant))).status).toBe(404);
  });

  it('filters usage by the models of the viewed organization', async () => {
    const { id, cookie } = await openTenant('Of one model');
    const optionsIn = ({ text }: Shown): string =>
      /<select[^>]* name="model"[\s\S]*?<\/select>|<select[^>]*id="model"[\s\S]*?<\/select>/.exec(text)?.[0] ?? '';
    expect(optionsIn(await admin.get('/portal/usage', { cookie }))).toContain('standin-chat');
    await gateway.request(`/v1/organizations/${id}`, { method: 'PATCH', body: { models: ['standin-embed'] } });
    expect(optionsIn(await admin.get('/portal/usage', { cookie }))).not.toContain('standin-chat');
    expect(optionsIn(await admin.get(`/portal/usage?organization_id=${id}`))).not.toContain('standin-chat');
    expect(optionsIn(await admin.get('/portal/usage'))).toContain('standin-chat');
  });
});

describe('a viewed organization that cannot be read', () => {
  /** From now on reading it fails with this SQLSTATE, and nothing else does. */
  async function refuseReading(id: string, state: string): Promise<() => Promise<void>> {
    const { sql } = gateway.db;
    const digits = id.slice('org_'.length);
    await sql.unsafe(`
      create or replace function refused() returns jsonb language plpgsql stable as
        $$ begin raise exception 'not just now' using errcode = '${state}'; end $$;
      alter table organizations rename to organizations_kept;
      create view organizations as select id, name, created_at, status, platform, closed_at, default_limits,
        max_active_keys, low_balance, low_balance_told_at, alert_emails, members_may_apply, case when replace(id::text, '-', '') = '${digits}' then refused() else models end as models
        from organizations_kept`);
    return async () => {
      await sql.unsafe(`drop view organizations; alter table organizations_kept rename to organizations`);
    };
  }

  it("shows that error's page, and never the user's own pages instead", async () => {
    const { id, cookie } = await openTenant('Not to be read');
    expect((await admin.get('/portal/keys', { cookie })).text).toContain(
      'You are viewing <strong>Not to be read</strong>',
    );
    for (const [state, status, seconds] of [
      ['57P03', 503, '1'],
      ['22000', 500, undefined],
    ] as const) {
      const mend = await refuseReading(id, state);
      try {
        for (const path of ['/', '/portal/keys', '/portal/wallet']) {
          const shown = await admin.get(path, { cookie });
          expect([path, shown.status, shown.text.includes('name="form_token"')]).toEqual([path, status, false]);
          expect(shown.headers['retry-after']).toBe(seconds);
          expect(shown.text.includes('Try again in a second')).toBe(seconds === '1');
        }
        const fields = { name: 'for the wrong one', scope: 'inference', expiry: 'never' };
        expect((await admin.post('/portal/keys', fields, { cookie })).status).toBe(status);
        expect((await admin.get('/portal/keys')).status).toBe(200);
      } finally {
        await mend();
      }
    }
    expect((await admin.get('/portal/keys', { cookie })).text).toContain(
      'You are viewing <strong>Not to be read</strong>',
    );
    expect(JSON.stringify(await read('/v1/keys'))).not.toContain('for the wrong one');
  });

  it('does not prevent signing out', async () => {
    const { id } = await openTenant('Left');
    const other = await signInVisitor(gateway);
    const begun = await other.post('/portal/view', { organization_id: id });
    const looking = `${other.cookie}; ${(begun.headers['set-cookie'] ?? [''])[0]?.split(';')[0]}`;
    const mend = await refuseReading(id, '57P03');
    try {
      expect((await other.post('/portal/sign-out', {}, { cookie: looking })).status).toBe(303);
    } finally {
      await mend();
    }
    expect((await other.get('/portal/keys')).headers.location).toMatch(/^\/\?next=/);
  });
});

describe('a member', () => {
  it('gets 403 for every page with a form that members may not use', async () => {
    const member = await signInPerson(gateway, (await makePerson(gateway)).email);
    const { data } = await read<{ data: { id: string }[] }>('/v1/projects');
    for (const path of [
      '/portal/projects/new',
      `/portal/projects/${data[0]?.id}/archive`,
      `/portal/projects/${data[0]?.id}/service-accounts/new`,
      `/portal/projects/${data[0]?.id}/service-accounts/svc_acct_${'0'.repeat(32)}/delete`,
      '/portal/users/new',
      '/portal/organizations/new',
      '/portal/clusters/new',
      '/portal/keys/new',
      '/portal/webhooks/new',
    ]) {
      expect([path, (await member.get(path)).status]).toEqual([path, 403]);
    }
  });
});
