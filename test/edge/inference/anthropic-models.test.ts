import Anthropic from '@anthropic-ai/sdk';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { errorOf } from './messages-client.ts';

/** Models as Anthropic's clients list them. */

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', { lines: ['aliases: [claude-sonnet]', 'list_aliases: true'] }),
    embed: standinFile('embed', { taskType: 'embedding' }),
    slashed: standinFile('team/model'),
  },
}));
const all = ['chat', 'claude-sonnet', 'embed', 'team/model'];

const ask = (path: string, key?: string): Promise<Response> =>
  bench.gateway.request(path, {
    headers: { 'anthropic-version': '2023-06-01' },
    ...(key === undefined ? {} : { key }),
  });
const list = async (query = ''): Promise<Body> => (await ask(`/v1/models${query}`)).json();
const ids = ({ data }: Body): string[] => data.map(({ id }: Body) => id);

describe('GET /v1/models with anthropic-version', () => {
  it("lists the models in Anthropic's shape", async () => {
    const models = await list();
    expect(models).toMatchObject({ has_more: false, first_id: 'chat', last_id: 'team/model' });
    expect(Object.keys(models).toSorted()).toEqual(['data', 'first_id', 'has_more', 'last_id']);
    expect(ids(models)).toEqual(all);
    const [chat, alias, embed] = models.data;
    expect(chat).toEqual({
      type: 'model',
      id: 'chat',
      display_name: 'The chat',
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      max_input_tokens: 8192,
      max_tokens: 8192,
      lifecycle: 'active',
      capabilities: null,
      deprecated_at: null,
      retires_at: null,
      line: null,
    });
    const { created }: Body = await (await bench.gateway.request('/v1/models/chat')).json();
    expect(Date.parse(chat.created_at)).toBe(created * 1000);
    expect(alias).toEqual({ ...chat, id: 'claude-sonnet', display_name: 'claude-sonnet' });
    expect(embed.max_tokens).toBeNull();
    expect(await (await ask('/v1/models/claude-sonnet')).json()).toEqual(alias);
    expect(ids(await list('?task_type=embedding'))).toEqual(['embed']);
  });

  it.each([
    ['?limit=2', all.slice(0, 2), true],
    ['?limit=2&after_id=claude-sonnet', all.slice(2), false],
    ['?limit=1&after_id=claude-sonnet', ['embed'], true],
    ['?limit=2&before_id=team%2Fmodel', ['claude-sonnet', 'embed'], true],
    ['?before_id=embed', ['chat', 'claude-sonnet'], false],
    ['?after_id=team%2Fmodel', [], false],
    ['?limit=1000', all, false],
  ])('pages: %s', async (query, expected, more) => {
    const page = await list(query);
    expect([ids(page), page.has_more]).toEqual([expected, more]);
    expect([page.first_id, page.last_id]).toEqual([expected[0] ?? null, expected.at(-1) ?? null]);
  });

  it.each([
    ['?limit=0', 'limit'],
    ['?limit=1001', 'limit'],
    ['?limit=two', 'limit'],
    ['?after_id=nope', 'after_id'],
    ['?before_id=nope', 'before_id'],
    ['?after_id=chat&before_id=embed', 'before_id'],
  ])('returns 400 for %s', async (query, param) => {
    expect(await errorOf(await ask(`/v1/models${query}`))).toMatchObject({
      status: 400,
      type: 'invalid_request_error',
      param,
    });
  });

  it("has errors in Anthropic's shape", async () => {
    const missing = await errorOf(await ask('/v1/models/nope'));
    expect(missing).toMatchObject({ status: 404, type: 'not_found_error', code: 'model_not_found' });
    expect(await errorOf(await ask('/v1/models', 'sk-hg-none'))).toMatchObject({ status: 401 });
  });

  it("keeps OpenAI's shape without the header", async () => {
    const models: Body = await (await bench.gateway.request('/v1/models?limit=0')).json();
    expect([models.object, models.has_more, ids(models)]).toEqual(['list', undefined, all]);
    const missing: Body = await (await bench.gateway.request('/v1/models/nope')).json();
    expect(Object.keys(missing)).toEqual(['error']);
  });
});

describe("Anthropic's SDK", () => {
  let client: Anthropic;
  beforeAll(() => {
    client = new Anthropic({ baseURL: bench.gateway.url, apiKey: bench.gateway.key, maxRetries: 0 });
  });

  it('iterates over pages of models, in both directions', async () => {
    const found: string[] = [];
    for await (const model of client.models.list({ limit: 1 })) found.push(model.id);
    expect(found).toEqual(all);
    const back: string[] = [];
    for await (const model of client.models.list({ limit: 1, before_id: 'team/model' })) back.push(model.id);
    expect(back).toEqual(['embed', 'claude-sonnet', 'chat']);
  });

  it('retrieves a model, whose id may have slashes', async () => {
    expect(await client.models.retrieve('team/model')).toMatchObject({ type: 'model', display_name: 'The team/model' });
    await expect(client.models.retrieve('nope')).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    await expect(client.models.retrieve('nope')).rejects.toMatchObject({ type: 'not_found_error' });
  });
});
