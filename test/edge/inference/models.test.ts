import { afterAll, describe, expect, it } from 'vitest';
import { type StandIn, startStandIn } from '#test/standin/engine.ts';
import {
  chatPath,
  type Body,
  errorOf,
  eventually,
  externalFile,
  framesOf,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const engineKey = 'an-engine-key-of-its-own';
const engines: StandIn[] = [];

/** A stand-in on a TCP port, as somebody else would run it. */
async function startExternal(flags: readonly string[]): Promise<{ url: string; engine: StandIn }> {
  const engine = await startStandIn(['--port', '0', '--host', '127.0.0.1', ...flags], { tcp: true });
  engines.push(engine);
  const port = /http:\/\/127\.0\.0\.1:(\d+)/.exec(engine.log())?.[1];
  if (port === undefined) throw new Error(engine.log());
  return { url: `http://127.0.0.1:${port}`, engine };
}

let external = { url: '', metrics: async (_name: string): Promise<number> => 0 };
let plain = external;

function reachable({ url }: { url: string }): typeof external {
  return {
    url,
    async metrics(name) {
      const text = await (await fetch(`${url}/metrics`)).text();
      const line = text.split('\n').find((candidate) => candidate.startsWith(`${name}{`)) ?? '';
      return Number(line.slice(line.lastIndexOf(' ')));
    },
  };
}

const bench = useInference(async () => {
  external = reachable(
    await startExternal(['--api-key', engineKey, '--served-model-name', 'upstream/name', '--dev-mode']),
  );
  plain = reachable(await startExternal(['--served-model-name', 'plain', '--access-log']));
  return {
    engines: {
      slashed: standinFile('team/Chat-Model', { lines: ['owned_by: the team', 'aliases: [gpt-4, "The Old One"]'] }),
      embed: standinFile('embed', { taskType: 'embedding' }),
      completion: standinFile('base', { taskType: 'completion' }),
      off: standinFile('off', { lines: ['enabled: false'] }),
      unpriced: standinFile('unpriced', { priced: false }),
      external: externalFile('ours', external.url, {
        lines: ['upstream_model: upstream/name', 'api_key_env: TEST_ENGINE_KEY'],
      }),
      seer: standinFile('seer', { taskType: 'vision' }),
      caller: standinFile('caller', { flags: ['--enable-auto-tool-choice', '--tool-call-parser', 'hermes'] }),
      thinker: standinFile('thinker', { flags: ['--reasoning-parser', 'qwen3'] }),
      plain: externalFile('plain', plain.url),
      gone: externalFile('gone', 'http://127.0.0.1:9'),
    },
    env: { TEST_ENGINE_KEY: engineKey },
  };
});
afterAll(() => Promise.all(engines.map((engine) => engine.stop())));

const get = async (path: string): Promise<Body> => (await bench.gateway.request(path)).json();

describe('GET /v1/models', () => {
  it('lists the enabled models, and no detail of where they run', async () => {
    const list = await get('/v1/models');
    expect(list.object).toBe('list');
    expect(list.data.map(({ id }: Body) => id).toSorted()).toEqual([
      'base',
      'caller',
      'embed',
      'gone',
      'ours',
      'plain',
      'seer',
      'team/Chat-Model',
      'thinker',
      'unpriced',
    ]);
    const model = list.data.find(({ id }: Body) => id === 'team/Chat-Model');
    expect(model).toEqual({
      id: 'team/Chat-Model',
      object: 'model',
      created: expect.any(Number),
      owned_by: 'the team',
      parent: null,
      name: 'The team/Chat-Model',
      aliases: ['gpt-4', 'The Old One'],
      fallbacks: [],
      hugging_face_id: 'test/team/Chat-Model',
      task_type: 'chat',
      context_length: 8192,
      max_model_len: 8192,
      max_output_length: 8192,
      input_modalities: ['text'],
      supported_parameters: expect.arrayContaining(['max_tokens', 'temperature', 'top_k', 'response_format']),
      expected_cold_start_seconds: 600,
      pricing: { prompt: '0.0000001', completion: '0.0000004', input_cache_read: '0.00000005' },
      status: expect.stringMatching(/^(?:ready|cold|starting|failed)$/),
    });
    expect(JSON.stringify(list)).not.toMatch(/127\.0\.0\.1|upstream\/name|\.sock|standin|node/);
    expect(list.data.find(({ id }: Body) => id === 'unpriced').pricing).toBeNull();
  });

  it('returns the fields that tools read before they offer a model', async () => {
    const { data } = await get('/v1/models');
    const of = (name: string): Body => data.find(({ id }: Body) => id === name);
    expect(of('seer')).toMatchObject({ input_modalities: ['text', 'image'] });
    expect(of('embed')).toMatchObject({
      max_output_length: null,
      supported_parameters: ['dimensions', 'encoding_format'],
    });
    expect(of('caller').supported_parameters).toEqual(expect.arrayContaining(['tools', 'tool_choice', 'top_logprobs']));
    expect(of('thinker').supported_parameters).toEqual(expect.arrayContaining(['reasoning_effort', 'min_p']));
    // An engine of ours that was not started for tools refuses them; of one that is not ours nobody knows.
    expect(of('team/Chat-Model').supported_parameters).not.toContain('tools');
    expect(of('ours').supported_parameters).toContain('tools');
    expect(of('base').supported_parameters).not.toContain('max_completion_tokens');
  });

  it('filters by task, and returns an error for an unknown task', async () => {
    const list = await get('/v1/models?task_type=embedding');
    expect(list.data.map(({ id }: Body) => id)).toEqual(['embed']);
    expect((await get('/v1/models?task_type=rerank')).data).toEqual([]);
    for (const task of ['nonsense', 'Embedding', '']) {
      const error = await errorOf(await bench.gateway.request(`/v1/models?task_type=${task}`));
      expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'task_type' });
    }
  });

  it('returns one model by id, with slashes encoded or not, and 404 for an unknown or disabled one', async () => {
    for (const id of [
      'team/Chat-Model',
      'team%2FChat-Model',
      'TEAM%2fchat-model',
      'test/team/Chat-Model',
      'the%20old%20one',
    ]) {
      expect((await get(`/v1/models/${id}`)).id).toBe('team/Chat-Model');
    }
    for (const id of ['nope', 'off', 'team', 'a%00b', '%F0%9F%A6%99']) {
      const error = await errorOf(await bench.gateway.request(`/v1/models/${id}`));
      expect(error).toMatchObject({ status: 404, code: 'model_not_found', type: 'invalid_request_error' });
    }
    expect(await errorOf(await bench.gateway.request('/v1/models/%E0%A4%A'))).toMatchObject({ status: 400 });
  });

  it('requires a key, while the price list does not', async () => {
    for (const path of ['/v1/models', '/v1/models/embed']) {
      expect((await bench.gateway.request(path, { key: null })).status).toBe(401);
    }
    const answer = await bench.gateway.request('/v1/pricing', { key: null });
    expect(answer.headers.get('x-request-id')).not.toBeNull();
    const prices: Body = await answer.json();
    expect(prices.data.find(({ model }: Body) => model === 'embed')).toEqual({
      model: 'embed',
      input_per_million: '0.1',
      output_per_million: '0.4',
      cached_input_per_million: '0.05',
      currency: 'USD',
      effective_from: expect.any(Number),
    });
    expect(prices.data.map(({ model }: Body) => model)).not.toContain('unpriced');
    expect(prices.data.map(({ model }: Body) => model)).not.toContain('off');
  });
});

describe('the model name in a request', () => {
  it('may be its id, display name or repository in any case, and the answer has the id', async () => {
    for (const model of [
      'team/Chat-Model',
      'TEAM/CHAT-MODEL',
      'the team/chat-model',
      'Test/Team/chat-model',
      'GPT-4',
    ]) {
      for (const stream of [true, false]) {
        const answer = await bench.chat({ model, stream });
        const text = await answer.text();
        expect(answer.status).toBe(200);
        const bodies = stream ? framesOf(text).filter((frame) => frame !== '[DONE]') : [JSON.parse(text)];
        expect(new Set(bodies.map((body: Body) => body.model))).toEqual(new Set(['team/Chat-Model']));
        expect((await bench.recordOf(answer)).model).toBe('team/Chat-Model');
      }
    }
  });

  it('serves completions but not chat for a base model, and both for a chat model', async () => {
    const prompt = { prompt: 'x', max_tokens: 2 };
    expect((await bench.post('/v1/completions', { model: 'base', ...prompt })).status).toBe(200);
    expect((await bench.post('/v1/completions', { model: 'team/chat-model', ...prompt })).status).toBe(200);
    const error = await errorOf(await bench.chat({ model: 'base' }));
    expect(error).toMatchObject({ status: 400, code: 'model_not_found' });
    expect(error.message).toContain('team/Chat-Model');
  });
});

describe('an external engine', () => {
  it('answers under its catalog id, streamed or not, with exact counts', async () => {
    for (const stream of [true, false]) {
      const answer = await bench.chat({ model: 'ours', stream, max_tokens: 6 });
      const text = await answer.text();
      expect(answer.status).toBe(200);
      expect(text).not.toContain('upstream/name');
      expect(text).toContain('"model":"ours"');
      expect(text.includes('usage')).toBe(!stream);
      const record = await bench.recordOf(answer);
      expect(record).toMatchObject({ outcome: 'completed', model: 'ours', output_tokens: 6, usage_source: 'engine' });
      expect(record.input_tokens).toBeGreaterThan(0);
    }
  });

  it('is asked to abort what its client left when it has an abort route, with exact counts', async () => {
    const before = await external.metrics('vllm:generation_tokens_total');
    const record = await leaveAfter('ours', 6);
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
    await eventually(async () => (await external.metrics('vllm:num_requests_running')) === 0);
    expect(record.output_tokens).toBe((await external.metrics('vllm:generation_tokens_total')) - before);
    // The engine makes 100 in a second.
    expect(record.output_tokens).toBeLessThan(106);
  });

  it('gets its connection closed when it has no abort route, and is billed by the last count', async () => {
    for (let round = 0; round < 2; round += 1) {
      const before = await plain.metrics('vllm:generation_tokens_total');
      const record = await leaveAfter('plain', 6);
      expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'last_seen' });
      await eventually(async () => (await plain.metrics('vllm:num_requests_running')) === 0);
      const generated = (await plain.metrics('vllm:generation_tokens_total')) - before;
      expect(record.output_tokens).toBeGreaterThan(2);
      expect(record.output_tokens).toBeLessThanOrEqual(generated);
      expect(generated - record.output_tokens).toBeLessThan(20);
    }
    // The route lies outside /v1 and was asked for once: its absence is remembered.
    expect(engines[1]?.log().match(/POST \/abort_requests/g)).toHaveLength(1);
  });

  it('returns 502 without its address when it is unreachable', async () => {
    const answer = await bench.chat({ model: 'gone' });
    const text = await answer.clone().text();
    expect(text).not.toMatch(/127\.0\.0\.1|ECONNREFUSED|:9\b/);
    expect(await errorOf(answer)).toMatchObject({ status: 502, code: 'upstream_error' });
  });
});

/** Streams from a model and leaves after some frames; gives the record. */
async function leaveAfter(model: string, frames: number): Promise<Body> {
  const leaving = new AbortController();
  const body = { stream: true, model, max_tokens: 4000, standin: { output_tokens: 4000, tpot_ms: 10 } };
  const answer = await bench.chat(body, { signal: leaving.signal });
  const reader = answer.body?.getReader();
  let text = '';
  while (reader !== undefined && text.split('\n\n').length <= frames)
    text += Buffer.from((await reader.read()).value ?? []).toString();
  leaving.abort();
  expect(answer.url).toContain(chatPath);
  return bench.recordOf(answer);
}
