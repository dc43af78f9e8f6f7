import OpenAI, { toFile } from 'openai';
import { beforeAll, describe, expect, it } from 'vitest';
import { batchEnd, flexFile, line, linesOf, outputOf, startBatch, uploadFile } from '#test/inference/batch-bench.ts';
import {
  type Body,
  eventually,
  openOrganization,
  readMetric,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Batches as OpenAI's own SDK makes them, and as large as people make them. */

const bench = useInference(() => ({
  engines: { chat: flexFile('chat', { flags: ['--max-num-seqs', '256'] }) },
  env: { HEADGATE_FILE_DAYS: '2' },
}));

describe('the openai SDK with batches', () => {
  let client: OpenAI;
  beforeAll(() => {
    client = new OpenAI({ baseURL: `${bench.gateway.url}/v1`, apiKey: bench.gateway.key, maxRetries: 0 });
  });

  it('throws its own error classes', async () => {
    await expect(client.files.retrieve('file_x')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(client.batches.retrieve('batch_x')).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    const file = await toFile(Buffer.from('x'), 'x.jsonl');
    await expect(client.files.create({ file, purpose: 'fine-tune' })).rejects.toMatchObject({
      status: 400,
      param: 'purpose',
    });
  });

  it('uploads a file, runs a batch, lists, and reads the output', async () => {
    const file = await client.files.create({
      file: await toFile(Buffer.from(linesOf(6)), 'six.jsonl'),
      purpose: 'batch',
      expires_after: { anchor: 'created_at', seconds: 3600 },
    });
    expect(file).toMatchObject({ object: 'file', filename: 'six.jsonl', purpose: 'batch', status: 'processed' });
    expect((file.expires_at ?? 0) - file.created_at).toBe(3600);
    const made = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      metadata: { run: 'nightly' },
      output_expires_after: { anchor: 'created_at', seconds: 7200 },
    });
    const batch = await eventually(async () => {
      const now = await client.batches.retrieve(made.id);
      return now.status === 'completed' ? now : null;
    });
    expect(batch.request_counts).toEqual({ total: 6, completed: 6, failed: 0 });
    const content = await (await client.files.content(batch.output_file_id ?? '')).text();
    expect(
      content
        .trimEnd()
        .split('\n')
        .map((one): Body => JSON.parse(one).custom_id),
    ).toEqual(Array.from({ length: 6 }, (_, n) => `line-${n}`));
    const output = await client.files.retrieve(batch.output_file_id ?? '');
    expect((output.expires_at ?? 0) - output.created_at).toBe(7200);
    const second = await client.batches.create({
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const cancelled = await client.batches.cancel(second.id);
    expect(['cancelling', 'cancelled']).toContain(cancelled.status);
    const listed: string[] = [];
    for await (const { id } of client.batches.list({ limit: 1 })) listed.push(id);
    expect(listed.slice(0, 2)).toEqual([second.id, made.id]);
    await batchEnd(bench.gateway, second.id);
    const files: string[] = [];
    for await (const { id } of client.files.list({ limit: 1, order: 'asc' })) files.push(id);
    expect(files).toContain(file.id);
    expect(await client.files.delete(file.id)).toMatchObject({ id: file.id, deleted: true });
  });
});

describe('a batch of 500 requests', () => {
  it('answers each line once, and costs exactly what the engine counted', async () => {
    const { key } = await openOrganization(bench.gateway, '50');
    // Starts the engine.
    expect((await bench.chat({})).status).toBe(200);
    const socket = bench.socketOf('chat');
    const before = [
      await readMetric(socket, 'vllm:prompt_tokens_total'),
      await readMetric(socket, 'vllm:generation_tokens_total'),
    ];
    const made = await startBatch(bench.gateway, linesOf(500), { key });
    const batch = await batchEnd(bench.gateway, made.id, key);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 500, completed: 500, failed: 0 } });
    const output = await outputOf(bench.gateway, batch.output_file_id, key);
    expect(output.map(({ custom_id: id }) => id)).toEqual(Array.from({ length: 500 }, (_, n) => `line-${n}`));
    expect(new Set(output.map(({ response }) => response.request_id)).size).toBe(500);
    const summary: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    const { totals } = summary;
    expect(totals.num_model_requests).toBe(500);
    const after = [
      await readMetric(socket, 'vllm:prompt_tokens_total'),
      await readMetric(socket, 'vllm:generation_tokens_total'),
    ];
    expect([totals.input_tokens, totals.output_tokens]).toEqual(
      after.map((value, index) => value - (before[index] ?? 0)),
    );
    // Half of 0.10, 0.05 and 0.40 USD a million.
    const uncached = totals.input_tokens - totals.input_cached_tokens;
    const nanoUsd = uncached * 50 + totals.input_cached_tokens * 25 + totals.output_tokens * 200;
    expect(Number(totals.cost)).toBeCloseTo(nanoUsd / 1e9, 12);
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(50 - nanoUsd / 1e9, 12);
  });
});

describe('a hostile batch file', () => {
  it('fails the batch when it is one line of 100 MiB, and returns request_too_large with one byte more', async () => {
    const bytes = Buffer.alloc(104_857_600, 'x');
    const { error }: Body = await uploadFile(bench.gateway, Buffer.concat([bytes, Buffer.from('x')]));
    expect(error).toMatchObject({ code: 'request_too_large' });
    const file = await uploadFile(bench.gateway, bytes);
    expect([file.bytes, file.expires_at - file.created_at]).toEqual([bytes.length, 2 * 86_400]);
    const answer = await bench.post('/v1/batches', {
      input_file_id: file.id,
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
    });
    const { id }: Body = await answer.json();
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'failed', errors: { data: [{ code: 'line_too_long', line: 1 }] } });
  });

  it('reports only the first 100 errors', async () => {
    const text = Array.from({ length: 150 }, (_, n) => line(n, { method: 'GET' })).join('\n');
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch.errors.data).toHaveLength(100);
  });
});
