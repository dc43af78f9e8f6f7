import { beforeEach, describe, expect, it } from 'vitest';
import { formatId } from '#base/id.ts';
import { type Body, recordOf, type TestOrganization, useGateway } from '#test/metering/recorded-usage.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

const dayMs = 86_400_000;

describe('GET /v1/admin/organizations', () => {
  const bench = useGateway();
  const ask = (query: string, status = 200): Promise<Body> =>
    bench.ask(`/v1/admin/organizations?${query}`, bench.gateway.key, status);
  const idOf = ({ id }: TestOrganization): string => formatId('org', id);
  const ids = ({ data }: Body): string[] => data.map(({ id }: { id: string }) => id);

  it("rejects requests without a key, of organizations, and with administrators' inference keys", async () => {
    const organization = await bench.openOrganization();
    const path = '/v1/admin/organizations';
    expect((await bench.gateway.request(path, { key: null })).status).toBe(401);
    expect((await bench.gateway.request(path, { key: organization.managementKey })).status).toBe(403);
    const made = await bench.gateway.request('/v1/keys', { body: { scope: 'inference' } });
    const { secret } = (await made.json()) as { secret: string };
    expect((await bench.gateway.request(path, { key: secret })).status).toBe(403);
  });

  it.each([
    ['sort=password', 'sort', 'must be one of'],
    ['status=gone', 'status', ''],
    ['page=0', 'page', 'whole number'],
    ['order=name', 'order', 'is unknown'],
  ])('returns 400 with the reason for %s', async (query, param, text) => {
    const { error } = await ask(query, 400);
    expect(error.param).toBe(param);
    expect(error.message).toContain(text);
  });

  it("shows spend, balance and usage equal to each organization's wallet and usage", async () => {
    const [one, two] = [await bench.openOrganization(), await bench.openOrganization()];
    const now = Date.now();
    for (const [organization, daysAgo, count] of [
      [one, 0, 2],
      [one, 29, 1],
      [one, 45, 4],
      [two, 0, 1],
    ] as const) {
      for (let done = 0; done < count; done += 1) {
        await bench.metering.settle(recordOf(organization, now - daysAgo * dayMs));
      }
    }
    const list = await ask('limit=100&sort=-spent_30_days');
    expect(ids(list).slice(0, 2)).toEqual([idOf(one), idOf(two)]);
    for (const organization of [one, two]) {
      const row = list.data.find(({ id }: { id: string }) => id === idOf(organization));
      const today = new Date(Math.floor(now / dayMs) * dayMs);
      const from = new Date(today.getTime() - 29 * dayMs).toISOString();
      const key = organization.managementKey;
      const days = await bench.ask(`/v1/usage/summary?from=${from}`, key);
      const month = await bench.ask('/v1/usage/summary', key);
      expect(row).toMatchObject({
        spent_30_days: days.totals.cost,
        requests_30_days: days.totals.num_model_requests,
        spent_month: month.totals.cost,
        balance: (await bench.ask('/v1/wallet', key)).balance,
        active_keys: (await bench.ask('/v1/keys?status=active', key)).data.length,
        status: 'active',
      });
    }
    expect(list.data.find(({ id }: { id: string }) => id === idOf(one)).requests_30_days).toBe(3);
  });

  it('searches by name and id, filters by status, and pages without loss', async () => {
    const organization = await bench.openOrganization();
    expect(ids(await ask(`search=${idOf(organization)}`))).toEqual([idOf(organization)]);
    const patch = { method: 'PATCH', body: { name: 'Findable 100%_', status: 'suspended' } };
    expect((await bench.gateway.request(`/v1/organizations/${idOf(organization)}`, patch)).status).toBe(200);
    expect(ids(await ask('search=findable%20100%25_'))).toEqual([idOf(organization)]);
    expect(ids(await ask('search=nobody%20has%20this'))).toEqual([]);
    expect(ids(await ask('status=suspended'))).toEqual([idOf(organization)]);
    const all = await ask('limit=100&sort=created_at');
    const paged: string[] = [];
    for (let page = 1; page <= all.pagination.total; page += 1) {
      paged.push(...ids(await ask(`limit=1&sort=created_at&page=${page}`)));
    }
    expect(paged).toEqual(ids(all));
  });
});
