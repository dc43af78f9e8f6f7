import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

/** A person who compares the versions of a stack and goes back to an earlier one. */

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;

async function push(text: string): Promise<void> {
  const main = `variable "size" {\n  default = ${text}\n}\noutput "said" {\n  value = var.size\n}\n`;
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': main, [`notes-${text}.txt`]: text }))], 'x.zip'));
  form.append('name', 'queue');
  const headers = { authorization: `Bearer ${gateway.key}` };
  await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
}

beforeAll(async () => {
  gateway = await startGateway();
  for (const text of ['1', '2', '3']) await push(text);
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(() => gateway.stop());

it('are compared, downloaded, applied and reverted to on the page of the stack', async () => {
  const { page } = person;
  await page.goto(new URL('/portal/stacks/queue', gateway.url).href);
  await page.getByRole('heading', { name: 'Versions' }).waitFor();
  await expectPresentable(page, 'stack-versions');
  const ofFirst = page
    .getByRole('row')
    .filter({ hasText: /Revert/ })
    .last();
  const download = page.waitForEvent('download');
  await ofFirst.getByRole('link', { name: 'Download' }).click();
  expect((await download).suggestedFilename()).toBe('queue-1.zip');
  await ofFirst.getByRole('link', { name: 'Compare with newest' }).click();
  await page.getByRole('heading', { name: 'queue: version 1 to 3' }).waitFor();
  await page.getByText('-  default = 1', { exact: true }).waitFor();
  await page.getByText('notes-3.txt', { exact: true }).waitFor();
  await expectPresentable(page, 'stack-versions-compared');
  await page.getByRole('link', { name: 'Back to queue' }).click();
  await ofFirst.getByRole('link', { name: 'Apply' }).click();
  await page.getByRole('heading', { name: 'Apply queue, version 1' }).waitFor();
  await page.goBack();
  await ofFirst.getByRole('link', { name: 'Revert' }).click();
  await page.getByRole('button', { name: 'Revert to version 1' }).click();
  await page.getByText('Reverted: version 4 has the package of an earlier version.').waitFor();
  expect(person.complaints).toEqual([]);
});
