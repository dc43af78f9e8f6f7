import { describe, expect, it } from 'vitest';
import { batchEnd, flexFile, line, linesOf, outputOf, startBatch, uploadFile } from './batch-bench.ts';
import { errorOf, openOrganization, standinFile, useInference } from './inference-gateway.ts';

/** Batches: what is refused, what is answered, and what it costs. */

const bench = useInference(() => ({
  engines: {
    chat: flexFile('chat'),
    plain: standinFile('plain'),
    embed: flexFile('embed', { taskType: 'embedding' }),
  },
  env: { HEADGATE_BATCH_LINES: '50' },
}));

const make = (body: object, key?: string): Promise<Response> =>
  bench.post(
    '/v1/batches',
    { endpoint: '/v1/chat/completions', completion_window: '24h', ...body },
    key === undefined ? {} : { key },
  );

describe('a batch that is not made', () => {
  it('is one of a file that is not there, or another organization’s', async () => {
    const other = await openOrganization(bench.gateway, '1');
    const theirs = await uploadFile(bench.gateway, linesOf(1), other.key);
    for (const id of ['file_019ab1c2d3e47f008a1b2c3d4e5f6071', 'x', theirs.id]) {
      expect(await errorOf(await make({ input_file_id: id }))).toMatchObject({ status: 404, code: 'not_found' });
    }
  });

  it.each([
    [{ endpoint: '/v1/messages' }, 'endpoint'],
    [{ endpoint: '/v1/score' }, 'endpoint'],
    [{ completion_window: '1h' }, 'completion_window'],
    [{ metadata: { a: 1 } }, 'metadata.a'],
    [{ metadata: { a: 'x\0' } }, 'metadata.a'],
    [{ output_expires_after: { anchor: 'created_at', seconds: 1 } }, 'output_expires_after.seconds'],
    [{ colour: 'red' }, 'colour'],
  ])('is one with %j', async (fields, param) => {
    const { id } = await uploadFile(bench.gateway, linesOf(1));
    expect(await errorOf(await make({ input_file_id: id, ...fields }))).toMatchObject({ status: 400, param });
  });
});

describe('a file that is not run', () => {
  const big = 'x'.repeat(1000);
  it.each<[string, string | Buffer, { code: string; line: number | null }[]]>([
    ['empty', '', [{ code: 'empty_file', line: null }]],
    ['of blank lines', '\n \r\n\n', [{ code: 'empty_file', line: null }]],
    [
      'no JSON',
      `${line(0)}\n{"custom_id": \n[]`,
      [
        { code: 'invalid_json_line', line: 2 },
        { code: 'invalid_json_line', line: 3 },
      ],
    ],
    [
      'not JSON inside',
      line(0).replace('"Question 0"', '"Question 0" nonsense'),
      [{ code: 'invalid_json_line', line: 1 }],
    ],
    [
      'not UTF-8',
      Buffer.concat([Buffer.from(line(0).slice(0, -3)), Buffer.from([0xff, 0xfe]), Buffer.from('"}}')]),
      [{ code: 'invalid_json_line', line: 1 }],
    ],
    ['full of NUL', Buffer.alloc(1000), [{ code: 'invalid_json_line', line: 1 }]],
    ['without custom ids', line(0).replace('custom_id', 'id'), [{ code: 'missing_required_parameter', line: 1 }]],
    ['with a NUL in one', line(0, { customId: 'a\0b' }), [{ code: 'invalid_custom_id', line: 1 }]],
    ['with an endless one', line(0, { customId: big }), [{ code: 'invalid_custom_id', line: 1 }]],
    ['with one twice', `${line(0)}\n${line(1)}\n${line(0)}`, [{ code: 'duplicate_custom_id', line: 3 }]],
    ['of another method', line(0, { method: 'GET' }), [{ code: 'invalid_method', line: 1 }]],
    ['of another endpoint', line(0, { url: '/v1/embeddings' }), [{ code: 'invalid_url', line: 1 }]],
    ['streamed', line(0, { body: { stream: true } }), [{ code: 'invalid_request', line: 1 }]],
    ['of a model that is not there', line(0, { body: { model: 'nobody' } }), [{ code: 'model_not_found', line: 1 }]],
    [
      'of a model without a price for it',
      line(0, { body: { model: 'plain' } }),
      [{ code: 'model_not_found', line: 1 }],
    ],
    ['of a model of another task', line(0, { body: { model: 'embed' } }), [{ code: 'model_not_found', line: 1 }]],
    ['of two models', `${line(0)}\n${line(1, { body: { model: 'plain' } })}`, [{ code: 'mismatched_model', line: 2 }]],
    ['too long', linesOf(51), [{ code: 'too_many_tasks', line: null }]],
  ])('is one %s', async (_name, text, errors) => {
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'failed', output_file_id: null, error_file_id: null, completed_at: null });
    expect(batch.errors).toMatchObject({ object: 'list', data: errors });
    expect(batch.failed_at).not.toBeNull();
  });
});

describe('a batch', () => {
  it('answers each line of its file, at the price of flex, and its file is kept meanwhile', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const made = await startBatch(bench.gateway, linesOf(20), { key, fields: { metadata: { run: 'nightly' } } });
    expect(made).toMatchObject({
      object: 'batch',
      status: 'validating',
      metadata: { run: 'nightly' },
      completion_window: '24h',
    });
    expect(made.expires_at - made.created_at).toBe(86_400);
    const held = await bench.gateway.request(`/v1/files/${made.input_file_id}`, { method: 'DELETE', key });
    expect(await errorOf(held)).toMatchObject({ status: 409 });
    const batch = await batchEnd(bench.gateway, made.id, key);
    expect(batch).toMatchObject({
      status: 'completed',
      model: 'chat',
      errors: null,
      error_file_id: null,
      waiting_for: null,
    });
    expect(batch.request_counts).toEqual({ total: 20, completed: 20, failed: 0 });
    const output = await outputOf(bench.gateway, batch.output_file_id, key);
    expect(output.map(({ custom_id: id }) => id)).toEqual(Array.from({ length: 20 }, (_, n) => `line-${n}`));
    let cost = 0;
    for (const { id, response, error } of output) {
      expect(id).toMatch(/^batch_req_/);
      expect(error).toBeNull();
      expect(response.status_code).toBe(200);
      const record = await bench.record(response.request_id, key);
      expect(record).toMatchObject({ service_tier: 'flex' });
      cost += Number(record.cost);
    }
    const { balance } = await bench.wallet(key);
    expect(Number(balance)).toBeCloseTo(5 - cost, 9);
    expect((await bench.gateway.request(`/v1/files/${made.input_file_id}`, { method: 'DELETE', key })).status).toBe(
      200,
    );
  });
});
