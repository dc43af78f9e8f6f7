import { describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { type Body, idAt, recordOf, useGateway } from '#test/metering/recorded-usage.ts';

const noon = Date.parse('2026-05-04T12:00:00Z');
const minuteMs = 60_000;

describe('GET /v1/usage/requests', () => {
  const bench = useGateway();

  it('returns 401 without a key', async () => {
    expect((await bench.gateway.request('/v1/usage/requests', { key: null })).status).toBe(401);
  });

  it.each([
    ['from=yesterday', 'from', 'RFC 3339'],
    ['from=2026-02-30', 'from', 'RFC 3339'],
    ['to=2026-05-04T25:00:00Z', 'to', 'RFC 3339'],
    ['to=2026-05-04T12:00:00', 'to', 'RFC 3339'],
    ['from=2026-05-04&to=2026-05-04', 'to', 'after "from"'],
    ['key_id=42', 'key_id', 'key_'],
    ['project_id=key_019ab1c2d3e47f008a1b2c3d4e5f6071', 'project_id', 'proj_'],
    ['model=a%00b', 'model', 'NUL'],
    ['limit=1&limit=2', 'limit', ''],
    ['outcome=lost', 'outcome', 'completed'],
    ['status=99', 'status', 'HTTP status'],
    ['status=many', 'status', ''],
    ['end_user=', 'end_user', 'empty'],
    ['error=a%00b', 'error', 'NUL'],
    ['limit=0', 'limit', '1 or more'],
    ['limit=501', 'limit', 'at most 500'],
    ['cursor=bm8', 'cursor', 'cursor'],
    ['keyid=1', 'keyid', 'is unknown'],
  ])('returns 400 with the reason for %s', async (query, param, text) => {
    const { error } = await bench.ask(`/v1/usage/requests?${query}`, bench.gateway.key, 400);
    expect(error).toMatchObject({ type: 'invalid_request_error', code: 'invalid_request_error', param });
    expect(error.message).toContain(text);
  });

  it('returns 404 for a request of another organization and an unknown one', async () => {
    const [one, two] = [await bench.openOrganization(), await bench.openOrganization()];
    const record = recordOf(one, noon);
    await bench.metering.settle(record);
    for (const id of [record.id, uuidv7(), 'nonsense', `req_${record.id}`]) {
      const { error } = await bench.ask(`/v1/usage/requests/${id}`, two.managementKey, 404);
      expect(error.code).toBe('not_found');
    }
    expect((await bench.ask(`/v1/usage/requests/${record.id}`, one.managementKey)).id).toBe(record.id);
    expect((await bench.ask(`/v1/usage/requests/${record.id.toUpperCase()}`, one.managementKey)).id).toBe(record.id);
  });

  it('searches by end user, status and text of the error, and returns all matches over pages', async () => {
    const organization = await bench.openOrganization();
    const other = await bench.openOrganization();
    const at = (minutes: number, fields: Parameters<typeof recordOf>[2]) =>
      recordOf(organization, noon - minutes * minuteMs, fields);
    const failed = { outcome: 'failed', status: 502, reason: 'engine_unreachable' } as const;
    const ended = { outcome: 'ended', status: 402, reason: 'insufficient_funds' } as const;
    // Hours apart, with more requests of other statuses between them than fit into a page.
    const records = [
      at(0, { namedUser: 'anna' }),
      ...Array.from({ length: 30 }, (_, index) => at(60 + index, { ...failed, status: 500 })),
      at(300, { ...failed, namedUser: 'anna' }),
      at(5000, ended),
      at(9000, failed),
    ];
    await Promise.all(
      [...records, recordOf(other, noon, { namedUser: 'anna' })].map((one) => bench.metering.settle(one)),
    );
    const idsOf = async (query: string): Promise<string[]> => {
      const ids: string[] = [];
      for (let cursor = ''; ;) {
        const page: Body = await bench.ask(`/v1/usage/requests?limit=1&${query}${cursor}`, organization.managementKey);
        ids.push(...page.data.map(({ id }: Body) => id));
        if (!page.has_more) return ids;
        cursor = `&cursor=${page.next_cursor}`;
      }
    };
    const id = (index: number): string => records.at(index)?.id ?? '';
    expect(await idsOf('end_user=anna')).toEqual([id(0), id(31)]);
    expect(await idsOf('end_user=anna&status=502')).toEqual([id(31)]);
    expect(await idsOf('end_user=nobody')).toEqual([]);
    expect(await idsOf('status=502')).toEqual([id(31), id(-1)]);
    expect(await idsOf('status=200')).toEqual([id(0)]);
    expect(await idsOf('error=FUNDS')).toEqual([id(-2)]);
    expect(await idsOf('error=unreachable&status=502')).toEqual([id(31), id(-1)]);
    expect(await idsOf('error=unreachable&outcome=ended')).toEqual([]);
    expect((await bench.ask(`/v1/usage/requests/${id(0)}`, organization.managementKey)).end_user).toBe('anna');
  });

  it('returns all fields of a record, with its cost to the last digit', async () => {
    const organization = await bench.openOrganization();
    const record = recordOf(organization, noon + 1_500, {
      model: 'big',
      endpoint: '/v1/completions',
      stream: true,
      outcome: 'ended',
      reason: 'insufficient_funds',
      usageSource: 'last_seen',
      costPicoUsd: 12_345_678_901_234_567_890n,
      writtenOffPicoUsd: 1n,
      firstByteMs: null,
      clientRequestId: 'mine',
    });
    await bench.metering.settle(record);
    const expected = {
      id: record.id,
      object: 'usage.request',
      created_at: noon / 1000 + 1,
      key_id: formatId('key', organization.keyId),
      project_id: formatId('proj', organization.projectId),
      model: 'big',
      endpoint: '/v1/completions',
      stream: true,
      service_tier: 'default',
      status: 200,
      outcome: 'ended',
      reason: 'insufficient_funds',
      cache_hit: false,
      input_tokens: 10,
      input_cached_tokens: 4,
      input_cache_write_tokens: 0,
      output_tokens: 5,
      output_reasoning_tokens: 2,
      usage_source: 'last_seen',
      cost: '12345678.90123456789',
      written_off: '0.000000000001',
      currency: 'USD',
      timings_ms: { queued: 1, first_byte: null, total: 30 },
      client_request_id: 'mine',
      end_user: null,
      fallback_for: null,
    };
    const price = { price_version: record.priceVersionId, price: null };
    const unknown = { timeline: null, limits_remaining: null, replica: null };
    const path = `/v1/usage/requests/${record.id}`;
    expect(await bench.ask(path, organization.managementKey)).toEqual({ ...expected, ...price, ...unknown });
    expect(await bench.ask('/v1/usage/requests', organization.managementKey)).toEqual({
      object: 'list',
      data: [expected],
      has_more: false,
      next_cursor: null,
    });
  });

  it('returns the timeline of a request, if known', async () => {
    const organization = await bench.openOrganization();
    const facts = {
      admittedMs: 10,
      coldMs: 70,
      remaining: { requests: 3, tokens: null, monthTokens: 9_000_000_000_000, concurrency: 0 },
      replica: { id: 'external:other', ageSeconds: null },
    };
    const times = { queuedMs: 100, firstByteMs: 150, totalMs: 400 };
    const record = recordOf(organization, noon, { ...times, facts });
    await bench.metering.settle(record);
    const shown = await bench.ask(`/v1/usage/requests/${record.id}`, organization.managementKey);
    expect(shown).toMatchObject({
      timeline: { admitted: 10, queued: 30, engine_cold_start: 70, first_byte: 40, last_byte: 250 },
      limits_remaining: {
        requests_per_minute: 3,
        tokens_per_minute: null,
        monthly_token_limit: 9_000_000_000_000,
        max_concurrency: 0,
      },
      replica: { id: 'external:other', age_seconds: null },
    });
    expect(shown.timeline.committed).toBeGreaterThanOrEqual(0);
  });

  it('pages in the order of admission, also while older requests settle late', async () => {
    const organization = await bench.openOrganization();
    const records = Array.from({ length: 7 }, (_, i) => recordOf(organization, noon + i * minuteMs));
    await Promise.all(records.map((record) => bench.metering.settle(record)));
    const seen: string[] = [];
    let cursor = '';
    for (let page = 0; page < 3; page += 1) {
      const answer = await bench.ask(`/v1/usage/requests?limit=3${cursor}`, organization.managementKey);
      seen.push(...answer.data.map((record: { id: string }) => record.id));
      expect(answer.has_more).toBe(page < 2);
      cursor = `&cursor=${answer.next_cursor}`;
      // Admitted long ago or just now: neither moves what the next page begins with.
      await bench.metering.settle(recordOf(organization, noon - minuteMs * (page + 10)));
      await bench.metering.settle(recordOf(organization, noon + minuteMs * (page + 10)));
    }
    const first7 = records.map((record) => record.id).toReversed();
    expect(seen.slice(0, 7)).toEqual(first7);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('filters by half-open time, key, model, project and outcome', async () => {
    const organization = await bench.openOrganization();
    const other = { ...organization, keyId: uuidv7(), projectId: uuidv7() };
    const records = {
      before: recordOf(organization, noon - 1),
      start: recordOf(organization, noon),
      inside: recordOf(other, noon + minuteMs, { model: 'big', outcome: 'failed', status: 502 }),
      end: recordOf(organization, noon + 2 * minuteMs),
    };
    await Promise.all(Object.values(records).map((record) => bench.metering.settle(record)));
    const find = async (query: string): Promise<string[]> => {
      const { data } = await bench.ask(`/v1/usage/requests?${query}`, organization.managementKey);
      const names = Object.entries(records).map(([name, { id }]) => [id, name]);
      return data.map((record: { id: string }) => Object.fromEntries(names)[record.id]);
    };
    expect(await find('from=2026-05-04T12:00:00Z&to=2026-05-04T12:02:00Z')).toEqual(['inside', 'start']);
    expect(await find('from=2026-05-04T14:00:00%2B02:00')).toEqual(['end', 'inside', 'start']);
    expect(await find('from=2026-05-04T14:00:00+02:00')).toEqual(['end', 'inside', 'start']);
    expect(await find('to=2026-05-04T12:00:00.000Z')).toEqual(['before']);
    expect(await find('from=2026-05-05')).toEqual([]);
    expect(await find(`key_id=${formatId('key', other.keyId)}`)).toEqual(['inside']);
    expect(await find(`project_id=${formatId('proj', other.projectId)}`)).toEqual(['inside']);
    expect(await find('model=small&outcome=completed')).toEqual(['end', 'start', 'before']);
    expect(await find('outcome=failed')).toEqual(['inside']);
    expect(await find(`key_id=${formatId('key', uuidv7())}`)).toEqual([]);
  });

  it('shows an inference key only its own requests', async () => {
    const organization = await bench.openOrganization();
    const { secret, keyId } = await bench.makeKey(organization);
    const other = recordOf(organization, noon);
    const own = recordOf({ ...organization, keyId: uuidOfKey(keyId) }, noon);
    await Promise.all([other, own].map((record) => bench.metering.settle(record)));
    const idsOf = async (query: string): Promise<string[]> => {
      const { data } = await bench.ask(`/v1/usage/requests${query}`, secret);
      return data.map((record: { id: string }) => record.id);
    };
    expect(await idsOf('')).toEqual([own.id]);
    expect(await idsOf(`?key_id=${keyId}`)).toEqual([own.id]);
    expect(await idsOf(`?key_id=${formatId('key', organization.keyId)}`)).toEqual([]);
    await bench.ask(`/v1/usage/requests/${other.id}`, secret, 404);
    expect((await bench.ask(`/v1/usage/requests/${own.id}`, secret)).id).toBe(own.id);
  });

  it('reads an index from its end, at any size of the table', async () => {
    const organization = await bench.openOrganization();
    const plan = await bench.gateway.db.sql.begin(async (sql) => {
      await sql`SET LOCAL enable_seqscan = off`;
      return sql`EXPLAIN SELECT * FROM usage_requests WHERE id < ${idAt(noon)}
        AND organization = (SELECT code FROM usage_ids WHERE id = ${organization.id}) ORDER BY id DESC LIMIT 51`;
    });
    const lines = plan.map((row) => String(row['QUERY PLAN'])).join('\n');
    expect(lines).toContain('Index Scan Backward');
    expect(lines).not.toContain('Sort ');
  });
});

function uuidOfKey(id: string): string {
  const digits = id.slice('key_'.length);
  return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}
