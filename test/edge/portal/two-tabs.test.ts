import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** A page was open while somebody changed the same thing elsewhere: its form takes nothing of that back. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});
afterAll(() => gateway.stop());

type Json = ReturnType<JSON['parse']>;

async function ask(path: string, init: Parameters<TestGateway['request']>[1] = {}): Promise<Json> {
  const answer = await gateway.request(path, init);
  if (answer.status >= 300) throw new Error(await answer.text());
  return answer.json();
}

const entities: Readonly<Record<string, string>> = {
  '&quot;': '"',
  '&#39;': "'",
  '&lt;': '<',
  '&gt;': '>',
  '&amp;': '&',
};
const plain = (text: string): string => text.replaceAll(/&(?:quot|#39|lt|gt|amp);/g, (name) => entities[name] ?? name);

/** The fields that a browser would send of the form with this action, untouched. */
function fieldsOf(page: string, action: string): Record<string, string> {
  const form = new RegExp(`<form[^>]*action="${action}"[^]*?</form>`).exec(page)?.[0] ?? '';
  const inputs = [...form.matchAll(/<input\b([^>]*)>/g)].flatMap(([, text = '']): [string, string][] => {
    const of = (name: string): string => plain(new RegExp(`\\b${name}="([^"]*)"`).exec(text)?.[1] ?? '');
    const isSent = !/type="(?:checkbox|radio)"/.test(text) || /\bchecked\b/.test(text);
    return isSent ? [[of('name'), of('value')]] : [];
  });
  const areas = [...form.matchAll(/<textarea\b[^>]*name="([^"]*)"[^>]*>\n?([^<]*)<\/textarea>/g)];
  const chosen = [...form.matchAll(/<select\b[^>]*name="([^"]*)"[^]*?<option\s+value="([^"]*)"\s+selected/g)];
  return Object.fromEntries([
    ...inputs,
    ...[...areas, ...chosen].map(([, name = '', value = '']) => [name, plain(value)]),
  ]);
}

describe('an outdated form', () => {
  it('of a key keeps a lower limit and disabled content storage when it renames the key', async () => {
    const key = await ask('/v1/keys', { body: { name: 'before', store_requests: true, monthly_token_limit: null } });
    const path = `/portal/keys/${key.id}`;
    const fields = fieldsOf((await admin.get(path)).text, path);
    expect(fields).toMatchObject({ name: 'before', store_requests: 'yes', monthly_token_limit: '' });
    const lowered = { monthly_token_limit: 1000, store_requests: false };
    await ask(`/v1/keys/${key.id}`, { method: 'PATCH', body: lowered });
    // Refused first: what it began with is what it began with.
    const refused = await admin.post(path, { ...fields, name: '' });
    expect(refused.status).toBe(400);
    const again = { ...fieldsOf(refused.text, path), name: 'after' };
    expect((await admin.post(path, again)).status).toBe(303);
    expect(await ask(`/v1/keys/${key.id}`)).toMatchObject({ name: 'after', ...lowered });
    expect((await admin.post(path, { ...again, monthly_token_limit: '2000' })).status).toBe(303);
    expect(await ask(`/v1/keys/${key.id}`)).toMatchObject({ monthly_token_limit: 2000, store_requests: false });
  });

  it('of an organization keeps its new models, limits and alert addresses', async () => {
    const { id } = await ask('/v1/organizations', { body: { name: 'Tenant' } });
    const path = `/portal/organizations/${id}`;
    const fields = fieldsOf((await admin.get(path)).text, path);
    const narrowed = { models: ['standin-chat'], max_active_keys: 2, default_limits: { max_concurrency: 1 } };
    await ask(`/v1/organizations/${id}`, { method: 'PATCH', body: narrowed });
    expect((await admin.post(path, { ...fields, name: 'Renamed', tokens_per_minute: '500' })).status).toBe(303);
    expect(await ask(`/v1/organizations/${id}`)).toMatchObject({
      name: 'Renamed',
      models: ['standin-chat'],
      max_active_keys: 2,
      default_limits: { max_concurrency: 1, tokens_per_minute: 500 },
    });
    const own = fieldsOf((await admin.get('/portal/organization')).text, '/portal/organization');
    const [{ id: ownId }] = (await ask('/v1/organizations')).data.filter((one: Json) => one.name === own['name']);
    await ask(`/v1/organizations/${ownId}`, { method: 'PATCH', body: { wallet_alert_below: '5' } });
    expect((await admin.post('/portal/organization', { ...own, name: 'Ours' })).status).toBe(303);
    expect(await ask(`/v1/organizations/${ownId}`)).toMatchObject({ name: 'Ours', wallet_alert_below: '5' });
  });

  it('of a project keeps it private', async () => {
    const { id } = await ask('/v1/projects', { body: { name: 'open', visibility: 'public' } });
    const path = `/portal/projects/${id}`;
    const fields = fieldsOf((await admin.get(path)).text, path);
    expect(fields).toMatchObject({ visibility: 'public' });
    await ask(`/v1/projects/${id}`, { method: 'PATCH', body: { visibility: 'private' } });
    expect((await admin.post(path, { ...fields, name: 'renamed' })).status).toBe(303);
    expect(await ask(`/v1/projects/${id}`)).toMatchObject({ name: 'renamed', visibility: 'private' });
  });

  it('of a cluster and its nodes keeps the new organization and host key', async () => {
    const [mine, other] = [
      await ask('/v1/organizations', { body: { name: 'Mine' } }),
      await ask('/v1/organizations', { body: { name: 'Other' } }),
    ];
    const node = { name: 'gpu-1', address: '10.0.0.7', hardware_profile: 'h100', gpus: 8 };
    const cluster = await ask('/v1/clusters', { body: { name: 'moving', organization_id: mine.id, nodes: [node] } });
    const path = `/portal/clusters/${cluster.id}`;
    const fields = fieldsOf((await admin.get(`${path}/edit`)).text, path);
    expect(fields).toMatchObject({ organization_id: mine.id });
    await ask(`/v1/clusters/${cluster.id}`, {
      method: 'PATCH',
      body: { organization_id: other.id, access: 'members' },
    });
    expect((await admin.post(path, { ...fields, name: 'moved' })).status).toBe(303);
    expect(await ask(`/v1/clusters/${cluster.id}`)).toMatchObject({
      name: 'moved',
      organization_id: other.id,
      access: 'members',
    });
    const nodePath = `${path}/nodes/${cluster.nodes[0].id}`;
    const ofNode = fieldsOf((await admin.get(`${nodePath}/edit`)).text, nodePath);
    await ask(`/v1/clusters/${cluster.id}/nodes/${cluster.nodes[0].id}`, {
      method: 'PATCH',
      body: { ssh_user: 'ops' },
    });
    expect((await admin.post(nodePath, { ...ofNode, address: '10.0.0.8' })).status).toBe(303);
    const { nodes } = await ask(`/v1/clusters/${cluster.id}`);
    expect(nodes).toMatchObject([{ address: '10.0.0.8', ssh_user: 'ops' }]);
    expect((await admin.post(nodePath, { ...ofNode, began_with: '[' })).status).toBe(303);
  });

  it('of a budget keeps a lower amount and its new alerts', async () => {
    const project = await ask('/v1/projects', { body: { name: 'bounded' } });
    const scope = { type: 'project', id: project.id };
    const { id } = await ask('/v1/budgets', { body: { scope, period: 'monthly', amount: '100', mode: 'soft' } });
    const path = `/portal/budgets/${id}`;
    const fields = fieldsOf((await admin.get(path)).text, path);
    await ask(`/v1/budgets/${id}`, { method: 'PATCH', body: { amount: '5', mode: 'hard' } });
    // Refused first: what it began with is what it began with.
    const refused = await admin.post(path, { ...fields, alerts: 'never' });
    expect(refused.status).toBe(400);
    const again = { ...fieldsOf(refused.text, path), alerts: '50' };
    expect((await admin.post(path, again)).status).toBe(303);
    const changed = await ask(`/v1/budgets/${id}`);
    expect(changed).toMatchObject({ mode: 'hard', alert_percents: [50] });
    expect(Number(changed.amount)).toBe(5);
  });

  it('of alert emails keeps a kind that was switched elsewhere', async () => {
    const own = /\/portal\/organizations\/(org_[0-9a-f]{32})/.exec((await admin.get('/portal/organization')).text)?.[1];
    const path = '/portal/webhooks/mail';
    const fields = fieldsOf((await admin.get('/portal/webhooks')).text, path);
    expect(fields).toMatchObject({ event_wallet_low_balance: 'yes' });
    await ask(`/v1/organizations/${own}`, { method: 'PATCH', body: { alert_emails: [] } });
    expect((await admin.post(path, { ...fields, event_api_key_created: 'yes' })).status).toBe(303);
    expect((await ask(`/v1/organizations/${own}`)).alert_emails).toEqual(['api_key.created']);
  });

  it('of a user keeps a new role unless a role is selected', async () => {
    const body = { name: 'Eve', email: 'eve@example.com', password: 'a sentence does well', role: 'owner' };
    const { id } = await ask('/v1/users', { body });
    const path = `/portal/users/${id}`;
    const fields = fieldsOf((await admin.get(path)).text, path);
    expect(fields).toMatchObject({ role: 'owner' });
    await ask(`/v1/users/${id}`, { method: 'PUT', body: { role: 'member' } });
    expect((await admin.post(path, fields)).headers.location).toBe(path);
    expect((await ask(`/v1/users/${id}`)).memberships).toMatchObject([{ role: 'member' }]);
    expect((await admin.post(path, { ...fields, role: 'admin' })).headers.location).toBe(`${path}?notice=changed`);
    expect((await ask(`/v1/users/${id}`)).memberships).toMatchObject([{ role: 'admin' }]);
  });
});
