import { rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';
import { playgroundOf } from './playground-page.ts';

const browsers = useBrowsers();
const hostile = [
  '<img src=x onerror=alert(1)><script>alert(2)</script>',
  '"><svg onload=alert(3)>',
  '[go](javascript:alert(4)) ![x](https://evil.example/x.png)',
  '</pre></article><iframe srcdoc="<script>alert(5)</script>">',
].join('\n');
const markdown = [
  '# Plan <b>x</b>',
  '1. **bold** and `code`',
  '2. [docs](https://example.com/a?b) [mail](mailto:a@example.com) [bad](javascript:alert(6)) [own](/portal/keys)',
  '',
  '| a | b |',
  '|---|---|',
  '| 1 | 2 |',
  '',
  '```js',
  'const a = "<i>";',
  '```',
].join('\n');
let gateway: TestGateway;
let person: Person;
let folder = '';

beforeAll(async () => {
  folder = writeEngines({
    other: standinFile('other', { flags: ['--output-tokens', '9'] }),
    hostile: standinFile('hostile', { flags: ['--text', hostile] }),
    markdown: standinFile('markdown', { flags: ['--text', markdown] }),
    embed: standinFile('embed', { taskType: 'embedding' }),
    sorter: standinFile('sorter', { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] }),
    writer: standinFile('writer', { taskType: 'completion', flags: ['--text', 'there was <b>one</b>'] }),
  });
  gateway = await startGateway({ enginesDir: folder });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const { open, ask, answers, ended } = playgroundOf(() => [person, gateway]);

describe('a conversation in the playground', () => {
  it('shows hostile Markdown without HTML, images or links to scripts', async () => {
    const { page } = person;
    await open('hostile');
    await ask(hostile);
    await ended('complete').waitFor();
    const shown = answers().locator('.answer-text');
    expect(await shown.locator(':not(p, br, a)').count()).toBe(0);
    expect(await shown.locator('a').evaluateAll((links) => links.map(({ href }) => href))).toEqual([
      'https://evil.example/x.png',
    ]);
    expect(await shown.textContent()).toContain('<img src=x onerror=alert(1)>');
    expect(await page.locator('.asked').textContent()).toBe(hostile);
    await page.getByLabel('Plain text').check();
    expect(await shown.textContent()).toBe(hostile);
    expect(await shown.locator('*').count()).toBe(0);
    await page.reload();
    await ended('complete').waitFor();
    expect(await shown.textContent()).toBe(hostile);
    await page.getByLabel('Plain text').uncheck();
    expect(await shown.locator(':not(p, br, a)').count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });

  it('shows Markdown, and copies an answer and its code', async () => {
    const { context, page } = person;
    await context.grantPermissions(['clipboard-read', 'clipboard-write']);
    const copied = () => page.evaluate<string>('navigator.clipboard.readText()');
    await open('markdown');
    await ask('Plan');
    await ended('complete').waitFor();
    const shown = answers().locator('.answer-text');
    expect(await shown.locator('h3').textContent()).toBe('Plan <b>x</b>');
    expect(await shown.locator('ol > li strong').textContent()).toBe('bold');
    expect(await shown.locator('td').allTextContents()).toEqual(['1', '2']);
    const links = await shown.locator('a').evaluateAll((all) => all.map(({ href, rel }) => [href, rel]));
    expect(links.map(([href]) => href)).toEqual(['https://example.com/a?b', 'mailto:a@example.com']);
    expect(links.every(([, rel]) => rel?.includes('noopener'))).toBe(true);
    await shown.getByRole('button', { name: 'Copy' }).click();
    await shown.getByText('Copied').waitFor();
    expect(await copied()).toBe('const a = "<i>";\n');
    await answers().getByRole('button', { name: 'Copy answer' }).click();
    await answers().locator('.answer-actions').getByText('Copied').waitFor();
    expect(await copied()).toBe(markdown);
    await expectPresentable(page, 'playground-markdown');
  });

  it('keeps the conversation, the draft and the settings for the tab, until a new conversation', async () => {
    const { page } = person;
    await open('other');
    await page.locator('#settings > summary').click();
    await page.getByLabel('Seed').fill('3');
    await ask('First');
    await ended('complete').waitFor();
    const [text, numbers] = [answers().locator('.answer-text'), answers().locator('.answer-numbers')];
    const before = [await text.textContent(), await numbers.textContent()];
    await page.getByLabel('Message').fill('A draft');
    await page.getByRole('link', { name: /details: request/ }).click();
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.goBack();
    await page.locator('#playground').waitFor();
    expect([await text.textContent(), await numbers.textContent()]).toEqual(before);
    await page.reload();
    await page.locator('#playground').waitFor();
    expect([await text.textContent(), await numbers.textContent()]).toEqual(before);
    expect(await page.getByLabel('Message').inputValue()).toBe('A draft');
    expect(await page.getByLabel('Seed').inputValue()).toBe('3');
    const sent = page.waitForRequest('**/portal/playground/chat');
    await ask('Second');
    const { messages, seed } = (await sent).postDataJSON() as { messages: { content: string }[]; seed: number };
    expect([seed, messages.map(({ content }) => content)]).toEqual([3, ['First', before[0], 'Second']]);
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').waitFor();
    await page.getByRole('button', { name: 'New conversation' }).click();
    await page.reload();
    await page.locator('#playground').waitFor();
    expect(await page.locator('.exchange').count()).toBe(0);
    expect(person.complaints).toEqual([]);
  });

  it('edits a message, and regenerates the last answers of both sides with the same messages', async () => {
    const { page } = person;
    await open('other');
    for (const [at, text] of ['One', 'Two'].entries()) {
      await ask(text);
      await page.locator(`.exchange:nth-child(${at + 1}) .answer[data-ended="complete"]`).waitFor();
    }
    await page.locator('.exchange:nth-child(2)').getByRole('button', { name: 'Edit' }).click();
    expect(await page.getByLabel('Message').inputValue()).toBe('Two');
    expect(await page.locator('.exchange').count()).toBe(1);
    await page.getByLabel('Compare with').selectOption('markdown');
    await ask('Three');
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').nth(1).waitFor();
    const bodies: { model: string; messages: { role: string; content: string }[] }[] = [];
    const note = (request: { url(): string; postDataJSON(): unknown }) => {
      if (request.url().endsWith('/chat')) bodies.push(request.postDataJSON() as (typeof bodies)[number]);
    };
    page.on('request', note);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await expect.poll(() => bodies.length).toBe(2);
    page.off('request', note);
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').nth(1).waitFor();
    expect(await answers().locator('h2').allTextContents()).toEqual(['other', 'markdown']);
    const said = bodies.map(({ messages }) => messages.filter(({ role }) => role === 'user').map((one) => one.content));
    expect(said).toEqual([
      ['One', 'Three'],
      ['One', 'Three'],
    ]);
  });

  it('shows vectors with their similarity, a ranking and a completion', async () => {
    const { page } = person;
    await open('embed#calls');
    const [model, result] = [page.getByLabel('Model for one request'), page.locator('#call-result')];
    const run = () => page.getByRole('button', { name: 'Run request' }).click();
    expect(await model.inputValue()).toBe('embed');
    await run();
    await page.getByText('Texts is empty').waitFor();
    await page.getByLabel('Texts').fill('A cat\nA dog');
    await run();
    const similar = result.getByRole('table', { name: 'Cosine similarity' });
    await similar.waitFor();
    expect((await similar.locator('td').allTextContents())[1]).toBe('1.000');
    expect(await result.getByRole('table', { name: 'Vectors' }).locator('tbody tr').count()).toBe(2);
    await expectPresentable(page, 'playground-embeddings');
    await model.selectOption('sorter');
    await page.getByLabel('Query').fill('cat');
    await page.getByLabel('Documents').fill('A dog\nA cat');
    await page.keyboard.press('Control+Enter');
    await result.getByRole('table', { name: 'Ranking' }).waitFor();
    expect(await result.locator('tbody tr').count()).toBe(2);
    await model.selectOption('writer');
    await page.getByLabel('Prompt', { exact: true }).fill('Once');
    await run();
    await result.getByText('there was <b>one</b>').waitFor();
    await page
      .locator('#call-state')
      .getByRole('link', { name: /details: request/ })
      .waitFor();
    expect(person.complaints).toEqual([]);
  });
});
