import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { json, text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type Body, externalFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';

/** A real agent, pi, edits a file over the protocols that it does not use where `headgate code` starts it. */

const folders = useFolders();
// Installed once for all tests of this machine, as for a user of it.
const programs = join(tmpdir(), 'hg-cli-programs');
const edit = { path: 'greeting.txt', edits: [{ oldText: 'Hello', newText: 'Good morning' }] };
const done = 'It is polite now.';

let engine: Server;
let gateway: TestGateway;
let enginesDir = '';
const asked: Body[] = [];

const frame = (event: Body): string => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

/** The events of vLLM's `/v1/responses`: the type is the last member. */
function responseOf({ request_id: id, input }: Body): string {
  const isDone = input.some(({ type }: Body) => type === 'function_call_output');
  const call = { id: 'fc_1', call_id: 'call_1', name: 'edit', status: 'completed', type: 'function_call' };
  const part = { type: 'output_text', text: done, annotations: [], logprobs: null };
  const message = { id: 'msg_1', role: 'assistant', status: 'completed', type: 'message' };
  const item = isDone ? { ...message, content: [part] } : { ...call, arguments: JSON.stringify(edit) };
  const begun = isDone ? { ...message, content: [] } : { ...call, arguments: '' };
  const place = { item_id: item.id, output_index: 0 };
  const usage = {
    input_tokens: 100,
    input_tokens_details: { cached_tokens: 0 },
    output_tokens: 20,
    output_tokens_details: { reasoning_tokens: 0 },
    total_tokens: 120,
  };
  const whole = {
    id,
    object: 'response',
    created_at: 1,
    model: 'coder',
    output: [],
    status: 'in_progress',
    usage: null,
  };
  const events: [string, object][] = [
    ['response.created', { response: whole }],
    ['response.in_progress', { response: whole }],
    ['response.output_item.added', { item: begun, output_index: 0 }],
    ...(isDone
      ? ([
          ['response.content_part.added', { ...place, content_index: 0, part: { ...part, text: '' } }],
          ['response.output_text.delta', { ...place, content_index: 0, delta: done, logprobs: [] }],
          ['response.output_text.done', { ...place, content_index: 0, text: done, logprobs: [] }],
          ['response.content_part.done', { ...place, content_index: 0, part }],
        ] as [string, object][])
      : ([
          ['response.function_call_arguments.delta', { ...place, delta: JSON.stringify(edit) }],
          ['response.function_call_arguments.done', { ...place, arguments: JSON.stringify(edit), name: 'edit' }],
        ] as [string, object][])),
    ['response.output_item.done', { item, output_index: 0 }],
    ['response.completed', { response: { ...whole, output: [item], status: 'completed', usage } }],
  ];
  return events.map(([type, event], index) => frame({ ...event, sequence_number: index, type })).join('');
}

/** The events of vLLM's `/v1/messages`. */
function messageOf({ messages }: Body): string {
  const isDone = JSON.stringify(messages).includes('tool_result');
  const start = {
    id: 'chatcmpl-1',
    type: 'message',
    role: 'assistant',
    content: [],
    model: 'coder',
    stop_reason: null,
  };
  const block = isDone ? { type: 'text', text: '' } : { type: 'tool_use', id: 'call_1', name: 'edit', input: {} };
  const delta = isDone
    ? { type: 'text_delta', text: done }
    : { type: 'input_json_delta', partial_json: JSON.stringify(edit) };
  const usage = { input_tokens: 100, output_tokens: 0 };
  return [
    { type: 'message_start', message: { ...start, usage } },
    { type: 'content_block_start', index: 0, content_block: block },
    { type: 'content_block_delta', index: 0, delta },
    { type: 'content_block_stop', index: 0 },
    {
      type: 'message_delta',
      delta: { stop_reason: isDone ? 'end_turn' : 'tool_use' },
      usage: { input_tokens: 100, output_tokens: 20 },
    },
    { type: 'message_stop' },
  ]
    .map(frame)
    .join('');
}

beforeAll(async () => {
  engine = createServer((request, response) => {
    if (request.method !== 'POST') {
      response.end('{"object":"list","data":[{"id":"coder","object":"model"}]}');
      return;
    }
    void json(request).then((body: Body) => {
      asked.push(body);
      response.setHeader('content-type', 'text/event-stream');
      response.end(request.url === '/v1/responses' ? responseOf(body) : messageOf(body));
    });
  }).listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const url = `http://127.0.0.1:${(engine.address() as AddressInfo).port}`;
  enginesDir = writeEngines({ coder: externalFile('coder', url, { lines: ['kind: vllm'] }) });
  gateway = await startGateway({ enginesDir });
});
afterAll(async () => {
  await gateway.stop();
  engine.close();
  rmSync(enginesDir, { recursive: true, force: true });
});

/** pi with settings of its own, in a folder with one file. */
async function runPi(provider: object): Promise<{ code: number | null; said: string; greeting: string }> {
  const client = { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key, XDG_DATA_HOME: programs };
  const installed = await runCli(['code', '--install-only', '--json'], { env: { ...npmSettings, ...client } });
  const { program }: { program: string } = JSON.parse(installed.stdout);
  const [cwd, settings] = [folders(), folders()];
  mkdirSync(settings, { recursive: true });
  const models = [{ id: 'coder', contextWindow: 8192, maxTokens: 2048, input: ['text'] }];
  const own = { providers: { headgate: { ...provider, apiKey: '$HEADGATE_API_KEY', models } } };
  writeFileSync(join(settings, 'models.json'), JSON.stringify(own));
  writeFileSync(join(cwd, 'greeting.txt'), 'Hello, reader.\n');
  const args = [program, '--provider', 'headgate', '--model', 'coder', '--print', 'Make the greeting polite.'];
  const quiet = { PI_CODING_AGENT_DIR: settings, PI_OFFLINE: '1', PI_SKIP_VERSION_CHECK: '1', PI_TELEMETRY: '0' };
  const { PATH, HOME } = process.env;
  const child = spawn(process.execPath, args, {
    cwd,
    env: { PATH, HOME, HEADGATE_API_KEY: gateway.key, ...quiet },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const closed = once(child, 'close');
  const [out, err] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await closed) as [number | null];
  return { code, said: out + err, greeting: readFileSync(join(cwd, 'greeting.txt'), 'utf8') };
}

/** How npm is set up on this machine, and the way to its registry. */
const npmSettings = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value = '']) =>
    /^npm_config_|_proxy$|^NODE_EXTRA_CA_CERTS$|^SSL_CERT_/i.test(name) ? [[name, value]] : [],
  ),
);

it.each([
  ['/v1/responses', (url: string) => ({ baseUrl: `${url}/v1`, api: 'openai-responses' })],
  ['/v1/messages', (url: string) => ({ baseUrl: url, api: 'anthropic-messages', authHeader: true })],
])('lets pi edit a file over %s, and bills the requests', async (path, providerAt) => {
  asked.length = 0;
  expect(await runPi(providerAt(gateway.url))).toEqual({
    code: 0,
    said: `${done}\n`,
    greeting: 'Good morning, reader.\n',
  });
  expect(JSON.stringify(asked[0])).toContain('Make the greeting polite.');
  const { data }: Body = await (await gateway.request('/v1/usage/requests?limit=2')).json();
  const counted = {
    endpoint: path,
    outcome: 'completed',
    usage_source: 'engine',
    input_tokens: 100,
    output_tokens: 20,
  };
  expect(data).toMatchObject([counted, counted]);
});
