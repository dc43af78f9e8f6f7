import { beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, send, type Shown, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Stacks and runs of an organization's members, who have no management key. */

const bench = useInference(() => ({ engines: {}, env: { HEADGATE_TERRAFORM_BIN: '/nonexistent/terraform' } }));
let mine = { id: '', key: '' };
let clusterId = '';
let ada: Visitor;
let bob: Visitor;
let admin: Visitor;

const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());

const person = async (role: string): Promise<Visitor> =>
  signInPerson(bench.gateway, (await makePerson(bench.gateway, { role }, mine.key)).email);

async function upload(visitor: Visitor, name: string): Promise<Shown> {
  const form = new FormData();
  form.append('form_token', visitor.formToken);
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': 'output "said" { value = "hello" }' }))], 'x.zip'));
  form.append('name', name);
  const request = new Request('http://x', { method: 'POST', body: form });
  const headers = {
    accept: 'text/html',
    cookie: visitor.cookie,
    origin: bench.gateway.url,
    'content-type': request.headers.get('content-type'),
  };
  const body = new Uint8Array(await request.arrayBuffer());
  return send(`${bench.gateway.url}/portal/stacks`, { method: 'POST', headers, body });
}

const idOf = ({ headers }: Shown): string => /stack_[0-9a-f]{32}/.exec(String(headers.location))?.[0] ?? '';

beforeAll(async () => {
  mine = await openOrganization(bench.gateway, '5');
  const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
  clusterId = (await ask('/v1/clusters', { body: { name: 'shared', organization_id: mine.id, nodes } })).id;
  ada = await person('member');
  bob = await person('member');
  admin = await person('admin');
});

describe('a stack that a member uploads', () => {
  let id = '';
  beforeAll(async () => {
    id = idOf(await upload(ada, 'adas'));
  });

  it('is private to the member, who changes and downloads it', async () => {
    expect((await ask(`/v1/stacks/${id}`)).visibility).toBe('private');
    const page = await ada.get(`/portal/stacks/${id}`);
    for (const action of ['apply', 'download', 'edit', 'delete'])
      expect(page.text).toContain(`href="/portal/stacks/${id}/${action}"`);
    const fields = { title: 'Ada’s', description: '', category: '', icon: '🧪' };
    expect((await ada.post(`/portal/stacks/${id}`, fields)).status).toBe(303);
    expect((await ada.get(`/portal/stacks/${id}/download`)).status).toBe(200);
    expect(await ask(`/v1/stacks/${id}`)).toMatchObject({ title: 'Ada’s', icon: '🧪' });
  });

  it('is hidden from other members and from admins of the organization', async () => {
    for (const other of [bob, admin]) {
      for (const path of ['', '/download', '/edit', '/apply'])
        expect((await other.get(`/portal/stacks/${id}${path}`)).status).toBe(404);
      expect((await other.post(`/portal/stacks/${id}/delete`)).status).toBe(404);
    }
  });

  it('can be given another icon and deleted by a platform admin, but not downloaded', async () => {
    const operator = await signInVisitor(bench.gateway);
    expect((await operator.get(`/portal/stacks/${id}/download`)).status).toBe(403);
    const changed = await ask(`/v1/stacks/${id}`, { method: 'PATCH', body: { icon: '🚀' } });
    expect(changed.icon).toBe('🚀');
    const other = idOf(await upload(ada, 'short-lived'));
    expect((await bench.gateway.request(`/v1/stacks/${other}`, { method: 'DELETE' })).status).toBe(204);
    expect((await ada.get(`/portal/stacks/${other}`)).status).toBe(404);
  });

  it('is in the audit log with its member', async () => {
    const { data } = await ask('/v1/audit?action=stack.created', { key: mine.key });
    expect(data.map(({ target_id: target }: Body) => target)).toContain(id);
  });

  it('is deleted by its member', async () => {
    const own = idOf(await upload(ada, 'own'));
    expect((await ada.post(`/portal/stacks/${own}/delete`)).status).toBe(303);
    expect((await ada.get(`/portal/stacks/${own}`)).status).toBe(404);
  });
});

describe('members who apply stacks', () => {
  // The form gets as far as the runner, which this gateway does not have.
  const apply = (visitor: Visitor): Promise<Shown> =>
    visitor.post('/portal/stacks/scheduler/apply', { cluster_id: clusterId, node: '', access: '' });
  const restrict = (members_may_apply: boolean): Promise<Body> =>
    ask(`/v1/organizations/${mine.id}`, { method: 'PATCH', key: mine.key, body: { members_may_apply } });

  it('may do so in their organization only', async () => {
    expect((await apply(ada)).status).toBe(503);
    const theirs = await openOrganization(bench.gateway, '5');
    const outsider = await signInPerson(
      bench.gateway,
      (await makePerson(bench.gateway, { role: 'member' }, theirs.key)).email,
    );
    expect((await apply(outsider)).status).toBe(404);
  });

  it('may not while the organization reserves runs to admins, who still may', async () => {
    expect(await restrict(false)).toMatchObject({ members_may_apply: false });
    expect((await ada.get('/portal/stacks/scheduler/apply')).status).toBe(403);
    expect((await apply(ada)).status).toBe(403);
    expect((await ada.get('/portal/stacks/scheduler')).text).not.toContain('/apply"');
    expect((await upload(ada, 'still-uploads')).status).toBe(303);
    expect((await apply(admin)).status).toBe(503);
    const { data } = await ask('/v1/audit?action=organization.changed', { key: mine.key });
    expect(data[0]).toMatchObject({ before: { members_may_apply: true }, after: { members_may_apply: false } });
    await restrict(true);
    expect((await apply(ada)).status).toBe(503);
  });

  it('are chosen by an admin on the page of the organization', async () => {
    const page = await admin.get('/portal/organization');
    expect(page.text).toMatch(/name="members_may_apply" value="true" checked/);
    const fields = { name: 'Mine', wallet_alert_below: '', members_may_apply: 'false' };
    expect((await admin.post('/portal/organization', fields)).status).toBe(303);
    expect((await apply(ada)).status).toBe(403);
    await restrict(true);
  });
});
