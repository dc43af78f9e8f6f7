import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { send, type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Pages of the platform without a script, on a gateway that finds no Terraform. */

let gateway: TestGateway;
let admin: Visitor;
let clusterId = '';

const hostile = '<script>alert(1)</script>"><img src=x onerror=alert(1)>';
const node = { name: 'gpu-1', address: '10.0.0.7', hardware_profile: 'h100-8x', gpus: 8 };

async function made(path: string, body: object): Promise<{ id: string }> {
  const answer = await gateway.request(path, { body });
  if (answer.status >= 300) throw new Error(await answer.text());
  return (await answer.json()) as { id: string };
}

/** A form with a file, as a browser sends it. */
async function upload(visitor: Visitor, fields: Readonly<Record<string, string | File>>, headers: object = {}) {
  const form = new FormData();
  for (const [name, value] of Object.entries({ form_token: visitor.formToken, ...fields })) form.append(name, value);
  const sent = { cookie: visitor.cookie, origin: gateway.url, ...headers };
  const answer = await fetch(`${gateway.url}/portal/stacks`, {
    method: 'POST',
    body: form,
    redirect: 'manual',
    headers: sent,
  });
  return { status: answer.status, location: answer.headers.get('location') ?? '', text: await answer.text() };
}

const zipOf = (files: Readonly<Record<string, string>>, name = 'queue.zip'): File =>
  new File([new Uint8Array(packOf(files))], name);

const main = `
  variable "password" {
    sensitive = true
    default   = "the default secret"
  }
  variable "count_of" { type = number }
  variable "hosts" {
    type    = list(string)
    default = ["a", "b"]
  }
  output "x" { value = 1 }`;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_TERRAFORM_BIN: '/nowhere/terraform' } });
  admin = await signInVisitor(gateway);
  const organizations = (await (await gateway.request('/v1/organizations')).json()) as { data: { id: string }[] };
  const [own] = organizations.data;
  clusterId = (await made('/v1/clusters', { name: 'research', organization_id: own?.id, nodes: [node] })).id;
});
afterAll(() => gateway.stop());

const pages = (): string[] => [
  '/portal/stacks',
  '/portal/stacks/new',
  '/portal/stacks/scheduler',
  '/portal/stacks/scheduler/edit',
  '/portal/stacks/scheduler/apply',
  '/portal/runs',
  '/portal/clusters',
  '/portal/clusters/new',
  `/portal/clusters/${clusterId}`,
  `/portal/clusters/${clusterId}/edit`,
  `/portal/clusters/${clusterId}/delete`,
  `/portal/clusters/${clusterId}/nodes/new`,
  '/portal/costs',
  '/portal/costs/rates',
  '/portal/costs/series',
  '/portal/costs/margins',
];

/** Runs a piece of a test as a member, or an administrator, of the organization. */
async function as(role: 'member' | 'admin', test: (visitor: Visitor) => Promise<void>): Promise<void> {
  const visitor = await signInVisitor(gateway);
  const { sql } = gateway.db;
  await sql`update users set platform_role = 'user'`;
  await sql`update memberships set role = ${role}`;
  try {
    await test(visitor);
  } finally {
    await sql`update users set platform_role = 'admin'`;
    await sql`update memberships set role = 'owner'`;
  }
}

describe('a platform page', () => {
  it('requires a session', async () => {
    for (const path of pages()) {
      const { status, headers } = await send(`${gateway.url}${path}`, { headers: { accept: 'text/html' } });
      expect([path, status, headers.location]).toEqual([path, 303, `/?next=${encodeURIComponent(path)}`]);
      expect([path, (await admin.get(path)).status]).toEqual([path, 200]);
    }
  });

  it('has no inline script or style, and loads nothing from another host', async () => {
    for (const path of pages()) {
      const { text } = await admin.get(path);
      expect(text, path).not.toMatch(/ style=|<style|<script>| on[a-z]+=|javascript:/);
      const places = [...text.matchAll(/(?:src|href|action)="([^"]*)"/g)].flatMap(([, to]) => to ?? []);
      expect(places.filter((to) => !to.startsWith('/') && !to.startsWith('#'))).toEqual([]);
    }
  });

  it("returns the API's status for unknown objects", async () => {
    const missing = ['stacks/nothing', `runs/run_${'0'.repeat(32)}`, `clusters/cluster_${'0'.repeat(32)}`];
    for (const path of missing) expect([path, (await admin.get(`/portal/${path}`)).status]).toEqual([path, 404]);
    expect((await admin.get('/portal/costs?month=never')).status).toBe(400);
    expect((await admin.get('/portal/costs?month=never')).text).toContain('must be a month such as 2026-03');
  });

  it('keeps the period of costs that was selected last, days or a month', async () => {
    const days = 'from=2026-03-03&to=2026-03-05';
    const shownOf = async (query: string): Promise<string | undefined> =>
      /\d{4}-\d\d-\d\d 00:00 until \d{4}-\d\d-\d\d/.exec(
        (await admin.get(`/portal/costs?${query}`)).text.replaceAll(/<[^>]*>/g, '').replaceAll(/\s+/g, ' '),
      )?.[0];
    expect(await shownOf(`month=2026-02&shown=month&${days}`)).toBe('2026-03-03 00:00 until 2026-03-05');
    expect(await shownOf(`month=2026-02&shown=days&${days}`)).toBe('2026-02-01 00:00 until 2026-03-01');
    expect(await shownOf(`month=2026-02&${days}`)).toBe('2026-03-03 00:00 until 2026-03-05');
  });

  it('says where metering starts when there are no hours', async () => {
    const { text } = await admin.get('/portal/costs?month=2020-01');
    expect(text).toContain('No hours in this period');
    expect(text).toContain('Platform administrators allocate nodes on the page of their cluster');
    expect((await admin.get(`/portal/clusters/${clusterId}`)).text).toContain('Allocate node');
  });

  it("shows a report's times in its time zone, and names the zone", async () => {
    for (const [query, from, zone] of [
      ['', '2020-01-01T00:00:00.000Z', 'UTC'],
      ['&tz=Asia/Tokyo', '2019-12-31T15:00:00.000Z', 'Asia/Tokyo'],
    ] as const) {
      for (const path of ['/portal/costs', '/portal/costs/margins']) {
        const { text } = await admin.get(`${path}?month=2020-01${query}`);
        // The script of the pages does not change this text.
        expect(text, path).toMatch(new RegExp(`datetime="${from}"[^>]* data-local>2020-01-01 00:00</time> until`));
        expect(text, path).toContain(`Days and times are in ${zone}.`);
      }
    }
  });

  it('names the setting to fix when Terraform is missing', async () => {
    const { text } = await admin.get('/portal/stacks');
    expect(text).toContain('Stacks cannot be applied:');
    expect(text).toContain('HEADGATE_TERRAFORM_BIN');
  });
});

describe('a user without platform rights', () => {
  it('sees no forms of administrators and is rejected when sending them, as a member', async () => {
    await as('member', async (visitor) => {
      const texts = await Promise.all(
        [
          '/portal/stacks',
          '/portal/stacks/scheduler',
          '/portal/clusters',
          `/portal/clusters/${clusterId}`,
          '/portal/costs',
        ].map(async (path) => (await visitor.get(path)).text),
      );
      const all = texts.join('');
      for (const hidden of [
        '/edit"',
        '/delete"',
        'Create cluster',
        'Add a node',
        'Rates',
        'Margins',
        'Billing currency',
      ]) {
        expect(all).not.toContain(hidden);
      }
      for (const path of [
        '/portal/costs/rates',
        '/portal/costs/margins',
        '/portal/clusters/new',
        '/portal/stacks/scheduler/delete/x',
      ]) {
        expect([path, (await visitor.get(path)).status]).not.toEqual([path, 200]);
      }
      const refused: [string, Record<string, string>][] = [
        ['/portal/stacks/scheduler', { title: 'mine' }],
        ['/portal/clusters', { name: 'mine' }],
        [`/portal/clusters/${clusterId}/delete`, {}],
        ['/portal/costs/currency', { currency: 'EUR' }],
      ];
      for (const [path, fields] of refused)
        expect([path, (await visitor.post(path, fields)).status]).toEqual([path, 403]);
    });
  });

  it("sees no forms for global stacks, clusters and rates, as an organization's administrator", async () => {
    await as('admin', async (visitor) => {
      const stack = (await visitor.get('/portal/stacks/scheduler')).text;
      expect(stack).toContain('/apply"');
      expect(stack).not.toContain('/edit"');
      const cluster = (await visitor.get(`/portal/clusters/${clusterId}`)).text;
      expect(cluster).not.toContain('Add a node');
      expect((await visitor.get('/portal/costs/rates')).text).not.toContain('Add a rate card');
      expect((await visitor.get('/portal/costs/margins')).status).toBe(403);
      const event = await visitor.post(`/portal/clusters/${clusterId}/nodes/gpu-1/allocate`);
      expect(event.status).toBe(403);
    });
  });
});

describe('an invalid upload form', () => {
  it.each([
    ['of another site', { origin: 'https://evil.example' }, {}],
    ['without its token', {}, { form_token: '' }],
  ])('returns 403: %s', async (_, headers, fields) => {
    const sent = await upload(admin, { file: zipOf({ 'main.tf': main }), name: 'forged', ...fields }, headers);
    expect(sent.status).toBe(403);
    expect((await gateway.request('/v1/stacks/forged')).status).toBe(404);
  });

  it('redirects a visitor without a session before the body is read', async () => {
    const sent = await upload({ ...admin, cookie: '' }, { file: zipOf({ 'main.tf': main }), name: 'forged' });
    expect([sent.status, sent.location]).toEqual([303, '/']);
    expect((await gateway.request('/v1/stacks/forged')).status).toBe(404);
  });

  it('shows all problems of the package', async () => {
    const sent = await upload(admin, { file: new File(['no zip'], 'x.zip'), name: 'Not A Name' });
    expect(sent.status).toBe(400);
    expect(sent.text).toContain('value="Not A Name"');
    expect((await upload(admin, { url: 'https://127.0.0.1/x.zip' })).text).toContain('must be a public address');
    expect((await upload(admin, {})).text).toContain('Choose a zip');
  });
});

describe('the pages of a stack', () => {
  it('upload, change, download and delete it, and show its texts as text', async () => {
    const sent = await upload(admin, {
      file: zipOf({ 'main.tf': main }),
      name: 'queue',
      title: hostile,
      description: hostile,
    });
    expect(sent.status).toBe(303);
    const path = sent.location.split('?')[0] ?? '';
    const shown = (await admin.get(path)).text;
    expect(shown).not.toContain('<script>alert');
    expect(shown).toContain('&lt;script&gt;alert(1)');
    expect(shown).not.toContain('the default secret');
    expect(shown).toMatch(/, 1 file,\s/);
    const zip = await admin.get(`${path}/download`);
    expect(zip.headers).toMatchObject({
      'content-type': 'application/zip',
      'content-disposition': 'attachment; filename="queue-1.zip"',
    });
    const edited = { title: 'Queue', description: '', category: 'Odd <b>', icon: 'no icon' };
    const refused = await admin.post(path, edited);
    expect([refused.status, refused.text.includes('id="icon-problem"')]).toEqual([400, true]);
    expect((await admin.post(path, { ...edited, icon: '🧵' })).status).toBe(303);
    expect((await admin.get('/portal/stacks?category=Odd+%3Cb%3E')).text).toContain('<a href="' + path);
    expect((await admin.get('/portal/stacks?search=nothing+like+it')).text).toContain('No matching stacks');
    // The image of one that has none is a neutral one.
    expect((await admin.get(`${path}/icon`)).headers.location).toMatch(/^\/portal\/assets\/.*stack\.svg$/);
    expect((await admin.get(`${path}/delete`)).text).toContain('No run visible to you has applied this stack');
    expect((await admin.post(`${path}/delete`)).headers.location).toBe('/portal/stacks?notice=deleted');
    expect((await admin.get(path)).status).toBe(404);
  });

  it('ask for each input when it is applied, and show errors at the fields', async () => {
    const sent = await upload(admin, { file: zipOf({ 'main.tf': main }), name: 'asked' });
    const path = `${sent.location.split('?')[0] ?? ''}/apply`;
    const form = (await admin.get(path)).text;
    expect(form).toMatch(/type="password"\s+id="inputs.password"/);
    expect(form).not.toContain('the default secret');
    expect(form).toContain('a\nb</textarea');
    const fields = { cluster_id: clusterId, 'inputs.password': 'typed secret', 'inputs.hosts': 'x\r\ny' };
    const refused = await admin.post(path, { ...fields, node: 'gpu-9', 'inputs.count_of': 'seven' });
    expect(refused.status).toBe(400);
    expect(refused.text).toContain('id="inputs.count_of-problem"');
    expect(refused.text).toContain('id="node-problem"');
    expect(refused.text).toContain('value="seven"');
    expect(refused.text).toContain('x\ny</textarea');
    expect(refused.text).not.toContain('typed secret');
    // The only remaining error is that nothing here can run it.
    const right = await admin.post(path, { ...fields, node: 'gpu-1', 'inputs.count_of': '7' });
    expect([right.status, right.text.includes('Stacks cannot be applied')]).toEqual([503, true]);
    expect(gateway.logLines.join('')).not.toContain('typed secret');
  });
});

describe('the pages of a cluster', () => {
  it('create, change and delete it, with its nodes and their hours', async () => {
    const [organization] = ((await (await gateway.request('/v1/organizations')).json()) as { data: { id: string }[] })
      .data;
    const given = { organization_id: organization?.id ?? '', public_domain: '', access: 'members' };
    const wrong = await admin.post('/portal/clusters', { ...given, name: hostile, private_key: 'no key at all' });
    expect(wrong.status).toBe(400);
    expect(wrong.text).toContain('id="name-problem"');
    expect(wrong.text).toContain('id="private_key-problem"');
    expect(wrong.text).not.toContain('no key at all');
    expect(wrong.text).not.toContain('<script>alert');
    const odd = await admin.post('/portal/clusters', { ...given, name: 'made-here', labels: 'team=a b' });
    expect([odd.status, odd.text.includes('id="labels-problem"')]).toEqual([400, true]);
    const done = await admin.post('/portal/clusters', {
      ...given,
      name: 'made-here',
      labels: 'team=ml\r\nenv=prod\r\n',
    });
    const path = String(done.headers.location).split('?')[0] ?? '';
    const created = await admin.get(path);
    expect([created.text.includes('team=ml'), created.text.includes('env=prod')]).toEqual([true, true]);
    expect(created.text).toMatch(/ssh-ed25519 AAAA\S+ headgate/);
    const fields = {
      name: 'n1',
      address: '10.1.1.1',
      ssh_port: '22',
      ssh_user: 'root',
      hardware_profile: 'plain',
      gpus: '2',
    };
    const badNode = await admin.post(`${path}/nodes`, { ...fields, ssh_port: 'none', address: 'a b' });
    expect(badNode.text).toMatch(/ssh_port-problem[\s\S]*/);
    expect((await admin.post(`${path}/nodes`, fields)).status).toBe(303);
    const nodeId = /nodes\/(node_[0-9a-f]+)\/allocate/.exec((await admin.get(path)).text)?.[1] ?? '';
    const late = await admin.post(`${path}/nodes/${nodeId}/allocate`, { [`at-${nodeId}`]: '2999-01-01T00:00:00Z' });
    expect([late.status, late.text.includes(`id="at-${nodeId}-problem"`)]).toEqual([400, true]);
    const events = ['allocate', 'allocate', 'release'] as const;
    const said: Shown[] = [];
    for (const event of events) said.push(await admin.post(`${path}/nodes/${nodeId}/${event}`));
    expect(said.map(({ headers }) => String(headers.location).split('=')[1])).toEqual([
      'allocated',
      'repeated',
      'released',
    ]);
    expect((await admin.post(`${path}/nodes/${nodeId}`, { ...fields, gpus: '4' })).status).toBe(303);
    expect((await admin.post(`${path}/nodes/${nodeId}/delete`)).status).toBe(303);
    const began = JSON.stringify({ labels: { team: 'ml', env: 'prod' } });
    const relabeled = { ...given, name: 'made-here', labels: 'team=data', began_with: began };
    expect((await admin.post(path, relabeled)).status).toBe(303);
    const after = (await admin.get(path)).text;
    expect([after.includes('team=data'), after.includes('env=prod')]).toEqual([true, false]);
    expect((await admin.post(`${path}/rotate`)).headers.location).toBe(`${path}?notice=rotated`);
    expect((await admin.post(path, { ...given, name: 'renamed', access: 'public' })).status).toBe(303);
    expect((await admin.get(`${path}/delete`)).text).toContain('is archived permanently');
    expect((await admin.post(`${path}/delete`)).headers.location).toBe('/portal/clusters?notice=archived');
    expect((await admin.get('/portal/clusters?status=archived')).text).toContain('renamed');
  });
});

describe('the cost pages', () => {
  it('return CSV to a session, and add and end rates by forms', async () => {
    const csv = await admin.get('/portal/costs.csv?month=2026-03');
    expect(csv.headers['content-type']).toBe('text/csv; charset=utf-8');
    expect(csv.text.split('\n')[0]).toContain('BilledCost');
    const card = { 'cards.hardware_profile': 'h100-8x', 'cards.currency': 'usd', 'cards.gpu_hour': '2.50' };
    const wrong = await admin.post('/portal/costs/rates/cards', {
      ...card,
      'cards.currency': 'xxz',
      'cards.gpu_hour': 'much',
    });
    expect(wrong.status).toBe(400);
    expect(wrong.text).toContain('id="cards.currency-problem"');
    expect(wrong.text).toContain('id="cards.gpu_hour-problem"');
    expect((await admin.post('/portal/costs/rates/cards', card)).status).toBe(303);
    const text = 'hardware_profile,currency,gpu_hour\nimported,USD,x\n';
    const line = await admin.post('/portal/costs/rates/import', { kind: 'cards', csv: text });
    expect([line.status, line.text.includes('on line 2 must be')]).toEqual([400, true]);
    const right = { kind: 'cards', csv: text.replace('USD,x', 'USD,7') };
    expect((await admin.post('/portal/costs/rates/import', right)).status).toBe(303);
    const rate = { 'conversions.from': 'USD', 'conversions.to': 'EUR', 'conversions.rate': '0.9' };
    expect((await admin.post('/portal/costs/rates/conversions', rate)).status).toBe(303);
    const ends = [...(await admin.get('/portal/costs/rates')).text.matchAll(/rates\/((?:rate|conv)_[0-9a-f]+)\/end/g)];
    expect(ends).toHaveLength(3);
    for (const [, id] of ends) expect((await admin.post(`/portal/costs/rates/${id}/end`)).status).toBe(303);
    expect((await admin.post('/portal/costs/currency', { currency: 'EUR' })).status).toBe(303);
    const budget = { amount: '250', currency: '', alert_percents: '50, 90' };
    const odd = await admin.post('/portal/costs/budget', { ...budget, amount: 'much' });
    expect([odd.status, odd.text.includes('id="amount-problem"')]).toEqual([400, true]);
    expect((await admin.post('/portal/costs/budget', budget)).headers.location).toBe('/portal/costs?notice=budget');
    expect((await admin.get('/portal/costs')).text).toContain('250 EUR');
    expect((await admin.post('/portal/costs/budget', { ...budget, amount: '' })).status).toBe(303);
    expect((await admin.get('/portal/costs')).text).not.toContain('250 EUR');
    expect((await admin.get('/portal/costs')).text).toMatch(/value="EUR"\s+selected/);
  });
});
