import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { type Body, eventually, externalFile, framesOf, useInference } from '#test/inference/inference-gateway.ts';
import { chatEngine, readEngineCounters } from '../../campaign/engines.ts';
import { runCampaign } from '../../campaign/run.ts';
import { writeAdapter } from './write-adapter.ts';

const adapterFolder = mkdtempSync(join(tmpdir(), 'hg-lora-'));
afterAll(() => rmSync(adapterFolder, { recursive: true, force: true }));

const bench = useInference(() => ({
  engines: {
    chat: fileWithAdapter(),
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [tuned]'] }),
  },
}));

/** With an adapter, and ended after a while without work. */
function fileWithAdapter(): string {
  const { VLLM_MODEL: model = '' } = process.env;
  writeAdapter(adapterFolder, model);
  const lines = [
    `lora: [{ id: tuned, path: ${adapterFolder}, pricing: { input_per_million: 1, output_per_million: 4 } }]`,
    'max_lora_rank: 8',
    'idle_seconds: 8',
  ];
  return chatEngine(lines);
}

/** The short form of `npm run campaign`. */
async function sendCampaign(): Promise<void> {
  expect((await bench.chat({})).status).toBe(200);
  const { url, key, dataDir } = bench.gateway;
  const findings = await runCampaign({
    url,
    key,
    models: { chat: 'chat', embedding: null },
    readCounters: () => readEngineCounters(dataDir, ['chat']),
    requests: 120,
    seed: Date.now(),
    clients: 12,
  });
  expect(findings.problems, JSON.stringify(findings.figures)).toEqual([]);
}

/** The sum of a span of two hours of the vLLM, however the hour may have changed meanwhile. */
function sumOf(found: Body, read: (line: Body) => number): number {
  return ownLines(found).reduce((sum, line) => sum + read(line), 0);
}

/** None in an hour in which the engine was not read: what it counted then stands in the next. */
const promptTokensRead = ({ engines }: Body): number => engines?.prompt_tokens ?? 0;

const ownLines = ({ data }: Body): Body[] => data.filter(({ model }: Body) => model === 'chat');

/** The adapter is asked what the base is, and says something else under its own name and at its own price. */
async function sayOtherwise(): Promise<void> {
  const said: string[] = [];
  for (const [model, price] of [
    ['chat', { input: 0.1, cached: 0.05, output: 0.4 }],
    ['tuned', { input: 1, cached: 1, output: 4 }],
  ] as const) {
    const answer = await bench.chat({ model, temperature: 0, max_tokens: 12 });
    const body: Body = await answer.json();
    expect([answer.status, body.model]).toEqual([200, model]);
    const record = await bench.recordOf(answer);
    const { prompt_tokens: input, completion_tokens: output } = body.usage;
    expect(record).toMatchObject({ model, input_tokens: input, output_tokens: output, usage_source: 'engine' });
    const cached = body.usage.prompt_tokens_details?.cached_tokens ?? 0;
    const microUsd = (input - cached) * price.input + cached * price.cached + output * price.output;
    expect(Number(record.cost) * 1e6).toBeCloseTo(microUsd, 6);
    // With a reasoning parser, the text may be reasoning only.
    said.push(JSON.stringify(body.choices[0].message));
  }
  expect(said[0]).not.toBe(said[1]);
  const streamed = await bench.chat({ model: 'tuned', stream: true });
  expect(await streamed.text()).toContain('"model":"tuned"');
}

/** The adapter answers for a model that is not there, at its own price, and says what it counted. */
async function answerForOther(): Promise<void> {
  for (const stream of [true, false]) {
    const headers = { 'x-headgate-allow-fallback': 'true' };
    const options = stream ? { stream, stream_options: { include_usage: true } } : {};
    const answer = await bench.chat({ model: 'gone', n: 2, ...options }, { headers });
    expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'tuned']);
    const text = await answer.text();
    const { model, usage } = stream ? framesOf(text).at(-2) : JSON.parse(text);
    expect(model).toBe('tuned');
    const record = await bench.recordOf(answer);
    const { prompt_tokens: input, completion_tokens: output } = usage;
    const counted = { input_tokens: input, output_tokens: output, usage_source: 'engine' };
    expect(record).toMatchObject({ model: 'tuned', fallback_for: 'gone', outcome: 'completed', ...counted });
    expect(Number(record.cost) * 1e6).toBeCloseTo(input + output * 4, 6);
  }
  const ids = { model: 'gone', prompt: [1, 2, 3], max_tokens: 4 };
  const headers = { 'x-headgate-allow-fallback': 'true' };
  expect((await bench.post('/v1/completions', ids, { headers })).status).toBe(502);
}

describe('a real vLLM', () => {
  it("reconciles to the token for mixed requests, an adapter, a fallback and Headgate's probe", async () => {
    await sendCampaign();
    await sayOtherwise();
    await answerForOther();
    const found = await reconcileAtRest(bench);
    expect(found, JSON.stringify(found)).toMatchObject({ balanced: true, ledger_differences: [] });
    const differs = (kind: string): number => sumOf(found, (line) => line.difference[kind]);
    expect(differs('completion_tokens'), JSON.stringify(found)).toBe(0);
    // An engine counts the prompt of a choice when it has read it, and some clients left before.
    expect(differs('prompt_tokens'), JSON.stringify(found)).toBeLessThanOrEqual(0);
    expect(sumOf(found, promptTokensRead)).toBeGreaterThan(0);
    const kinds = ownLines(found).flatMap(({ explanations }) => explanations.map(({ kind }: Body) => kind));
    expect(kinds).toContain('probe');
    expect(kinds).not.toContain('unsure');
  });

  it('reconciles after a last read before it is stopped for being idle', async () => {
    const before = await reconcileAtRest(bench);
    const [run] = await eventually(async () => {
      const rows = await bench.gateway.db.sql<Body[]>`select * from replica_runs where ended_at is not null`;
      return rows.length > 0 && rows;
    });
    expect(run).toMatchObject({ ended: 'clean', end_reason: 'idle', model: 'chat', driver: 'process' });
    expect(Number(run.prompt_tokens_last)).toBe(sumOf(before, promptTokensRead));
    const { code, stdout } = await runCli(['reconcile'], {
      env: { HEADGATE_URL: bench.gateway.url, HEADGATE_API_KEY: bench.gateway.key },
    });
    expect(code, stdout).toBe(0);
  });

  it('does not reconcile when a usage record is missing', async () => {
    await bench.gateway.db.sql`delete from usage_requests where id = (select id from usage_requests
      where cost > 0 and outcome = 'completed' limit 1)`;
    const answer = await bench.gateway.request('/v1/admin/reconcile');
    expect(await answer.json()).toMatchObject({ balanced: false });
  });
});
