import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  await gateway.request('/v1/keys', { body: { name: 'Nightly <b>report</b>' } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

describe('the search', () => {
  it('opens with Ctrl K on each page, and leads to pages, models, keys, and requests by id', async () => {
    const { page } = person;
    const dialog = page.getByRole('dialog', { name: 'Search' });
    const field = dialog.getByRole('searchbox');
    await page.goto(new URL('/portal/models', gateway.url).href);
    await page.keyboard.press('Control+k');
    await dialog.getByRole('link', { name: 'Wallet Page' }).waitFor();
    await expectPresentable(page, 'palette');
    await field.fill('report');
    await dialog.getByRole('link', { name: 'Nightly <b>report</b> Key' }).waitFor();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/portal\/keys\/key_/);
    await page.keyboard.press('Control+k');
    await field.fill('standin-emb');
    await dialog.getByRole('link', { name: 'standin-embed Model' }).waitFor();
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/portal\/models\/standin-embed/);
    const body = { model: 'standin-chat', max_tokens: 8, messages: [{ role: 'user', content: 'Hi' }] };
    const answer = await gateway.request('/v1/chat/completions', { body });
    await answer.text();
    const id = answer.headers.get('x-request-id') ?? '';
    await page.keyboard.press('Control+k');
    await field.fill(id);
    await dialog.getByRole('link', { name: 'Request' }).click();
    await page.waitForURL(new RegExp(id));
    await page.keyboard.press('Control+k');
    await field.fill('no such thing');
    await dialog.getByText('Nothing found').waitFor();
    await page.keyboard.press('Escape');
    expect(await dialog.count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });

  it('is focused with a slash, except while somebody types', async () => {
    const { page } = person;
    await page.goto(new URL('/portal/usage', gateway.url).href);
    await page.keyboard.press('/');
    const id = page.getByLabel('Request id');
    expect(await id.evaluate((element) => element.matches(':focus'))).toBe(true);
    await page.keyboard.type('a/b');
    expect(await id.inputValue()).toBe('a/b');
    await page.goto(new URL('/portal/wallet', gateway.url).href);
    await page.keyboard.press('/');
    await page.getByRole('dialog', { name: 'Search' }).waitFor();
  });

  it('works as a page without scripts', async () => {
    const storageState = await person.context.storageState();
    const plain = await browsers.open({ javaScriptEnabled: false, storageState });
    await plain.page.goto(new URL('/', gateway.url).href);
    await plain.page.goto(new URL('/portal/search?q=wal', gateway.url).href);
    await plain.page.getByRole('main').getByRole('link', { name: 'Wallet Page' }).click();
    await plain.page.waitForURL(/\/portal\/wallet/);
    expect(await plain.page.getByRole('heading', { name: 'Wallet', level: 1 }).count()).toBe(1);
  });
});
