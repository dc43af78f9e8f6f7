import { describe, expect, it } from 'vitest';
import { type Body, errorOf, framesOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { fresh, makeKey, openReuse } from '#test/cache/caching-key.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    thinking: standinFile('thinking', { flags: ['--reasoning-parser', 'deepseek_r1'] }),
    tools: standinFile('tools', { flags: ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'] }),
    embed: standinFile('embed', { taskType: 'embedding' }),
  },
}));

const cacheOf = (answer: Response): string | null => answer.headers.get('x-headgate-cache');
const jsonOf = (answer: Response): Promise<Body> => answer.json();

describe('the response cache has no hit for', () => {
  it('requests of a key without cache_responses', async () => {
    const { chat, asked } = await openReuse(bench, {});
    const body = fresh();
    await (await chat(fresh())).text();
    const before = await asked();
    for (let round = 0; round < 2; round++) {
      const answer = await chat(body);
      expect(answer.status).toBe(200);
      expect(cacheOf(answer)).toBeNull();
      await answer.text();
    }
    expect((await asked()) - before).toBe(2);
  });

  it('requests of another organization', async () => {
    const body = fresh();
    for (let round = 0; round < 2; round++) {
      const { chat } = await openReuse(bench, { cache_responses: true });
      const answer = await chat(body);
      expect(cacheOf(answer)).toBe('miss');
      await answer.text();
    }
  });

  it('requests with different parameters', async () => {
    const { chat } = await openReuse(bench, { cache_responses: true });
    const body = fresh();
    const others = [
      {},
      { temperature: 0.5 },
      { seed: 9007199254740992 },
      { seed: 1 },
      { max_tokens: 9 },
      { n: 2 },
      { stop: ['x'] },
      { messages: [...body.messages, { role: 'user', content: 'more' }] },
    ];
    for (const other of others) {
      const answer = await chat({ ...body, ...other });
      expect([other, answer.status, cacheOf(answer)]).toEqual([other, 200, 'miss']);
      await answer.text();
    }
  });

  it('integers that differ only beyond double precision', async () => {
    const { key } = await openReuse(bench, { cache_responses: true });
    const { messages } = fresh();
    for (const seed of ['9007199254740992', '9007199254740993']) {
      const body = `{"model":"chat","max_tokens":4,"seed":${seed},"messages":${JSON.stringify(messages)}}`;
      const answer = await bench.post('/v1/chat/completions', body, { key });
      expect(cacheOf(answer)).toBe('miss');
      await answer.text();
    }
  });

  it('failures, and streams whose client left', async () => {
    const { chat, key } = await openReuse(bench, { cache_responses: true });
    const failing = { ...fresh(), standin: { status: 500 } };
    for (let round = 0; round < 2; round++) {
      const answer = await chat(failing);
      expect(cacheOf(answer)).toBe('miss');
      expect(await errorOf(answer)).toMatchObject({ code: 'upstream_error' });
    }
    const broken = { ...fresh(), stream: true, standin: { error_after: 3 } };
    for (let round = 0; round < 2; round++) {
      const answer = await chat(broken);
      expect(cacheOf(answer)).toBe('miss');
      await answer.text();
    }
    const long = { ...fresh(), stream: true, max_tokens: 400, standin: { output_tokens: 400, tpot_ms: 20 } };
    const leaving = new AbortController();
    const left = await chat(long, { signal: leaving.signal });
    await left.body?.getReader().read();
    leaving.abort();
    const record = await bench.recordOf(left, key);
    expect(record.outcome).toBe('aborted');
    const again = new AbortController();
    expect(cacheOf(await chat(long, { signal: again.signal }))).toBe('miss');
    again.abort();
  });

  it('answers cut short by the wallet', async () => {
    const { chat } = await openReuse(bench, { cache_responses: true }, '0.00025');
    const body = { ...fresh(), max_tokens: 4000, standin: { output_tokens: 4 } };
    const cut = await chat(body);
    expect(cut.headers.get('x-headgate-max-tokens')).not.toBeNull();
    await cut.text();
    const again = await chat(body);
    expect(cacheOf(again)).toBe('miss');
    await again.text();
  });
});

describe('a cache hit', () => {
  it('returns the same answer without an engine, costs nothing and has a record', async () => {
    const { chat, asked, key } = await openReuse(bench, { cache_responses: true });
    const body = { ...fresh(), temperature: 0.7 };
    const first = await chat(body);
    expect(cacheOf(first)).toBe('miss');
    const answer: Body = await first.json();
    const [before, wallet] = [await asked(), await bench.wallet(key)];
    const second = await chat(body);
    expect(cacheOf(second)).toBe('hit');
    expect(await second.json()).toEqual(answer);
    expect(answer.usage.completion_tokens).toBeGreaterThan(0);
    expect(await asked()).toBe(before);
    expect(await bench.wallet(key)).toEqual(wallet);
    expect(await bench.recordOf(second, key)).toMatchObject({
      cache_hit: true,
      cost: '0',
      input_tokens: 0,
      output_tokens: 0,
      outcome: 'completed',
      status: 200,
    });
    expect(await bench.recordOf(first, key)).toMatchObject({ cache_hit: false });
  });

  it('matches aliases, other member orders, other number notations and ignored fields', async () => {
    const { key, chat } = await openReuse(bench, { cache_responses: true });
    const { messages } = fresh();
    await (await chat({ messages, max_tokens: 8, temperature: 0.5 })).text();
    const list = JSON.stringify(messages);
    for (const body of [
      `{ "temperature": 5e-1, "max_tokens": 8, "messages": ${list}, "model": "The Chat" }`,
      `{"model":"test/chat","messages":${list},"temperature":0.50,"max_tokens":8,"user":"u","metadata":{"a":"b"}}`,
      `{"model":"chat","stream":false,"stream_options":null,"messages":${list},"temperature":0.5,"max_tokens":8}`,
    ]) {
      const answer = await bench.post('/v1/chat/completions', body, { key });
      expect(cacheOf(answer)).toBe('hit');
      expect((await jsonOf(answer)).model).toBe('chat');
    }
  });

  it('serves another key with cache_responses of the organization, and counts against none of its limits', async () => {
    const { chat, managementKey } = await openReuse(bench, { cache_responses: true });
    const body = fresh();
    await (await chat(body)).text();
    const other = await makeKey(bench, managementKey, { cache_responses: true, requests_per_minute: 1 });
    for (let round = 0; round < 3; round++) {
      const answer = await chat(body, { key: other.secret });
      expect([answer.status, cacheOf(answer)]).toEqual([200, 'hit']);
      expect(answer.headers.get('x-ratelimit-remaining')).toBe('1');
      await answer.text();
    }
  });

  it('is returned with an empty wallet', async () => {
    const { chat, key, asked } = await openReuse(bench, { cache_responses: true }, '0.000901');
    const body = { ...fresh(), max_tokens: 20, standin: { output_tokens: 20 } };
    await (await chat(body)).text();
    for (let spent = false; !spent;) {
      const answer = await chat({ ...fresh(), max_tokens: 400, standin: { output_tokens: 400 } });
      await answer.text();
      spent = answer.status === 402 || Number((await bench.wallet(key)).available) < 0.00001;
    }
    const before = await asked();
    const hit = await chat(body);
    expect([hit.status, cacheOf(hit)]).toEqual([200, 'hit']);
    await hit.text();
    expect(await asked()).toBe(before);
  });

  it('shows a cost of zero if the cost is asked for, and none otherwise', async () => {
    const { chat } = await openReuse(bench, { cache_responses: true });
    const body = fresh();
    const paid: Body = await (await chat({ ...body, usage: { include: true } })).json();
    expect(paid.usage.cost).toBeGreaterThan(0);
    expect((await jsonOf(await chat(body))).usage).not.toHaveProperty('cost');
    expect((await jsonOf(await chat({ ...body, usage: { include: true } }))).usage.cost).toBe(0);
    const frames = framesOf(await (await chat({ ...body, stream: true, usage: { include: true } })).text());
    expect(frames.at(-2).usage.cost).toBe(0);
  });

  it('serves embeddings', async () => {
    const { key } = await openReuse(bench, { cache_responses: true });
    const body = { model: 'embed', input: `words ${Math.random()}` };
    const first = await bench.post('/v1/embeddings', body, { key });
    const second = await bench.post('/v1/embeddings', body, { key });
    expect([cacheOf(first), cacheOf(second)]).toEqual(['miss', 'hit']);
    expect(await second.json()).toEqual(await first.json());
  });
});

/** The text of a stream, choice by choice. */
function said(text: string): Body {
  const choices: Body = [];
  const pieces = framesOf(text).flatMap((frame) => frame.choices ?? []);
  for (const { index, delta = {}, text: more = '', finish_reason: finish } of pieces) {
    const choice = (choices[index] ??= { content: '', reasoning: '', tools: [], finish: null });
    choice.content += delta.content ?? more;
    choice.reasoning += delta.reasoning ?? '';
    choice.finish = finish ?? choice.finish;
    for (const call of delta.tool_calls ?? []) addCall(choice.tools, call);
  }
  return choices;
}

function addCall(tools: Body, { index, id, function: called = {} }: Body): void {
  const tool = (tools[index] ??= { id, name: '', arguments: '' });
  tool.name += called.name ?? '';
  tool.arguments += called.arguments ?? '';
}

function saidInJson({ choices }: Body): Body {
  return choices.map(({ message, text, finish_reason: finish }: Body) => ({
    content: message?.content ?? text ?? '',
    reasoning: message?.reasoning ?? '',
    tools: (message?.tool_calls ?? []).map((call: Body) => ({ id: call.id, ...call.function })),
    finish,
  }));
}

describe('streams and plain answers', () => {
  const weather = {
    type: 'function',
    function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } },
  };
  const cases: [string, string, object][] = [
    ['a chat', 'chat', {}],
    ['two choices', 'chat', { n: 2 }],
    ['no more tokens', 'chat', { max_tokens: 1, standin: { output_tokens: 1, finish: 'length' } }],
    ['letters of other scripts', 'chat', { standin: { text: 'Größe 価格 🙂 "x" \\n' }, max_tokens: 40 }],
    ['probabilities', 'chat', { logprobs: true, top_logprobs: 2 }],
    ['thoughts', 'thinking', { max_tokens: 60, standin: { reasoning_tokens: 5, output_tokens: 5 } }],
    [
      'a tool call',
      'tools',
      { tools: [weather], tool_choice: 'required', max_tokens: 200, standin: { tool_call: 'weather' } },
    ],
  ];

  for (const streamFirst of [true, false]) {
    it.each(cases)(
      `serve each other, ${streamFirst ? 'a stream' : 'a plain answer'} first: %s`,
      async (_what, model, fields) => {
        const { chat } = await openReuse(bench, { cache_responses: true });
        const body = { model, ...fresh(), ...fields };
        const options = { stream: true, stream_options: { include_usage: true } };
        const ask = (stream: boolean): Promise<Response> => chat(stream ? { ...body, ...options } : body);
        const answers = [await ask(streamFirst), await ask(!streamFirst), await ask(streamFirst)];
        expect(answers.map((answer) => [answer.status, cacheOf(answer)])).toEqual([
          [200, 'miss'],
          [200, 'hit'],
          [200, 'hit'],
        ]);
        const texts = await Promise.all(answers.map((answer) => answer.text()));
        const isStream = (index: number): boolean => (index === 1) !== streamFirst;
        const contents = texts.map((text, index) => (isStream(index) ? said(text) : saidInJson(JSON.parse(text))));
        expect(contents[1]).toEqual(contents[0]);
        expect(contents[2]).toEqual(contents[0]);
        expect(contents[0].every(({ finish }: Body) => finish !== null)).toBe(true);
        const usages = texts.map((text, index) =>
          isStream(index) ? framesOf(text).at(-2).usage : JSON.parse(text).usage,
        );
        for (const usage of usages) expect(usage.total_tokens).toBe(usages[0].total_tokens);
        const ends = texts.filter((text) => text.endsWith('data: [DONE]\n\n'));
        expect(ends).toHaveLength(streamFirst ? 2 : 1);
      },
    );
  }

  it('serve each other for text completions of several prompts', async () => {
    const { key } = await openReuse(bench, { cache_responses: true });
    const body = { model: 'chat', prompt: [`a ${Math.random()}`, 'b'], n: 2, max_tokens: 5, logprobs: 1 };
    const stream = await bench.post('/v1/completions', { ...body, stream: true }, { key });
    const streamed = said(await stream.text());
    const plain = await bench.post('/v1/completions', body, { key });
    expect(cacheOf(plain)).toBe('hit');
    const answer: Body = await plain.json();
    expect(saidInJson(answer)).toEqual(streamed);
    expect(answer.choices).toHaveLength(4);
    expect(answer.choices[0].logprobs.tokens).toHaveLength(answer.choices[0].logprobs.token_logprobs.length);
    expect(answer.usage).toMatchObject({ completion_tokens: 20 });
  });

  it('include usage only in streams that asked for it', async () => {
    const { chat } = await openReuse(bench, { cache_responses: true });
    const body = fresh();
    await (await chat({ ...body, stream: true })).text();
    const again = await (await chat({ ...body, stream: true })).text();
    expect(again).not.toContain('"usage"');
    const plain: Body = await (await chat(body)).json();
    expect(plain.usage.completion_tokens).toBe(8);
    const running = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
    const frames = framesOf(await (await chat({ ...body, ...running })).text());
    for (const frame of frames.slice(0, -1)) expect(frame.usage.completion_tokens).toBe(8);
  });
});
