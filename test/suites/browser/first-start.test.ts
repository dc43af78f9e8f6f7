import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { useProcesses } from '#test/programs/gateway-process.ts';
import { useBrowsers } from './browser.ts';

const run = promisify(execFile);
const processes = useProcesses();
const browsers = useBrowsers();

it('leads from the first start by link, key and copied curl command to the logged request with its cost', async () => {
  const home = processes.home();
  const gateway = processes.run({ home, databaseUrl: await processes.database() });
  const [link = ''] = await gateway.printed(/http:\S+\/welcome\?token=\S+/);
  const { page, complaints } = await browsers.open({ permissions: ['clipboard-read', 'clipboard-write'] });

  await page.goto(link);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  expect(new URL(page.url()).search).toBe('');
  await page.getByText('No requests yet').waitFor();

  await page.getByRole('link', { name: 'Create key' }).click();
  await page.getByLabel('Name').fill('my first program');
  await page.getByRole('button', { name: 'Create key' }).click();
  const curl = page.locator('#snippet-curl');
  await page.locator('button[data-copy="snippet-curl"]').click();
  await page.getByRole('button', { name: 'Copied' }).waitFor();
  const copied = String(await page.evaluate('navigator.clipboard.readText()'));
  expect(copied).toBe(await curl.textContent());

  const { stdout } = await run('bash', ['-c', `${copied} -sS`]);
  const answer = JSON.parse(stdout) as { choices: unknown[]; usage: { prompt_tokens: number } };
  expect(answer.choices).toHaveLength(1);

  await page.getByRole('link', { name: 'Overview' }).click();
  const requests = page.getByRole('region', { name: 'Requests, newest first' });
  const row = requests.locator('tbody tr');
  expect(await row.count()).toBe(1);
  const cells = await row.locator('td').allTextContents();
  expect(cells.slice(1, 4)).toEqual(['chat', 'my first program', 'completed']);
  expect(cells[4]).toBe(String(answer.usage.prompt_tokens));
  const cost = cells.at(-1) ?? '';
  expect(cost).toMatch(/^\$0\.0*[1-9]/);

  await requests.getByRole('link').click();
  await page.getByRole('heading', { name: 'Request details' }).waitFor();
  await page.getByText(cost).first().waitFor();
  await page.getByRole('img', { name: /Timing of .*, to scale/ }).waitFor();
  expect(complaints).toEqual([]);

  // A second browser finds that the link was used.
  const other = await browsers.open();
  await other.page.goto(link);
  await other.page.getByRole('heading', { name: 'This link no longer works' }).waitFor();
});
