import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pagePaths } from '#edge/portal/portal.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { furnish } from '#test/portal/furnished.ts';
import { makePerson, send, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** A signed-in user goes wherever a page leads, and presses whatever it offers: nothing of it is rejected. */

type Role = 'member' | 'admin' | 'owner' | 'platform admin';
const roles: readonly Role[] = ['member', 'admin', 'owner', 'platform admin'];

let gateway: TestGateway;
const visitors = new Map<Role, Visitor>();
/** Pages that each role has seen, by their address. */
const seen = new Map<Role, ReadonlyMap<string, Shown>>();

/** One request of the visitor's own, as the playground sends it. */
async function ask({ cookie, formToken }: Visitor): Promise<void> {
  const headers = { 'content-type': 'application/json', cookie, origin: gateway.url, 'x-form-token': formToken };
  const body = JSON.stringify({ model: 'standin-chat', messages: [{ role: 'user', content: 'Mine' }], max_tokens: 3 });
  const { status } = await send(`${gateway.url}/portal/playground/chat`, { method: 'POST', headers, body });
  expect(status).toBe(200);
}

const plain = (text: string): string =>
  text.replaceAll('&amp;', '&').replaceAll('&quot;', '"').replaceAll('&#39;', "'").replaceAll('&lt;', '<');

function linksOn({ text }: Shown): readonly string[] {
  const all = [...text.matchAll(/\shref="(\/[^"]*)"/g)].map(([, href = '']) => plain(href).replace(/#.*/, ''));
  return all.filter((path) => path === '/' || (path.startsWith('/portal/') && !path.startsWith('/portal/assets/')));
}

async function walk(visitor: Visitor): Promise<ReadonlyMap<string, Shown>> {
  const found = new Map<string, Shown>();
  const ahead = ['/'];
  for (let path = ahead.pop(); path !== undefined; path = ahead.pop()) {
    if (found.has(path)) continue;
    const shown = await visitor.get(path);
    found.set(path, shown);
    if (String(shown.headers['content-type']).startsWith('text/html')) ahead.push(...linksOn(shown));
  }
  return found;
}

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_TERRAFORM_BIN: '/nowhere/terraform' } });
  await furnish(gateway);
  for (const role of ['member', 'admin', 'owner'] as const) {
    visitors.set(role, await signInPerson(gateway, (await makePerson(gateway, { role })).email));
  }
  visitors.set('platform admin', await signInVisitor(gateway));
  for (const visitor of visitors.values()) await ask(visitor);
  // A budget of a key that acts for a member, who sees it.
  const keys = (await (await gateway.request('/v1/keys?status=active')).json()) as { data: { id: string }[] };
  for (const { id } of keys.data) {
    const body = { scope: { type: 'api_key', id }, period: 'monthly', amount: '3' };
    const made = await gateway.request('/v1/budgets', { body });
    if (made.status !== 201) throw new Error(await made.text());
  }
  for (const [role, visitor] of visitors) seen.set(role, await walk(visitor));
});

afterAll(() => gateway.stop());

interface Form {
  readonly action: string;
  readonly fields: Readonly<Record<string, string>>;
}

const attribute = (tag: string, name: string): string => plain(new RegExp(`\\s${name}="([^"]*)"`).exec(tag)?.[1] ?? '');

/** Forms that change something, as they are filled in when the page is opened, each by its first button. */
function formsOn({ text }: Shown): readonly Form[] {
  // A downloaded stack may contain pages of its own.
  if (!/^\s*<!doctype html/i.test(text)) return [];
  return [...text.matchAll(/<form[^>]*method="post"[^>]*>[^]*?<\/form>/g)].map(([form]) => {
    const inputs = [...form.matchAll(/<(?:input|button)\b[^>]*>/g)].map(([tag]) => tag);
    const given = inputs.filter((tag) => attribute(tag, 'name') !== '' && !/type="(?:radio|checkbox|file)"/.test(tag));
    const fields = given.map((tag): [string, string] => [attribute(tag, 'name'), attribute(tag, 'value')]);
    return { action: attribute(/<form[^>]*>/.exec(form)?.[0] ?? '', 'action'), fields: Object.fromEntries(fields) };
  });
}

const endsSomething = /delete|remove|revoke|archive|close|end$/;

describe.each(roles)('the links shown to %s', (role) => {
  it('lead to an existing page, on every page', () => {
    const pages = [...(seen.get(role) ?? [])];
    expect(pages.length).toBeGreaterThan(25);
    const refused = pages.filter(([, { status }]) => status !== 200 && status !== 303);
    expect(refused.map(([path, { status }]) => `${status} ${path}`)).toEqual([]);
  });
});

it('has a link to every page', () => {
  const patterns = pagePaths.map((path) => ({ path, test: new RegExp(`^${path.replaceAll(/:\w+/g, '[^/]+')}$`) }));
  const visited = [...(seen.get('platform admin') ?? new Map<string, Shown>()).keys()];
  const reached = new Set(
    visited.map((path) => patterns.find(({ test }) => test.test(path.replace(/\?.*/, '')))?.path ?? '/'),
  );
  // Addresses for scripts, images and a search; a stopped engine is not restarted, and no run is applied.
  const others = [
    '/portal/playground/models',
    '/portal/usage/find',
    '/portal/engines/:id/log',
    '/portal/engines/:id/charts',
    '/portal/runs/:id/log',
    '/portal/runs/:id/expiry',
    '/portal/stacks/:name/icon',
  ];
  expect(pagePaths.filter((path) => !reached.has(path) && !others.includes(path))).toEqual([]);
});

it.each(['member', 'admin', 'owner'] as const)('rejects no form that is shown to %s', async (role) => {
  const visitor = visitors.get(role);
  const forms = [...(seen.get(role)?.values() ?? [])].flatMap(formsOn);
  const byAction = new Map(forms.map((form) => [form.action, form]));
  byAction.delete('/portal/sign-out');
  expect(byAction.size).toBeGreaterThan(role === 'member' ? 0 : 15);
  const ordered = [...byAction.values()].toSorted(
    (a, b) => Number(endsSomething.test(a.action)) - Number(endsSomething.test(b.action)),
  );
  const refused: string[] = [];
  for (const { action, fields } of ordered) {
    const status = (await visitor?.post(action, fields))?.status ?? 0;
    // There is no Terraform to apply or destroy with.
    if (status === 403 || status === 405 || (status >= 500 && !/\/(?:apply|destroy|retry)(?:\?|$)/.test(action)))
      refused.push(`${status} ${action}`);
  }
  expect(refused).toEqual([]);
});
