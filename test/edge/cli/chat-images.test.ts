import { readFileSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { externalFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { repository, runCli } from '#test/cli/run-cli.ts';
import { useTerminals } from './terminal.ts';

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

const terminals = useTerminals();
const picture = `${repository}test/suites/browser/fixtures/pixel.png`;
const dataUrl = `data:image/png;base64,${readFileSync(picture).toString('base64')}`;

let gateway: TestGateway;
let engine: Server;
let folder = '';
const asked: Json[] = [];

/** A model that sees: it keeps what it was asked. */
beforeAll(async () => {
  engine = createServer((request, response) => {
    if (request.method !== 'POST') {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ object: 'list', data: [{ id: 'seer', object: 'model' }] }));
      return;
    }
    void json(request).then((body: Json) => {
      asked.push(body);
      const chunk = (choices: object[], more: object = {}) =>
        `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'seer', choices, ...more })}\n\n`;
      response.setHeader('content-type', 'text/event-stream');
      response.write(chunk([{ index: 0, delta: { role: 'assistant', content: 'One pixel.' }, finish_reason: null }]));
      response.write(chunk([{ index: 0, delta: {}, finish_reason: 'stop' }]));
      response.write(chunk([], { usage: { prompt_tokens: 50, completion_tokens: 3, total_tokens: 53 } }));
      response.end('data: [DONE]\n\n');
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => engine.once('listening', resolve));
  const address = engine.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`;
  folder = writeEngines({ seer: externalFile('seer', url, { taskType: 'vision' }) });
  gateway = await startGateway({ enginesDir: folder });
});
afterAll(async () => {
  await gateway.stop();
  engine.close();
  rmSync(folder, { recursive: true, force: true });
});

const place = () => ({ HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key });
const image = { type: 'image_url', image_url: { url: dataUrl } };

it.each([
  ['as an image', ['--image', picture]],
  ['as a file', ['-f', picture]],
])('headgate chat sends an image %s to a vision model before the text, and shows the cost', async (_, flags) => {
  const said = await runCli(['chat', '-m', 'seer', 'What is this?', ...flags], { env: place() });
  expect(said).toMatchObject({ code: 0, stdout: 'One pixel.\n' });
  expect(said.stderr).toMatch(/^seer: 50 tokens in, 3 out, \$0\.\d+\n$/);
  const { messages } = asked.at(-1);
  expect(messages).toEqual([{ role: 'user', content: [image, { type: 'text', text: 'What is this?' }] }]);
});

it('headgate chat rejects a file that is not an image without a request', async () => {
  const before = asked.length;
  const env = place();
  const text = await runCli(['chat', '-m', 'seer', 'x', '--image', `${repository}README.md`], { env });
  expect(text).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('is not a PNG, JPEG, GIF or WebP'),
  });
  const nothing = await runCli(['chat', '-m', 'seer', 'x', '--image', '/nowhere.png'], { env });
  expect(nothing).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('there is no /nowhere.png') });
  expect(asked).toHaveLength(before);
});

it('headgate chat adds an image by /file to the next message only', async () => {
  const terminal = await terminals().open(place());
  await terminal.type('headgate chat -m seer\n');
  await terminal.shows('Ctrl-D ends\n> ');
  await terminal.type(`/file ${picture}\n`);
  await terminal.type('What is this?\n');
  await terminal.shows(/What is this\?\n[^]*tokens in[^]*\n> $/m);
  await terminal.type('And now?\n');
  await terminal.shows(/And now\?\n[^]*tokens in[^]*\n> $/m);
  await terminal.key('C-d');
  const { messages } = asked.at(-1);
  expect(messages.map(({ role }: Json) => role)).toEqual(['user', 'assistant', 'user']);
  expect(messages[0].content[0]).toEqual(image);
  expect(messages[2].content).toBe('And now?');
});
