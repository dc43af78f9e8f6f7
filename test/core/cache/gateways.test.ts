import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  chatBody,
  chatPath,
  eventually,
  framesOf,
  standinFile,
  writeEngines,
  type Body,
} from '#test/inference/inference-gateway.ts';
import { createTestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { fresh } from '#test/cache/caching-key.ts';

/** Two gateways, one database, one Redis; each with an engine of its own. */
let redis: TestRedis;
let database: Awaited<ReturnType<typeof createTestDatabase>>;
const gateways: TestGateway[] = [];
const key = `sk-test-${'k'.repeat(40)}`;
const cacheBytesMax = 8192;

beforeAll(async () => {
  redis = await startRedis();
  database = await createTestDatabase();
  const env = {
    REDIS_URL: redis.url,
    HEADGATE_BOOTSTRAP_KEY: key,
    HEADGATE_CACHE_MAX_BYTES: String(cacheBytesMax),
    HEADGATE_SHUTDOWN_SECONDS: '1',
  };
  for (let index = 0; index < 2; index++) {
    const enginesDir = writeEngines({ chat: standinFile('chat') });
    gateways.push(await startGateway({ databaseUrl: database.url, enginesDir, env }));
  }
  const first = gatewayAt(0);
  const keys: Body = await (await first.request('/v1/keys', { key })).json();
  const path = `/v1/keys/${keys.data[0].id}`;
  await first.request(path, { key, method: 'PATCH', body: { cache_responses: true } });
});

afterAll(async () => {
  for (const gateway of gateways) await gateway.stop();
  await redis.stop();
  await database.drop();
});

function gatewayAt(at: number): TestGateway {
  const gateway = gateways[at];
  if (gateway === undefined) throw new Error(`there is no gateway ${at}`);
  return gateway;
}

function chat(at: number, body: object, headers: Record<string, string> = {}): Promise<Response> {
  return gatewayAt(at).request(chatPath, { key, body: chatBody(body), headers });
}

const cacheOf = (answer: Response): string | null => answer.headers.get('x-headgate-cache');

describe('answers cached by another gateway', () => {
  it('are found in Redis, streamed and plain', async () => {
    // The first may be asked for before it is kept.
    const { body, first, hit } = await eventually(async () => {
      const asked = { ...fresh(), standin: { text: 'Größe 🙂' } };
      const made: Body = await (await chat(0, asked)).json();
      const answer = await chat(1, asked);
      return cacheOf(answer) === 'hit' ? { body: asked, first: made, hit: answer } : null;
    });
    expect(await hit.json()).toEqual(first);
    const stream = await chat(1, { ...body, stream: true });
    expect(cacheOf(stream)).toBe('hit');
    const said = framesOf(await stream.text()).map((frame) => frame.choices?.[0]?.delta.content ?? '');
    expect(said.join('')).toBe('Größe 🙂');
  });

  it('stay within their limit in Redis: the oldest is removed', async () => {
    const bodies = Array.from({ length: 30 }, () => fresh());
    for (const body of bodies) expect(cacheOf(await chat(0, body))).toBe('miss');
    const newest = bodies.at(-1) ?? {};
    await eventually(async () => cacheOf(await chat(1, newest)) === 'hit');
    expect(cacheOf(await chat(1, bodies[0] ?? {}))).toBe('miss');
  });

  it('that Redis has lost are requested from the engine again', async () => {
    const body = fresh();
    await (await chat(0, body)).text();
    await eventually(async () => cacheOf(await chat(1, body)) === 'hit');
    await redis.flush();
    const again = await eventually(async () => {
      const answer = await chat(1, body);
      return answer.status === 200 ? answer : null;
    });
    expect(cacheOf(again)).toBe('miss');
  });
});

describe('an Idempotency-Key on two gateways', () => {
  it('returns 409 with Retry-After while the other gateway runs it, and then its answer', async () => {
    const headers = { 'idempotency-key': `one ${Math.random()}` };
    const body = { ...fresh(), temperature: 1.5, stream: true, standin: { ttft_ms: 500, output_tokens: 8 } };
    const first = chat(0, body, headers);
    const refused = await eventually(async () => {
      const [row] = await gatewayAt(0).db.sql`select 1 from idempotency_keys where state = 'running'`;
      return row === undefined ? null : chat(1, body, headers);
    });
    expect(refused.status).toBe(409);
    expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
    const ran = await first;
    const text = await ran.text();
    const again = await eventually(async () => {
      const answer = await chat(1, body, headers);
      return answer.status === 200 ? answer : null;
    });
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expect(again.headers.get('x-headgate-original-request-id')).toBe(ran.headers.get('x-request-id'));
    expect(await again.text()).toBe(text);
  });

  it('runs once when both gateways get it at the same time', async () => {
    for (let round = 0; round < 5; round++) {
      const headers = { 'idempotency-key': `both ${round} ${Math.random()}` };
      const body = { ...fresh(), standin: { ttft_ms: 30 } };
      const answers = await Promise.all([0, 1, 0, 1].map((at) => chat(at, body, headers)));
      const statuses = answers.map(({ status }) => status);
      expect(statuses.filter((status) => status === 200).length).toBeGreaterThanOrEqual(1);
      expect(statuses.filter((status) => status !== 200 && status !== 409)).toEqual([]);
      const ran = answers.filter(
        (answer) => answer.status === 200 && answer.headers.get('idempotent-replayed') === null,
      );
      expect(ran).toHaveLength(1);
    }
  });
});
