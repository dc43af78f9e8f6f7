import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let enginesDir: string;
let gateway: TestGateway;
let person: Person;

/** The shipped engines, of which one is sold at another price while it has room. */
async function enginesWithFlex(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'hg-engines-'));
  await cp(new URL('../../../engines/', import.meta.url), folder, { recursive: true });
  const file = join(folder, 'standin-chat.yaml');
  const text = await readFile(file, 'utf8');
  if (!text.includes('flex_multiplier')) {
    await writeFile(file, text.replace(/^( +)output_per_million: .*$/m, '$&\n$1flex_multiplier: 0.5'));
  }
  return folder;
}

beforeAll(async () => {
  enginesDir = await enginesWithFlex();
  gateway = await startGateway({ enginesDir });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  await rm(enginesDir, { recursive: true });
});

const show = async (path: string, name: string): Promise<void> => {
  await person.page.goto(new URL(path, gateway.url).href);
  await expectPresentable(person.page, name);
};

describe('the pages of budgets', () => {
  it('refuse what is no amount, make one, show how far it is spent, change and delete it', async () => {
    const { page } = person;
    await show('/portal/budgets', 'budgets-empty');
    await page.getByRole('link', { name: 'New budget' }).click();
    await page.getByLabel('Of', { exact: true }).selectOption('Each end user');
    await page.getByLabel('Amount in USD').fill('much');
    await page.getByRole('button', { name: 'Make the budget' }).click();
    await page.getByRole('alert').first().waitFor();
    await expectPresentable(page, 'budget-refused');
    await page.getByLabel('Amount in USD').fill('0.000001');
    await page.getByRole('button', { name: 'Make the budget' }).click();
    await page.getByText('The budget is made.').waitFor();
    await expectPresentable(page, 'budgets');
    const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello' }], user: 'anna' };
    const refused = await gateway.request('/v1/chat/completions', { body });
    expect(refused.status).toBe(402);
    await page.getByRole('row').nth(1).getByRole('link').first().click();
    await expectPresentable(page, 'budget');
    await page.getByLabel('Amount in USD').fill('25');
    await page.getByRole('button', { name: /Save/ }).click();
    await page.getByText('The budget is changed.').waitFor();
    expect((await gateway.request('/v1/chat/completions', { body })).status).toBe(200);
    expect(person.complaints).toEqual([]);
  });
});

describe('the pages of batches', () => {
  it('show how far one is, and hand its output out', async () => {
    const { page } = person;
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.key });
    const messages = [{ role: 'user', content: 'Hello' }];
    const lines = [1, 2, 3].map((id) =>
      JSON.stringify({
        custom_id: `line-${id}`,
        method: 'POST',
        url: '/v1/chat/completions',
        body: { model: 'standin-chat', messages },
      }),
    );
    const file = await client.files.create({
      purpose: 'batch',
      file: await toFile(Buffer.from(lines.join('\n')), 'a.jsonl'),
    });
    const made = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
    const { id } = await client.batches.create({ ...made, metadata: { what: 'a <b>hostile</b> note' } });
    await expect.poll(async () => (await client.batches.retrieve(id)).status).toBe('completed');
    await show('/portal/batches', 'batches-some');
    await page.getByRole('link', { name: id }).click();
    await page.getByText('a <b>hostile</b> note').waitFor();
    await expectPresentable(page, 'batch');
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download the answers' }).click(),
    ]);
    const text = await readFile(await download.path(), 'utf8');
    expect(text.trim().split('\n')).toHaveLength(3);
    expect(person.complaints).toEqual([]);
  });
});
