import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Person, signIn, useBrowsers } from './browser.ts';
import { corpus, elements } from './hostile-texts.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_MAX_ACTIVE_KEYS: '100' } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

interface Key {
  readonly id: string;
  readonly name: string;
  readonly secret: string;
}

async function make(name: string): Promise<Key> {
  const answer = await gateway.request('/v1/keys', { body: { name } });
  expect([name, answer.status]).toEqual([name, 201]);
  return (await answer.json()) as Key;
}

/** The page shows hostile texts as texts: nothing of them became part of it, ran, or was asked for. */
async function expectHarmless(path: string): Promise<void> {
  const { page, complaints } = person;
  await page.goto(new URL(path, gateway.url).href);
  expect(new URL(page.url()).origin, path).toBe(new URL(gateway.url).origin);
  expect(await page.locator(elements).count(), path).toBe(0);
  expect(await page.locator('main [hx-get]:not(#live):not(.filters)').count(), path).toBe(0);
  expect(complaints, path).toEqual([]);
}

it('shows hostile text in every field as text', async () => {
  const { page } = person;
  const foreign: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.url)) foreign.push(request.url());
  });
  const [first = ''] = corpus;
  const renamed = await gateway.request('/v1/organizations', { body: { name: first } });
  expect(renamed.status).toBe(201);
  await gateway.db.sql`update organizations set name = ${corpus.join(' ')} where platform`;
  const keys: Key[] = [];
  const organizations: string[] = [];
  for (const text of corpus) {
    keys.push(await make(text));
    const project = await gateway.request('/v1/projects', { body: { name: text.slice(0, 100) } });
    expect(project.status).toBe(201);
    const body = { name: text.slice(0, 100), description: text };
    const described = await gateway.request('/v1/projects', {
      body: { ...body, name: `${body.name.slice(0, 90)} too` },
    });
    expect(described.status).toBe(201);
    const somebody = { name: text.slice(0, 100), email: `${keys.length}@example.com`, password: 'correct horse' };
    expect((await gateway.request('/v1/users', { body: somebody })).status).toBe(201);
    const organization = await gateway.request('/v1/organizations', { body: { name: text.slice(0, 200) } });
    expect(organization.status).toBe(201);
    organizations.push(((await organization.json()) as { id: string }).id);
    const credit = { amount: '0.01', reference: text, note: text };
    expect((await gateway.request('/v1/wallet/credits', { body: credit })).status).toBe(201);
  }
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: first }] };
  for (const { secret } of keys.slice(0, 3)) {
    const headers = { 'x-client-request-id': '"><script>alert(1)</script>', 'user-agent': first };
    await (await gateway.request('/v1/chat/completions', { key: secret, body, headers })).text();
  }

  const lists = [
    '/',
    '/portal/keys',
    '/portal/keys/new',
    '/portal/usage',
    '/portal/usage?by=key_id',
    '/portal/usage?by=project_id',
    '/portal/wallet',
    '/portal/models',
    '/portal/sessions',
    '/portal/projects',
    '/portal/users',
    '/portal/users?of=all',
    '/portal/organization',
    '/portal/webhooks',
    '/portal/webhooks/new',
    '/portal/organizations',
    '/portal/audit',
    '/portal/engines',
    '/portal/engines/standin-chat',
  ];
  for (const path of lists) await expectHarmless(path);
  for (const id of organizations.slice(0, 3)) {
    await expectHarmless(`/portal/organizations/${id}`);
    await page.getByRole('button', { name: 'Keys', exact: true }).click();
    await expectHarmless('/portal/keys');
    await page.getByRole('button', { name: 'Back to your organization' }).click();
  }
  await page.goto(`${gateway.url}/portal/keys`);
  const shown = await page.locator('tbody td:first-child a').allTextContents();
  for (const text of corpus) expect(shown).toContain(text);
  for (const { id, name } of keys) {
    await expectHarmless(`/portal/keys/${id}`);
    expect(await page.getByLabel('Name').inputValue()).toBe(name);
    await expectHarmless(`/portal/keys/${id}/delete`);
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(`Revoke ${name}?`);
  }
  const { data } = (await (await gateway.request('/v1/usage/requests')).json()) as { data: { id: string }[] };
  for (const { id } of data) await expectHarmless(`/portal/usage/${id}`);
  const idsOf = async (path: string): Promise<readonly string[]> => {
    const list = (await (await gateway.request(path)).json()) as { data: { id: string }[] };
    return list.data.map(({ id }) => id);
  };
  // Each text once, as a name and as a description.
  const newest = `limit=${corpus.length}&sort=-created_at`;
  for (const id of await idsOf(`/v1/projects?${newest}`)) await expectHarmless(`/portal/projects/${id}`);
  for (const id of await idsOf(`/v1/users?${newest}`)) await expectHarmless(`/portal/users/${id}/remove`);
  for (const id of organizations) await expectHarmless(`/portal/organizations/${id}/close`);
  for (const text of corpus) {
    const word = encodeURIComponent(text);
    await expectHarmless(`/portal/organizations?search=${word}&status=${word}&sort=${word}`);
    await expectHarmless(`/portal/audit?action=${word}&actor_id=${word}&target_id=${word}&from=${word}`);
    await expectHarmless(`/portal/engines/${word}`);
    await expectHarmless(`/portal/usage?range=${word}&by=${word}&measure=${word}&model=${word}`);
    await expectHarmless(`/portal/keys?status=${word}&notice=${word}`);
    await expectHarmless(`/portal/wallet?type=${word}&notice=${word}`);
    await expectHarmless(`/portal/models/${word}`);
    await expectHarmless(`/portal/keys/${word}`);
    await expectHarmless(`/welcome?token=${word}`);
  }
  expect(foreign).toEqual([]);
});

it('shows hostile text as text when it is typed into forms and rejected', async () => {
  const { page, complaints } = person;
  for (const text of corpus) {
    await page.goto(`${gateway.url}/portal/keys/new`);
    await page.getByLabel('Name').fill(text);
    for (const label of ['Requests per minute', 'Tokens per minute', 'Concurrent requests', 'Tokens per month']) {
      await page.getByLabel(label).fill(text.slice(0, 20));
    }
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.getByLabel('Name').inputValue()).toBe(text);
    expect(await page.locator(elements).count(), text).toBe(0);
    await page.goto(`${gateway.url}/portal/wallet`);
    await page.getByText('Add credit').click();
    await page.getByLabel('Amount in USD').first().fill(text.slice(0, 40));
    await page.getByLabel('Reference').first().fill(text);
    await page.getByLabel('Note').fill(text);
    await page.getByRole('button', { name: 'Post credit' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.locator(elements).count(), text).toBe(0);
  }
  expect(complaints).toEqual([]);
});

/** What `POST` to a path of the API has made. */
async function made<T = { id: string }>(path: string, body: object): Promise<T> {
  const answer = await gateway.request(path, { body });
  expect([path, answer.status < 300 ? '' : await answer.clone().text()]).toEqual([path, '']);
  return (await answer.json()) as T;
}

async function batchFile(): Promise<string> {
  const form = new FormData();
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello' }] };
  const line = { custom_id: corpus[1], method: 'POST', url: '/v1/chat/completions', body };
  form.set('purpose', 'batch');
  form.set('file', new Blob([JSON.stringify(line)]), `${corpus[0] ?? ''}.jsonl`);
  const headers = { authorization: `Bearer ${gateway.key}` };
  const sent = await fetch(`${gateway.url}/v1/files`, { method: 'POST', headers, body: form });
  return ((await sent.json()) as { id: string }).id;
}

it('shows hostile text as text in webhooks, budgets, service accounts, adjustments, batches and contents', async () => {
  const { page } = person;
  const foreign: string[] = [];
  page.on('request', (request) => {
    if (!request.url().startsWith(gateway.url)) foreign.push(request.url());
  });
  const project = await made('/v1/projects', { name: 'hostile' });
  const keeping = await made<Key>('/v1/keys', { name: 'keeps', store_requests: true });
  const fileId = await batchFile();
  const paths = ['/portal/webhooks', '/portal/budgets', '/portal/wallet', '/portal/batches', '/portal/audit'];
  for (const [index, text] of corpus.entries()) {
    const accounts = `/v1/organization/projects/${project.id}/service_accounts`;
    const account = await made(accounts, { name: `${text.slice(0, 90)} ${index}` });
    paths.push(`/portal/projects/${project.id}/service-accounts/${account.id}/delete`);
    const budget = { scope: { type: 'user', id: text }, period: 'daily', amount: '1' };
    paths.push(`/portal/budgets/${(await made('/v1/budgets', budget)).id}`);
    await made('/v1/wallet/adjustments', { amount: '-0.001', reference: `less ${text}`, reason: text });
    const content = [{ role: 'user', content: text }];
    const body = { model: 'standin-chat', messages: content, max_tokens: 3, user: text };
    const asked = await gateway.request('/v1/chat/completions', { key: keeping.secret, body });
    await asked.text();
    paths.push(`/portal/usage/${asked.headers.get('x-request-id') ?? ''}`);
  }
  const metadata = Object.fromEntries(corpus.map((text, index) => [`${index} ${text}`.slice(0, 60), text]));
  const batch = { input_file_id: fileId, endpoint: '/v1/chat/completions', completion_window: '24h', metadata };
  paths.push(`/portal/batches/${(await made('/v1/batches', batch)).id}`);
  for (const text of corpus.slice(0, 8)) {
    const hook = await made('/v1/webhooks', { url: 'https://example.com/<b>in', description: text, events: null });
    for (const rest of ['', '/rotate', '/delete']) paths.push(`/portal/webhooks/${hook.id}${rest}`);
  }
  paths.push(`/portal/projects/${project.id}`, '/portal/costs', '/portal/sessions', '/portal/account');
  for (const path of paths) {
    await expectHarmless(path);
    expect([path, await page.getByRole('heading', { name: 'Not found' }).count()]).toEqual([path, 0]);
  }
  await page.goto(`${gateway.url}/portal/budgets`);
  const shown = (await page.locator('main').textContent()) ?? '';
  for (const text of corpus) expect(shown).toContain(text);
  expect(foreign).toEqual([]);
});
