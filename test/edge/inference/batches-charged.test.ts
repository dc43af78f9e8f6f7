import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { batchEnd, batchWhen, flexFile, line, linesOf, outputOf, startBatch } from '#test/inference/batch-bench.ts';
import {
  type Body,
  eventually,
  findSocket,
  openOrganization,
  readMetric,
  useInference,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** Nobody pays for an answer of a batch that nobody gets, and what was made of it stands in the books all the same. */

const bodyBytesMax = 1_048_576;
const bench = useInference(() => ({
  engines: { chat: flexFile('chat') },
  env: { HEADGATE_MAX_BODY_BYTES: String(bodyBytesMax) },
}));

/** Lines whose answers take long. */
const slow = (count: number, tpotMs: number, tokens = 600): string =>
  linesOf(count, { body: { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: tpotMs } } });

/** A line whose body has so many bytes, most of them white space. */
function lineOf(bytes: number): string {
  const [head = '', body = ''] = line(0).split('"body":{');
  return `${head}"body":{${' '.repeat(bytes - body.length)}${body}`;
}

async function recordsOf(gateway: TestGateway, key = gateway.key): Promise<readonly Body[]> {
  const headers = { accept: 'application/x-ndjson' };
  const text = await (await gateway.request('/v1/usage/requests', { key, headers })).text();
  return text
    .split('\n')
    .filter((one) => one !== '')
    .map((one) => JSON.parse(one));
}

const sum = (records: readonly Body[], read: (record: Body) => unknown): number =>
  records.reduce((total: number, record) => total + Number(read(record)), 0);

describe('the body of a batch line', () => {
  it('may have as many bytes as any request body, before the gateway adds fields', async () => {
    const { id } = await startBatch(bench.gateway, lineOf(bodyBytesMax));
    expect(await batchEnd(bench.gateway, id)).toMatchObject({
      status: 'completed',
      request_counts: { total: 1, completed: 1, failed: 0 },
    });
  });

  it('fails the line when it has one byte more', async () => {
    const { id } = await startBatch(bench.gateway, lineOf(bodyBytesMax + 1));
    expect(await batchEnd(bench.gateway, id)).toMatchObject({
      status: 'failed',
      errors: { data: [{ code: 'line_too_long', line: 1 }] },
    });
  });
});

describe('the charges of a batch', () => {
  it('cover the lines in the output of a canceled batch and write off the lines that were stopped', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    expect((await bench.chat({})).status).toBe(200);
    const socket = bench.socketOf('chat');
    const counted = async (): Promise<number[]> => [
      await readMetric(socket, 'vllm:prompt_tokens_total'),
      await readMetric(socket, 'vllm:generation_tokens_total'),
    ];
    const before = await counted();
    const text = `${linesOf(3)}\n${slow(9, 50).replaceAll('"line-', '"slow-')}`;
    const { id } = await startBatch(bench.gateway, text, { key });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed === 3, key);
    const made = (before[1] ?? 0) + 3 * 4;
    await eventually(async () => ((await counted())[1] ?? 0) > made + 20);
    await bench.post(`/v1/batches/${id}/cancel`, undefined, { key });
    const batch = await batchEnd(bench.gateway, id, key);
    const output = await outputOf(bench.gateway, batch.output_file_id, key);
    expect(output).toHaveLength(3);
    const records = await recordsOf(bench.gateway, key);
    const charged = records.filter(({ cost }) => Number(cost) > 0);
    expect(new Set(charged.map(({ id: requestId }) => requestId))).toEqual(
      new Set(output.map(({ response }) => response.request_id)),
    );
    const ended = records.filter(({ outcome }) => outcome === 'ended');
    expect(ended.length).toBeGreaterThan(0);
    expect(ended.some(({ written_off: usd, output_tokens: tokens }) => Number(usd) > 0 && tokens > 0)).toBe(true);
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(5 - sum(charged, ({ cost }) => cost), 12);
    const after = await counted();
    expect([sum(records, (one) => one.input_tokens), sum(records, (one) => one.output_tokens)]).toEqual(
      after.map((value, index) => value - (before[index] ?? 0)),
    );
  });

  it('cover each answer once when a gateway ends running lines at the end of its drain', async () => {
    const database = await createTestDatabase();
    const enginesDir = writeEngines({ chat: flexFile('chat') });
    const env = { HEADGATE_BOOTSTRAP_KEY: 'bootstrap-key-of-this-test-0123456789', HEADGATE_SHUTDOWN_SECONDS: '0' };
    const options = { databaseUrl: database.url, enginesDir, env, workingDirectory: process.cwd() };
    const first = await startGateway(options);
    const text = `${linesOf(3)}\n${slow(6, 20, 150).replaceAll('"line-', '"slow-')}`;
    const { id } = await startBatch(first, text);
    await batchWhen(first, id, ({ request_counts: counts }) => counts.completed === 3);
    const socket = findSocket(first.dataDir, 'chat');
    await eventually(async () => (await readMetric(socket, 'vllm:generation_tokens_total')) > 3 * 4 + 20);
    await first.stop();
    const second = await startGateway(options);
    const batch = await batchEnd(second, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 9, completed: 9, failed: 0 } });
    const output = await outputOf(second, batch.output_file_id);
    const records = await recordsOf(second);
    const ended = records.filter(({ outcome }) => outcome === 'ended');
    expect(ended.some(({ written_off: usd }) => Number(usd) > 0)).toBe(true);
    expect(sum(ended, ({ cost }) => cost)).toBe(0);
    const charged = records.filter(({ cost }) => Number(cost) > 0);
    expect(new Set(charged.map((one) => one.id))).toEqual(new Set(output.map(({ response }) => response.request_id)));
    expect(charged).toHaveLength(9);
    await second.stop();
    await database.drop();
    rmSync(enginesDir, { recursive: true, force: true });
  });
});

describe('a batch whose model a reload removes', () => {
  it('waits without failed lines, and continues when the model is back', async () => {
    const enginesDir = writeEngines({ chat: flexFile('chat'), other: flexFile('other') });
    const gateway = await startGateway({ enginesDir, workingDirectory: process.cwd() });
    const reload = (): Promise<Response> => gateway.request('/v1/admin/engines/reload', { method: 'POST' });
    const { id } = await startBatch(gateway, slow(200, 10, 20));
    await batchWhen(gateway, id, ({ request_counts: counts }) => counts.completed > 5);
    rmSync(join(enginesDir, 'chat.yaml'));
    expect((await reload()).status).toBe(200);
    const waiting = await batchWhen(gateway, id, ({ waiting_for: code }) => code !== null);
    expect(waiting).toMatchObject({ status: 'in_progress', waiting_for: 'model_not_found' });
    writeFileSync(join(enginesDir, 'chat.yaml'), flexFile('chat'));
    expect((await reload()).status).toBe(200);
    expect(await batchEnd(gateway, id)).toMatchObject({
      status: 'completed',
      waiting_for: null,
      request_counts: { total: 200, completed: 200, failed: 0 },
    });
    await gateway.stop();
    rmSync(enginesDir, { recursive: true, force: true });
  });
});
