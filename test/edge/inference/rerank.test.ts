import { describe, expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const scorer = { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] };
const bench = useInference(() => ({
  engines: { sorter: standinFile('sorter', scorer), chat: standinFile('chat') },
}));

const rerank = '/v1/rerank';
const score = '/v1/score';
const documents = ['bread and butter', 'the sea is deep', 'deep blue sea'];

async function refusalOf(path: string, body: object): Promise<Body> {
  const answer = await bench.post(path, body);
  return { status: answer.status, ...((await answer.json()) as { error: Body }).error };
}

describe('a rejected rerank request', () => {
  it('returns model_not_found for other routes, and for other models on its routes', async () => {
    expect(await refusalOf('/v1/embeddings', { model: 'sorter', input: 'x' })).toMatchObject({
      status: 400,
      code: 'model_not_found',
      message:
        'The model "sorter" (rerank) does not support /v1/embeddings; no available model supports this endpoint.',
    });
    expect(await refusalOf(rerank, { model: 'chat', query: 'x', documents })).toMatchObject({
      code: 'model_not_found',
      message: 'The model "chat" (chat) does not support /v1/rerank; available models for this endpoint: sorter.',
    });
  });

  it('returns 400 for media from a host that is not allowed, in any field', async () => {
    const image = { content: [{ type: 'image_url', image_url: { url: 'http://169.254.169.254/' } }] };
    for (const [path, body, param] of [
      [rerank, { query: image, documents }, 'query'],
      [rerank, { query: 'x', documents: [image] }, 'documents'],
      [score, { text_1: 'x', text_2: image }, 'text_2'],
      [score, { queries: [image], items: 'x' }, 'queries'],
    ] as const) {
      expect(await refusalOf(path, { model: 'sorter', ...body }), param).toMatchObject({
        code: 'unsupported_parameter',
        param,
      });
    }
  });

  it("returns the engine's 400 in the gateway's words, and bills nothing", async () => {
    const before = await bench.wallet();
    expect((await refusalOf(rerank, { model: 'sorter', query: 'x' })).status).toBe(400);
    expect((await refusalOf(score, { model: 'sorter', text_1: ['a', 'b'], text_2: ['a', 'b', 'c'] })).status).toBe(400);
    expect((await bench.wallet()).balance).toBe(before.balance);
  });
});

describe('a reranker', () => {
  it('sorts documents, and bills what was read', async () => {
    const answer = await bench.post(rerank, { model: 'sorter', query: 'deep blue sea', documents, top_n: 2 });
    expect(answer.status).toBe(200);
    const body = (await answer.json()) as Body;
    expect(body.model).toBe('sorter');
    expect(body.results.map(({ index }: Body) => index)).toEqual([2, 1]);
    const record = await bench.recordOf(answer);
    expect(record).toMatchObject({
      endpoint: rerank,
      outcome: 'completed',
      usage_source: 'engine',
      input_tokens: body.usage.prompt_tokens,
      output_tokens: 0,
    });
    expect(Number(record.cost)).toBeCloseTo((body.usage.prompt_tokens * 0.1) / 1e6, 12);
  });

  it('scores pairs, with each naming of the fields', async () => {
    for (const body of [
      { text_1: 'deep sea', text_2: documents },
      { queries: 'deep sea', documents },
    ]) {
      const answer = await bench.post(score, { model: 'sorter', ...body });
      const { data, usage } = (await answer.json()) as Body;
      expect(data.map((one: Body) => one.score)).toEqual([0, 0.5, 2 / 3]);
      expect((await bench.recordOf(answer)).input_tokens).toBe(usage.prompt_tokens);
    }
  });

  it('holds the query once per document, so that many documents cannot overdraw', async () => {
    // Each of 400 pairs reads the query of about 250 tokens again: far more tokens than the body has bytes.
    const many = Array.from({ length: 400 }, () => 'x');
    const query = Array.from({ length: 250 }, () => 'sea').join(' ');
    const body = { model: 'sorter', query, documents: many };
    const answer = await bench.post(rerank, body);
    const { usage } = (await answer.json()) as Body;
    expect(usage.prompt_tokens).toBeGreaterThan(JSON.stringify(body).length);
    const record = await bench.recordOf(answer);
    expect(Number(record.cost)).toBeCloseTo((usage.prompt_tokens * 0.1) / 1e6, 12);
    const { estimated_cost: estimated, worst_cost: worst } = (await (
      await bench.post(rerank, body, { headers: { 'x-headgate-dry-run': 'true' } })
    ).json()) as Body;
    expect(Number(worst)).toBeGreaterThanOrEqual(Number(record.cost));
    expect(Number(worst)).toBeGreaterThanOrEqual(Number(estimated));
  });

  it('answers repeated requests from the cache for free when the key caches responses', async () => {
    const made = await bench.gateway.request('/v1/keys', {
      method: 'POST',
      body: { name: 'cached', cache_responses: true },
    });
    const { secret } = (await made.json()) as Body;
    const body = { model: 'sorter', query: 'sea', documents };
    const first = await bench.post(rerank, body, { key: secret });
    const second = await bench.post(rerank, body, { key: secret });
    expect(second.headers.get('x-headgate-cache')).toBe('hit');
    expect(await second.json()).toEqual(await first.json());
    expect(await bench.recordOf(second)).toMatchObject({ cost: '0', cache_hit: true });
  });
});
