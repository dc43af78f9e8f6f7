import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

const step = (title: string) =>
  person.page.getByRole('region', { name: 'First steps' }).getByRole('listitem').filter({ hasText: title });

it('marks the first steps as they are done, and puts them away and back by the keyboard', async () => {
  const { page } = person;
  await step('First request').getByRole('link', { name: 'Ask a model' }).waitFor();
  const body = { model: 'standin-chat', max_tokens: 8, messages: [{ role: 'user', content: 'Hi' }] };
  const failed = { ...body, standin: { status: 500 } };
  expect((await gateway.request('/v1/chat/completions', { body: failed })).status).toBe(502);
  await page.goto(gateway.url);
  await page.getByText('failed 502').waitFor();
  expect(await step('First request').getByText('done', { exact: true }).count()).toBe(0);
  await (await gateway.request('/v1/chat/completions', { body })).text();
  // Nobody loads the page again: it refreshes itself.
  await step('First request').getByText('done', { exact: true }).waitFor();
  await expectPresentable(page, 'home-steps');
  await page.getByRole('button', { name: 'Put away' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Show the first steps' }).waitFor();
  expect(await page.getByRole('region', { name: 'First steps' }).count()).toBe(0);
  expect(await page.getByRole('heading', { name: 'Send a request from a program' }).count()).toBe(0);
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  await signIn(page, gateway);
  await page.getByRole('button', { name: 'Show the first steps' }).click();
  await page.getByRole('region', { name: 'First steps' }).waitFor();
  expect(person.complaints).toEqual([]);
});

it('says what is wrong now, and leads to where it is fixed', async () => {
  const { page } = person;
  const made = await gateway.request('/v1/webhooks', { body: { url: 'https://example.com/in', description: 'Pager' } });
  const { id } = (await made.json()) as { id: string };
  const { sql } = gateway.db;
  await sql`update webhook_endpoints set enabled = false, disabled_reason = 'failing' where id = ${parseId('wh', id)}`;
  await sql`
    insert into usage_quarantine (id, record, error, created_at)
    values (${uuidv7()}, '{}', ${'unsupported Unicode escape sequence '.repeat(6)}, now())`;
  const troubles = page.getByRole('region', { name: 'Needs attention' });
  await page.goto(gateway.url);
  await troubles.getByText('The webhook Pager was disabled').waitFor();
  await expectPresentable(page, 'home-troubles');
  await troubles.getByRole('link', { name: 'Retry or discard' }).click();
  await page.getByText('Discard', { exact: true }).click();
  await expectPresentable(page, 'quarantine-discard');
  await page.getByLabel('Reason').fill('a record of a test');
  await page.getByRole('button', { name: 'Discard record' }).click();
  await page.getByText('No records in quarantine').waitFor();
  await page.getByRole('link', { name: 'Overview' }).click();
  await troubles.getByRole('link', { name: 'Webhook', exact: true }).click();
  await page.getByRole('button', { name: 'Enable' }).click();
  await page.getByRole('link', { name: 'Overview' }).click();
  await page.getByRole('heading', { name: 'Models' }).waitFor();
  expect(await troubles.count()).toBe(0);
  expect(person.complaints).toEqual([]);
});
