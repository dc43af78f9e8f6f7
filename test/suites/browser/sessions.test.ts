import { afterAll, beforeAll, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;

beforeAll(async () => {
  gateway = await startGateway();
});

afterAll(() => gateway.stop());

it('asks to sign in at the next click after the session was ended elsewhere', async () => {
  const here = await browsers.open();
  const there = await browsers.open();
  await signIn(here.page, gateway);
  await signIn(there.page, gateway);
  await here.page.getByRole('link', { name: 'Sessions' }).click();
  await here.page.getByText('this session').waitFor();
  await here.page.getByRole('button', { name: 'End all other sessions' }).click();
  await here.page.getByText('Ended. A browser whose session has ended must sign in again').waitFor();
  await there.page.getByRole('link', { name: 'Keys', exact: true }).click();
  await there.page.getByRole('heading', { name: 'First sign-in' }).waitFor();
  await here.page.getByRole('link', { name: 'Wallet' }).click();
  await here.page.getByRole('heading', { name: 'Wallet' }).waitFor();
  await here.page.getByRole('button', { name: 'Sign out' }).click();
  await here.page.getByRole('heading', { name: 'First sign-in' }).waitFor();
  await here.page.goBack();
  expect(await here.page.getByRole('heading', { name: 'First sign-in' }).count()).toBe(1);
  expect([...here.complaints, ...there.complaints]).toEqual([]);
});

it('hides the organization that another tab views from an outdated tab', async () => {
  const made = await gateway.request('/v1/organizations', { body: { name: 'Looked at meanwhile' } });
  const { id } = (await made.json()) as { id: string };
  const { context, page: own, complaints } = await browsers.open();
  await signIn(own, gateway);
  await own.getByRole('link', { name: 'Usage', exact: true }).click();
  await own.getByRole('heading', { name: 'Requests' }).waitFor();
  const other = await context.newPage();
  await other.goto(new URL(`/portal/organizations/${id}`, gateway.url).href);
  await other.getByRole('button', { name: 'Keys', exact: true }).click();
  await other.getByText('You are viewing Looked at meanwhile').waitFor();
  // A script asks for only the numbers.
  await own.getByLabel('Group by', { exact: true }).selectOption('key');
  await own.getByText('You are viewing Looked at meanwhile').waitFor();
  await other.getByRole('button', { name: 'Back to your organization' }).click();
  await other.getByRole('heading', { name: 'Looked at meanwhile' }).waitFor();
  await own.getByLabel('Group by', { exact: true }).selectOption('model');
  await own.getByText('You are viewing Looked at meanwhile').waitFor({ state: 'detached' });
  expect(await own.getByRole('heading', { name: 'Usage' }).count()).toBe(1);
  expect(complaints).toEqual([]);
});

it('works without JavaScript', async () => {
  const { page } = await browsers.open({ javaScriptEnabled: false });
  await signIn(page, gateway);
  await page.getByRole('link', { name: 'Keys', exact: true }).click();
  await page.getByRole('link', { name: 'New key' }).click();
  await page.getByLabel('Name').fill('without a script');
  await page.getByRole('button', { name: 'Create key' }).click();
  const secret = (await page.locator('#secret').textContent()) ?? '';
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello!' }] };
  expect((await gateway.request('/v1/chat/completions', { key: secret, body })).status).toBe(200);
  await page.getByRole('link', { name: 'Requests' }).click();
  await page.getByLabel('Group by', { exact: true }).selectOption('key');
  await page.getByLabel('Measure', { exact: true }).selectOption('tokens');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.getByRole('heading', { name: 'Tokens over time' }).waitFor();
  await page.getByRole('region', { name: 'Requests, newest first' }).getByRole('link').click();
  await page.getByRole('heading', { name: 'Timing' }).waitFor();
  await page.getByText('UTC').first().waitFor();
  await page.getByRole('link', { name: 'Wallet' }).click();
  await page.getByText('Add credit').click();
  await page.getByLabel('Amount in USD').first().fill('12.34');
  await page.getByLabel('Reference').first().fill('by hand');
  await page.getByRole('button', { name: 'Post credit' }).click();
  await page.getByText('Credit added.').waitFor();
  const wallet = (await (await gateway.request('/v1/wallet')).json()) as { balance: string };
  expect(Number(wallet.balance)).toBeCloseTo(22.34, 2);
});

it("shows times in the reader's time zone, with UTC on hover, and is usable by keyboard", async () => {
  const { page } = await browsers.open({ timezoneId: 'Asia/Tokyo' });
  await signIn(page, gateway);
  await page.goto(new URL('/portal/sessions', gateway.url).href);
  const time = page.locator('time').first();
  const iso = (await time.getAttribute('datetime')) ?? '';
  const shown = new Intl.DateTimeFormat('en-GB', { timeZone: 'Asia/Tokyo', hour: '2-digit', minute: '2-digit' });
  expect(await time.textContent()).toContain(shown.format(new Date(iso)));
  expect(await time.getAttribute('title')).toBe(`${iso.slice(0, 19).replace('T', ' ')} UTC`);
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'When is it?' }] };
  await (await gateway.request('/v1/chat/completions', { body })).text();
  await page.goto(gateway.url);
  const asked = page.getByRole('region', { name: 'Requests, newest first' }).locator('time').first();
  const when = (await asked.getAttribute('datetime')) ?? '';
  expect(await asked.textContent()).toContain(shown.format(new Date(when)));
  expect(await asked.getAttribute('title')).toBe(`${when.slice(0, 19).replace('T', ' ')} UTC`);
  await page.keyboard.press('Tab');
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Skip to content');
  await page.keyboard.press('Enter');
  await page.waitForURL(({ hash }) => hash === '#main');
});

it('shows sessions and the inputs of a stack at 360 pixels without horizontal scrolling', async () => {
  const { page, complaints } = await browsers.open();
  await signIn(page, gateway);
  const module = `
    variable "words_of_a_long_name" {
      type        = list(object({ name = string, number_of_times = number }))
      description = "What is said, how often, and by whom it was asked for, in as many words as it takes to fill a line"
      default     = [{ name = "hello-to-everybody-who-reads-this", number_of_times = 12 }]
    }
    variable "secret" { sensitive = true }`;
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'words.zip'));
  form.append('name', 'words');
  const headers = { authorization: `Bearer ${gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  const { id } = (await pushed.json()) as { id: string };
  for (const [path, caption, name] of [
    ['/portal/sessions', 'Your sessions', 'sessions'],
    [`/portal/stacks/${id}`, 'Stack inputs', 'stack-inputs'],
  ] as const) {
    await page.goto(`${gateway.url}${path}`);
    await expectPresentable(page, name);
    await page.setViewportSize({ width: 360, height: 800 });
    const table = page.getByRole('region', { name: caption });
    expect(await table.evaluate((it) => it.scrollWidth - it.clientWidth), caption).toBe(0);
    expect(await table.getByRole('row').count(), caption).toBeGreaterThan(1);
  }
  expect(complaints).toEqual([]);
});

it('filters the usage page in place, with the filters in its address', async () => {
  const { page, complaints } = await browsers.open();
  await signIn(page, gateway);
  await page.goto(`${gateway.url}/portal/usage`);
  await page.getByLabel('Measure', { exact: true }).selectOption('tokens');
  await page.getByRole('heading', { name: 'Tokens over time' }).waitFor();
  await expect.poll(() => new URL(page.url()).searchParams.get('measure')).toBe('tokens');
  await page.reload();
  await page.getByRole('heading', { name: 'Tokens over time' }).waitFor();
  expect(complaints).toEqual([]);
});

it('refreshes the overview automatically until its session ends', async () => {
  const { page, complaints } = await browsers.open();
  await signIn(page, gateway);
  const rows = page.getByRole('region', { name: 'Requests, newest first' }).locator('tbody tr');
  const before = await rows.count();
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello!' }] };
  await (await gateway.request('/v1/chat/completions', { body })).text();
  await expect.poll(() => rows.count()).toBe(before + 1);
  expect(await rows.first().locator('time').getAttribute('data-local')).toBe('');
  await gateway.db.sql`update sessions set ended_at = now()`;
  await page.getByRole('heading', { name: 'First sign-in' }).waitFor();
  expect(complaints).toEqual([]);
});
