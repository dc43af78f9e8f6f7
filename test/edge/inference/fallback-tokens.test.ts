import { describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  externalFile,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Token ids, which mean something else to a fallback, and dry runs that list fallbacks. */

const allow = { 'x-headgate-allow-fallback': 'true' };
const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';
const nowhere = 'http://127.0.0.1:1';

const bench = useInference(() => {
  const embedding = { taskType: 'embedding' };
  return {
    engines: {
      gone: externalFile('gone', nowhere, { lines: ['fallbacks: [spare, cheap, narrow]'] }),
      spare: standinFile('spare', { priced: false, lines: [dear] }),
      cheap: standinFile('cheap'),
      narrow: standinFile('narrow', { lines: ['max_n: 1'] }),
      // Somebody else runs what `spare` runs.
      hired: externalFile('hired', nowhere, { lines: ['upstream_model: test/spare', 'fallbacks: [spare]'] }),
      'embed-gone': externalFile('embed-gone', nowhere, { ...embedding, lines: ['fallbacks: [embed]'] }),
      embed: standinFile('embed', embedding),
    },
  };
});

const headerOf = ({ headers }: Response): string | null => headers.get('x-headgate-fallback');
const chat = { messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 };
const completion = { prompt: 'Hello', max_tokens: 4 };

describe('a request with token ids', () => {
  it.each([
    ['/v1/completions', { ...completion, prompt: [1, 2, 3] }],
    ['/v1/completions', { ...completion, prompt: [[1, 2], [3]] }],
    ['/v1/completions', { ...completion, prompt: ['Hello', [3]] }],
    ['/v1/completions', { ...completion, allowed_token_ids: [1, 2] }],
    ['/v1/chat/completions', { ...chat, logit_bias: { '50256': -100 } }],
    ['/v1/chat/completions', { ...chat, stop_token_ids: [2] }],
    ['/v1/chat/completions', { ...chat, logprobs: true, logprob_token_ids: [5] }],
    ['/v1/chat/completions', { ...chat, return_token_ids: true }],
    ['/v1/completions', { ...completion, return_tokens_as_token_ids: true }],
    ['/v1/tokenize', { prompt: 'Hello' }],
    ['/v1/detokenize', { tokens: [1, 2] }],
    ['/v1/embeddings', { input: [1, 2, 3] }],
    ['/v1/embeddings', { input: [[1, 2], [3]] }],
  ])('gets no fallback with another vocabulary: %s %j', async (path, fields) => {
    const model = path === '/v1/embeddings' ? 'embed-gone' : 'gone';
    const alone = await bench.post(path, { model, ...fields });
    const answer = await bench.post(path, { model, ...fields }, { headers: allow });
    expect(headerOf(answer)).toBeNull();
    const error = await errorOf(answer);
    expect(error).toEqual(await errorOf(alone));
    expect(error.code).toBe('upstream_error');
  });

  it.each([
    ['/v1/completions', { ...completion, prompt: ['Hello', 'World'], logit_bias: {}, stop_token_ids: [] }],
    ['/v1/chat/completions', { ...chat, logit_bias: null, return_token_ids: false, allowed_token_ids: null }],
    ['/v1/embeddings', { input: ['1', '[2]'] }],
  ])('gets a fallback when its fields hold no token ids: %s %j', async (path, fields) => {
    const [model, other] = path === '/v1/embeddings' ? ['embed-gone', 'embed'] : ['gone', 'spare'];
    const answer = await bench.post(path, { model, ...fields }, { headers: allow });
    expect([answer.status, headerOf(answer)]).toEqual([200, other]);
    await answer.text();
  });

  it('gets a fallback that serves the same repository', async () => {
    const body = { model: 'hired', ...completion, prompt: [1, 2, 3] };
    const answer = await bench.post('/v1/completions', body, { headers: allow });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'spare']);
    await answer.text();
  });
});

describe('a dry run with fallbacks', () => {
  const dry = { 'x-headgate-dry-run': 'true' };
  const rehearse = async (fields: object, headers: Readonly<Record<string, string>>, key?: string): Promise<Body> => {
    const more = key === undefined ? {} : { key };
    const answer = await bench.post(
      '/v1/chat/completions',
      { model: 'gone', ...chat, ...fields },
      { headers, ...more },
    );
    expect(answer.status).toBe(200);
    return answer.json();
  };

  it('lists no fallbacks when the request does not allow them', async () => {
    const answer = await rehearse({}, dry);
    expect(answer).not.toHaveProperty('fallbacks');
    expect(answer).not.toHaveProperty('worst_cost_with_fallbacks');
  });

  it('lists each possible fallback with its cost, and the worst cost with fallbacks', async () => {
    const answer = await rehearse({ n: 2 }, { ...dry, ...allow });
    const own = { estimated_cost: answer.estimated_cost, worst_cost: answer.worst_cost, admitted: true, refusal: null };
    expect(answer.fallbacks).toEqual([
      {
        model: 'spare',
        estimated_cost: expect.any(String),
        worst_cost: expect.any(String),
        admitted: true,
        refusal: null,
      },
      { model: 'cheap', ...own },
    ]);
    const [spare] = answer.fallbacks;
    expect(Number(spare.estimated_cost)).toBeCloseTo(10 * Number(answer.estimated_cost), 12);
    expect(Number(spare.worst_cost)).toBeCloseTo(10 * Number(answer.worst_cost), 12);
    expect(answer.worst_cost_with_fallbacks).toBe(spare.worst_cost);
  });

  it('lists a fallback that the wallet cannot pay, and omits one that cannot serve the request', async () => {
    const { key } = await openOrganization(bench.gateway, '0.0002');
    const answer = await rehearse({}, { ...dry, ...allow }, key);
    expect(answer.admitted).toBe(true);
    expect(answer.fallbacks).toMatchObject([
      { model: 'spare', admitted: false, refusal: 'insufficient_funds' },
      { model: 'cheap', admitted: true },
      { model: 'narrow', admitted: true },
    ]);
    const capped = await rehearse({}, { ...dry, ...allow, 'x-headgate-max-cost': '0.00002' });
    expect(capped.fallbacks.map(({ model }: Body) => model)).toEqual(['cheap', 'narrow']);
    const ids = await rehearse({ stop_token_ids: [2] }, { ...dry, ...allow });
    expect(ids).toMatchObject({ fallbacks: [], worst_cost_with_fallbacks: ids.worst_cost });
  });
});
