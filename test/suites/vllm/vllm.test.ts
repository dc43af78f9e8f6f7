import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  askEngine,
  type Body,
  chatPath,
  errorOf,
  eventually,
  framesOf,
  openOrganization,
  readMetric,
} from '#test/inference/inference-gateway.ts';
import { engineRecords, isAlive, onlyEngine, readFrames } from '#test/programs/gateway-process.ts';
import { bench } from './real-engine.ts';
import { describeRoutes } from './routes.ts';

// A real vLLM through the process driver. One serves all of these tests, in their order: the first one starts it, the
// last one sees it end while it is busy. One that ends at leisure is in the suite docker-vllm.

const question = { messages: [{ role: 'user', content: 'What is the capital of France?' }], temperature: 0 };
const longStory = {
  messages: [{ role: 'user', content: 'Tell a very long story.' }],
  temperature: 0,
  ignore_eos: true,
};
const weatherTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'Weather of a city',
    // Since 0.32, vLLM holds only to the schemas of strict tools.
    strict: true,
    parameters: {
      type: 'object',
      properties: { city: { type: 'string', enum: ['Paris', 'Rome'] }, unit: { type: 'string', enum: ['c', 'f'] } },
      required: ['city', 'unit'],
      additionalProperties: false,
    },
  },
};

const socket = (): string => bench.socketOf('chat');
const generated = (): Promise<number> => readMetric(socket(), 'vllm:generation_tokens_total');
const idle = (): Promise<true> =>
  eventually(async () => (await readMetric(socket(), 'vllm:num_requests_running')) === 0);

/** Every process of an engine: it leads a group of its own. */
function groupOf(leader: number): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]) === leader && isAlive(pid);
    } catch {
      return false;
    }
  });
}

/** The part of an engine's stream that a client without usage sees; ids and times are the request's own. */
function withoutUsage(text: string): string {
  const frames = normalised(text).split(/(?<=\n\n)/);
  return frames
    .filter((frame) => !frame.includes('"choices":[],"usage":'))
    .map((frame) => frame.replace(/,"usage":\{[^{}]*\}/, ''))
    .join('');
}

function normalised(text: string): string {
  return text.replaceAll(/"id":"[^"]*"/g, '"id":"ID"').replaceAll(/"created":\d+/g, '"created":0');
}

/** A model of few layers would write spaces wherever an argument may have them, up to its limit. */
async function biasToJson(): Promise<object> {
  const parts = ['"', ':', ',', '}', '<|im_end|>'].map(async (prompt) => {
    const { tokens }: Body = await (await bench.post('/v1/tokenize', { model: 'chat', prompt })).json();
    return [tokens[0], 100];
  });
  return Object.fromEntries(await Promise.all(parts));
}

async function expectBilled(answer: Response, usage: Body): Promise<void> {
  expect(await bench.recordOf(answer)).toMatchObject({
    outcome: 'completed',
    usage_source: 'engine',
    input_tokens: usage.prompt_tokens,
    output_tokens: usage.completion_tokens,
  });
}

describe('a cold vLLM', () => {
  it('is started once for all waiting requests, and streams get comments meanwhile', async () => {
    const streams = [1, 2, 3].map(() => bench.chat({ ...question, stream: true }));
    const answers = await Promise.all([...streams, bench.chat(question)]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    for (const answer of answers.slice(0, 3)) {
      const text = await answer.text();
      expect(text).toMatch(/^(?:: [^\n]+\n)+data: \{/);
      expect(framesOf(text).at(-1)).toBe('[DONE]');
    }
    const [json] = answers.slice(3);
    expect(json?.headers.get('x-headgate-start')).toBe('cold');
    expect(await json?.json()).toMatchObject({ object: 'chat.completion', model: 'chat' });
    expect(engineRecords(bench.gateway.dataDir)).toHaveLength(1);
    expect(bench.gateway.logLines.filter((line) => line.includes('"started an engine"'))).toHaveLength(1);
  });
});

describe('a request that vLLM rejects', () => {
  it.each([
    ['a prompt too long', { messages: [{ role: 'user', content: 'word '.repeat(3000) }] }, /^context_length_exceeded$/],
    ['more output than the context', { ...question, max_tokens: 100_000 }, /^context_length_exceeded$/],
    ['a temperature below zero', { ...question, temperature: -1 }, /^invalid_value$/],
    ['messages of a wrong type', { messages: 'the-prompt-marker' }, /^(?:invalid_request_error|invalid_value)$/],
    ['an image', { messages: [imageMessage()] }, /^(?:invalid_request_error|unsupported_parameter)$/],
  ])("returns 400 with Headgate's message: %s", async (_, fields, code) => {
    const answer = await bench.chat(fields);
    const error = await errorOf(answer);
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
    expect(error.code).toMatch(code);
    expect(error.message).not.toMatch(/validation error|the-prompt-marker|vllm|BadRequest|max_model_len|parameter=/i);
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'failed', cost: '0' });
  });
});

function imageMessage(): object {
  const url =
    'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
  return { role: 'user', content: [{ type: 'image_url', image_url: { url } }] };
}

describe('a field that vLLM rejects', () => {
  it.each<[object, string, string]>([
    [{ logprobs: true, top_logprobs: 50 }, 'top_logprobs', 'from 0 to 20'],
    [{ top_logprobs: 3 }, 'top_logprobs', 'requires "logprobs": true'],
    [{ structured_outputs: { json: { type: 'nosuch' } } }, 'structured_outputs.json', 'schema'],
    [{ structured_outputs: { choice: [] } }, 'structured_outputs.choice', 'at least one choice'],
    [{ structured_outputs: {} }, 'structured_outputs', 'requires one of json'],
    [{ structured_outputs: 'x' }, 'structured_outputs', 'must be an object'],
    [
      { response_format: { type: 'json_schema', json_schema: { schema: {} } } },
      'response_format.json_schema.name',
      'is missing',
    ],
    [{ response_format: { type: 'nosuch' } }, 'response_format.type', '"json_schema"'],
    [{ tools: [] }, 'tools', 'at least one tool'],
    [{ tools: [{ type: 'function' }] }, 'tools[0].function', 'is missing'],
    [{ tool_choice: 'auto' }, 'tool_choice', 'requires "tools"'],
    [{ max_completion_tokens: 99_999 }, 'max_completion_tokens', '2048'],
    [{ stop: 5 }, 'stop', 'a string or a list'],
    [{ top_k: -5 }, 'top_k', 'at least 1'],
    [{ seed: 'x' }, 'seed', 'a whole number'],
    [{ messages: [] }, 'messages', 'at least one message'],
    [{ messages: [{ content: 'x' }] }, 'messages[0].role', 'is missing'],
    [{ messages: [{ role: 'user', content: [{ type: 'nosuch' }] }] }, 'messages', '"type" must be "text", "image_url"'],
    [{ messages: [{ role: 'user', content: 'word '.repeat(3000) }] }, 'messages', '2048'],
    [{ allowed_token_ids: [999_999] }, 'allowed_token_ids', 'token id'],
  ])('is named as the client wrote it, with the fix: %j', async (fields, param, says) => {
    const error = await errorOf(await bench.chat({ ...question, ...fields }));
    expect(error).toMatchObject({ status: 400, param });
    expect(error.message).toContain(says);
  });
});

describe('an answer of vLLM', () => {
  it("as JSON is billed by the engine's count", async () => {
    const answer = await bench.chat(question);
    expect(answer.headers.get('x-headgate-start')).toBe('warm');
    const body: Body = await answer.json();
    expect(body).toMatchObject({ model: 'chat', choices: [{ finish_reason: expect.any(String) }] });
    await expectBilled(answer, body.usage);
  });

  it("as a stream has the engine's bytes, and one usage chunk only if requested", async () => {
    const body = { model: 'chat', max_tokens: 16, ...question, stream: true };
    // The first one fills the prefix cache, so that all below find the same.
    await askEngine(socket(), chatPath, body);
    // A vLLM that is busy puts several tokens into a chunk, now these and now those.
    await expect
      .poll(
        async () => {
          const direct = await askEngine(socket(), chatPath, body);
          expect(direct.text).toContain('"usage"');
          const plain = await (await bench.chat(body)).text();
          expect(plain).not.toContain('"usage"');
          return { plain: normalised(plain), isSame: normalised(plain) === withoutUsage(direct.text) };
        },
        { timeout: 300_000 },
      )
      .toMatchObject({ isSame: true });

    const asked = await bench.chat({ ...body, stream_options: { include_usage: true } });
    const frames = framesOf(await asked.text());
    const withUsage = frames.filter((frame) => frame.usage !== undefined);
    expect(withUsage).toHaveLength(1);
    expect(withUsage[0]).toBe(frames.at(-2));
    expect(withUsage[0].choices).toEqual([]);
    await expectBilled(asked, withUsage[0].usage);
  });

  it('calls a required tool, as JSON and as a stream', async () => {
    const tools = { tools: [weatherTool], tool_choice: 'required' };
    const asked = { ...question, max_tokens: 120, ...tools, logit_bias: await biasToJson() };
    const answer = await bench.chat(asked);
    const body: Body = await answer.json();
    const [call] = body.choices[0].message.tool_calls;
    expect(call.function.name).toBe('get_weather');
    expect(JSON.parse(call.function.arguments)).toMatchObject({ city: expect.stringMatching(/^(?:Paris|Rome)$/) });
    await expectBilled(answer, body.usage);

    const streamed = await bench.chat({ ...asked, stream: true });
    const frames = framesOf(await streamed.text());
    const deltas = frames.flatMap((frame) => frame.choices?.[0]?.delta?.tool_calls ?? []);
    expect(deltas[0].function.name).toBe('get_weather');
    const text = deltas.map((delta) => delta.function.arguments ?? '').join('');
    expect(JSON.parse(text)).toEqual(JSON.parse(call.function.arguments));
    expect((await bench.recordOf(streamed)).output_tokens).toBe(body.usage.completion_tokens);
  });

  it('with two choices is billed for both, and for the prompt once', async () => {
    const before = await generated();
    const asked = { ...question, temperature: 1, n: 2, stream: true, stream_options: { include_usage: true } };
    const answer = await bench.chat(asked);
    const frames = framesOf(await answer.text());
    const finished = frames.filter((frame) => frame.choices?.[0]?.finish_reason);
    expect(new Set(finished.map((frame) => frame.choices[0].index))).toEqual(new Set([0, 1]));
    const { usage } = frames.at(-2);
    await expectBilled(answer, usage);
    expect((await generated()) - before).toBe(usage.completion_tokens);
  });

  it('for two prompts of plain completion is billed for both', async () => {
    const before = await generated();
    const asked = { model: 'chat', prompt: ['One, two,', 'A, B,'], max_tokens: 6, temperature: 0 };
    const answer = await bench.post('/v1/completions', asked);
    const body: Body = await answer.json();
    expect(body.choices).toHaveLength(2);
    await expectBilled(answer, body.usage);
    expect((await generated()) - before).toBe(body.usage.completion_tokens);
  });
});

describe('two organizations on one vLLM', () => {
  const confidential = {
    messages: [{ role: 'user', content: `The plan: ${'sell the mill by the river. '.repeat(20)}` }],
    temperature: 0,
    max_tokens: 1,
  };

  it("learn nothing about each other's prompts from cache or cost", async () => {
    const [one, two] = [await openOrganization(bench.gateway, '1'), await openOrganization(bench.gateway, '1')];
    const ask = async (key: string, more: object = {}): Promise<[cached: number, cost: string]> => {
      const answer = await bench.chat({ ...confidential, ...more }, { key });
      const { usage }: Body = await answer.json();
      const { cost }: Body = await bench.recordOf(answer, key);
      return [usage.prompt_tokens_details?.cached_tokens ?? 0, cost];
    };
    const [first, full] = await ask(one.key);
    expect(first).toBe(0);
    expect(await ask(two.key)).toEqual([0, full]);
    const [again, reduced] = await ask(one.key);
    expect(again).toBeGreaterThan(100);
    expect(Number(reduced)).toBeLessThan(Number(full));
    expect(await ask(two.key)).toEqual([again, reduced]);
    // The same salt of their own is another one to vLLM.
    expect(await ask(one.key, { cache_salt: 'salt' })).toEqual([0, full]);
    expect(await ask(two.key, { cache_salt: 'salt' })).toEqual([0, full]);
  });

  it('cannot store media under an id that the other one would find', async () => {
    const { content } = imageMessage() as { content: object[] };
    const named = [{ role: 'user', content: [{ ...content[0], uuid: 'logo' }] }];
    expect(await errorOf(await bench.chat({ messages: named }))).toMatchObject({
      status: 400,
      code: 'unsupported_parameter',
      param: 'messages',
    });
  });

  it('cannot make it follow a redirect, or block it by a pattern', async () => {
    const { pid } = onlyEngine(bench.gateway.dataDir);
    const environment = readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
    expect(environment).toContain('VLLM_MEDIA_URL_ALLOW_REDIRECTS=0');
    const schema = { type: 'string', pattern: '([a-z]{0,30}){0,30}' };
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
    expect(await errorOf(await bench.chat({ ...question, response_format }))).toMatchObject({ status: 400 });
  });

  it('get structured output within the limits', async () => {
    const uuid = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';
    const properties = { id: { type: 'string', pattern: uuid }, note: { type: 'string', maxLength: 20 } };
    const schema = { type: 'object', properties, required: ['id', 'note'], additionalProperties: false };
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema } };
    const answer: Body = await (await bench.chat({ ...question, max_tokens: 120, response_format })).json();
    expect(JSON.parse(answer.choices[0].message.content).id).toMatch(new RegExp(uuid));
  });
});

describe('a client that leaves', () => {
  it("is billed exactly for vLLM's tokens of a stream, and vLLM stops working", async () => {
    const before = await generated();
    const leaving = new AbortController();
    const answer = await bench.chat({ ...longStory, max_tokens: 1500, stream: true }, { signal: leaving.signal });
    await readFrames(answer, 8);
    leaving.abort();
    await idle();
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine', stream: true });
    expect(record.output_tokens).toBe((await generated()) - before);
    expect(record.output_tokens).toBeGreaterThanOrEqual(7);
    expect(record.output_tokens).toBeLessThan(1500);
  });

  it('is billed exactly for a stream of two choices and one of two prompts', async () => {
    for (const [path, fields] of [
      [chatPath, { ...longStory, model: 'chat', n: 2, temperature: 1 }],
      ['/v1/completions', { model: 'chat', prompt: ['One, two,', 'A, B,'], temperature: 0, ignore_eos: true }],
    ] as const) {
      const before = await generated();
      const leaving = new AbortController();
      const answer = await bench.post(path, { ...fields, max_tokens: 900, stream: true }, { signal: leaving.signal });
      await readFrames(answer, 10);
      leaving.abort();
      await idle();
      const record = await bench.recordOf(answer);
      expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
      expect(record.output_tokens).toBe((await generated()) - before);
    }
  });

  it('is billed exactly for a JSON request', async () => {
    const before = await generated();
    const leaving = new AbortController();
    const body = { ...longStory, max_tokens: 1500 };
    const headers = { 'x-client-request-id': 'the-one-that-left' };
    const pending = bench.chat(body, { signal: leaving.signal, headers });
    await eventually(async () => (await generated()) - before >= 5);
    leaving.abort();
    await expect(pending).rejects.toThrow('aborted');
    await idle();
    const record = await eventually(async () => {
      const list: Body = await (await bench.gateway.request('/v1/usage/requests')).json();
      return list.data.find((entry: Body) => entry.client_request_id === 'the-one-that-left') ?? null;
    });
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine', stream: false, status: 499 });
    expect(record.output_tokens).toBe((await generated()) - before);
  });

  it('after the finish chunk has a complete answer', async () => {
    const leaving = new AbortController();
    const answer = await bench.chat({ ...question, max_tokens: 6, stream: true }, { signal: leaving.signal });
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!/"finish_reason":"/.test(text)) text += (await reader?.read())?.value ?? '';
    leaving.abort();
    expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'completed', usage_source: 'engine' });
  });
});

describeRoutes();

describe('an idle vLLM', () => {
  it('ends with all its processes, even with an open JSON request, or when it hangs on SIGTERM', async () => {
    const { pid, socketPath } = onlyEngine(bench.gateway.dataDir);
    expect(groupOf(pid).length).toBeGreaterThan(1);
    // Past the gateway, so that to its mind the engine is idle.
    const stories = { model: 'chat', ...longStory, temperature: 1, n: 32, max_tokens: 1900 };
    const open = askEngine(socketPath, chatPath, stories).then(
      ({ status }) => status,
      () => 'cut' as const,
    );
    await eventually(() => Promise.resolve(groupOf(pid).length === 0));
    await eventually(async () => engineRecords(bench.gateway.dataDir).length === 0);
    // It hangs until it is killed, or answers 500 when its core is the first to end: that is a race within vLLM.
    const end = await open;
    expect([500, 'cut']).toContain(end);
    const killed = bench.gateway.logLines.join('').includes('an engine did not exit on SIGTERM');
    expect(killed || end === 500).toBe(true);
    await expect(askEngine(socketPath, '/health')).rejects.toThrow('ENOENT');
    const model: Body = await (await bench.gateway.request('/v1/models/chat')).json();
    expect(model.status).toBe('cold');
  });
});
