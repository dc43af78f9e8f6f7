import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, send, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Every page and every form, for every role. */

type Role = 'member' | 'admin' | 'owner' | 'platform admin';
const roles: readonly Role[] = ['member', 'admin', 'owner', 'platform admin'];

interface PageRow {
  readonly path: string;
  /** The least role that gets it; the others get 403 and no link to it. */
  readonly least: Role;
}

const pages: readonly PageRow[] = [
  { path: '/', least: 'member' },
  { path: '/portal/models', least: 'member' },
  { path: '/portal/models/standin-chat', least: 'member' },
  { path: '/portal/batches', least: 'member' },
  { path: '/portal/wallet', least: 'member' },
  { path: '/portal/budgets', least: 'member' },
  { path: '/portal/search?q=a', least: 'member' },
  { path: '/portal/sessions', least: 'member' },
  { path: '/portal/account', least: 'member' },
  { path: '/portal/keys', least: 'admin' },
  { path: '/portal/keys/new', least: 'admin' },
  { path: '/portal/budgets/new', least: 'admin' },
  { path: '/portal/invitations', least: 'admin' },
  { path: '/portal/webhooks', least: 'admin' },
  { path: '/portal/webhooks/new', least: 'admin' },
];

interface FormRow {
  readonly path: string;
  readonly fields: Readonly<Record<string, string>>;
  readonly least: Role;
  /** Status of these fields for a sender with the right. */
  readonly status: number;
}

const nobody = '0'.repeat(32);
const forms: readonly FormRow[] = [
  { path: '/portal/account', fields: { what: 'name', name: 'Ada' }, least: 'member', status: 303 },
  { path: '/portal/sessions/end', fields: { which: 'others' }, least: 'member', status: 303 },
  { path: `/portal/batches/batch_${nobody}/cancel`, fields: {}, least: 'member', status: 404 },
  { path: '/portal/switch', fields: { organization_id: `org_${nobody}` }, least: 'member', status: 404 },
  { path: '/portal/keys', fields: { name: '', expiry: 'never', scope: 'inference' }, least: 'admin', status: 400 },
  { path: `/portal/keys/key_${nobody}/delete`, fields: {}, least: 'admin', status: 404 },
  { path: `/portal/keys/key_${nobody}/rotate`, fields: { grace_seconds: '0' }, least: 'admin', status: 404 },
  {
    path: `/portal/projects/proj_${nobody}/service-accounts`,
    fields: { name: 'x', expiry: 'never' },
    least: 'admin',
    status: 404,
  },
  {
    path: `/portal/projects/proj_${nobody}/service-accounts/svc_acct_${nobody}/delete`,
    fields: {},
    least: 'admin',
    status: 404,
  },
  {
    path: `/portal/projects/proj_${nobody}/limits`,
    fields: { model: 'chat', max_requests_per_1_minute: '5' },
    least: 'admin',
    status: 404,
  },
  { path: '/portal/webhooks', fields: { url: 'http://example.com' }, least: 'admin', status: 400 },
  { path: '/portal/webhooks/mail', fields: {}, least: 'admin', status: 303 },
  { path: `/portal/webhooks/wh_${nobody}`, fields: { url: 'https://example.com' }, least: 'admin', status: 404 },
  ...['test', 'on', 'off', 'rotate', 'delete', `deliveries/dlv_${nobody}/replay`].map((act): FormRow => ({
    path: `/portal/webhooks/wh_${nobody}/${act}`,
    fields: { grace_seconds: '0' },
    least: 'admin',
    status: 404,
  })),
  {
    path: '/portal/budgets/new',
    fields: { type: 'each_user', id: '', period: 'daily', amount: 'x', mode: 'hard', alerts: '80' },
    least: 'admin',
    status: 400,
  },
  { path: `/portal/budgets/budget_${nobody}/delete`, fields: {}, least: 'admin', status: 404 },
  { path: `/portal/budgets/budget_${nobody}/raise`, fields: { end: 'true' }, least: 'admin', status: 404 },
  { path: `/portal/budgets/budget_${nobody}/reset`, fields: {}, least: 'admin', status: 404 },
  { path: '/portal/invitations', fields: { email: 'none', role: 'member' }, least: 'admin', status: 400 },
  { path: `/portal/invitations/inv_${nobody}/revoke`, fields: {}, least: 'admin', status: 404 },
  { path: '/portal/reset-links', fields: { user_id: `user_${nobody}` }, least: 'admin', status: 404 },
  ...['confirm', 'discard', 'cancel', 'retry', 'destroy', 'expiry', 'drift-check'].map((act): FormRow => ({
    path: `/portal/runs/run_${nobody}/${act}`,
    fields: {},
    least: 'member',
    status: 404,
  })),
  { path: `/portal/stacks/stack_${nobody}/revert?version=1`, fields: {}, least: 'member', status: 404 },
  { path: `/portal/stacks/stack_${nobody}/apply`, fields: {}, least: 'member', status: 404 },
  {
    path: '/portal/wallet/credits',
    fields: { amount: 'x', reference: 'x', note: '' },
    least: 'platform admin',
    status: 400,
  },
];

let gateway: TestGateway;
const visitors = new Map<Role, Visitor>();

beforeAll(async () => {
  gateway = await startGateway();
  for (const role of ['member', 'admin', 'owner'] as const) {
    visitors.set(role, await signInPerson(gateway, (await makePerson(gateway, { role })).email));
  }
  visitors.set('platform admin', await signInVisitor(gateway));
});

afterAll(() => gateway.stop());

const visitorOf = (role: Role): Visitor => {
  const visitor = visitors.get(role);
  if (visitor === undefined) throw new Error(`nobody is ${role}`);
  return visitor;
};

const may = (role: Role, least: Role): boolean => roles.indexOf(role) >= roles.indexOf(least);

/** The paths of its links and forms, without what they ask for. */
const pathsOn = ({ text }: Shown): readonly string[] =>
  [...text.matchAll(/(?:href|action)="(\/[^"?#]*)/g)].flatMap(([, path]) => path ?? []);

describe.each(roles)('the portal for the role %s', (role) => {
  it.each(pages)('shows or rejects $path, and links only allowed pages and forms', async ({ path, least }) => {
    const shown = await visitorOf(role).get(path);
    expect(shown.status).toBe(may(role, least) ? 200 : 403);
    const isRefused = (linked: string): boolean =>
      pages.some((one) => one.path === linked && !may(role, one.least)) ||
      forms.some((one) => one.path === linked && !may(role, one.least));
    expect(pathsOn(shown).filter(isRefused)).toEqual([]);
  });

  it.each(forms)('accepts or rejects the form of $path', async ({ path, fields, least, status }) => {
    const shown = await visitorOf(role).post(path, fields);
    expect(shown.status).toBe(may(role, least) ? status : 403);
  });

  it('has a page for every menu entry', async () => {
    const { text } = await visitorOf(role).get('/');
    const menu = /<nav class="menu"[^]*?<\/nav>/.exec(text)?.[0] ?? '';
    const paths = [...menu.matchAll(/href="(\/(?:portal[^"]*)?)"/g)].flatMap(([, path]) => path ?? []);
    expect(paths).toContain('/portal/wallet');
    for (const path of paths) expect([path, (await visitorOf(role).get(path)).status]).toEqual([path, 200]);
  });
});

describe('the portal without a session', () => {
  it.each(pages.slice(1))('redirects $path to sign in, and shows nothing', async ({ path }) => {
    const { status, headers, text } = await send(`${gateway.url}${path}`, { headers: { accept: 'text/html' } });
    expect([status, headers.location, text]).toEqual([303, `/?next=${encodeURIComponent(path)}`, '']);
  });

  it.each(forms)('changes nothing by the form of $path', async ({ path, fields }) => {
    const [before] = await gateway.db.sql`select count(*)::int as rows from audit_log`;
    const body = new URLSearchParams({ form_token: 'x', ...fields }).toString();
    const headers = { accept: 'text/html', 'content-type': 'application/x-www-form-urlencoded', origin: gateway.url };
    const { status } = await send(`${gateway.url}${path}`, { method: 'POST', headers, body });
    const [after] = await gateway.db.sql`select count(*)::int as rows from audit_log`;
    expect([status, after]).toEqual([303, before]);
  });
});
