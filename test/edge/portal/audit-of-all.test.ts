import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The audit log of all organizations. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

const path = '/portal/audit?organizations=all&action=';

it("shows changes of a tenant by operators to operators only, and the tenant's entries in no other log", async () => {
  const made = await gateway.request('/v1/organizations', { body: { name: 'Tenant <b>of all</b>' } });
  const { id, management_key: key } = (await made.json()) as { id: string; management_key: string };
  const person = await makePerson(gateway, { role: 'admin' }, key);
  const visitor = await signInPerson(gateway, person.email);
  expect((await visitor.get('/portal/audit')).text).not.toContain('name="organizations"');
  // A user who asks for all changes gets his own.
  expect((await visitor.get(`${path}gateway.nothing`)).text).toContain('No changes found');

  await admin.post(`/portal/organizations/${id}/status`, { status: 'suspended' });
  const credit = { amount: '7', reference: 'of-all', organization_id: id };
  expect((await admin.post(`/portal/wallet/credits?organization_id=${id}`, credit)).status).toBe(303);
  for (const action of ['organization.suspended', 'wallet.credited']) {
    const { status, text } = await admin.get(`${path}${action}`);
    const link = `href="/portal/organizations/${id}">Tenant &lt;b&gt;of all&lt;/b&gt;</a>`;
    expect([action, status, text.includes(link), text.includes('<b>of all')]).toEqual([action, 200, true, false]);
    expect((await admin.get(`/portal/audit?action=${action}`)).text).not.toContain(id);
  }
});

it('pages to older entries of all organizations', async () => {
  for (let index = 0; index < 60; index += 1) await gateway.request('/v1/projects', { body: { name: `p${index}` } });
  const { text } = await admin.get(`${path}project.created`);
  const [, next = ''] =
    /href="(\/portal\/audit\?organizations=all&amp;action=project.created&amp;after=[^"]+)"/.exec(text) ?? [];
  const older = await admin.get(next.replaceAll('&amp;', '&'));
  expect([older.status, older.text.includes('Tenant')]).toEqual([200, true]);
});

it('names users and keys of other organizations to operators only', async () => {
  const made = await gateway.request('/v1/organizations', { body: { name: 'Named tenant' } });
  const { id, management_key: key } = (await made.json()) as { id: string; management_key: string };
  const person = await makePerson(gateway, { role: 'admin' }, key);
  const visitor = await signInPerson(gateway, person.email);
  const posted = await visitor.post('/portal/projects', { name: 'by a person', visibility: 'private' });
  const asked = await gateway.request('/v1/projects', { key, body: { name: 'by a key' } });
  expect([posted.status, asked.status]).toEqual([303, 201]);
  const all = (await admin.get(`${path}project.created`)).text;
  expect(all).toMatch(new RegExp(`<strong>${person.email}</strong> created the project`));
  expect(all).toMatch(
    /the key <strong>Management key<\/strong> <span[^>]*>\(of owner@org-\S+\)<\/span> created the project <strong>by a key/,
  );
  // Changes to the tenant by an operator: its own people do not see the operator's name.
  await admin.post(`/portal/organizations/${id}/status`, { status: 'suspended' });
  await admin.post(`/portal/organizations/${id}/status`, { status: 'active' });
  const own = (await visitor.get('/portal/audit?action=organization.suspended')).text;
  expect(own).toMatch(/a user <code>user_\w+<\/code> suspended/);
});

it('shows the requested days completely, including the last one, in the selected time zone', async () => {
  const daysIn = (text: string): readonly string[] =>
    [...text.matchAll(/data-utc>(\S+) \d\d:\d\d:\d\d<\/time>/g)].map(([, day = '']) => day);
  const all = daysIn((await admin.get('/portal/audit')).text);
  expect(all.length).toBeGreaterThan(10);
  // One, unless a day has ended since this file began.
  for (const day of new Set(all)) {
    const { text } = await admin.get(`/portal/audit?from=${day}&until=${day}`);
    expect(text).toContain('Days and times are in UTC');
    expect(daysIn(text)).toEqual(all.filter((one) => one === day));
  }
  expect((await admin.get('/portal/audit?until=2020-01-01')).text).toContain('No changes found');
  expect((await admin.get('/portal/audit?until=tomorrow')).status).toBe(400);
});

it('links an organization to its budgets, batches and webhooks, which say when no email is configured', async () => {
  const made = await gateway.request('/v1/organizations', { body: { name: 'Looked at' } });
  const { id } = (await made.json()) as { id: string };
  const { text } = await admin.get(`/portal/organizations/${id}`);
  for (const path of ['/portal/budgets', '/portal/batches', '/portal/webhooks']) {
    expect(text).toContain(`<button name="to" value="${path}">`);
    const { status, headers } = await admin.post('/portal/view', { organization_id: id, to: path });
    expect([status, headers.location]).toEqual([303, path]);
  }
  expect((await admin.get('/portal/webhooks')).text).toContain('This gateway sends no email');
});
