import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { afterAll, beforeAll, expect } from 'vitest';
import { makeSignInLink } from '#core/sessions/sessions.ts';
import { createAudit } from '#core/audit/audit.ts';
import { systemClock } from '#base/clock.ts';
import { findProgram } from '#test/compose.ts';
import type { TestGateway } from '#test/gateway.ts';

/** Chromium as Debian has it, without a window. */
export interface Browsers {
  /** A browser of its own: cookies and all. What its pages complain about fails the test that asks for it. */
  open(options?: BrowserContextOptions): Promise<Person>;
}

/** Somebody at a browser. */
export interface Person {
  readonly context: BrowserContext;
  readonly page: Page;
  /** Errors of scripts, refusals of the content security policy, requests that failed. */
  readonly complaints: readonly string[];
}

/** Screenshots of every page lie here. */
export const screenshots = join(tmpdir(), 'headgate-screenshots');

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export function useBrowsers(): Browsers {
  let browser: Browser | null = null;
  const contexts: BrowserContext[] = [];
  beforeAll(async () => {
    mkdirSync(screenshots, { recursive: true });
    // Chromium without the parts that draw windows takes a quarter less of the processors.
    const found = ['chromium-headless-shell', 'chromium'].map((name) => findProgram(name, process.env));
    const executablePath = found.find((path) => path !== null) ?? '';
    browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  });
  afterAll(async () => {
    await Promise.all(contexts.map((context) => context.close()));
    await browser?.close();
  });
  return {
    async open(options = {}) {
      if (browser === null) throw new Error('there is no browser yet');
      const context = await browser.newContext({ locale: 'en-GB', timezoneId: 'Asia/Tokyo', ...options });
      contexts.push(context);
      const page = await context.newPage();
      return { context, page, complaints: listenTo(page) };
    },
  };
}

function listenTo(page: Page): string[] {
  const complaints: string[] = [];
  page.on('console', (message) => {
    // A test may ask for a page that is rejected; the browser's note of its status is no fault.
    const isStatus = message.text().startsWith('Failed to load resource: the server responded with a status of');
    if (message.type() === 'error' && !isStatus) complaints.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => complaints.push(`script: ${error.message}`));
  page.on('dialog', (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  return complaints;
}

/** The link that the first start prints, and `headgate welcome` prints again. */
export async function welcomeLink({ db, url }: Pick<TestGateway, 'db' | 'url'>): Promise<string> {
  const clock = systemClock;
  const link = await makeSignInLink({ db, clock, audit: createAudit({ clock }) });
  if (link === null) throw new Error('there is no platform admin');
  return `${url}/welcome?token=${link.token}`;
}

export async function signIn(page: Page, gateway: Pick<TestGateway, 'db' | 'url'>): Promise<void> {
  await page.goto(await welcomeLink(gateway));
  await page.getByRole('button', { name: 'Sign in' }).click();
  const overview = page.getByRole('heading', { name: 'Overview' });
  await overview.waitFor().catch(async (error: unknown) => {
    const shown = await page.locator('body').innerText({ timeout: 1000 }).catch(String);
    throw new Error(`${page.url().replace(/\?.*/, '')} shows instead of the overview: ${shown}`, { cause: error });
  });
}

interface Violation {
  readonly id: string;
  readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
}

/** Nothing that axe knows is wrong with the page as it is shown. */
export async function expectAccessible(page: Page): Promise<void> {
  // The policy of the pages lets no script in; a debugger may put one in all the same.
  await page.evaluate(axeSource);
  const violations = await page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations;
  });
  const told = violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary ?? ''}`),
  );
  expect.soft(told, page.url()).toEqual([]);
}

/** Each theme and each width once: what axe finds is of colours or of the layout, and no theme changes the layout. */
const looks = [
  { colorScheme: 'light', width: 1280 },
  { colorScheme: 'dark', width: 360 },
] as const;

/** The page light and wide, and dark and narrow: pictures of both, both looked at by axe, nothing wider than the window. */
export async function expectPresentable(page: Page, name: string): Promise<void> {
  for (const { colorScheme, width } of looks) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    await expectAccessible(page);
    await page.screenshot({ path: join(screenshots, `${name}-${colorScheme}-${width}.png`), fullPage: true });
    const overflow = await page.evaluate(() => {
      const { documentElement } = (globalThis as unknown as { document: { documentElement: Scrolled } }).document;
      return documentElement.scrollWidth - documentElement.clientWidth;
    });
    expect.soft(overflow, `${name} at ${width}`).toBe(0);
    if (width === 360) expect.soft(await scrolledTables(page), `${name} at ${width}`).toEqual([]);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}

/** Tables that are wider than their place: on a narrow screen none has to be scrolled. */
function scrolledTables(page: Page): Promise<readonly string[]> {
  return page.evaluate(() => {
    const { document } = globalThis as unknown as { document: { querySelectorAll(name: string): Iterable<Scrolled> } };
    const tables = [...document.querySelectorAll('main .table')];
    return tables.filter((one) => one.scrollWidth > one.clientWidth).map(({ ariaLabel }) => ariaLabel ?? 'a table');
  });
}

interface Scrolled {
  readonly ariaLabel?: string | null;
  readonly scrollWidth: number;
  readonly clientWidth: number;
}
