import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { makePerson, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** The pages of budgets speak of projects and keys by their names. */

let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  gateway = await startGateway();
  admin = await signInVisitor(gateway);
});

afterAll(() => gateway.stop());

interface Made {
  readonly id: string;
}

async function make(path: string, body: object): Promise<Made> {
  const made = await gateway.request(path, { body });
  expect(made.status).toBe(201);
  return (await made.json()) as Made;
}

const fields = { period: 'monthly', amount: '5', mode: 'hard', alerts: '80' };

it('shows an error at the field for an unknown or ambiguous name', async () => {
  await make('/v1/keys', { name: 'twin' });
  await make('/v1/keys', { name: 'twin' });
  for (const id of ['nobody', 'twin']) {
    const { status, text } = await admin.post('/portal/budgets/new', { type: 'api_key', id, ...fields });
    expect([status, text.includes('id="id-problem"')]).toEqual([400, true]);
  }
});

it('creates a budget by the name of a project or key, offers these names, and lists them', async () => {
  const project = await make('/v1/projects', { name: 'night <b>shift' });
  const key = await make('/v1/keys', { name: 'laptop' });
  const { text } = await admin.get('/portal/budgets/new');
  expect(text).toContain(`<option value="${project.id}">project night &lt;b&gt;shift</option>`);
  expect(text).toContain(`<option value="${key.id}">key laptop</option>`);
  for (const [type, id] of [
    ['project', 'night <b>shift'],
    ['api_key', key.id],
  ] as const) {
    expect((await admin.post('/portal/budgets/new', { type, id, ...fields })).status).toBe(303);
  }
  const list = (await admin.get('/portal/budgets')).text;
  expect(list).toContain(`<a href="/portal/projects/${project.id}" title="${project.id}">night &lt;b&gt;shift</a>`);
  expect(list).toContain(`<a href="/portal/keys/${key.id}" title="${key.id}">laptop</a>`);
  expect((await admin.get(`/portal/keys/${key.id}`)).text).toContain(`title="${key.id}">laptop</a>`);
  expect((await admin.get('/portal/audit?action=budget.created')).text).toContain('created the budget');
});

it('hides the names of projects and keys that a member may not list', async () => {
  const person = await makePerson(gateway, { role: 'member' });
  const member = await signInPerson(gateway, person.email);
  const { status, text } = await member.get('/portal/budgets');
  expect([status, text.includes('laptop'), text.includes('shift')]).toEqual([200, false, false]);
});
