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
  expect(await page.locator('main [hx-get]:not(#live, #charts, .filters)').count(), path).toBe(0);
  expect(complaints, path).toEqual([]);
}

interface Parsed {
  readonly path: string;
  readonly origin: string;
  /** Elements that a hostile text would be, if it became a part of the page. */
  readonly made: number;
  readonly heading: string;
  readonly name: string;
}

/** Runs in the browser, which reads each page but does not show it: showing takes most of the time. */
const readAll = `async ({ paths, selector }) => {
  const pages = [];
  for (const path of paths) {
    const answer = await fetch(path, { headers: { accept: 'text/html' } });
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const made = page.querySelectorAll(selector + ', main [hx-get]:not(#live, #charts, .filters)').length;
    const heading = page.querySelector('h1')?.textContent ?? '';
    const name = page.querySelector('input[name=name]')?.value ?? '';
    pages.push({ path, origin: new URL(answer.url).origin, made, heading, name });
  }
  return pages;
}`;

const readPages = (paths: readonly string[]): Promise<Parsed[]> =>
  person.page.evaluate(`(${readAll})(${JSON.stringify({ paths, selector: elements })})`);

async function expectHarmlessPages(paths: readonly string[]): Promise<Parsed[]> {
  const pages = await readPages(paths);
  const { origin } = new URL(gateway.url);
  expect(pages).toEqual(paths.map((path) => expect.objectContaining({ path, origin, made: 0 })));
  expect(pages.filter(({ heading }) => heading === '')).toEqual([]);
  return pages;
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
  const [key] = keys;
  await expectHarmless(`/portal/keys/${key?.id}`);
  expect(await page.getByLabel('Name').inputValue()).toBe(key?.name);
  const own = await expectHarmlessPages(keys.map(({ id }) => `/portal/keys/${id}`));
  expect(own.map(({ name }) => name)).toEqual(corpus);
  const questions = await expectHarmlessPages(keys.map(({ id }) => `/portal/keys/${id}/delete`));
  expect(questions.map(({ heading }) => heading)).toEqual(corpus.map((text) => `Revoke ${text}?`));
  const { data } = (await (await gateway.request('/v1/usage/requests')).json()) as { data: { id: string }[] };
  for (const { id } of data) await expectHarmless(`/portal/usage/${id}`);
  const idsOf = async (path: string): Promise<readonly string[]> => {
    const list = (await (await gateway.request(path)).json()) as { data: { id: string }[] };
    return list.data.map(({ id }) => id);
  };
  // Each text once, as a name and as a description.
  const newest = `limit=${corpus.length}&sort=-created_at`;
  const projects = await idsOf(`/v1/projects?${newest}`);
  const users = await idsOf(`/v1/users?${newest}`);
  await expectHarmlessPages([
    ...projects.map((id) => `/portal/projects/${id}`),
    ...users.map((id) => `/portal/users/${id}/remove`),
    ...organizations.map((id) => `/portal/organizations/${id}/close`),
  ]);
  const asked = corpus
    .map(encodeURIComponent)
    .map((word) => [
      `/portal/organizations?search=${word}&status=${word}&sort=${word}`,
      `/portal/audit?action=${word}&actor_id=${word}&target_id=${word}&from=${word}`,
      `/portal/engines/${word}`,
      `/portal/usage?range=${word}&by=${word}&measure=${word}&model=${word}`,
      `/portal/keys?status=${word}&notice=${word}`,
      `/portal/wallet?type=${word}&notice=${word}`,
      `/portal/models/${word}`,
      `/portal/keys/${word}`,
      `/welcome?token=${word}`,
    ]);
  for (const path of asked[0] ?? []) await expectHarmless(path);
  await expectHarmlessPages(asked.flat());
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

/** The answer of a `POST` to a path of the API. */
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
  const pages = await expectHarmlessPages(paths);
  expect(pages.filter(({ heading }) => heading === 'Not found')).toEqual([]);
  // One of each kind is shown as well.
  const kinds = new Map(paths.map((path) => [path.replaceAll(/[a-z]+_[\w-]+/g, ''), path]));
  for (const path of kinds.values()) await expectHarmless(path);
  await page.goto(`${gateway.url}/portal/budgets`);
  const shown = (await page.locator('main').textContent()) ?? '';
  for (const text of corpus) expect(shown).toContain(text);
  expect(foreign).toEqual([]);
});
