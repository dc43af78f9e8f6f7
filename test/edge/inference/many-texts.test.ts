import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import {
  type Body,
  eventually,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const replicas = 2;
const embedding = { taskType: 'embedding', lines: [`replicas: { min: ${replicas}, max: ${replicas} }`] };
const bench = useInference(() => ({
  engines: { embed: standinFile('embed', { ...embedding, flags: ['--matryoshka', '--ttft-ms', '20'] }) },
}));

interface Running {
  readonly pid: number;
  readonly socketPath: string;
}

function running(): Running[] {
  const folder = join(bench.gateway.dataDir, 'engines', 'running');
  return readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')) as Running);
}

/** Tokens that each replica has counted. */
async function counted(): Promise<number[]> {
  return Promise.all(running().map(({ socketPath }) => readMetric(socketPath, 'vllm:prompt_tokens_total')));
}

/** Both replicas answer. */
async function bothAreReady(): Promise<void> {
  await eventually(async () => {
    await embed({ input: texts(600) }).then((answer) => answer.text());
    const counts = await counted().catch(() => []);
    return counts.length === replicas && counts.every((count) => count > 0);
  });
}

const texts = (count: number): string[] =>
  Array.from({ length: count }, (_, at) => `text ${'of some length '.repeat(at % 7)}${at}`);
const embed = (fields: object, options = {}) => bench.post('/v1/embeddings', { model: 'embed', ...fields }, options);

/** The answer to texts that are few enough to be sent at once. */
async function fewAtATime(input: readonly unknown[], fields: object): Promise<{ vectors: Body[]; tokens: number }> {
  const vectors: Body[] = [];
  let tokens = 0;
  for (let first = 0; first < input.length; first += 100) {
    const body: Body = await (await embed({ ...fields, input: input.slice(first, first + 100) })).json();
    vectors.push(...body.data.map(({ embedding: vector }: Body) => vector));
    tokens += body.usage.prompt_tokens;
  }
  return { vectors, tokens };
}

it.each<[string, unknown[], object]>([
  ['as numbers', texts(1000), {}],
  ['as base64', texts(1000), { encoding_format: 'base64' }],
  ['of fewer dimensions', texts(400), { dimensions: 16 }],
  ['of token ids', texts(400).map((text) => [...Buffer.from(text)]), {}],
])('answers many texts with the same vectors and tokens as one by one, %s', async (_, input, fields) => {
  const { vectors, tokens } = await fewAtATime(input, fields);
  const answer = await embed({ ...fields, input });
  const body: Body = await answer.json();
  expect(body.data.map(({ embedding: vector }: Body) => vector)).toEqual(vectors);
  expect(body.data.map(({ index }: Body) => index)).toEqual([...input.keys()]);
  expect(body.usage).toMatchObject({ prompt_tokens: tokens, total_tokens: tokens });
  expect(await bench.recordOf(answer)).toMatchObject({ input_tokens: tokens, usage_source: 'engine' });
});

it('answers in full when a replica is killed midway', async () => {
  await bothAreReady();
  const { key } = await openOrganization(bench.gateway, '1');
  const input = texts(4000);
  const answer = embed({ input, standin: { ttft_ms: 100 } }, { key });
  const [victim] = running();
  const counts = () => readMetric(victim?.socketPath ?? '', 'vllm:prompt_tokens_total');
  const before = await counts();
  await expect.poll(counts).toBeGreaterThan(before);
  process.kill(victim?.pid ?? 0, 'SIGKILL');
  const response = await answer;
  const body: Body = await response.json();
  expect(response.status, JSON.stringify(body).slice(0, 300)).toBe(200);
  expect(body.data.map(({ index }: Body) => index)).toEqual([...input.keys()]);
  const record = await bench.recordOf(response, key);
  expect(record).toMatchObject({
    outcome: 'completed',
    input_tokens: body.usage.prompt_tokens,
    usage_source: 'engine',
  });
  const { tokens } = await fewAtATime(input, {});
  expect(body.usage.prompt_tokens).toBe(tokens);
  expect(await bench.wallet(key)).toMatchObject({ held: '0' });
});
