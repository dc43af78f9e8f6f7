import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openOrganization } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_MAX_ACTIVE_KEYS: '10' } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

const goto = (path: string) => person.page.goto(new URL(path, gateway.url).href);
const rows = () => person.page.getByRole('region', { name: 'Requests, newest first' }).locator('tbody tr');

/** Asks a model as a new key. @returns the id of the request */
async function ask(name: string): Promise<string> {
  const made = await gateway.request('/v1/keys', { body: { name, store_requests: true } });
  expect(made.status).toBe(201);
  const { secret } = (await made.json()) as { secret: string };
  const body = { model: 'standin-chat', max_tokens: 8, messages: [{ role: 'user', content: `I am ${name}` }] };
  const answer = await gateway.request('/v1/chat/completions', { body, key: secret });
  await answer.text();
  return answer.headers.get('x-request-id') ?? '';
}

describe('the usage and wallet pages', () => {
  it('filter requests, and download what they show', async () => {
    const { page } = person;
    const ids = [await ask('nightly'), await ask('daily')];
    await goto('/portal/usage');
    await rows().nth(1).waitFor();
    await page.getByLabel('Range').selectOption('Today');
    await page.waitForURL(/range=today/);
    await page.getByLabel('Key').selectOption('daily');
    await rows().nth(1).waitFor({ state: 'detached' });
    expect(await rows().count()).toBe(1);
    await expectPresentable(page, 'usage-filtered');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download CSV' }).click(),
    ]);
    const lines = readFileSync(await download.path(), 'utf8').split('\r\n');
    expect(lines.filter((line) => line !== '')).toHaveLength(2);
    expect(lines[1]).toContain(ids[1]);
    expect(download.suggestedFilename()).toMatch(/^usage-.*\.csv$/);
    await page.getByLabel('Outcome').selectOption('Failed');
    await page.getByText('No matching requests').waitFor();
  });

  it('search requests, and follow new ones only while somebody looks', async () => {
    const { page } = person;
    const made = await gateway.request('/v1/keys', { body: { name: 'followed' } });
    const { secret } = (await made.json()) as { secret: string };
    const askAs = async (user: string, fields: object = {}): Promise<void> => {
      const messages = [{ role: 'user', content: 'Hi' }];
      const body = { model: 'standin-chat', max_tokens: 8, messages, user, ...fields };
      await (await gateway.request('/v1/chat/completions', { body, key: secret })).text();
    };
    await askAs('anna');
    await askAs('bert', { model: 'unknown-model' });
    const newest = page.getByRole('region', { name: 'The newest of them' });
    await expect
      .poll(async () => {
        await goto('/portal/usage?range=today');
        return newest.getByText('unknown-model').count();
      })
      .toBe(1);
    await page.getByLabel('End user').fill('anna');
    await page.getByLabel('End user').press('Enter');
    await page.waitForURL(/user=anna/);
    await expect.poll(() => rows().count()).toBe(1);
    await page.getByLabel('End user').fill('');
    await page.getByLabel('Error text').fill('UNKNOWN-model');
    await page.getByLabel('Error text').press('Enter');
    await page.getByText('No matching requests').waitFor();
    expect(await newest.locator('tbody tr').count()).toBe(1);
    await expectPresentable(page, 'usage-searched');
    await goto('/portal/usage?range=today&user=anna');
    await page.getByRole('link', { name: 'Follow', exact: true }).click();
    await page.getByText('New requests appear every 3 seconds').waitFor();
    await expectPresentable(page, 'usage-followed');
    await askAs('anna');
    await expect.poll(() => rows().count()).toBe(2);
    await page.evaluate(`Object.defineProperty(document, 'hidden', { get: () => true })`);
    let polls = 0;
    page.on('request', (request) => (polls += request.headers()['x-poll'] === undefined ? 0 : 1));
    await page.evaluate(`new Promise((resolve) => {
      let seen = 0;
      document.addEventListener('htmx:config:request', () => { if (++seen === 2) resolve(seen); });
    })`);
    expect(polls).toBe(0);
  });

  it('use typed days over a former range, and a newly selected range over the days', async () => {
    const { page } = person;
    const messages = [{ role: 'user', content: 'Hi' }];
    const body = { model: 'standin-chat', max_tokens: 8, messages };
    await (await gateway.request('/v1/chat/completions', { body })).text();
    await goto('/portal/usage');
    await rows().first().waitFor();
    await page.getByLabel('From (UTC)').fill('2020-01-01');
    await page.getByLabel('Until (UTC)').fill('2020-01-02');
    await page.waitForURL(/range=dates.*from=2020-01-01.*until=2020-01-02/);
    await rows().first().waitFor({ state: 'detached' });
    await page.getByLabel('Range').selectOption('Last 7 days');
    await rows().first().waitFor();
    expect(await page.getByLabel('From (UTC)').inputValue()).toBe('');
  });

  it("show each request's cost on a narrow screen without horizontal scrolling", async () => {
    const id = await ask('on the phone');
    const narrow = await browsers.open({ viewport: { width: 360, height: 740 } });
    await signIn(narrow.page, gateway);
    for (const [path, table, title] of [
      ['/', 'Requests, newest first', 'Cost'],
      ['/portal/wallet', 'Ledger, newest first', 'Balance after'],
      [`/portal/usage/${id}`, 'Tokens and prices of this request', 'Amount'],
    ] as const) {
      await narrow.page.goto(new URL(path, gateway.url).href);
      const cells = narrow.page.getByRole('region', { name: table }).locator(`tbody td[data-title="${title}"]`);
      await cells.first().waitFor();
      const box = await cells.first().boundingBox();
      expect([path, (box?.x ?? 360) + (box?.width ?? 360) <= 360]).toEqual([path, true]);
    }
  });

  it('show what a request asked and cost, and delete its stored content', async () => {
    const { page } = person;
    const id = await ask('storing');
    const request = page.getByText('Request', { exact: true });
    // Contents are stored in the background.
    await expect
      .poll(async () => {
        await goto(`/portal/usage/${id}`);
        return request.count();
      })
      .toBe(1);
    await request.click();
    await page.getByText('I am storing').waitFor();
    await expectPresentable(page, 'request-content');
    await page.getByRole('button', { name: 'Delete stored content' }).click();
    await page.getByText('No content is stored for this request').waitFor();
    expect(await page.getByText('I am storing').count()).toBe(0);
  });

  it("adjust another organization's wallet, and show errors first", async () => {
    const { page } = person;
    const { id } = await openOrganization(gateway, '5');
    await goto(`/portal/wallet?organization_id=${id}`);
    await page.getByText('Adjust balance').click();
    const form = page.locator('form[action^="/portal/wallet/adjustments"]');
    await form.getByLabel('Amount in USD').fill('-7');
    await form.getByLabel('Reference').fill('ticket 7');
    await form.getByLabel('Reason').fill('paid back');
    await form.getByRole('button', { name: 'Post adjustment' }).click();
    await page.getByText('cannot reduce it below zero').first().waitFor();
    await expectPresentable(page, 'wallet-correction-refused');
    await form.getByLabel('Amount in USD').fill('-1.5');
    await form.getByRole('button', { name: 'Post adjustment' }).click();
    await page.getByRole('status').getByText('Adjustment posted.').waitFor();
    await page.getByRole('cell', { name: '$3.50' }).waitFor();
    await expectPresentable(page, 'wallet-corrected');
    expect(person.complaints).toEqual([]);
  });
});
