import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway({});
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

it('creates, changes and deletes a budget on its pages, and shows errors', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/budgets', gateway.url).href);
  await expectPresentable(page, 'budgets-empty');
  await page.getByRole('link', { name: 'New budget' }).click();
  await page.getByLabel('Scope', { exact: true }).selectOption('user');
  await page.getByLabel('Name or id').fill(' anna');
  await page.getByLabel('Amount in USD').fill('five');
  await page.getByRole('button', { name: 'Create budget' }).click();
  await page.locator('#amount-problem').waitFor();
  await expectPresentable(page, 'budget-new');
  await page.getByLabel('Amount in USD').fill('0.000001');
  await page.getByRole('button', { name: 'Create budget' }).click();
  await page.getByText('Budget created.').waitFor();
  const names = await page.locator('main strong').allTextContents();
  expect(names).toEqual([' anna']);
  const { key } = gateway;
  const body = { scope: { type: 'user', id: 'w'.repeat(256) }, period: 'daily', amount: '1000000000000' };
  expect((await gateway.request('/v1/budgets', { key, body })).status).toBe(201);
  await page.reload();
  await expectPresentable(page, 'budgets');
  await page.getByRole('link', { name: 'Change' }).first().click();
  await expectPresentable(page, 'budget');
  await page.getByLabel('Alert thresholds in percent').fill('80, many');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('#alerts-problem').waitFor();
  await page.getByLabel('Alert thresholds in percent').fill('50%');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Budget saved.').waitFor();
  await page.getByRole('link', { name: 'Change' }).first().click();
  await page.getByLabel('Raise by USD').fill('5');
  await page.getByLabel('Raise ends (UTC)').fill('2999-01-31');
  await page.getByRole('button', { name: 'Raise temporarily' }).click();
  await page.getByText('Budget raised.').waitFor();
  await page.getByRole('link', { name: 'Change' }).first().click();
  await page.getByRole('link', { name: 'Reset the budget' }).click();
  await expectPresentable(page, 'budget-reset');
  await page.getByRole('button', { name: 'Reset budget' }).click();
  await page.getByText('Budget reset.').waitFor();
  await page.getByRole('link', { name: 'Change' }).first().click();
  await page.getByRole('button', { name: 'Delete budget' }).click();
  await page.getByText('Budget deleted.').waitFor();
});

it('shows, rejects and changes the limits of a project for a model', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/projects', gateway.url).href);
  await page.locator('main tbody a').first().click();
  await page.getByRole('heading', { name: 'Limits by model' }).waitFor();
  await expectPresentable(page, 'project-limits');
  await page.getByRole('link', { name: 'Change the limits for standin-chat' }).click();
  await page.getByLabel('Requests per minute').fill('many');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.locator('#max_requests_per_1_minute-problem').waitFor();
  await expectPresentable(page, 'project-limits-change');
  await page.getByLabel('Requests per minute').fill('1,200');
  await page.getByLabel('Tokens per minute').fill('9007199254740991');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Limits changed').waitFor();
  await expectPresentable(page, 'project-limits-changed');
  const row = page.locator('tr', { hasText: 'standin-chat' });
  expect(await row.locator('td').allTextContents()).toEqual(expect.arrayContaining([expect.stringContaining('1,200')]));
  await page.getByRole('link', { name: 'Change the limits for standin-chat' }).click();
  await page.getByLabel('Requests per minute').fill('');
  await page.getByLabel('Tokens per minute').fill('');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Limits changed').waitFor();
  expect(await row.getByText('unlimited').count()).toBe(3);
});
