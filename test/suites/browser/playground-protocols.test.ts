import { execFile } from 'node:child_process';
import { readFileSync, rmSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';
import { playgroundOf } from './playground-page.ts';

const run = promisify(execFile);
const repository = new URL('../../../', import.meta.url).pathname;
const browsers = useBrowsers();
const code = ['```python', 'def f():  # adds', '    return "<b>" + 1', '```', '', '```unknown', 'x', '```'].join('\n');
/** prismjs takes seconds for it. */
const slowCode = ['```js', '_'.repeat(20_000), '```'].join('\n');
let gateway: TestGateway;
let person: Person;
let folder = '';

beforeAll(async () => {
  folder = writeEngines({
    other: standinFile('other', { flags: ['--output-tokens', '9'] }),
    thinker: standinFile('thinker', {
      flags: ['--reasoning-parser', 'qwen3', '--reasoning-tokens', '8', '--output-tokens', '20'],
    }),
    caller: standinFile('caller', {
      flags: ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes', '--tool-call', 'true'],
    }),
    seer: standinFile('seer', { taskType: 'vision' }),
    coder: standinFile('coder', { flags: ['--text', code] }),
    slow: standinFile('slow', { flags: ['--text', slowCode, '--max-model-len', '32768'] }),
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

type Sent = Record<string, unknown>;

async function choose(protocol: string): Promise<void> {
  await person.page.locator('#settings:not([open]) > summary').click();
  await person.page.getByLabel('Protocol').selectOption(protocol);
}

/** Sends a message, and returns the request. */
async function sent(text: string): Promise<Sent> {
  const { page } = person;
  const request = page.waitForRequest((one) => one.method() === 'POST' && one.url().includes('/portal/playground/'));
  await ask(text);
  return (await request).postDataJSON() as Sent;
}

interface Booked {
  readonly outcome: string;
  readonly endpoint: string;
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cost: string;
}

/** The numbers of the last answer, and the record of its request. */
async function shownNumbers(): Promise<{ numbers: string; booked: Booked }> {
  await ended('complete').waitFor();
  const numbers = (await answers().locator('.answer-numbers').textContent()) ?? '';
  const href = (await answers().locator('a[href^="/portal/usage/"]').getAttribute('href')) ?? '';
  const answer = await gateway.request(`/v1/usage/requests/${href.split('/').at(-1) ?? ''}`);
  return { numbers, booked: (await answer.json()) as Booked };
}

const tool = { type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } };

describe.each([
  { protocol: 'responses', route: '/v1/responses' },
  { protocol: 'messages', route: '/v1/messages' },
])('the playground with $protocol', ({ protocol, route }) => {
  it('shows the answer, the reasoning, the counts and the cost that are recorded', async () => {
    await open('thinker');
    await choose(protocol);
    await ask('Think');
    const { numbers, booked } = await shownNumbers();
    expect(booked.outcome).toBe('completed');
    expect(booked.endpoint).toBe(route);
    expect(numbers).toContain(`${booked.input_tokens} in, ${booked.output_tokens} out`);
    expect(Number(/cost \$([0-9.]+)/.exec(numbers)?.[1])).toBe(Number(booked.cost));
    expect(await answers().locator('.answer-text').textContent()).not.toBe('');
    expect(await answers().locator('details.reasoning pre').textContent()).not.toBe('');
    expect(person.complaints).toEqual([]);
  });

  it('sends the result of a tool call in the next turn', async () => {
    const { page } = person;
    await open('caller');
    await choose(protocol);
    await page.getByLabel('Tools').fill(JSON.stringify([tool]));
    await ask('Rain?');
    await ended('complete').waitFor();
    await answers().getByText('calls weather').waitFor();
    const body = JSON.stringify(await sent('{"rain": true}'));
    expect(body).toContain(protocol === 'messages' ? '"tool_result"' : '"function_call_output"');
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').waitFor();
  });

  it('offers code that runs with curl and with the official library', async () => {
    const { page } = person;
    await open('other');
    await choose(protocol);
    await page.getByLabel('System prompt').fill("Don't be long.");
    await page.getByLabel('Temperature').fill('0.5');
    await page.getByText('Copy as code').click();
    await ask('Hello');
    await ended('complete').waitFor();
    const [curl = '', python, javascript = ''] = await page.locator('#code-list pre').allTextContents();
    expect(curl).toContain(`${gateway.url}${route}`);
    expect(python).toContain(protocol === 'messages' ? '"extra_body": {' : 'client.responses.create');
    const options = { cwd: repository, env: { PATH: process.env['PATH'], HEADGATE_API_KEY: gateway.key } };
    const shell = await run('sh', ['-c', curl], options);
    expect(shell.stdout).toMatch(/message_stop|response\.completed/);
    const node = await run(process.execPath, ['--input-type=module', '--eval', javascript], options);
    expect(node.stdout).not.toBe('');
    await page.getByText('Copy as code').click();
  });

  it('is kept for the tab', async () => {
    const { page } = person;
    await open('other');
    await choose(protocol);
    await ask('First');
    await ended('complete').waitFor();
    const text = await answers().locator('.answer-text').textContent();
    await page.reload();
    await page.locator('#playground').waitFor();
    expect(JSON.stringify(await sent('Second'))).toContain(text);
    await page.locator('.exchange:nth-child(2) .answer[data-ended="complete"]').waitFor();
  });
});

describe('a request of the playground', () => {
  it('has the settings in the words of Responses', async () => {
    const { page } = person;
    await open('other');
    await choose('responses');
    await page.getByLabel('System prompt').fill('Be brief.');
    await page.getByLabel('Max output tokens').fill('7');
    await page.getByLabel('Seed').fill('42');
    await page.getByLabel('Reasoning effort').selectOption('low');
    await page.getByLabel('JSON schema').fill('{"type": "object"}');
    await page.getByLabel('Tools').fill(JSON.stringify([tool]));
    expect(await sent('Hello')).toEqual({
      model: 'other',
      instructions: 'Be brief.',
      input: [{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hello' }] }],
      max_output_tokens: 7,
      seed: 42,
      reasoning: { effort: 'low' },
      text: { format: { type: 'json_schema', name: 'answer', schema: { type: 'object' } } },
      tools: [{ type: 'function', ...tool.function }],
      store: false,
      stream: true,
    });
  });

  it('has the settings in the words of Messages, which has no seed', async () => {
    const { page } = person;
    await open('other');
    await choose('messages');
    await page.getByLabel('System prompt').fill('Be brief.');
    await page.getByLabel('Seed').fill('42');
    await page.getByLabel('Stop sequences').fill('END');
    await page.getByLabel('Reasoning effort').selectOption('low');
    await page.getByLabel('JSON schema').fill('{"type": "object"}');
    await page.getByLabel('Tools').fill(JSON.stringify([tool]));
    await ask('Hello');
    await page.getByRole('alert').getByText('Seed is not part of this protocol.').waitFor();
    expect(await page.getByLabel('Seed').evaluate((field) => field.matches(':focus'))).toBe(true);
    await page.getByLabel('Seed').fill('');
    expect(await sent('Hello')).toEqual({
      model: 'other',
      system: 'Be brief.',
      messages: [{ role: 'user', content: [{ type: 'text', text: 'Hello' }] }],
      max_tokens: 1024,
      stop_sequences: ['END'],
      output_config: { effort: 'low', format: { type: 'json_schema', schema: { type: 'object' } } },
      tools: [{ name: 'weather', input_schema: tool.function.parameters }],
      stream: true,
    });
    await expectPresentable(page, 'playground-messages');
  });

  it('has an image in the words of its protocol', async () => {
    const { page } = person;
    const icon = readFileSync(new URL('fixtures/pixel.png', import.meta.url));
    const data = icon.toString('base64');
    const images = {
      responses: { type: 'input_image', image_url: `data:image/png;base64,${data}`, detail: 'auto' },
      messages: { type: 'image', source: { type: 'base64', media_type: 'image/png', data } },
    };
    for (const [protocol, image] of Object.entries(images)) {
      await open('seer');
      await choose(protocol);
      await page.getByLabel('Image').setInputFiles({ name: 'pixel.png', mimeType: 'image/png', buffer: icon });
      const body = await sent('What is this?');
      const [turn] = (body['input'] ?? body['messages']) as { content: object[] }[];
      expect(turn?.content.at(-1)).toEqual(image);
      // The stand-in sees nothing, and says so in the words of each protocol.
      await ended('early').getByText('This model reads text only.').waitFor();
    }
  });
});

describe('code in an answer', () => {
  it('is colored when the answer has ended, and stays the same text', async () => {
    const { page } = person;
    await open('coder');
    await ask('Code');
    await ended('complete').waitFor();
    const block = answers().locator('pre[data-language="python"]');
    await block.locator('.code-keyword').first().waitFor();
    expect(await block.locator('.code-keyword').allTextContents()).toEqual(['def', 'return']);
    expect(await block.locator('.code-comment').textContent()).toBe('# adds');
    expect(await block.locator('.code-string').textContent()).toBe('"<b>"');
    expect(await block.textContent()).toBe('def f():  # adds\n    return "<b>" + 1\n');
    expect(await answers().locator('pre[data-language="unknown"] *').count()).toBe(0);
    await expectPresentable(page, 'playground-code');
    expect(person.complaints).toEqual([]);
  });

  it('is not colored if that takes long, and the page stays quick', async () => {
    await open('slow');
    await ask('Code');
    await ended('complete').waitFor();
    // The next block of code waits for the slow one.
    await person.page.getByText('Copy as code').click();
    await person.page.locator('#code-list .code-string').first().waitFor();
    expect(await answers().locator('pre[data-language="js"] *').count()).toBe(0);
    expect((await answers().locator('.answer-text pre').textContent())?.length).toBe(20_001);
  });
});
