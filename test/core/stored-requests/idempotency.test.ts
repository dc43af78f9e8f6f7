import { describe, expect, it } from 'vitest';
import {
  errorOf,
  eventually,
  readMetric,
  standinFile,
  useInference,
  type Body,
} from '#test/inference/inference-gateway.ts';
import { fresh, makeKey, openReuse, type ReuseBench } from '#test/cache/caching-key.ts';
import { uuidOf } from '#test/metering/recorded-usage.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_LEASE_SECONDS: '5' },
}));

let named = 0;
function freshKey(): { headers: Record<string, string> } {
  named += 1;
  return { headers: { 'idempotency-key': `key ${named} ${Math.random()}` } };
}

const replayed = (answer: Response): string | null => answer.headers.get('idempotent-replayed');
const originalOf = (answer: Response): string | null => answer.headers.get('x-headgate-original-request-id');
const running = (): Promise<number> => readMetric(bench.socketOf('chat'), 'vllm:num_requests_running');

async function recordsOf({ managementKey, keyId }: ReuseBench): Promise<Body[]> {
  const path = `/v1/usage/requests?key_id=${keyId}`;
  return ((await (await bench.gateway.request(path, { key: managementKey })).json()) as Body).data;
}

const rowsOf = ({ keyId }: ReuseBench) =>
  bench.gateway.db.sql`select * from idempotency_keys where key_id = ${uuidOf('key', keyId)}`;

describe('an Idempotency-Key', () => {
  it('returns 400 when it is empty, too long or not printable', async () => {
    const { chat } = await openReuse(bench, {});
    for (const value of ['', 'x'.repeat(256), 'é', 'a\tb']) {
      const answer = await chat(fresh(), { headers: { 'idempotency-key': value } });
      const error = await errorOf(answer);
      expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'Idempotency-Key' });
    }
    const longest = await chat(fresh(), { headers: { 'idempotency-key': `~ ${'x'.repeat(252)}!` } });
    expect(longest.status).toBe(200);
    await longest.text();
  });

  it('returns 422 with another body or on another route, during the request and afterwards', async () => {
    const { chat, key } = await openReuse(bench, {});
    await (await chat(fresh())).text();
    const options = freshKey();
    const body = { ...fresh(), standin: { ttft_ms: 300 } };
    const first = chat(body, options);
    await eventually(async () => (await running()) === 1);
    const refusals = async (): Promise<void> => {
      const other = await chat({ ...body, seed: 1 }, options);
      expect(await errorOf(other)).toMatchObject({ status: 422, code: 'unprocessable', param: 'Idempotency-Key' });
      const completion = { model: 'chat', prompt: 'x', max_tokens: 2 };
      const elsewhere = await bench.post('/v1/completions', completion, { key, ...options });
      expect(elsewhere.status).toBe(422);
      await elsewhere.text();
    };
    await refusals();
    await (await first).text();
    await refusals();
  });
});

describe('a repeated request', () => {
  it.each([[false], [true]])('gets the same bytes, and is billed once (stream: %s)', async (stream) => {
    const reuse = await openReuse(bench, {});
    const { chat, key, asked } = reuse;
    const options = freshKey();
    const body = { ...fresh(), stream };
    const first = await chat(body, options);
    expect([replayed(first), originalOf(first)]).toEqual([null, null]);
    const text = await first.text();
    const [before, wallet] = [await asked(), await bench.wallet(key)];
    for (let round = 0; round < 2; round++) {
      const again = await chat(body, options);
      expect([again.status, replayed(again)]).toEqual([200, 'true']);
      expect(again.headers.get('content-type')).toBe(first.headers.get('content-type'));
      expect(again.headers.get('x-request-id')).not.toBe(first.headers.get('x-request-id'));
      expect(originalOf(again)).toBe(first.headers.get('x-request-id'));
      expect(await again.text()).toBe(text);
    }
    expect(await asked()).toBe(before);
    expect(await bench.wallet(key)).toEqual(wallet);
    expect(await recordsOf(reuse)).toHaveLength(1);
  });

  it('with another Idempotency-Key, without one, or with another API key runs separately', async () => {
    const reuse = await openReuse(bench, {});
    const other = await makeKey(bench, reuse.managementKey, {});
    const options = freshKey();
    const body = fresh();
    for (const asked of [options, freshKey(), {}, { ...options, key: other.secret }]) {
      const answer = await reuse.chat(body, asked);
      expect([answer.status, replayed(answer)]).toEqual([200, null]);
      await answer.text();
    }
  });

  it('joins the running one: twenty at once reach the engine once and are billed once', async () => {
    const reuse = await openReuse(bench, {});
    await (await reuse.chat(fresh())).text();
    for (const stream of [false, true]) {
      const before = await reuse.asked();
      const options = freshKey();
      const body = { ...fresh(), stream, standin: { ttft_ms: 200 } };
      const answers = await Promise.all(Array.from({ length: 20 }, () => reuse.chat(body, options)));
      const texts = await Promise.all(answers.map((answer) => answer.text()));
      expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
      expect(new Set(texts).size).toBe(1);
      expect(answers.filter((answer) => replayed(answer) === 'true')).toHaveLength(19);
      const ran = answers.find((answer) => replayed(answer) === null)?.headers.get('x-request-id') ?? '';
      expect(answers.filter((answer) => originalOf(answer) === ran)).toHaveLength(19);
      expect(await bench.record(ran, reuse.managementKey)).toMatchObject({ outcome: 'completed', stream });
      expect((await reuse.asked()) - before).toBe(1);
    }
    expect(await recordsOf(reuse)).toHaveLength(3);
  });

  it('runs again after a failure, which the requests that joined share', async () => {
    const reuse = await openReuse(bench, {});
    await (await reuse.chat(fresh())).text();
    const options = freshKey();
    const failing = { ...fresh(), standin: { ttft_ms: 200, error_after: 1 } };
    const answers = await Promise.all(Array.from({ length: 4 }, () => reuse.chat(failing, options)));
    expect(answers.map(({ status }) => status)).toEqual([502, 502, 502, 502]);
    const failed = answers.find((answer) => replayed(answer) === null)?.headers.get('x-request-id');
    expect(answers.filter((answer) => originalOf(answer) === failed)).toHaveLength(3);
    for (const answer of answers) await answer.text();
    await eventually(async () => (await rowsOf(reuse)).length === 0);
    const again = await reuse.chat(failing, options);
    expect([again.status, replayed(again)]).toEqual([502, null]);
    await again.text();
    const refused = await reuse.chat({ ...fresh(), temperature: -1 }, options);
    expect(refused.status).toBe(400);
    await refused.text();
    await eventually(async () => (await rowsOf(reuse)).length === 0);
    const good = await reuse.chat(fresh(), options);
    expect([good.status, replayed(good)]).toEqual([200, null]);
    await good.text();
  });

  it('runs again after a 429, which is not stored', async () => {
    const reuse = await openReuse(bench, { requests_per_minute: 1 });
    await (await reuse.chat(fresh())).text();
    const options = freshKey();
    const body = fresh();
    const refused = await reuse.chat(body, options);
    expect(refused.status).toBe(429);
    await refused.text();
    await bench.gateway.request(`/v1/keys/${reuse.keyId}`, {
      key: reuse.managementKey,
      method: 'PATCH',
      body: { requests_per_minute: null },
    });
    await eventually(async () => {
      const answer = await reuse.chat(body, options);
      await answer.text();
      return answer.status === 200;
    });
    const replay = await reuse.chat(body, options);
    expect(replayed(replay)).toBe('true');
    await replay.text();
  });
});

describe('a client that leaves', () => {
  it.each([[false], [true]])('gets the answer when it comes back, billed as complete (stream: %s)', async (stream) => {
    const reuse = await openReuse(bench, {});
    await (await reuse.chat(fresh())).text();
    const options = freshKey();
    const body = { ...fresh(), stream, max_tokens: 40, standin: { ttft_ms: 50, tpot_ms: 10, output_tokens: 40 } };
    const leaving = new AbortController();
    const left = reuse.chat(body, { ...options, signal: leaving.signal }).then(
      async (answer) => answer.body?.getReader().read(),
      () => null,
    );
    await eventually(async () => (await running()) === 1);
    if (stream) await left;
    leaving.abort();
    await left.catch(() => null);
    const again = await reuse.chat(body, options);
    expect([again.status, replayed(again)]).toEqual([200, 'true']);
    const text = await again.text();
    expect(text).toContain(stream ? 'data: [DONE]' : '"completion_tokens":40');
    const records = await recordsOf(reuse);
    expect(records.map(({ outcome, output_tokens: tokens, status }) => [outcome, tokens, status])).toEqual([
      ['completed', 40, 200],
      ['completed', 8, 200],
    ]);
  });

  it('has its request ended when the key is revoked', async () => {
    const reuse = await openReuse(bench, {});
    await (await reuse.chat(fresh())).text();
    const body = { ...fresh(), stream: true, max_tokens: 2000, standin: { tpot_ms: 20, output_tokens: 2000 } };
    const leaving = new AbortController();
    const answer = await reuse.chat(body, { ...freshKey(), signal: leaving.signal });
    leaving.abort();
    await bench.gateway.request(`/v1/keys/${reuse.keyId}`, { key: reuse.managementKey, method: 'DELETE' });
    expect(await bench.recordOf(answer, reuse.managementKey)).toMatchObject({
      outcome: 'ended',
      reason: 'unauthorized',
    });
    await eventually(async () => (await rowsOf(reuse)).length === 0);
  });
});

describe('a row of another gateway', () => {
  /** A request whose row looks as if another gateway ran it. */
  async function openElsewhere(lease: string) {
    const reuse = await openReuse(bench, {});
    const options = freshKey();
    const body = fresh();
    await (await reuse.chat(body, options)).text();
    const { sql } = bench.gateway.db;
    const id = uuidOf('key', reuse.keyId);
    await sql`update idempotency_keys set state = 'running', gateway_id = gen_random_uuid(), answer = null,
      lease_until = now() + ${lease}::interval where key_id = ${id}`;
    return { reuse, options, body };
  }

  it('that is running returns 409 with Retry-After, and 422 for another body', async () => {
    const { reuse, options, body } = await openElsewhere('20 seconds');
    const answer = await reuse.chat(body, options);
    expect(Number(answer.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(await errorOf(answer)).toMatchObject({ status: 409, code: 'conflict' });
    expect((await reuse.chat({ ...body, seed: 1 }, options)).status).toBe(422);
  });

  it('with an expired lease runs again, once PostgreSQL has answered here for as long as a lease', async () => {
    const { reuse, options, body } = await openElsewhere('-1 seconds');
    const answer = await eventually(async () => {
      const asked = await reuse.chat(body, options);
      return asked.status !== 409 && asked;
    });
    expect([answer.status, replayed(answer)]).toEqual([200, null]);
    await answer.text();
    expect(await recordsOf(reuse)).toHaveLength(2);
  });

  it('with an expired lease still returns 422 for another body', async () => {
    const { reuse, options, body } = await openElsewhere('-1 hours');
    const answer = await reuse.chat({ ...body, seed: 1 }, options);
    expect(await errorOf(answer)).toMatchObject({ status: 422, code: 'unprocessable', param: 'Idempotency-Key' });
  });

  it('billed without a stored answer returns 409, and does not run again', async () => {
    const { reuse, options, body } = await openElsewhere('20 seconds');
    const id = uuidOf('key', reuse.keyId);
    await bench.gateway.db.sql`update idempotency_keys set state = 'done' where key_id = ${id}`;
    const answer = await reuse.chat(body, options);
    expect(answer.headers.get('retry-after')).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ status: 409, code: 'conflict', param: 'Idempotency-Key' });
    expect(await recordsOf(reuse)).toHaveLength(1);
  });

  it('that has expired is ignored', async () => {
    const { reuse, options, body } = await openElsewhere('20 seconds');
    const id = uuidOf('key', reuse.keyId);
    await bench.gateway.db
      .sql`update idempotency_keys set state = 'done', expires_at = now() - interval '1 second' where key_id = ${id}`;
    const answer = await reuse.chat({ ...body, seed: 5 }, options);
    expect([answer.status, replayed(answer)]).toEqual([200, null]);
    await answer.text();
  });
});
