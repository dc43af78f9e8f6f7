import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

const [hourMs, dayMs] = [3_600_000, 86_400_000];

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
  await signIn(person.page, gateway);
  const { data } = (await (await gateway.request('/v1/organizations')).json()) as { data: { id: string }[] };
  const node = { address: '10.0.0.7', gpus: 8 };
  const made = await gateway.request('/v1/clusters', {
    body: {
      name: 'research',
      organization_id: data[0]?.id,
      nodes: [
        { ...node, name: 'gpu-1', hardware_profile: 'h100-8x' },
        { ...node, name: 'gpu-2', hardware_profile: 'a100' },
      ],
    },
  });
  if (!made.ok) throw new Error(await made.text());
});

afterAll(() => gateway.stop());

/** The page of the cluster, with the form that allocates a node of it. */
async function openAllocation(node: string) {
  const { page } = person;
  const summary = page.locator('summary', { hasText: `${node}: allocate` });
  const form = page.locator('details', { has: summary });
  if ((await form.getAttribute('open')) === null) await summary.click();
  return { moment: form.getByLabel('Allocation time'), button: form.getByRole('button', { name: 'Allocate' }) };
}

it('allocates a node at a typed time, and shows an error for an invalid time', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/clusters', gateway.url).href);
  await page.getByRole('link', { name: 'research' }).click();
  const refused = await openAllocation('gpu-2');
  await refused.moment.fill('yesterday');
  await refused.button.click();
  await page.locator('.problem').waitFor();
  for (const node of ['gpu-1', 'gpu-2']) {
    const { moment, button } = await openAllocation(node);
    await moment.fill(new Date(Date.now() - 2 * hourMs).toISOString());
    await button.click();
    await page.getByText('Node allocated.').waitFor();
  }
  expect(person.complaints).toEqual([]);
});

it('adds a rate card that starts in the past only with the checkbox for it', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/costs/rates', gateway.url).href);
  await page.locator('summary', { hasText: 'Add a rate card' }).click();
  const form = page.locator('details[open]');
  await form.getByLabel('Hardware profile').fill('a100');
  await form.getByLabel('Currency').fill('USD');
  await form.getByLabel('GPU-hour price').fill('2.50');
  await form.getByLabel('Start').fill('2026-01-01');
  await form.getByRole('button', { name: 'Add rate card' }).click();
  await page.locator('[id="cards.effective_from-problem"]').waitFor();
  await expectPresentable(page, 'rates-refused');
  await form.getByLabel('Allow past dates').check();
  await form.getByRole('button', { name: 'Add rate card' }).click();
  await page.getByText('Rate added.').waitFor();
  await expectPresentable(page, 'rates');
  expect(person.complaints).toEqual([]);
});

it('shows costs by organization, cluster and line item with unconverted amounts, and downloads them', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/costs', gateway.url).href);
  await page.getByLabel('Currency', { exact: true }).selectOption('EUR');
  await page.getByRole('button', { name: 'Save', exact: true }).click();
  await page.getByText('Billing currency saved.').waitFor();
  const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
  const window = `from=${day(Date.now() - 2 * dayMs)}&to=${day(Date.now() + 2 * dayMs)}`;
  // The reader is in Tokyo: the report is in the zone of the request.
  await page.goto(`${gateway.url}/portal/costs?${window}&tz=America/Lima`);
  await page.getByText(new RegExp(`^\\s*${day(Date.now() - 2 * dayMs)} 00:00 until .*in America/Lima`)).waitFor();
  await page.getByText('No conversion rate from USD to EUR').waitFor();
  await page.getByText('Some hours of h100-8x in this period have no rate card').waitFor();
  // 8 GPUs for 2 hours and what has gone by since, at 2.50 USD.
  const figures = ((await page.locator('.figures', { hasText: 'Grand total' }).textContent()) ?? '').replaceAll(
    /\s+/g,
    ' ',
  );
  expect(figures).toMatch(/Grand total ?USD 4\d\.\d\d/);
  expect(figures).toMatch(/Node-hours ?4(\.\d+)? h ?GPU-hours ?3[2-9](\.\d+)? h ?Unrated hours ?2(\.\d+)? h/);
  await page.locator('summary', { hasText: 'research' }).click();
  const lines = page.getByRole('region', { name: 'Line items of research' });
  await lines.getByRole('row', { name: /a100/ }).getByText('not converted: no rate').waitFor();
  await lines
    .getByRole('row', { name: /h100-8x/ })
    .getByText('no rate card')
    .waitFor();
  await expectPresentable(page, 'costs');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'CSV', exact: true }).click(),
  ]);
  expect(download.suggestedFilename()).toMatch(/\.csv$/);
  const csv = readFileSync(await download.path(), 'utf8');
  expect(csv).toContain('BilledCost');
  expect(csv).toContain('a100');
  expect(person.complaints).toEqual([]);
});

it('shows the margins with a line for each used model', async () => {
  const { page } = person;
  const messages = [{ role: 'user', content: 'Hello' }];
  await (await gateway.request('/v1/chat/completions', { body: { model: 'standin-chat', messages } })).text();
  await page.goto(new URL('/portal/costs/margins', gateway.url).href);
  await page.getByRole('cell', { name: 'standin-chat' }).waitFor();
  await expectPresentable(page, 'margins');
  expect(person.complaints).toEqual([]);
});
