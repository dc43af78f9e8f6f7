import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** Lists that sort and search in place. */

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

const users = ['anna', 'bela', 'cleo', 'dora', 'ezra', 'finn'];
const byAmount = ['ezra', 'bela', 'cleo', 'finn', 'anna', 'dora'];

beforeAll(async () => {
  gateway = await startGateway();
  for (const [index, id] of users.entries()) {
    const body = { scope: { type: 'user', id }, period: 'daily', amount: String([5, 100, 20, 3, 1000, 7][index]) };
    const made = await gateway.request('/v1/budgets', { body });
    if (made.status !== 201) throw new Error(await made.text());
  }
  person = await browsers.open();
  await signIn(person.page, gateway);
  await person.page.goto(new URL('/portal/budgets', gateway.url).href);
});

afterAll(() => gateway.stop());

const shown = async (): Promise<readonly string[]> =>
  person.page.locator('main tbody tr:visible td:first-child strong').allTextContents();

const heading = (name: string) => person.page.getByRole('columnheader', { name });

it('sorts by a heading, the largest number first, and says so', async () => {
  const { page } = person;
  expect(await shown()).toEqual(users.toReversed());
  const amount = heading('Amount').getByRole('button');
  await amount.focus();
  await page.keyboard.press('Enter');
  expect(await shown()).toEqual(byAmount);
  expect(await heading('Amount').getAttribute('aria-sort')).toBe('descending');
  await page.getByRole('status').getByText('Sorted by Amount, descending').waitFor();
  await page.keyboard.press('Space');
  expect(await shown()).toEqual(byAmount.toReversed());
  expect(await heading('Amount').getAttribute('aria-sort')).toBe('ascending');
  await heading('Scope').getByRole('button').click();
  expect(await shown()).toEqual(users);
  expect(await heading('Amount').getAttribute('aria-sort')).toBeNull();
  expect(await heading('Action').getByRole('button').count()).toBe(0);
  await expectPresentable(page, 'lists-sorted');
  expect(person.complaints).toEqual([]);
});

it('searches all words in the rows, and says how many are left', async () => {
  const { page } = person;
  await page.keyboard.press('/');
  await page.keyboard.type('DAY Cle');
  expect(await shown()).toEqual(['cleo']);
  await page.getByRole('status').getByText('1 of 6 rows').waitFor();
  await page.setViewportSize({ width: 360, height: 800 });
  expect(await shown()).toEqual(['cleo']);
  await expectPresentable(page, 'lists-searched');
  await page.getByRole('searchbox', { name: 'Search this list' }).fill('nothing like it');
  expect(await shown()).toEqual([]);
  await page.getByRole('status').getByText('0 of 6 rows').waitFor();
  await page.getByRole('searchbox', { name: 'Search this list' }).fill('');
  expect(await shown()).toHaveLength(6);
  expect(person.complaints).toEqual([]);
});

it('searches only the page of a list with more pages, whose links sort all of it', async () => {
  for (let index = 0; index < 26; index += 1) {
    const made = await gateway.request('/v1/projects', { body: { name: `site-${index}` } });
    expect(made.status).toBe(201);
  }
  const { page } = person;
  await page.goto(new URL('/portal/projects', gateway.url).href);
  await page.getByRole('searchbox', { name: 'Search this page of the list' }).fill('Site-17');
  await page.getByRole('status').getByText('1 of 25 rows').waitFor();
  expect(await heading('Visibility').getByRole('button').count()).toBe(0);
  await heading('Project').getByRole('link').click();
  await page.waitForURL(/sort=name/);
});

it('shows the lists without scripts as they are', async () => {
  const storageState = await person.context.storageState();
  const plain = await browsers.open({ javaScriptEnabled: false, storageState });
  await plain.page.goto(new URL('/portal/budgets', gateway.url).href);
  expect(await plain.page.locator('main tbody tr').count()).toBe(6);
  expect(await plain.page.getByRole('searchbox').count()).toBe(0);
  expect(await plain.page.locator('th button').count()).toBe(0);
});
