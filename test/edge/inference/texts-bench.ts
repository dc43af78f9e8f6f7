import { afterAll, beforeEach, expect } from 'vitest';
import type { RequestOptions } from '#test/gateway.ts';
import { type Asked, type EmbeddingServers, startEmbeddingServers, tokensPerText } from './embedding-servers.ts';
import { type Body, type InferenceBench, useInference } from '#test/inference/inference-gateway.ts';

/** Models whose servers the test answers for: `three` and `flex` have three of them, `one`, a vLLM, has one. */
export interface TextsBench extends InferenceBench {
  readonly servers: EmbeddingServers;
  readonly single: EmbeddingServers;
  /** Asks `three` by default. */
  embed(fields: object, options?: RequestOptions): Promise<Response>;
}

export const embeddingsPath = '/v1/embeddings';
/** Texts of a request, by the gateway's setting. */
export const textsMax = 5000;

export function useTexts(): TextsBench {
  let three: EmbeddingServers | null = null;
  let one: EmbeddingServers | null = null;
  const bench = useInference(async () => {
    three = await startEmbeddingServers(3);
    one = await startEmbeddingServers(1);
    return {
      engines: {
        three: fileOf('three', three.urls),
        one: fileOf('one', one.urls, 'kind: vllm'),
        flex: fileOf('flex', three.urls).replace('output_per', 'flex_multiplier: 0.5, output_per'),
      },
      env: { HEADGATE_MAX_TEXTS: String(textsMax) },
    };
  });
  const started = (servers: EmbeddingServers | null): EmbeddingServers => {
    if (servers === null) throw new Error('the servers are started before the tests, not while they are collected');
    return servers;
  };
  afterAll(() => {
    three?.close();
    one?.close();
  });
  beforeEach(() => {
    three?.reset();
    one?.reset();
  });
  return {
    socketOf: (engineId) => bench.socketOf(engineId),
    post: (path, body, options) => bench.post(path, body, options),
    chat: (body, options) => bench.chat(body, options),
    record: (requestId, key) => bench.record(requestId, key),
    recordOf: (answer, key) => bench.recordOf(answer, key),
    wallet: (key) => bench.wallet(key),
    get gateway() {
      return bench.gateway;
    },
    get servers() {
      return started(three);
    },
    get single() {
      return started(one);
    },
    embed: (fields, options = {}) => bench.post(embeddingsPath, { model: 'three', ...fields }, options),
  };
}

function fileOf(id: string, urls: readonly string[], ...lines: string[]): string {
  return [
    'version: 1',
    `id: ${id}`,
    `name: ${id}`,
    `hugging_face_id: test/${id}`,
    'task_type: embedding',
    'context_length: 8192',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0 }',
    'driver: external',
    `urls: ${JSON.stringify(urls)}`,
    ...lines,
    '',
  ].join('\n');
}

export const textsOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `text ${index}`);

/** All numbers from 0 on, in their order, are in an answer. */
export function expectWhole(body: Body, count: number): void {
  const all = Array.from({ length: count }, (_, index) => index);
  expect(body.data.map(({ index }: Body) => index)).toEqual(all);
  expect(body.data.map(({ embedding }: Body) => embedding[0])).toEqual(all);
  expect(body.usage).toMatchObject({ prompt_tokens: tokensPerText * count, total_tokens: tokensPerText * count });
}

/** In the order of their texts. */
export function partsOf(asked: readonly Asked[]): Asked[] {
  return asked.toSorted((a, b) => (a.numbers[0] ?? 0) - (b.numbers[0] ?? 0));
}

/** Cost of so many tokens, in dollars. */
export const costOf = (tokens: number): number => (tokens * 0.1) / 1e6;
