import { beforeAll, describe, expect, it } from 'vitest';
import { createRejectedRequests, keptPerMinute } from '#core/metering/records/rejected-requests.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import {
  type Body,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
let key: Body;
let other: Body;
let rejected: readonly Body[] = [];

const list = async (query: string, as?: string): Promise<Body> =>
  (await bench.gateway.request(`/v1/usage/rejected${query}`, as === undefined ? {} : { key: as })).json();

beforeAll(async () => {
  key = await (await bench.post('/v1/keys', { name: 'rejected' })).json();
  other = await (await bench.post('/v1/keys', { name: 'other', requests_per_minute: 1 })).json();
  const headers = { 'x-client-request-id': 'mine-1' };
  await bench.chat({ model: 'nothing', max_tokens: 5 }, { key: key.secret, headers });
  await bench.chat({ model: 'chat', max_tokens: 'many' }, { key: key.secret });
  for (let at = 0; at < 3; at += 1)
    await bench.chat({ model: 'chat', max_tokens: 5, safety_identifier: 'anna' }, { key: other.secret });
  rejected = await eventually(async () => {
    const { data } = await list('');
    return data.length === 4 ? data : null;
  });
});

describe('GET /v1/usage/rejected', () => {
  it('returns rejected requests with the error that the client got, newest first', () => {
    expect(rejected.map(({ code, status }) => [code, status])).toEqual([
      ['rate_limit_exceeded', 429],
      ['rate_limit_exceeded', 429],
      ['invalid_value', 400],
      ['model_not_found', 400],
    ]);
    expect(rejected[3]).toMatchObject({
      object: 'usage.rejected_request',
      key_id: key.id,
      model: null,
      endpoint: '/v1/chat/completions',
      message: expect.stringContaining('"nothing"'),
      client_request_id: 'mine-1',
    });
    expect(rejected[2]).toMatchObject({ model: null, param: 'max_tokens' });
    expect(rejected[0]).toMatchObject({ model: 'chat', key_id: other.id, end_user: 'anna' });
    expect(rejected[3]).toMatchObject({ end_user: null });
  });

  it('filters by key, model, code, time and id, and returns pages', async () => {
    const idsOf = async (query: string): Promise<string[]> => (await list(query)).data.map(({ id }: Body) => id);
    const all = rejected.map(({ id }) => id);
    expect(await idsOf(`?key_id=${other.id}`)).toEqual(all.slice(0, 2));
    expect(await idsOf('?model=chat')).toEqual(all.slice(0, 2));
    expect(await idsOf('?end_user=anna')).toEqual(all.slice(0, 2));
    expect(await idsOf('?end_user=bert')).toEqual([]);
    expect(await idsOf('?status=400')).toEqual(all.slice(2));
    expect(await idsOf('?error=NOTHING')).toEqual(all.slice(3));
    expect(await idsOf('?error=rate_limit')).toEqual(all.slice(0, 2));
    expect(await idsOf('?code=model_not_found')).toEqual(all.slice(3));
    expect(await idsOf('?to=2020-01-01')).toEqual([]);
    expect(await idsOf(`?request_id=${String(all[1]).toUpperCase()}`)).toEqual([all[1]]);
    expect(await idsOf('?request_id=none')).toEqual([]);
    const first = await list('?limit=3');
    expect(first.data).toHaveLength(3);
    expect(await idsOf(`?limit=3&cursor=${first.next_cursor}`)).toEqual(all.slice(3));
    expect((await bench.gateway.request('/v1/usage/rejected?from=2026-02-02&to=2026-02-01')).status).toBe(400);
  });

  it('shows a key its own, and another organization none', async () => {
    expect((await list('', key.secret)).data).toHaveLength(2);
    expect((await list(`?key_id=${other.id}`, key.secret)).data).toEqual([]);
    const stranger = await openOrganization(bench.gateway, '1');
    expect((await list('', stranger.key)).data).toEqual([]);
  });
});

describe('the portal', () => {
  let admin: Visitor;
  beforeAll(async () => {
    admin = await signInVisitor(bench.gateway);
  });

  it('shows rejected requests by code, and those of one code', async () => {
    const { text } = await admin.get('/portal/usage');
    expect(text).toMatch(/<a href="#rejected-title">4 more rejected/);
    expect(text).toMatch(/rate_limit_exceeded<\/code><\/a>[^]*?2[^]*?model_not_found/);
    const ofCode = (await admin.get('/portal/usage?code=model_not_found')).text;
    expect(ofCode).toContain(`/portal/usage/${rejected[3]?.id}`);
    expect(ofCode).not.toContain(`/portal/usage/${rejected[0]?.id}`);
  });

  it('finds a request by its id, whether it was rejected or not', async () => {
    const find = (id: string) => admin.get(`/portal/usage/find?id=${encodeURIComponent(id)}`);
    const { status, headers } = await find(` ${rejected[2]?.id} `);
    expect([status, headers.location]).toEqual([303, `/portal/usage/${rejected[2]?.id}`]);
    const shown = await admin.get(`/portal/usage/${rejected[2]?.id}`);
    expect([shown.status, shown.text.includes('max_tokens')]).toEqual([200, true]);
    const unknown = await admin.get(`/portal/usage/${uuidv7()}`);
    expect([unknown.status, unknown.text.includes('Request not found')]).toEqual([404, true]);
    expect((await admin.get('/portal/usage/%3Cscript%3E')).text).not.toContain('<script>');
  });
});

it('keeps the first of each minute and organization, for seven days', async () => {
  const { db } = bench.gateway;
  let nowMs = Date.UTC(2026, 4, 1);
  const kept = createRejectedRequests({
    db,
    log: createLog('silent'),
    clock: { now: () => nowMs, monotonicMs: () => nowMs },
  });
  const organizationId = uuidv7();
  const count = async (): Promise<number> => {
    await kept.flush();
    const [row] = await db.sql<{ rows: number }[]>`
      select count(*)::int as rows from rejected_requests where organization_id = ${organizationId}`;
    return row?.rows ?? 0;
  };
  const reject = (times: number): void => {
    for (let at = 0; at < times; at += 1)
      kept.add({
        id: uuidv7(nowMs),
        organizationId,
        keyId: uuidv7(),
        projectId: uuidv7(),
        model: '',
        endpoint: '/v1/chat/completions',
        status: 400,
        code: 'invalid_value',
        param: 'a\0b',
        message: 'x'.repeat(9000),
        clientRequestId: null,
        endUser: null,
      });
  };
  reject(keptPerMinute + 20);
  expect(await count()).toBe(keptPerMinute);
  nowMs += 60_000;
  reject(2);
  expect(await count()).toBe(keptPerMinute + 2);
  nowMs += 7 * 86_400_000 - 30_000;
  await kept.deleteOld();
  expect(await count()).toBe(2);
});
