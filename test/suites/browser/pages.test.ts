import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  expectAccessible,
  expectPresentable,
  type Person,
  screenshots,
  signIn,
  useBrowsers,
  welcomeLink,
} from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
});

afterAll(() => gateway.stop());

const show = async (path: string, name: string): Promise<void> => {
  await person.page.goto(new URL(path, gateway.url).href);
  await expectPresentable(person.page, name);
};

async function ask(model: string, count: number): Promise<void> {
  for (let index = 0; index < count; index += 1) {
    const body = { model, messages: [{ role: 'user', content: `Say ${index}` }] };
    const answer = await gateway.request('/v1/chat/completions', { body });
    expect(answer.status).toBe(200);
    await answer.text();
  }
}

describe('the accessibility of every page, light and dark, at 1280 and 360 pixels', () => {
  it('has no axe violation before sign-in', async () => {
    await show('/', 'signed-out');
    await person.page.goto(await welcomeLink(gateway));
    await expectPresentable(person.page, 'welcome');
    await show('/welcome?token=used', 'welcome-stale');
    expect(person.complaints).toEqual([]);
  });

  it('has no axe violation without data', async () => {
    await signIn(person.page, gateway);
    await expectPresentable(person.page, 'overview-first');
    await show('/portal/usage', 'usage-empty');
    await show('/portal/keys?status=revoked', 'keys-empty');
    await show('/portal/wallet?type=adjustment', 'wallet-empty');
    await show('/portal/nothing', 'not-found');
    expect(person.complaints).toEqual([]);
  });

  it("has no axe violation with a day's data", async () => {
    const { page } = person;
    const body = { name: 'nightly reports', tokens_per_minute: 50_000, monthly_token_limit: 2_000_000, expiry: '30d' };
    expect((await gateway.request('/v1/keys', { body })).status).toBe(201);
    const embedded = await gateway.request('/v1/embeddings', { body: { model: 'standin-embedding', input: 'x' } });
    await embedded.text();
    await ask('standin-chat', 4);
    await show('/', 'overview');
    await show('/portal/keys', 'keys');
    await show('/portal/keys/new', 'keys-new');
    await page.getByLabel('Name').fill('my program');
    await page.getByRole('button', { name: 'Create key' }).click();
    await page.getByText('Copy the secret now').waitFor();
    await expectPresentable(page, 'keys-made');
    await page.getByRole('link', { name: 'Back to keys' }).click();
    await page.getByRole('link', { name: 'nightly reports', exact: true }).click();
    await expectPresentable(page, 'key');
    await page.getByRole('link', { name: 'Rotate secret' }).click();
    await expectPresentable(page, 'key-rotate');
    await page.getByRole('button', { name: 'Rotate secret' }).click();
    await page.getByText('Copy the secret now').waitFor();
    await expectPresentable(page, 'key-rotated');
    await page.getByRole('link', { name: 'View key', exact: true }).click();
    await page.getByRole('link', { name: 'Revoke' }).click();
    await expectPresentable(page, 'key-delete');
    await show('/portal/usage', 'usage');
    await page.getByRole('region', { name: 'Requests, newest first' }).getByRole('link').first().click();
    await page.getByRole('heading', { name: 'Request details' }).waitFor();
    await expectPresentable(page, 'request');
    await show('/portal/batches', 'batches');
    await show('/portal/wallet', 'wallet');
    await page.getByText('Add credit').click();
    await page.getByLabel('Amount in USD').first().fill('-1');
    await page.getByLabel('Reference').first().fill('x');
    await page.getByRole('button', { name: 'Post credit' }).click();
    await page.getByRole('alert').waitFor();
    await expectPresentable(page, 'wallet-refused');
    await show('/portal/playground', 'playground-first');
    await show('/portal/models', 'models');
    await show('/portal/models/standin-chat', 'model');
    await show('/portal/sessions', 'sessions');
    expect(person.complaints).toEqual([]);
  });
});

describe('the menu', () => {
  it('is one line on a narrow screen, and opens and works without JavaScript', async () => {
    const { page } = person;
    await page.setViewportSize({ width: 360, height: 800 });
    await page.goto(new URL('/portal/models', gateway.url).href);
    const header = page.getByRole('banner');
    const { height } = (await header.boundingBox()) ?? { height: Number.POSITIVE_INFINITY };
    expect(height).toBeLessThan(80);
    expect(await header.getByRole('link', { name: 'Usage' }).isVisible()).toBe(false);
    await header.getByRole('button', { name: 'Menu' }).click();
    await page.screenshot({ path: join(screenshots, 'menu-open-dark-360.png') });
    await expectAccessible(page);
    expect(await header.getByRole('button', { name: 'Sign out' }).isVisible()).toBe(true);
    await page.keyboard.press('Escape');
    expect(await header.getByRole('link', { name: 'Usage' }).isVisible()).toBe(false);
    await header.getByRole('button', { name: 'Menu' }).click();
    await header.getByRole('link', { name: 'Usage' }).click();
    await page.waitForURL('**/portal/usage');
    await page.setViewportSize({ width: 1280, height: 800 });
    expect(await header.getByRole('link', { name: 'Models' }).isVisible()).toBe(true);
    expect(await header.getByRole('button', { name: 'Menu' }).isVisible()).toBe(false);
    expect(person.complaints).toEqual([]);
  });
});
