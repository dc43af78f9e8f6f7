import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signIn, useBrowsers, welcomeLink } from './browser.ts';

/** The pages with only a keyboard. */

const browsers = useBrowsers();
let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.stop());

interface Focused {
  readonly text: string;
  /** Its name as a field, else its address. */
  readonly name: string;
  readonly isSeen: boolean;
}

/** The element that has the focus; `isSeen` where that shows. */
const focused = (page: Page): Promise<Focused> =>
  page.evaluate(() => {
    const { document, getComputedStyle } = globalThis as unknown as Browser;
    const element = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return {
      text: element.textContent.trim(),
      name: element.getAttribute('name') ?? element.getAttribute('href') ?? '',
      isSeen: outlineStyle !== 'none' && outlineWidth !== '0px' && box.width > 0 && box.left >= 0,
    };
  });

interface Browser {
  readonly document: { readonly activeElement: Element };
  readonly getComputedStyle: (element: Element) => { readonly outlineStyle: string; readonly outlineWidth: string };
}

interface Element {
  readonly textContent: string;
  getAttribute(name: string): string | null;
  getBoundingClientRect(): { readonly left: number; readonly width: number };
}

/** Goes on by Tab until something of this text or name has the focus; whatever has it on the way shows it. */
async function tabTo(page: Page, wanted: string): Promise<void> {
  const passed: string[] = [];
  for (let pressed = 0; pressed < 80; pressed += 1) {
    await page.keyboard.press('Tab');
    const { text, name, isSeen } = await focused(page);
    if (!isSeen && text + name !== '') throw new Error(`${text} ${name} has the focus, and nothing shows it`);
    if (text === wanted || name === wanted) return;
    passed.push(name === '' ? text : name);
  }
  throw new Error(`${wanted} was never reached: ${passed.join(', ')}`);
}

it('signs in, skips the menu, creates a key and deletes it by keyboard', async () => {
  const { page, complaints } = await browsers.open();
  await page.goto(await welcomeLink(gateway));
  await tabTo(page, 'Sign in');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.goto(`${gateway.url}/portal/keys`);
  await page.keyboard.press('Tab');
  expect(await focused(page)).toMatchObject({ text: 'Skip to content', isSeen: true });
  await page.keyboard.press('Enter');
  // The menu is behind it now.
  await page.keyboard.press('Tab');
  expect(await focused(page)).toMatchObject({ text: 'New key' });
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'New key' }).waitFor();
  await tabTo(page, 'name');
  await page.keyboard.type('by keyboard');
  await page.keyboard.press('Enter');
  await page.getByText('Copy the secret now: it is shown only once.').waitFor();
  await tabTo(page, 'Back to keys');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Keys' }).waitFor();
  await tabTo(page, 'by keyboard');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Revoke by keyboard?' }).waitFor();
  await tabTo(page, 'Revoke by keyboard');
  await page.keyboard.press('Enter');
  await page.getByText('Key revoked.').waitFor();
  expect(complaints).toEqual([]);
});

it('sends a form once when its button is pressed twice', async () => {
  const { page } = await browsers.open();
  await signIn(page, gateway);
  await page.goto(`${gateway.url}/portal/keys/new`);
  await page.getByLabel('Name').fill('pressed twice');
  await page.getByRole('button', { name: 'Create key' }).dblclick();
  await page.getByText('Copy the secret now: it is shown only once.').waitFor();
  const { data } = (await (await gateway.request('/v1/keys')).json()) as { data: { name: string }[] };
  expect(data.filter(({ name }) => name === 'pressed twice')).toHaveLength(1);
});

it('keeps the focus when a part of the page is refreshed', async () => {
  const { page } = await browsers.open();
  await signIn(page, gateway);
  await page.goto(`${gateway.url}/portal/engines`);
  const second = page.locator('#live a').nth(1);
  await second.focus();
  const before = await focused(page);
  const isPoll = (url: string): boolean => url === `${gateway.url}/portal/engines`;
  for (const time of ['once', 'twice']) {
    await page.waitForResponse((response) => isPoll(response.url()));
    await expect.poll(() => focused(page), { message: time }).toEqual(before);
  }
  await page.keyboard.press('Tab');
  expect((await focused(page)).name).not.toBe(before.name);
});

it('opens the menu of a narrow window, and closes it by Escape with the focus on its button', async () => {
  const { page } = await browsers.open({ viewport: { width: 360, height: 740 } });
  await signIn(page, gateway);
  await tabTo(page, 'Menu');
  await page.keyboard.press('Enter');
  await tabTo(page, '/portal/keys');
  await page.keyboard.press('Escape');
  expect(await page.locator('#pages').isVisible()).toBe(false);
  expect((await focused(page)).text).toBe('Menu');
});

it('groups the pages of the menu under headings, and marks the current page', async () => {
  const { page } = await browsers.open();
  await signIn(page, gateway);
  await page.goto(`${gateway.url}/portal/costs/rates`);
  const menu = page.getByRole('navigation', { name: 'Pages' });
  const headings = ['Inference', 'Infrastructure', 'Administration', 'Platform'];
  expect(await menu.locator('.menu-heading').allTextContents()).toEqual(headings);
  const costs = menu.getByRole('list', { name: 'Infrastructure' }).getByRole('link', { name: 'Costs' });
  expect(await costs.getAttribute('aria-current')).toBe('page');
  expect(await menu.locator('[aria-current]').count()).toBe(1);
});
