import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { at, framesOf, type StandIn, startStandIn } from '#test/standin/engine.ts';

const PATH = '/v1/chat/completions';
const JSON_TYPE = { 'content-type': 'application/json' };

let engine: StandIn;
beforeAll(async () => {
  engine = await startStandIn([
    '--enable-auto-tool-choice',
    '--tool-call-parser',
    'hermes',
    '--enable-prompt-tokens-details',
    '--max-model-len',
    '4k',
  ]);
});
afterAll(() => engine.stop());

function chat(content: string, body: object = {}): Promise<unknown> {
  return engine.post(PATH, { messages: [{ role: 'user', content }], ...body });
}

function textOf(answer: unknown): string {
  return at(answer, 'choices', 0, 'message', 'content') as string;
}

const WEATHER = {
  type: 'function',
  function: {
    name: 'get_weather',
    parameters: {
      type: 'object',
      properties: {
        city: { type: 'string' },
        unit: { type: 'string', enum: ['c', 'f'] },
        days: { type: 'integer', minimum: 2, maximum: 5 },
        share: { type: 'number', exclusiveMinimum: 0, maximum: 0.5 },
        hourly: { type: 'boolean' },
        tags: { type: 'array', items: { enum: ['wind', 'rain'] }, minItems: 2 },
        place: { $ref: '#/$defs/place' },
        note: { anyOf: [{ type: 'null' }, { type: 'string', maxLength: 3 }] },
      },
      required: ['city', 'unit', 'days', 'share', 'hourly', 'tags', 'place', 'note'],
      $defs: { place: { type: 'object', properties: { at: { type: 'string', format: 'date' } }, required: ['at'] } },
    },
  },
};

describe('an invalid request', () => {
  it.each([
    [{ top_p: 2 }, 'top_p'],
    [{ presence_penalty: 3 }, 'presence_penalty'],
    [{ stop: ['a', 'b', 'c', 'd', 'e'] }, 'stop'],
    [{ min_tokens: 9, max_tokens: 3 }, 'min_tokens'],
    [{ messages: 'hello' }, 'body.messages'],
    [{ max_tokens: 1.5 }, 'body.max_tokens'],
    [{ stream: 'perhaps' }, 'body.stream'],
    [{ cache_salt: '' }, 'body.cache_salt'],
    [{ cache_salt: 'x'.repeat(1025) }, 'body.cache_salt'],
    [{ cache_salt: 5 }, 'body.cache_salt'],
  ])('returns 400 for %j with param %s', async (body, param) => {
    const answer = await chat('x', body);
    expect(at(answer, 'error', 'code')).toBe(400);
    expect(at(answer, 'error', 'param')).toBe(param);
  });

  it.each([
    ['{"a":1,}', 'Expecting property name enclosed in double quotes', 7],
    ['{"a" 1}', "Expecting ':' delimiter", 5],
    ['{"a":}', 'Expecting value', 5],
    ['[1 2]', "Expecting ',' delimiter", 3],
    ['{"a":"b', 'Unterminated string starting at', 5],
    ['{} x', 'Extra data', 3],
  ])("returns Python's error message for the broken JSON %s", async (body, reason, offset) => {
    const answer = JSON.parse((await engine.send({ path: PATH, headers: JSON_TYPE, body })).text) as unknown;
    expect(at(answer, 'error', 'message')).toContain(reason);
    expect(at(answer, 'error', 'param')).toBe(`body.${offset}`);
  });

  it('returns 404 for an unknown model, while no model means the base model', async () => {
    expect(at(await chat('x', { model: 'nope' }), 'error', 'code')).toBe(404);
    expect(at(await chat('x', { model: '' }), 'object')).toBe('chat.completion');
    expect(at(await engine.post('/v1/completions', { prompt: 'x', model: 'nope' }), 'error', 'param')).toBe('model');
  });

  it("returns vLLM's error for several choices at temperature 0, and none with a low temperature", async () => {
    const refused = await chat('x', { n: 2, temperature: 0 });
    expect(at(refused, 'error', 'message')).toBe('n must be 1 when using greedy sampling, got 2.');
    expect(at(refused, 'error', 'param')).toBe(null);
    for (const body of [{ n: 1, temperature: 0 }, { n: 2, temperature: 0.000001 }, { n: 2 }]) {
      expect(at(await chat('x', body), 'object')).toBe('chat.completion');
    }
  });

  it('returns an error for a prompt that fills the context, and an answer when one token is left', async () => {
    const words = (count: number): string => 'word '.repeat(count).trim();
    expect(
      at(await engine.post('/v1/completions', { prompt: words(3984), max_tokens: 16 }), 'usage', 'prompt_tokens'),
    ).toBe(3984);
    const refused = await engine.post('/v1/completions', { prompt: words(3985), max_tokens: 16 });
    expect(at(refused, 'error', 'param')).toBe('input_tokens');
  });
});

describe('the prefix cache', () => {
  it('matches only requests with the same salt, and changes no word', async () => {
    const ask = async (name: string, salt?: string): Promise<[cached: number, text: string]> => {
      const content = `${name} ${'the same long prompt '.repeat(40)}`;
      const answer = await chat(content, { temperature: 0, ...(salt === undefined ? {} : { cache_salt: salt }) });
      return [at(answer, 'usage', 'prompt_tokens_details', 'cached_tokens') as number, textOf(answer)];
    };
    for (const salt of [undefined, 'a', 'b']) {
      const [first, text] = await ask('salted', salt);
      expect(first).toBeLessThanOrEqual(16);
      const [second, again] = await ask('salted', salt);
      expect(second).toBeGreaterThan(100);
      expect(again).toBe(text);
    }
    expect(new Set([(await ask('salted'))[1], (await ask('salted', 'a'))[1]]).size).toBe(1);
  });

  it('supports salts in completions too', async () => {
    const ask = (salt: string | null): Promise<unknown> =>
      engine.post('/v1/completions', { prompt: 'one more prompt '.repeat(40), max_tokens: 1, cache_salt: salt });
    const cached = async (salt: string | null): Promise<unknown> =>
      at(await ask(salt), 'usage', 'prompt_tokens_details', 'cached_tokens');
    expect([await cached('a'), await cached('b'), await cached(null)]).toEqual([0, 0, 0]);
    for (const salt of ['a', 'b', null]) expect(await cached(salt)).toBeGreaterThan(100);
  });
});

describe('text', () => {
  it('says that it is not from a model', async () => {
    expect(textOf(await chat('Hello'))).toContain('not from a model');
  });

  it('is the same for the same seed and prompt, and for temperature 0', async () => {
    const one = textOf(await chat('Hello', { seed: 4, max_tokens: 60 }));
    expect(textOf(await chat('Hello', { seed: 4, max_tokens: 60 }))).toBe(one);
    const others = await Promise.all([5, 6, 7].map((seed) => chat('Hello', { seed, max_tokens: 60 })));
    expect(others.some((other) => textOf(other) !== one)).toBe(true);
    const cold = textOf(await chat('Hello', { temperature: 0 }));
    expect(textOf(await chat('Hello', { temperature: 0 }))).toBe(cold);
  });

  it('is the same streamed as in JSON', async () => {
    const body = { seed: 9, max_tokens: 80, messages: [{ role: 'user', content: 'Naïve 🦙 日本?' }] };
    const { text } = await engine.send({ path: PATH, headers: JSON_TYPE, body: { ...body, stream: true } });
    const pieces = framesOf(text).map((frame) => (at(frame, 'choices', 0, 'delta', 'content') ?? '') as string);
    expect(pieces.join('')).toBe(textOf(await engine.post(PATH, body)));
  });

  it('continues to the limit with ignore_eos, and at least to min_tokens', async () => {
    expect(at(await chat('x', { ignore_eos: true, max_tokens: 500 }), 'usage', 'completion_tokens')).toBe(500);
    expect(
      at(await chat('x', { min_tokens: 300, max_tokens: 900 }), 'usage', 'completion_tokens'),
    ).toBeGreaterThanOrEqual(300);
  });

  it('never splits a character over frames', async () => {
    const body = { messages: [{ role: 'user', content: 'x' }], stream: true, standin: { text: '🦙🌊 日本 👩‍👩‍👧' } };
    const { text } = await engine.send({ path: PATH, headers: JSON_TYPE, body });
    expect(text).not.toContain('\\ud');
    expect(text).not.toContain('\ufffd');
  });

  it('ends at max_completion_tokens rather than max_tokens', async () => {
    const answer = await chat('x', { max_completion_tokens: 2, max_tokens: 7 });
    expect(at(answer, 'usage', 'completion_tokens')).toBe(2);
  });
});

describe('tools and formats', () => {
  it.each(['required', { type: 'function', function: { name: 'get_weather' } }, 'auto'])(
    'call a tool with arguments that match its schema (%j)',
    async (choice) => {
      const answer = await chat('What is the weather in Rome today?', {
        tools: [WEATHER],
        tool_choice: choice,
        max_tokens: 500,
      });
      const call = at(answer, 'choices', 0, 'message', 'tool_calls', 0);
      const args = JSON.parse(at(call, 'function', 'arguments') as string) as Record<string, unknown>;
      expect(at(answer, 'choices', 0, 'finish_reason')).toBe(typeof choice === 'string' ? 'tool_calls' : 'stop');
      expect(at(call, 'function', 'name')).toBe('get_weather');
      expect(args).toMatchObject({
        city: 'Rome',
        unit: 'c',
        days: 2,
        hourly: true,
        place: { at: expect.stringMatching(/^\d{4}-/) as string },
      });
      expect(args.share).toBeGreaterThan(0);
      expect(args.share).toBeLessThanOrEqual(0.5);
      expect(args.tags).toHaveLength(2);
      expect((args.note as string).length).toBeLessThanOrEqual(3);
    },
  );

  it('stream a call whose pieces join to the same arguments', async () => {
    const body = {
      messages: [{ role: 'user', content: 'Weather?' }],
      tools: [WEATHER],
      tool_choice: 'required',
      stream: true,
    };
    const { text } = await engine.send({ path: PATH, headers: JSON_TYPE, body });
    const calls = framesOf(text).map((frame) => at(frame, 'choices', 0, 'delta', 'tool_calls', 0, 'function'));
    const args = calls.map((call) => (at(call, 'arguments') ?? '') as string).join('');
    expect(calls.filter((call) => at(call, 'name') === 'get_weather')).toHaveLength(1);
    expect(Object.keys(JSON.parse(args) as object)).toHaveLength(8);
  });

  it("answer in words when no tool is named, with tool_choice none, and after a tool's result", async () => {
    const tools = [WEATHER];
    expect(textOf(await chat('What is two and two?', { tools }))).toMatch(/\w/);
    expect(textOf(await chat('The weather?', { tools, tool_choice: 'none' }))).toMatch(/\w/);
    const messages = [
      { role: 'user', content: 'The weather?' },
      {
        role: 'assistant',
        tool_calls: [{ id: 'c', type: 'function', function: { name: 'get_weather', arguments: '{}' } }],
      },
      { role: 'tool', tool_call_id: 'c', content: 'Rain.' },
    ];
    expect(textOf(await engine.post(PATH, { messages, tools }))).toMatch(/\w/);
  });

  it('return JSON that matches a schema', async () => {
    const schema = WEATHER.function.parameters;
    const answer = await chat('Rome', { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } });
    expect(Object.keys(JSON.parse(textOf(answer)) as object)).toEqual(schema.required);
    const plain = await chat('Rome', { response_format: { type: 'json_object' } });
    expect(typeof JSON.parse(textOf(plain))).toBe('object');
  });
});

describe('tokens', () => {
  it('convert back to their text', async () => {
    const prompt = 'Über 12345 flows, 🦙 & 日本\n\n  done';
    const made = await engine.post('/tokenize', { prompt });
    expect(await engine.post('/detokenize', { tokens: at(made, 'tokens') })).toEqual({ prompt });
    expect(at(made, 'count')).toBe((at(made, 'tokens') as unknown[]).length);
  });

  it('are counted by /tokenize as in a request', async () => {
    const messages = [
      { role: 'system', content: 'Be short.' },
      { role: 'user', content: [{ type: 'text', text: 'Naïve 日本 🦙, twelve words or so?' }] },
    ];
    const made = await engine.post('/tokenize', { messages });
    expect(at(await engine.post(PATH, { messages, max_tokens: 1 }), 'usage', 'prompt_tokens')).toBe(at(made, 'count'));
    const text = await engine.post('/tokenize', { prompt: 'One, two: 三 🌊' });
    expect(at(await engine.post('/v1/completions', { prompt: 'One, two: 三 🌊' }), 'usage', 'prompt_tokens')).toBe(
      at(text, 'count'),
    );
  });

  it('of a repeated prompt are cached in whole blocks', async () => {
    const content = 'The quick brown fox jumps over the lazy dog. '.repeat(20);
    const cached = (answer: unknown): number => at(answer, 'usage', 'prompt_tokens_details', 'cached_tokens') as number;
    const first = await chat(content, { max_tokens: 1 });
    const again = await chat(content, { max_tokens: 1 });
    const longer = await chat(`${content} And more.`, { max_tokens: 1 });
    const prompt = at(again, 'usage', 'prompt_tokens') as number;
    expect(cached(first)).toBeLessThan(prompt / 2);
    expect(cached(again)).toBe(Math.floor((prompt - 1) / 16) * 16);
    expect(cached(longer)).toBeGreaterThan(prompt / 2);
    expect(cached(longer) % 16).toBe(0);
  });

  it('are returned when requested', async () => {
    const answer = await engine.post('/v1/completions', { prompt: 'One two', max_tokens: 3, return_token_ids: true });
    expect(at(answer, 'choices', 0, 'token_ids')).toHaveLength(3);
    expect(at(answer, 'choices', 0, 'prompt_token_ids')).toHaveLength(2);
  });

  it('have logprobs in the shape of each route', async () => {
    const answer = await engine.post('/v1/completions', { prompt: 'One', max_tokens: 3, logprobs: 2 });
    const logprobs = at(answer, 'choices', 0, 'logprobs') as Record<string, unknown[]>;
    expect(Object.keys(logprobs)).toEqual(['text_offset', 'token_logprobs', 'tokens', 'top_logprobs']);
    expect(logprobs.tokens?.join('')).toBe(at(answer, 'choices', 0, 'text'));
  });
});

describe('embeddings', () => {
  it('fail, wait and break as requested', async () => {
    const other = await startStandIn(['--runner', 'pooling']);
    const ask = (standin: object): ReturnType<StandIn['send']> =>
      other.send({ path: '/v1/embeddings', headers: JSON_TYPE, body: { input: 'x', standin } });
    expect((await ask({ status: 429 })).status).toBe(429);
    expect((await ask({ error_after: 0 })).status).toBe(500);
    await expect(ask({ cut_after: 0 })).rejects.toThrow(/hang up|ECONNRESET/);
    const beginMs = performance.now();
    expect((await ask({ ttft_ms: 60 })).status).toBe(200);
    expect(performance.now() - beginMs).toBeGreaterThan(55);
    await other.stop();
  });

  it('are equal as floats and base64, of unit length, and shortened where the model allows', async () => {
    const other = await startStandIn(['--runner', 'pooling', '--matryoshka', '--embedding-dimensions', '64']);
    const floats = at(
      await other.post('/v1/embeddings', { input: ['a river', 'b'] }),
      'data',
      0,
      'embedding',
    ) as number[];
    const packed = at(
      await other.post('/v1/embeddings', { input: 'a river', encoding_format: 'base64' }),
      'data',
      0,
      'embedding',
    ) as string;
    const short = await other.post('/v1/embeddings', { input: [[5, 6], [7]], dimensions: 8 });
    const tokens = await other.counter('vllm:prompt_tokens_total');
    await other.stop();
    const bytes = Buffer.from(packed, 'base64');
    expect(floats).toHaveLength(64);
    expect(floats.map((_, index) => bytes.readFloatLE(4 * index))).toEqual(floats);
    expect(Math.hypot(...floats)).toBeCloseTo(1, 4);
    expect(at(short, 'data', 1, 'embedding')).toHaveLength(8);
    expect(at(short, 'usage')).toEqual({
      prompt_tokens: 3,
      total_tokens: 3,
      completion_tokens: 0,
      prompt_tokens_details: null,
      completion_tokens_details: null,
    });
    expect(tokens).toBe(8);
  });
});
