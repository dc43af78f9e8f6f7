import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
const dayMs = 86_400_000;
const dayAgo = (days: number): string => new Date(Date.now() - days * dayMs).toISOString().slice(0, 10);

/** Moves the sums and histograms of today to earlier days, as if requests had been sent then. */
async function moveBack(days: number): Promise<void> {
  const { sql } = gateway.db;
  await sql`update usage_daily set day = day - ${days}::integer where day = current_date`;
  await sql`update usage_latency set hour = hour - ${days} * interval '1 day' where hour > now() - interval '1 day'`;
}

async function ask(fields: object = {}): Promise<void> {
  const messages = [{ role: 'user', content: `Count to ten. ${uuidv7()}` }];
  const body = { model: 'standin-chat', max_tokens: 8, messages, ...fields };
  await (await gateway.request('/v1/chat/completions', { body })).text();
}

beforeAll(async () => {
  gateway = await startGateway();
  await ask();
  await moveBack(40);
  await ask();
  await moveBack(3);
  for (let at = 0; at < 3; at += 1) await ask({ stream: true });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

const goto = (path: string) => person.page.goto(new URL(path, gateway.url).href);
const plot = () => person.page.getByRole('slider');

describe('the charts', () => {
  it('show the values of a day to the pointer and to the keys, and the period before', async () => {
    const { page } = person;
    await goto('/portal/usage?range=30');
    await page.locator('.chart canvas').waitFor();
    await plot().focus();
    await page.keyboard.press('End');
    expect(await page.locator('.chart-point').textContent()).toBe(dayAgo(0));
    expect(await plot().getAttribute('aria-valuetext')).toMatch(/^\d{4}-\d\d-\d\d: standin-chat \$0\.0/);
    await page.keyboard.press('ArrowLeft');
    expect(await page.locator('.chart-point').textContent()).toBe(dayAgo(1));
    await page.locator('.u-over').hover();
    expect(await page.locator('.chart-point').textContent()).toMatch(/^\d{4}-\d\d-\d\d$/);
    await page.locator('.legend').getByText('Period before').waitFor();
    await expectPresentable(page, 'chart-spend');
  });

  it('enlarge the dragged days, the selected days and one clicked day', async () => {
    const { page } = person;
    await goto('/portal/usage?range=30&measure=requests');
    const over = page.locator('.u-over');
    await over.waitFor();
    const box = await over.boundingBox();
    if (box === null) throw new Error('the chart has no place');
    const pointer = (share: number): Promise<void> => page.mouse.move(box.x + box.width * share, box.y + 40);
    await pointer(0.5);
    await page.mouse.down();
    await pointer(0.98);
    await page.mouse.up();
    await page.waitForURL(/range=dates/);
    const { searchParams } = new URL(page.url());
    expect(searchParams.get('until')).toBe(dayAgo(0));
    expect(searchParams.get('measure')).toBe('requests');
    await page.locator('.chart canvas').waitFor();
    await plot().focus();
    await page.keyboard.press('End');
    await page.keyboard.press('Shift+ArrowLeft');
    await page.keyboard.press('Enter');
    await page.waitForURL(new RegExp(`from=${dayAgo(1)}&until=${dayAgo(0)}`));
    await page.locator('.chart canvas').waitFor();
    await page.mouse.click(box.x + box.width * 0.75, box.y + 40);
    await page.waitForURL(new RegExp(`from=${dayAgo(0)}&until=${dayAgo(0)}`));
    await page.locator('.chart canvas').waitFor();
    // Hours have no address: the chart enlarges them itself.
    await plot().focus();
    await page.keyboard.press('Home');
    await page.keyboard.press('Shift+PageUp');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Escape');
    expect(new URL(page.url()).searchParams.get('from')).toBe(dayAgo(0));
  });

  it.each([
    ['first-token', 'Time to first token over time'],
    ['speed', 'Output tokens per second over time'],
    ['queued', 'Wait for capacity over time'],
    ['cached', 'Share of cached input tokens over time'],
    ['errors', 'Failed, ended and rejected requests over time'],
  ])('show %s of a model, and of each key', async (measure, title) => {
    const { page } = person;
    await goto(`/portal/usage?range=7&measure=${measure}`);
    await page.getByRole('heading', { name: title }).waitFor();
    await page.locator('.chart canvas').waitFor();
    await page.getByLabel('Group by').selectOption('key');
    await page.waitForURL(/by=key_id/);
    await page.locator('.chart canvas').waitFor();
    expect(await page.locator('.chart').count()).toBe(1);
  });

  it('show all percentiles of the only model', async () => {
    const { page } = person;
    await goto('/portal/usage?range=7&measure=first-token');
    await page.locator('.chart canvas').waitFor();
    expect(await page.locator('.legend').innerText()).toContain('standin-chat: p99');
    await plot().focus();
    await page.keyboard.press('End');
    expect(await plot().getAttribute('aria-valuetext')).toMatch(/p50 (?:\d+ ms|[\d.]+ s)/);
    await expectPresentable(page, 'chart-first-token');
  });

  it('leave tables without scripts, and show the trend on the overview', async () => {
    const { page } = person;
    await goto('/');
    await page.getByRole('heading', { name: 'Spend of the last 30 days' }).waitFor();
    await page.locator('.chart canvas').waitFor();
    await expectPresentable(page, 'overview-trend');
    const state = await person.context.storageState();
    const plain = await browsers.open({ javaScriptEnabled: false, storageState: state });
    await plain.page.goto(new URL('/portal/usage?range=7&measure=first-token', gateway.url).href);
    expect(await plain.page.getByRole('slider').count()).toBe(0);
    await plain.page.getByText('Values of each bar').click();
    await plain.page
      .getByRole('cell', { name: /^\d+ ms$|^[\d.]+ s$/ })
      .first()
      .waitFor();
    expect(person.complaints).toEqual([]);
  });
});
