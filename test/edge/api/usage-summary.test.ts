import { beforeEach, describe, expect, it } from 'vitest';
import { formatId, uuidTimeMs, uuidv7 } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { UsageRecord } from '#core/metering/metering.ts';
import { type Body, recordOf, type TestOrganization, useGateway, uuidOf } from '#test/metering/recorded-usage.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

const start = Date.parse('2026-05-04T00:00:00Z');
const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;
const iso = (timeMs: number): string => new Date(timeMs).toISOString();

describe('percentiles of GET /v1/usage/summary', () => {
  const bench = useGateway();

  it('are merged over hours, models and keys, of streams and waits, once for each record', async () => {
    const organization = await bench.openOrganization();
    const day = Date.UTC(2026, 4, 4);
    const stream = (hour: number, firstByteMs: number, fields: Parameters<typeof recordOf>[2] = {}) =>
      recordOf(organization, day + hour * 3_600_000, {
        model: 'small',
        stream: true,
        firstByteMs,
        totalMs: firstByteMs + 1000,
        usage: { inputTokens: 1, cachedTokens: 0, cacheWriteTokens: 0, outputTokens: 101, reasoningTokens: 0 },
        queuedMs: 0,
        ...fields,
      });
    const records = [
      ...Array.from({ length: 60 }, (_, index) => stream(index % 2, 100)),
      ...Array.from({ length: 36 }, (_, index) => stream(index % 3, 1000)),
      ...Array.from({ length: 4 }, () => stream(2, 8000)),
      stream(3, 50, { model: 'large', queuedMs: 400 }),
      stream(3, 50_000, { cacheHit: true }),
      stream(3, 50_000, { stream: false }),
    ];
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    await Promise.all(records.slice(0, 5).map((record) => bench.metering.settle(record)));
    const ask = async (query: string): Promise<Body> =>
      bench.ask(`/v1/usage/summary?from=2026-05-04&to=2026-05-05&${query}`, organization.managementKey);
    const near = (value: number) => expect.closeTo(value, -Math.log10(value * 0.09));
    const { data } = await ask('group_by=model&latency=true');
    expect(data.map(({ model }: Body) => model)).toEqual(['large', 'small']);
    const [large, small] = data.map(({ latency }: Body) => latency);
    expect(small.first_byte_ms).toEqual({ requests: 100, p50: near(100), p95: near(1000), p99: near(8000) });
    expect(small.tokens_per_second).toEqual({ requests: 100, p50: near(100), p95: near(100), p99: near(100) });
    expect(small.queued_ms).toEqual({ requests: 101, p50: 0, p95: 0, p99: 0 });
    expect(large.queued_ms).toEqual({ requests: 1, p50: near(400), p95: near(400), p99: near(400) });
    const hours: Body = await ask('group_by=hour,key_id&latency=true');
    expect(hours.data.map(({ latency }: Body) => latency.first_byte_ms?.requests)).toEqual([42, 42, 16, 1]);
    const all: Body = await ask('latency=true');
    expect(all.data[0].latency.first_byte_ms).toMatchObject({ requests: 101, p95: near(1000) });
    expect((await ask('group_by=model')).data[0]).not.toHaveProperty('latency');
  });
});

describe('GET /v1/usage/summary', () => {
  const bench = useGateway();
  const ask = (organization: TestOrganization, query: string, status = 200): Promise<Body> =>
    bench.ask(`/v1/usage/summary?${query}`, organization.managementKey, status);

  /** Counts refusals as the minute they happen in would. */
  async function refuse(organization: TestOrganization, timeMs: number, fields: Record<string, string | number> = {}) {
    const row = { model: 'small', code: 'insufficient_funds', count: 1, key_id: organization.keyId, ...fields };
    await bench.gateway.db.sql`
      INSERT INTO usage_refusals (organization_id, minute, key_id, project_id, model, code, count)
      VALUES (${organization.id}, ${iso(timeMs)}, ${row.key_id}, ${organization.projectId}, ${row.model}, ${row.code},
        ${row.count})`;
  }

  it('returns 401 without a key', async () => {
    expect((await bench.gateway.request('/v1/usage/summary', { key: null })).status).toBe(401);
  });

  it.each([
    ['from=1.5.2026', 'from', 'RFC 3339'],
    ['from=2026-05-04&to=2026-05-03', 'to', 'after "from"'],
    ['from=2999-01-01', 'from', 'future'],
    ['group_by=user', 'group_by', 'key_id, model, project_id, day, hour'],
    ['group_by=day,day', 'group_by', 'at most once'],
    ['group_by=', 'group_by', 'comma-separated'],
    ['group_by=hour&from=2025-01-01&to=2026-05-04', 'group_by', '400 days'],
    ['interval=day', 'interval', 'is unknown'],
    ['key_id=key_1', 'key_id', 'begins with "key_"'],
    ['project_id=', 'project_id', 'begins with "proj_"'],
    ['model=', 'model', '1 to 512'],
    ['model=small&model=a%00b', 'model', 'NUL'],
    [`model=a${'&model=a'.repeat(100)}`, 'model', '100 times'],
  ])('returns 400 with the reason for %s', async (query, param, text) => {
    const { error } = await bench.ask(`/v1/usage/summary?${query}`, bench.gateway.key, 400);
    expect(error).toMatchObject({ code: 'invalid_request_error', param });
    expect(error.message).toContain(text);
  });

  it('returns 400 with advice to ask for less when there are too many groups', async () => {
    const organization = await bench.openOrganization();
    const models = Array.from({ length: 20_001 }, (_, i) => `model ${i}`);
    await Promise.all(models.map((model) => bench.metering.settle(recordOf(organization, start, { model }))));
    const span = 'from=2026-05-04&to=2026-05-05';
    const { error } = await ask(organization, `group_by=model&${span}`, 400);
    expect(error.message).toContain('Use a shorter span');
    expect((await ask(organization, span)).totals.num_model_requests).toBe(20_001);
  });

  it('returns one group of zeros without usage, and no group when grouped', async () => {
    const organization = await bench.openOrganization();
    const zeros = {
      num_model_requests: 0,
      outcomes: { completed: 0, aborted: 0, ended: 0, failed: 0 },
      refusals: {},
      input_tokens: 0,
      input_cached_tokens: 0,
      output_tokens: 0,
      output_reasoning_tokens: 0,
      cost: '0',
    };
    const bounds = { object: 'usage.summary', from: start / 1000, to: start / 1000 + 3600 };
    const span = `from=${iso(start)}&to=${iso(start + hourMs)}`;
    expect(await ask(organization, span)).toEqual({ ...bounds, data: [zeros], totals: zeros });
    expect(await ask(organization, `${span}&group_by=day`)).toEqual({ ...bounds, data: [], totals: zeros });
  });

  it('covers the current month up to now by default', async () => {
    const organization = await bench.openOrganization();
    const record = recordOf(organization, Date.now());
    await bench.metering.settle(record);
    const summary = await ask(organization, '');
    const month = new Date(summary.to * 1000 - 1000);
    expect(summary.from).toBe(Date.UTC(month.getUTCFullYear(), month.getUTCMonth(), 1) / 1000);
    expect(summary.totals).toMatchObject({ num_model_requests: 1, cost: formatUsd(record.costPicoUsd) });
  });

  it('groups by key, model, project, day and hour, with the same names as elsewhere', async () => {
    const organization = await bench.openOrganization();
    const other = { ...organization, keyId: uuidv7(), projectId: uuidv7() };
    const records = [
      recordOf(organization, start),
      recordOf(organization, start + hourMs, { model: 'big', outcome: 'aborted' }),
      recordOf(other, start + 25 * hourMs, { outcome: 'failed', costPicoUsd: 0n }),
    ];
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    await refuse(organization, start + 5 * minuteMs, { model: '', code: 'unauthorized', count: 3 });
    const span = 'from=2026-05-04&to=2026-05-06';
    const groups = async (by: string): Promise<Body[]> => (await ask(organization, `group_by=${by}&${span}`)).data;
    const byDay = await groups('day');
    expect(byDay).toMatchObject([
      {
        day: '2026-05-04',
        num_model_requests: 2,
        outcomes: { completed: 1, aborted: 1 },
        refusals: { unauthorized: 3 },
      },
      { day: '2026-05-05', num_model_requests: 1, outcomes: { failed: 1 }, refusals: {}, cost: '0' },
    ]);
    expect((await groups('hour')).map((group) => group.hour)).toEqual(
      [start, start + hourMs, start + 25 * hourMs].map((timeMs) => timeMs / 1000),
    );
    expect(await groups('model')).toMatchObject([
      { model: null, num_model_requests: 0, refusals: { unauthorized: 3 } },
      { model: 'big', num_model_requests: 1 },
      { model: 'small', num_model_requests: 2 },
    ]);
    const byKey = await groups('project_id,key_id');
    expect(byKey.map((group) => [group.project_id, group.key_id])).toEqual([
      [formatId('proj', organization.projectId), formatId('key', organization.keyId)],
      [formatId('proj', other.projectId), formatId('key', other.keyId)],
    ]);
    expect(byKey[0]).toMatchObject({ num_model_requests: 2, cost: '0.000006', input_tokens: 20 });
  });

  it('filters by keys, projects and models, in days, hours and records', async () => {
    const organization = await bench.openOrganization();
    const stranger = await bench.openOrganization();
    const other = { ...organization, keyId: uuidv7(), projectId: uuidv7() };
    const at = [start - dayMs, start, start + hourMs, start + hourMs + minuteMs];
    const records = at.flatMap((timeMs) => [
      recordOf(organization, timeMs),
      recordOf(organization, timeMs, { model: 'big' }),
      recordOf(other, timeMs, { model: 'huge' }),
    ]);
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    await refuse(organization, start);
    await refuse(organization, start, { model: 'big', code: 'unauthorized' });
    const sums = async (query: string, by = organization): Promise<unknown[]> => {
      const to = iso(start + hourMs + 2 * minuteMs);
      const { totals } = await ask(by, `from=2026-05-03&to=${to}&group_by=key_id&${query}`);
      return [totals.num_model_requests, totals.refusals];
    };
    const key = `key_id=${formatId('key', organization.keyId)}`;
    const [project, otherProject] = [organization, other].map(
      ({ projectId }) => `project_id=${formatId('proj', projectId)}`,
    );
    expect(await sums('')).toEqual([12, { insufficient_funds: 1, unauthorized: 1 }]);
    expect(await sums(key)).toEqual([8, { insufficient_funds: 1, unauthorized: 1 }]);
    expect(await sums(`${otherProject}`)).toEqual([4, {}]);
    expect(await sums(`${project}&${otherProject}`)).toEqual([12, { insufficient_funds: 1, unauthorized: 1 }]);
    expect(await sums('model=big')).toEqual([4, { unauthorized: 1 }]);
    expect(await sums('model=big&model=huge')).toEqual([8, { unauthorized: 1 }]);
    expect(await sums(`${key}&model=huge`)).toEqual([0, {}]);
    expect(await sums(`model=none`)).toEqual([0, {}]);
    expect(await sums(key, stranger)).toEqual([0, {}]);
  });

  it('counts a rejection in the span in which its minute starts, so adjacent spans add up', async () => {
    const organization = await bench.openOrganization();
    for (let minute = 0; minute < 4; minute += 1) await refuse(organization, start + minute * minuteMs, { count: 2 });
    const cut = start + 90_000;
    const count = async (from: number, to: number): Promise<unknown> =>
      (await ask(organization, `from=${iso(from)}&to=${iso(to)}`)).totals.refusals;
    expect(await count(start, cut)).toEqual({ insufficient_funds: 4 });
    expect(await count(cut, start + hourMs)).toEqual({ insufficient_funds: 4 });
    expect(await count(start + 1, start + minuteMs)).toEqual({});
  });

  it('shows an inference key only its own usage, and no other organization', async () => {
    const [organization, stranger] = [await bench.openOrganization(), await bench.openOrganization()];
    const { secret, keyId } = await bench.makeKey(organization);
    const own = { ...organization, keyId: uuidOf('key', keyId) };
    await Promise.all([organization, own, own].map((by) => bench.metering.settle(recordOf(by, start))));
    await refuse(organization, start);
    const query = '/v1/usage/summary?from=2026-05-04&to=2026-05-05&group_by=key_id';
    const seen = await bench.ask(query, secret);
    expect(seen.data).toMatchObject([{ key_id: keyId, num_model_requests: 2, refusals: {} }]);
    expect((await bench.ask(query, organization.managementKey)).totals).toMatchObject({ num_model_requests: 3 });
    expect((await bench.ask(query, stranger.managementKey)).data).toEqual([]);
  });

  it('equals the sum of the records for any bounds within hours', async () => {
    const organization = await bench.openOrganization();
    const random = createRandom(20_260_504);
    const outcomes = ['completed', 'aborted', 'ended', 'failed'] as const;
    const records = Array.from({ length: 300 }, () =>
      recordOf(organization, start + Math.floor(random() * 30 * hourMs), {
        outcome: outcomes[Math.floor(random() * 4)] ?? 'completed',
        model: random() < 0.5 ? 'small' : 'big',
        costPicoUsd: BigInt(Math.floor(random() * 1e15)),
        usage: {
          inputTokens: Math.floor(random() * 1e6),
          cachedTokens: 0,
          cacheWriteTokens: 0,
          outputTokens: 1,
          reasoningTokens: 0,
        },
      }),
    );
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    const spans = Array.from({ length: 40 }, () => {
      const from = start + Math.floor(random() * 28 * hourMs);
      return [from, from + 1 + Math.floor(random() ** 2 * 8 * hourMs)] as const;
    });
    const whole = [start + 3 * hourMs, start + 7 * hourMs] as const;
    const onOneHour = [start + 3 * hourMs, start + 3 * hourMs + minuteMs] as const;
    for (const [from, to] of [...spans, whole, onOneHour]) {
      const span = `from=${iso(from)}&to=${iso(to)}`;
      const inside = records.filter(({ id }) => uuidTimeMs(id) >= from && uuidTimeMs(id) < to);
      const summary = await ask(organization, `${span}&group_by=model,hour`);
      expect(summary.totals).toEqual(sumOf(inside));
      const groups = Object.groupBy(
        inside,
        ({ id, model }) => `${model} ${Math.floor(uuidTimeMs(id) / hourMs) * 3600}`,
      );
      expect(summary.data).toHaveLength(Object.keys(groups).length);
      for (const { model, hour, ...sums } of summary.data)
        expect(sums).toEqual(sumOf(groups[`${model} ${hour}`] ?? []));
    }
  });
});

function sumOf(records: readonly UsageRecord[]) {
  const count = (outcome: string): number => records.filter((record) => record.outcome === outcome).length;
  const sum = (pick: (record: UsageRecord) => number): number =>
    records.reduce((total, record) => total + pick(record), 0);
  return {
    num_model_requests: records.length,
    outcomes: {
      completed: count('completed'),
      aborted: count('aborted'),
      ended: count('ended'),
      failed: count('failed'),
    },
    refusals: {},
    input_tokens: sum(({ usage }) => usage.inputTokens),
    input_cached_tokens: sum(({ usage }) => usage.cachedTokens),
    output_tokens: sum(({ usage }) => usage.outputTokens),
    output_reasoning_tokens: sum(({ usage }) => usage.reasoningTokens),
    cost: formatUsd(records.reduce((total, record) => total + record.costPicoUsd, 0n)),
  };
}

/** Mulberry32: the same spans in every run. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
