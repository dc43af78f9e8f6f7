import { describe, expect, it } from 'vitest';
import { askEngine, type Body, chatPath, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', {
      flags: ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'],
      lines: ['allow: [prompt_logprobs]'],
    }),
    think: standinFile('think', { flags: ['--reasoning-parser', 'deepseek_r1'] }),
    embed: standinFile('embed', { taskType: 'embedding', flags: ['--matryoshka'] }),
  },
}));

const completions = '/v1/completions';
const embeddings = '/v1/embeddings';
const messages = [{ role: 'user', content: 'Say something nice, é 🦙' }];
const tools = [
  {
    type: 'function',
    function: { name: 'get_weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
  },
];
const chat = { model: 'chat', messages, max_tokens: 12, temperature: 0, seed: 7 };

/** Ids, times and random tool ids differ from request to request; nothing else may. */
function normalise(text: string): string {
  return text
    .replaceAll(/"id":"(?:chatcmpl|cmpl|embd)-[^"]*"/g, '"id":"ID"')
    .replaceAll(/"created":\d+/g, '"created":0');
}

/** The gateway's permitted change to an engine's stream: it cuts usage that was not asked for. Works on the text. */
function expectedStream(text: string, wanted: { readonly final: boolean; readonly running: boolean }): string {
  const frames = text.split(/(?<=\n\n)/);
  return frames
    .map((frame) => {
      if (frame.startsWith('data: [DONE]')) return frame;
      const body: Body = JSON.parse(frame.slice(6));
      if (body.usage === undefined) return frame;
      if (body.choices.length === 0) return wanted.final ? frame : '';
      return wanted.running ? frame : frame.replace(`,"usage":${JSON.stringify(body.usage)}`, '');
    })
    .join('');
}

async function askBoth(path: string, body: Body): Promise<{ engine: string; gateway: string; headers: Headers }> {
  // The first answers start the engine and fill its prefix cache, so that both below find the same.
  await (await bench.post(path, body)).text();
  const socket = bench.socketOf(body.model);
  await askEngine(socket, path, body);
  const engine = await askEngine(socket, path, body);
  const answer = await bench.post(path, body);
  expect(answer.status).toBe(engine.status);
  return { engine: normalise(engine.text), gateway: normalise(await answer.text()), headers: answer.headers };
}

const variants: readonly [string, string, object][] = [
  ['chat', chatPath, chat],
  ['chat with two choices', chatPath, { ...chat, n: 2, temperature: 1 }],
  ['chat that stops', chatPath, { ...chat, max_tokens: 200, standin: { text: 'one two STOP three' }, stop: ['STOP'] }],
  ['chat with logprobs', chatPath, { ...chat, logprobs: true, top_logprobs: 3 }],
  [
    'chat with emoji and what looks like usage',
    chatPath,
    { ...chat, standin: { text: '🦙é\u2028 ,"usage":{"x":1} \\" }{ data: [DONE]' }, max_tokens: 90 },
  ],
  ['chat with token ids', chatPath, { ...chat, return_token_ids: true }],
  ['chat with several tokens a frame', chatPath, { ...chat, max_tokens: 40, stream_interval: 5 }],
  ['chat that calls a tool', chatPath, { ...chat, max_tokens: 200, tools, tool_choice: 'required' }],
  [
    'chat that calls a named tool',
    chatPath,
    { ...chat, max_tokens: 200, tools, tool_choice: { type: 'function', function: { name: 'get_weather' } } },
  ],
  ['chat with unknown fields', chatPath, { ...chat, 'x-unknown': { a: [1] } }],
  [
    'reasoning',
    chatPath,
    { ...chat, model: 'think', max_tokens: 60, standin: { reasoning_tokens: 10, output_tokens: 30 } },
  ],
  [
    'hidden reasoning',
    chatPath,
    {
      ...chat,
      model: 'think',
      max_tokens: 60,
      include_reasoning: false,
      standin: { reasoning_tokens: 10, output_tokens: 30 },
    },
  ],
  [
    'reasoning with two choices',
    chatPath,
    {
      ...chat,
      model: 'think',
      max_tokens: 60,
      n: 2,
      temperature: 1,
      standin: { reasoning_tokens: 5, output_tokens: 20 },
    },
  ],
  ['a completion', completions, { model: 'chat', prompt: 'Once', max_tokens: 10, temperature: 0 }],
  [
    'a completion of several prompts and choices',
    completions,
    { model: 'chat', prompt: ['One', 'Two, three'], n: 2, max_tokens: 6, seed: 5 },
  ],
  [
    'a completion with an echo and logprobs',
    completions,
    { model: 'chat', prompt: 'Once', echo: true, logprobs: 2, max_tokens: 4, temperature: 0 },
  ],
];

const usageModes: readonly [string, object, { readonly final: boolean; readonly running: boolean }][] = [
  ['without usage', {}, { final: false, running: false }],
  ['with usage refused', { stream_options: { include_usage: false } }, { final: false, running: false }],
  ['with running usage only', { stream_options: { continuous_usage_stats: true } }, { final: false, running: false }],
  ['with final usage', { stream_options: { include_usage: true } }, { final: true, running: false }],
  [
    'with running and final usage',
    { stream_options: { include_usage: true, continuous_usage_stats: true } },
    { final: true, running: true },
  ],
];

/** Tool ids are random and stand in the first frame of a call. */
const withoutToolIds = (text: string): string => text.replaceAll(/chatcmpl-tool-[0-9a-f]+/g, 'TOOL');

describe('a JSON answer', () => {
  it.each([
    ...variants,
    ['embeddings', embeddings, { model: 'embed', input: ['a', 'b'] }] as const,
    ['embeddings in base64', embeddings, { model: 'embed', input: 'a', encoding_format: 'base64' }] as const,
    ['embeddings of tokens, shortened', embeddings, { model: 'embed', input: [1, 2, 3], dimensions: 32 }] as const,
  ])("keeps the engine's bytes: %s", async (_, path, body) => {
    const { engine, gateway, headers } = await askBoth(path, body);
    expect(withoutToolIds(gateway)).toBe(withoutToolIds(engine));
    expect(headers.get('content-type')).toBe('application/json');
  });
});

describe.each(usageModes)('a stream %s', (_, options, wanted) => {
  it.each(variants)("keeps the engine's bytes except for the usage: %s", async (__, path, body) => {
    const { engine, gateway } = await askBoth(path, { ...body, stream: true, ...options });
    expect(engine.endsWith('data: [DONE]\n\n')).toBe(true);
    expect(withoutToolIds(gateway)).toBe(withoutToolIds(expectedStream(engine, wanted)));
    expect(gateway.includes('"usage":{"prompt')).toBe(wanted.final);
  });
});

describe('usage with its cost', () => {
  const include = { usage: { include: true } };

  it('adds one member without an exponent to the usage of a JSON answer', async () => {
    const { engine, gateway } = await askBoth(chatPath, { ...chat, ...include });
    const cost = /,"cost":([0-9.]+)\}/.exec(gateway);
    expect(gateway.replace(cost?.[0] ?? '', '}')).toBe(engine);
    const { usage }: Body = JSON.parse(gateway);
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    expect(usage.cost).toBeCloseTo(
      ((usage.prompt_tokens - cached) * 0.1 + cached * 0.05 + usage.completion_tokens * 0.4) / 1e6,
      12,
    );
  });

  it('adds one member to the usage chunk of a stream', async () => {
    const { engine, gateway } = await askBoth(chatPath, { ...chat, ...include, stream: true });
    const expected = expectedStream(engine, { final: true, running: false });
    expect(gateway.replace(/,"cost":[0-9.]+\}/, '}')).toBe(expected);
    expect(gateway.match(/"cost":/g)).toHaveLength(1);
  });
});
