import { readFileSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';
import { playgroundOf } from './playground-page.ts';

const browsers = useBrowsers();
let gateway: TestGateway;
let person: Person;
let folder = '';

beforeAll(async () => {
  const slow = ['--tpot-ms', '100', '--output-tokens', '2000'];
  folder = writeEngines({
    asleep: standinFile('asleep', { flags: ['--start-delay-ms', '3000', '--output-tokens', '12'] }),
    other: standinFile('other', { flags: ['--output-tokens', '9'] }),
    slow: standinFile('slow', { flags: slow }),
    broken: standinFile('broken', { flags: ['--fail-start', 'bad-model'] }),
    thinker: standinFile('thinker', {
      flags: ['--reasoning-parser', 'qwen3', '--reasoning-tokens', '8', '--output-tokens', '20'],
    }),
    caller: standinFile('caller', {
      flags: ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes', '--tool-call', 'true'],
    }),
    seer: standinFile('seer', { taskType: 'vision', flags: ['--output-tokens', '6'] }),
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

interface Booked {
  readonly outcome: string;
  readonly cost: string;
  readonly output_tokens: number;
}

/** The record of the last answer's request, by the link that it has. */
async function booked(): Promise<Booked> {
  const href = (await answers().last().locator('a[href^="/portal/usage/"]').getAttribute('href')) ?? '';
  const answer = await gateway.request(`/v1/usage/requests/${href.split('/').at(-1) ?? ''}`);
  expect(answer.status).toBe(200);
  return (await answer.json()) as Booked;
}

const costShown = async (): Promise<string> =>
  /cost \$([0-9.]+)/.exec((await answers().last().locator('.answer-numbers').textContent()) ?? '')?.[1] ?? '';

describe('the playground', () => {
  it('shows the expected start time of a stopped model, then the answer with its exact cost', async () => {
    await open('asleep');
    await ask('Wake up');
    await answers()
      .getByText(/engine is starting|Starting the cold engine/)
      .waitFor();
    expect(await answers().locator('progress').isVisible()).toBe(true);
    await ended('complete').waitFor();
    expect(await answers().locator('progress').isVisible()).toBe(false);
    expect(await answers().locator('.answer-text').textContent()).not.toBe('');
    const record = await booked();
    expect(record.outcome).toBe('completed');
    expect(Number(await costShown())).toBe(Number(record.cost));
    expect(await answers().locator('.answer-numbers').textContent()).toMatch(/first token after .* tokens\/s/);
  });

  it('continues the conversation, and sends the system prompt and the parameters', async () => {
    const { page } = person;
    await open('other');
    await page.getByText('System prompt, limits, tools').click();
    await page.getByLabel('System prompt').fill('Be brief.');
    await page.getByLabel('Temperature').fill('much');
    await ask('First');
    await page.getByRole('alert').getByText('Temperature must be a number').waitFor();
    await page.getByLabel('Temperature').fill('0.5');
    await page.getByLabel('Max output tokens').fill('7');
    await ask('First');
    await ended('complete').waitFor();
    await ask('Second');
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').waitFor();
    await page.getByText('Copy as code').click();
    const curl = (await page.locator('#code-list pre').first().textContent()) ?? '';
    const body = JSON.parse(/-d '([\s\S]*)'$/.exec(curl)?.[1] ?? '') as { messages: { role: string }[] };
    expect(body).toMatchObject({ model: 'other', temperature: 0.5, max_tokens: 7 });
    expect(body.messages.map(({ role }) => role)).toEqual(['system', 'user', 'assistant', 'user']);
    const again = await gateway.request('/v1/chat/completions', { body });
    expect([again.status, (await again.text()).includes('[DONE]')]).toEqual([200, true]);
    expect(await page.locator('#code-list pre').nth(1).textContent()).toContain('"extra_body"');
  });

  it('asks two models side by side with one message', async () => {
    const { page } = person;
    await open('asleep');
    await page.getByLabel('Compare with').selectOption('other');
    await ask('Both of you');
    await page.locator('.exchange:last-child .answer[data-ended="complete"]').nth(1).waitFor();
    expect(await answers().locator('h2').allTextContents()).toEqual(['asleep', 'other']);
    await expectPresentable(page, 'playground');
  });

  it('shows the cost while the answer grows, and bills the part before a stop', async () => {
    await open('slow');
    await ask('Talk');
    const soFar = async (): Promise<number> => {
      const numbers = (await answers().locator('.answer-numbers').textContent()) ?? '';
      return Number(/tokens\/s .* \$([0-9.]+) so far/.exec(numbers)?.[1] ?? 0);
    };
    await expect.poll(soFar).toBeGreaterThan(0);
    const first = await soFar();
    await expect.poll(soFar).toBeGreaterThan(first);
    await person.page.getByRole('button', { name: 'Stop' }).click();
    await ended('early').getByText('Stopped').waitFor();
    await expect
      .poll(async () => (await (await gateway.request('/v1/wallet')).json()) as object)
      .toMatchObject({ held: '0' });
    const record = await booked();
    expect(record.outcome).toBe('aborted');
    expect(record.output_tokens).toBeGreaterThan(0);
    expect(record.output_tokens).toBeLessThan(2000);
    expect(Number(record.cost)).toBeGreaterThan(first);
  });

  it('sends all settings, explains invalid ones, and saves them as a preset', async () => {
    const { page } = person;
    await open('other');
    await page.locator('#settings > summary').click();
    await page.getByLabel('Top P').fill('0.9');
    await page.getByLabel('Seed').fill('42');
    await page.getByLabel('Stop sequences').fill('END\nSTOP');
    await page.getByLabel('Reasoning effort').selectOption('low');
    await page.getByLabel('JSON schema').fill('{"type": ');
    await ask('Hello');
    await page.getByRole('alert').getByText('JSON schema must be valid JSON').waitFor();
    expect(await page.getByLabel('JSON schema').evaluate((field) => field.matches(':focus'))).toBe(true);
    await page.getByLabel('JSON schema').fill('{"type": "object"}');
    await page.getByLabel('Preset name').fill('Precise');
    await page.getByRole('button', { name: 'Save preset' }).click();
    await page.getByText('Saved in this browser as “Precise”').waitFor();
    await page.getByLabel('Seed').fill('');
    await page.getByLabel('Preset', { exact: true }).selectOption('');
    await page.getByLabel('Preset', { exact: true }).selectOption('Precise');
    const sent = page.waitForRequest('**/portal/playground/chat');
    await ask('Hello');
    expect((await sent).postDataJSON()).toMatchObject({
      top_p: 0.9,
      seed: 42,
      stop: ['END', 'STOP'],
      reasoning_effort: 'low',
      response_format: { type: 'json_schema', json_schema: { schema: { type: 'object' } } },
    });
    await ended('complete').waitFor();
    await page.getByRole('button', { name: 'Delete preset' }).click();
    expect(await page.getByLabel('Preset', { exact: true }).locator('option').allTextContents()).toEqual(['none']);
    await expectPresentable(page, 'playground-settings');
  });

  it('chooses a ready model first, the last used one of them, and a failed one never', async () => {
    const { page } = person;
    const choice = page.getByLabel('Model', { exact: true });
    await open('other');
    await ask('Hello');
    await ended('complete').waitFor();
    await page.getByRole('button', { name: 'New conversation' }).click();
    await gateway.request('/v1/admin/engines/broken/start', { method: 'POST' });
    const statuses = async (): Promise<string[]> => {
      await page.goto(new URL('/portal/playground', gateway.url).href);
      const words = await choice.locator('option').allTextContents();
      return words.map((text) => text.split(' · ')[1]?.trim() ?? '');
    };
    await expect.poll(statuses).toContain('failed');
    const order = ['ready', 'starting', 'cold', 'failed'];
    const ranks = (await statuses()).map((status) => order.indexOf(status));
    expect(ranks).toEqual(ranks.toSorted((one, other) => one - other));
    expect(await choice.inputValue()).toBe('other');
    await open('broken');
    expect(await choice.inputValue()).toBe('broken');
  });

  it('separates reasoning from the answer, and shows tool calls as such', async () => {
    const { page } = person;
    await open('thinker');
    await ask('Think');
    await ended('complete').waitFor();
    const reasoning = answers().locator('details.reasoning');
    expect(await reasoning.getAttribute('open')).toBeNull();
    expect(await reasoning.locator('pre').textContent()).not.toBe('');
    expect(await answers().locator('.answer-text').textContent()).not.toBe('');
    await open('caller');
    await page.getByText('System prompt, limits, tools').click();
    const tool = { type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } };
    await page.getByLabel('Tools').fill('{');
    await ask('Rain?');
    await page.getByRole('alert').getByText('Tools must be valid JSON').waitFor();
    await page.getByLabel('Tools').fill(JSON.stringify([tool]));
    await ask('Rain?');
    await ended('complete').waitFor();
    await answers().getByText('calls weather').waitFor();
    await ask('{"rain": true}');
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').waitFor();
  });

  it('sends an image to a vision model, and offers no upload for other models', async () => {
    const { page } = person;
    await open('other');
    expect(await page.getByLabel('Image').isVisible()).toBe(false);
    await open('seer');
    const icon = readFileSync(new URL('fixtures/pixel.png', import.meta.url));
    await page.getByLabel('Image').setInputFiles({ name: 'pixel.png', mimeType: 'image/png', buffer: icon });
    const sent = page.waitForRequest('**/portal/playground/chat');
    await ask('What is this?');
    const { messages } = (await sent).postDataJSON() as { messages: { content: object[] }[] };
    expect(messages[0]?.content).toEqual([
      { type: 'text', text: 'What is this?' },
      { type: 'image_url', image_url: { url: `data:image/png;base64,${icon.toString('base64')}` } },
    ]);
    // The stand-in sees nothing, and says so: a refusal is shown in the API's words, with the id that the log has.
    await ended('early').waitFor();
    expect(await answers().locator('.answer-state').textContent()).toBe('This model reads text only.');
    expect(await answers().locator('.answer-numbers').textContent()).toMatch(/[0-9a-f-]{36}/);
  });

  it('ends its answer when its key is revoked and when the session is ended elsewhere', async () => {
    await open('slow');
    await ask('Talk');
    await answers()
      .getByText(/\d+ out/)
      .waitFor();
    const { data } = (await (await gateway.request('/v1/keys?status=active')).json()) as {
      data: { id: string; name: string }[];
    };
    const key = data.find(({ name }) => name === 'Playground');
    await gateway.request(`/v1/keys/${key?.id}`, { method: 'DELETE' });
    await ended('early').getByText('key was revoked').waitFor();
    await ask('Talk on');
    await answers()
      .getByText(/\d+ out/)
      .waitFor();
    await gateway.db.sql`update sessions set ended_at = now()`;
    await ended('early').getByText('session has ended').waitFor();
    expect(person.complaints).toEqual([]);
  });

  it('says without JavaScript that it requires JavaScript', async () => {
    const { context, page } = await browsers.open({ javaScriptEnabled: false });
    await signIn(page, gateway);
    await page.goto(new URL('/portal/playground', gateway.url).href);
    await page.getByText('The playground requires JavaScript').waitFor();
    expect(await page.getByRole('button', { name: 'Send' }).isVisible()).toBe(false);
    await context.close();
  });
});
