import { readFile } from 'node:fs/promises';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  gateway = await startGateway();
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

const show = async (path: string, name: string): Promise<void> => {
  await person.page.goto(new URL(path, gateway.url).href);
  await expectPresentable(person.page, name);
};

describe('the batch pages', () => {
  it('show the progress of a batch, and download its output', async () => {
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
      page.getByRole('link', { name: 'Download results' }).click(),
    ]);
    const text = await readFile(await download.path(), 'utf8');
    expect(text.trim().split('\n')).toHaveLength(3);
    expect(person.complaints).toEqual([]);
  });
});
