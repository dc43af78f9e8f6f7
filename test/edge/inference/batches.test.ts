import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import {
  batchEnd,
  batchWhen,
  flexFile,
  flexPricing,
  line,
  linesOf,
  outputOf,
  startBatch,
  uploadFile,
} from '#test/inference/batch-bench.ts';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { type ResponsesEngine, startResponsesEngine } from './responses-engine.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** Batches: rejected ones, their answers, and their costs. */

let responses: ResponsesEngine;

const bench = useInference(async () => {
  responses = await startResponsesEngine();
  return {
    engines: {
      chat: flexFile('chat', { lines: ['aliases: [gpt-4]'] }),
      plain: standinFile('plain'),
      answers: externalFile('answers', responses.url, { priced: false, lines: [flexPricing, 'kind: vllm'] }),
      embed: flexFile('embed', { taskType: 'embedding' }),
    },
    env: { HEADGATE_BATCH_LINES: '50' },
  };
});
afterAll(() => responses.close());

const make = (body: object, key?: string): Promise<Response> =>
  bench.post(
    '/v1/batches',
    { endpoint: '/v1/chat/completions', completion_window: '24h', ...body },
    key === undefined ? {} : { key },
  );

describe('POST /v1/batches', () => {
  it('returns 404 for a file that does not exist or belongs to another organization', async () => {
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
  ])('returns 400 for %j', async (fields, param) => {
    const { id } = await uploadFile(bench.gateway, linesOf(1));
    expect(await errorOf(await make({ input_file_id: id, ...fields }))).toMatchObject({ status: 400, param });
  });
});

describe('a batch whose file is invalid', () => {
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
  ])('fails with the errors of a file that is %s', async (_name, text, errors) => {
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'failed', output_file_id: null, error_file_id: null, completed_at: null });
    expect(batch.errors).toMatchObject({ object: 'list', data: errors });
    expect(batch.failed_at).not.toBeNull();
  });
});

describe('a completed batch', () => {
  it('answers each line at the flex price, and keeps its file from deletion meanwhile', async () => {
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

const inferenceKey = async (key: string, limits: object = {}): Promise<{ id: string; secret: string }> => {
  const body = { requests_per_minute: null, max_concurrency: null, ...limits };
  const made: Body = await (await bench.post('/v1/keys', {}, { key })).json();
  await bench.gateway.request(`/v1/keys/${made.id}`, { method: 'PATCH', key, body });
  return made;
};

/** Lines whose answers take long. */
const slow = (count: number, tpotMs = 100, tokens = 600): string =>
  linesOf(count, { body: { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: tpotMs } } });

describe('the lines of a batch', () => {
  it('are in the error file when invalid, with the error that a client would get', async () => {
    const text = [
      line(0),
      line(1, { body: { max_tokens: -1 } }),
      line(2, { body: { best_of: 5, n: 500 } }),
      line(3),
    ].join('\n');
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 4, completed: 2, failed: 2 } });
    const output = await outputOf(bench.gateway, batch.output_file_id);
    expect(output.map(({ custom_id: name }) => name)).toEqual(['line-0', 'line-3']);
    const errors = await outputOf(bench.gateway, batch.error_file_id);
    expect(errors).toMatchObject([
      { custom_id: 'line-1', response: { status_code: 400, body: { error: { param: 'max_tokens' } } }, error: null },
      {
        custom_id: 'line-2',
        response: { status_code: 400, body: { error: { type: 'invalid_request_error' } } },
        error: null,
      },
    ]);
  });

  it('run in the tier flex despite their service_tier, and keep their custom ids and texts', async () => {
    const odd = '✓ "quoted" \\ ümläut 🜚';
    const text = `\ufeff${line(0, { customId: odd, body: { service_tier: 'default', user: odd } })}\r\n\r\n${line(1, { body: { service_tier: null } }).replace('"service_tier"', '"service\\u005ftier"')}\r\n`;
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
    const output = await outputOf(bench.gateway, batch.output_file_id);
    expect(output.map(({ custom_id: name }) => name)).toEqual([odd, 'line-1']);
    for (const { response } of output) {
      expect(await bench.record(response.request_id)).toMatchObject({ service_tier: 'flex' });
    }
  });

  it('accept any name of their model', async () => {
    const names = ['GPT-4', 'chat', 'test/chat', 'The Chat'];
    const text = names.map((model, n) => line(n, { body: { model } })).join('\n');
    const { id } = await startBatch(bench.gateway, text);
    const batch = await batchEnd(bench.gateway, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 4, completed: 4, failed: 0 } });
    for (const { response } of await outputOf(bench.gateway, batch.output_file_id)) {
      expect(response.body.model).toBe('chat');
    }
  });

  it('reach each endpoint that batches support', async () => {
    const embeddings = line(0, {
      url: '/v1/embeddings',
      body: { model: 'embed', input: 'x', messages: undefined, max_tokens: undefined },
    });
    const completions = line(0, { url: '/v1/completions', body: { prompt: 'x', messages: undefined } });
    const answers = { model: 'answers', input: 'x', messages: undefined, max_tokens: undefined };
    const response = line(0, { url: '/v1/responses', body: { ...answers, script: { tokens: 3 } } });
    for (const [endpoint, text, object] of [
      ['/v1/embeddings', embeddings, 'list'],
      ['/v1/completions', completions, 'text_completion'],
      ['/v1/responses', response, 'response'],
    ] as const) {
      const { id } = await startBatch(bench.gateway, text, { endpoint });
      const batch = await batchEnd(bench.gateway, id);
      const [answer] = await outputOf(bench.gateway, batch.output_file_id ?? batch.error_file_id);
      expect(answer, endpoint).toMatchObject({ response: { status_code: 200, body: { object } } });
    }
  });
});

describe('an interrupted batch', () => {
  it('waits for money, shows that, and continues when the wallet has credit', async () => {
    const { id: organization, key } = await openOrganization(bench.gateway, null);
    const { id } = await startBatch(bench.gateway, linesOf(5), { key });
    const waiting = await batchWhen(bench.gateway, id, ({ waiting_for: code }) => code !== null, key);
    expect(waiting).toMatchObject({
      status: 'in_progress',
      waiting_for: 'insufficient_funds',
      request_counts: { completed: 0, failed: 0 },
    });
    const credit = { organization_id: organization, amount: '1', reference: 'top-up' };
    expect((await bench.post('/v1/wallet/credits', credit)).status).toBe(201);
    expect(await batchEnd(bench.gateway, id, key)).toMatchObject({
      status: 'completed',
      waiting_for: null,
      request_counts: { completed: 5, failed: 0 },
    });
  });

  it('waits at the limits of its key, and leaves half of each limit to other requests', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const own = await inferenceKey(key, { max_concurrency: 4 });
    const { id } = await startBatch(bench.gateway, slow(10, 20, 50), { key: own.secret });
    let refused = 0;
    for (let done = false; !done;) {
      const answer = await bench.chat({ model: 'chat' }, { key: own.secret });
      if (answer.status === 429) refused += 1;
      await answer.text();
      done = (await batchWhen(bench.gateway, id, () => true, own.secret)).status === 'completed';
    }
    expect(refused).toBe(0);
  });

  it('leaves half of each limit of its project to other requests, also of the less used limit', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { data }: Body = await (await bench.gateway.request('/v1/projects', { key })).json();
    const path = `/v1/organization/projects/${data[0].id}/rate_limits/rl-chat`;
    expect((await bench.post(path, { max_requests_per_1_day: 20 }, { key })).status).toBe(200);
    for (let time = 0; time < 11; time += 1) {
      const answer = await bench.chat({ model: 'chat', max_tokens: 1 }, { key });
      expect(answer.status).toBe(200);
      await answer.text();
    }
    const own = await inferenceKey(key, { requests_per_minute: 8, max_concurrency: 2 });
    const { id } = await startBatch(bench.gateway, linesOf(8), { key: own.secret });
    const waiting = await batchWhen(bench.gateway, id, ({ waiting_for: code }) => code !== null, key);
    expect(waiting).toMatchObject({ waiting_for: 'rate_limit_exceeded', request_counts: { completed: 1 } });
    // It looks again when its turn comes, which counts nothing.
    const uuid = id.replace('batch_', '');
    for (let turns = 0; turns < 3; turns += 1) {
      await bench.gateway.db.sql`update batches set turn_at = now() where id = ${uuid}`;
      await eventually(async () => {
        const [row] = await bench.gateway.db.sql`select turn_at > now() as waits from batches where id = ${uuid}`;
        return row?.waits === true;
      });
    }
    const later = await batchWhen(bench.gateway, id, () => true, key);
    expect(later).toMatchObject({ waiting_for: 'rate_limit_exceeded', request_counts: { completed: 1 } });
  });

  it('fails when its key is revoked, keeps its answers, and gives the reason for the other lines', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const own = await inferenceKey(key);
    const text = `${linesOf(3)}\n${slow(9).replaceAll('"line-', '"slow-')}`;
    const { id } = await startBatch(bench.gateway, text, { key: own.secret });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed === 3, key);
    await bench.gateway.request(`/v1/keys/${own.id}`, { method: 'DELETE', key });
    const batch = await batchEnd(bench.gateway, id, key);
    expect(batch).toMatchObject({
      status: 'failed',
      request_counts: { total: 12, completed: 3 },
      errors: { data: [{ code: 'unauthorized' }] },
    });
    expect(await outputOf(bench.gateway, batch.output_file_id, key)).toHaveLength(3);
    const errors = await outputOf(bench.gateway, batch.error_file_id, key);
    expect(errors).toHaveLength(9);
    for (const error of errors) expect(error).toMatchObject({ response: null, error: { code: 'unauthorized' } });
  });

  it('continues after its key is rotated', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const own = await inferenceKey(key);
    const { id } = await startBatch(bench.gateway, slow(12, 10, 40), { key: own.secret });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed > 0, key);
    const rotated = await bench.post(`/v1/keys/${own.id}/rotate`, { grace_seconds: 0 }, { key });
    expect(rotated.status).toBe(200);
    expect(await batchEnd(bench.gateway, id, key)).toMatchObject({
      status: 'completed',
      request_counts: { completed: 12 },
    });
  });

  it('is canceled within seconds, and keeps its answers', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const text = `${linesOf(3)}\n${slow(9, 1000).replaceAll('"line-', '"slow-')}`;
    const { id } = await startBatch(bench.gateway, text, { key });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed === 3, key);
    const cancelled = await bench.post(`/v1/batches/${id}/cancel`, undefined, { key });
    expect(await cancelled.json()).toMatchObject({ status: 'cancelling' });
    const batch = await batchEnd(bench.gateway, id, key);
    expect(batch).toMatchObject({ status: 'cancelled', request_counts: { total: 12, completed: 3 } });
    expect(batch.cancelled_at - batch.cancelling_at).toBeLessThan(60);
    expect(await outputOf(bench.gateway, batch.output_file_id, key)).toHaveLength(3);
    expect(await outputOf(bench.gateway, batch.error_file_id, key)).toHaveLength(9);
    const again = await bench.post(`/v1/batches/${id}/cancel`, undefined, { key });
    expect(await again.json()).toMatchObject({ status: 'cancelled' });
    const other = await openOrganization(bench.gateway, '1');
    for (const [path, method] of [
      [`/v1/batches/${id}`, 'GET'],
      [`/v1/batches/${id}/cancel`, 'POST'],
      [`/v1/files/${batch.output_file_id}/content`, 'GET'],
    ] as const) {
      expect(await errorOf(await bench.gateway.request(path, { method, key: other.key }))).toMatchObject({
        status: 404,
        code: 'not_found',
      });
    }
  });

  it('expires with its completion window, and keeps its answers', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, `${linesOf(2)}\n${slow(4, 1000).replaceAll('"line-', '"slow-')}`, {
      key,
    });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed === 2, key);
    const uuid = id.replace('batch_', '');
    await bench.gateway.db
      .sql`update batches set expires_at = now(), turn_at = now(), lease_until = now(), fence = fence + 1 where id = ${uuid}::uuid`;
    const batch = await batchEnd(bench.gateway, id, key);
    expect(batch).toMatchObject({ status: 'expired', request_counts: { total: 6, completed: 2, failed: 0 } });
    expect(await outputOf(bench.gateway, batch.output_file_id, key)).toHaveLength(2);
    const errors = await outputOf(bench.gateway, batch.error_file_id, key);
    expect(errors.map(({ error }) => error.code)).toEqual(Array.from({ length: 4 }, () => 'batch_expired'));
    expect(await errorOf(await bench.post(`/v1/batches/${id}/cancel`, undefined, { key }))).toMatchObject({
      status: 409,
    });
  });
});
