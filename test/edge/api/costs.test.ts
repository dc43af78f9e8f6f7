import { describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { readCsv } from '#test/costs/csv.ts';
import { at } from '#test/costs/support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();

const json = '/v1/billing/costs';
const csv = '/v1/billing/costs.csv';
const march = 'month=2026-03';

interface Owner {
  readonly id: string;
  readonly key: string;
  /** An inference key. */
  readonly member: string;
}

async function organization(name: string): Promise<Owner> {
  const made = await api().organization(name);
  const { body } = await api().ask('/v1/keys', { key: made.key, body: { name: 'member', scope: 'inference' } });
  return { ...made, member: body.secret };
}

interface Use {
  readonly cluster?: string;
  readonly profile: string;
  readonly nodes?: number;
  readonly from: string;
  readonly to?: string;
}

/** Nodes of eight GPUs each. */
async function use({ id }: Owner, { cluster = 'one', profile, nodes = 1, from, to }: Use): Promise<void> {
  const { costs } = api().billing;
  const owner = { id: parseId('org', id) ?? '', name: 'Water Works' };
  const keys = Array.from({ length: nodes }, () => ({ nodeId: `node_${uuidv7()}`, generation: 1 }));
  const ref = { id: `cluster_${id}_${cluster}`, name: cluster, organization: owner };
  const shape = { nodeName: 'node', hardwareProfile: profile, gpus: 8, atMs: at(from) };
  await api().db.orm.transaction(async (tx) => {
    await costs.allocate(
      tx,
      ref,
      keys.map((key) => ({ ...key, ...shape })),
    );
    if (to === undefined) return;
    await costs.release(
      tx,
      ref.id,
      keys.map((key) => ({ ...key, atMs: at(to), estimated: false })),
    );
  });
}

async function price(profile: string, prices: object, currency = 'USD'): Promise<void> {
  const dates = { effective_from: '2020-01-01', retroactive: true };
  const body = { hardware_profile: profile, currency, ...prices, ...dates };
  expect((await api().ask('/v1/billing/rate-cards', { body })).status).toBe(201);
}

const fieldsOf = ({ body }: Answer): string[] => body.error.details.map(({ field }: { field: string }) => field);

/** Two hours of one node, which nobody but its organization may see. */
const twoHours = (profile: string): Use => ({ profile, from: '2026-03-10 10:00', to: '2026-03-10 12:00' });

describe.each([json, csv])('%s', (path) => {
  it('returns 401 without a key', async () => {
    expect(await api().ask(`${path}?${march}`, { key: null })).toMatchObject({
      status: 401,
      body: { error: { code: 'UNAUTHORIZED', details: [] } },
    });
  });

  it.each([
    ['', ['month']],
    ['from=2026-03-01', ['to']],
    ['from=2026-03-01&to=2026-03-01', ['to']],
    ['from=2026-03-01T10:00:00&to=2026-04-01', ['from']],
    ['from=2025-01-01&to=2026-03-01', ['to']],
    ['month=2026-13', ['month']],
    [`${march}&from=2026-03-01`, ['month']],
    [`${march}&tz=Mars/Olympus`, ['tz']],
    [`${march}&currency=EUR`, ['currency']],
    [`${march}&${march}`, ['month', 'month']],
    // Everything at once.
    ['from=a&to=b&tz=c&d=e', ['d', 'tz', 'from', 'to']],
  ])('returns 400 for the window %s', async (query, fields) => {
    const answer = await api().ask(`${path}?${query}`);
    expect(answer).toMatchObject({ status: 400, body: { error: { code: 'VALIDATION_ERROR' } } });
    expect(fieldsOf(answer)).toEqual(fields);
  });

  it('returns the same 404 for other organizations and unknown ones', async () => {
    const [own, other] = [await organization('Own'), await organization('Other')];
    await use(other, twoHours('hidden'));
    for (const key of [own.key, own.member]) {
      for (const org of [other.id, `org_${'0'.repeat(32)}`, 'nonsense']) {
        const answer = await api().ask(`${path}?${march}&org=${org}`, { key });
        expect(answer).toMatchObject({ status: 404, body: { error: { message: 'There is no such organization.' } } });
      }
    }
    expect((await api().ask(`${path}?${march}&org=org_${'0'.repeat(32)}`)).status).toBe(404);
  });
});

describe('a cost report', () => {
  it('shows members their own organization, and operators all organizations', async () => {
    const [own, other] = [await organization('Own'), await organization('Other')];
    await price('seen', { node_hour: '32.50' });
    await use(own, twoHours('seen'));
    await use(other, { ...twoHours('seen'), nodes: 3 });
    const idsOf = async (key: string, query = march): Promise<string[]> => {
      const { body } = await api().ask(`${json}?${query}`, { key });
      return body.organizations.map(({ id }: { id: string }) => id);
    };
    for (const key of [own.key, own.member]) {
      expect(await idsOf(key)).toEqual([own.id]);
      expect(await idsOf(key, `${march}&org=${own.id}`)).toEqual([own.id]);
    }
    const { admin } = api();
    expect(await idsOf(admin)).toEqual(expect.arrayContaining([own.id, other.id]));
    expect(await idsOf(admin, `${march}&org=${other.id}`)).toEqual([other.id]);
    // An operator's inference key is a member's.
    const { body } = await api().ask('/v1/keys', { body: { name: 'app', scope: 'inference' } });
    expect(await idsOf(body.secret)).toEqual([]);
  });

  it('contains clusters and line items, with amounts, hours and the requested window', async () => {
    const own = await organization('Shapes');
    await price('shape', { node_hour: '32.50' });
    await use(own, { ...twoHours('shape'), nodes: 2 });
    await use(own, { ...twoHours('shape-unrated'), cluster: 'two' });
    const { status, body } = await api().ask(`${json}?from=2026-03-10&to=2026-03-11&tz=Europe/Berlin`, own);
    expect(status).toBe(200);
    expect(body.window).toMatchObject({
      from: '2026-03-09T23:00:00.000Z',
      to: '2026-03-10T23:00:00.000Z',
      tz: 'Europe/Berlin',
      as_of: expect.stringMatching(/Z$/),
    });
    expect(body.totals).toEqual({ node_hours: 6, gpu_hours: 48, unrated_hours: 2, unrated_gpu_hours: 16 });
    const amount = { currency: 'USD', amount: '130.00', amount_exact: '130.0000000000' };
    expect(body.grand_total).toEqual([amount]);
    const [rated, unrated] = body.organizations[0].clusters;
    expect(rated).toMatchObject({
      name: 'one',
      source: 'node',
      running: false,
      node_hours: 4,
      line_items: [
        {
          hardware_profile: 'shape',
          node_hours: 4,
          gpu_hours: 32,
          rated: true,
          native: { ...amount, node_hour_price: '32.5', gpu_hour_price: null },
          billed: amount,
          conversion: 'none',
          conversion_rate: null,
        },
      ],
    });
    expect(unrated.line_items[0]).toMatchObject({ rated: false, unrated_reason: 'no_rate_card', billed: null });
    expect(body.warnings).toEqual([
      { code: 'RATE_CARD_MISSING', hardware_profile: 'shape-unrated', organization_ids: [own.id] },
    ]);
  });

  it('is in the billing currency when a rate exists, and otherwise unconverted with a warning', async () => {
    const own = await organization('Currencies');
    await price('converted', { node_hour: '32.50' });
    await use(own, { ...twoHours('converted'), nodes: 2 });
    const bill = (currency: string) =>
      api().ask(`/v1/orgs/${own.id}/billing-currency`, { key: own.key, method: 'PATCH', body: { currency } });
    await bill('EUR');
    const skipped = await api().ask(`${json}?${march}`, own);
    expect(skipped.status).toBe(200);
    expect(skipped.body.grand_total).toMatchObject([{ currency: 'USD', amount: '130.00' }]);
    expect(skipped.body.organizations[0].clusters[0].line_items[0].conversion).toBe('skipped_missing_rate');
    expect(skipped.body.warnings).toEqual([
      { code: 'CONVERSION_RATE_MISSING', from: 'USD', to: 'EUR', organization_ids: [own.id] },
    ]);
    const rate = { from: 'USD', to: 'EUR', rate: '0.92345', effective_from: '2020-01-01', retroactive: true };
    expect((await api().ask('/v1/billing/conversion-rates', { body: rate })).status).toBe(201);
    const converted = await api().ask(`${json}?${march}`, own);
    expect(converted.body.grand_total).toEqual([{ currency: 'EUR', amount: '120.05', amount_exact: '120.0485000000' }]);
    expect(converted.body.warnings).toEqual([]);
  });

  it('includes hours of running allocations up to now', async () => {
    const own = await organization('Running');
    await price('running', { node_hour: '1' });
    const began = new Date(Date.now() - 3_600_000).toISOString().slice(0, 19).replace('T', ' ');
    await use(own, { profile: 'running', from: began });
    const span = `from=${new Date(Date.now() - 86_400_000).toISOString()}&to=${new Date(Date.now() + 86_400_000).toISOString()}`;
    const { body } = await api().ask(`${json}?${span}`, own);
    expect(body.organizations[0].clusters[0]).toMatchObject({ running: true, ended_at: null });
    expect(body.totals.node_hours).toBeGreaterThanOrEqual(1);
    expect(body.totals.node_hours).toBeLessThan(2);
  });

  it('is empty for an organization without usage', async () => {
    const own = await organization('Idle');
    const { body } = await api().ask(`${json}?${march}`, own);
    expect(body).toMatchObject({ grand_total: [], organizations: [], warnings: [], totals: { node_hours: 0 } });
    expect((await api().ask(`${csv}?${march}`, own)).body.trim().split('\r\n')).toHaveLength(1);
  });
});

describe('the CSV of a cost report', () => {
  it('adds up to the JSON, names its window, and escapes formulas for spreadsheets', async () => {
    const own = await organization('=cmd|calc, "the" first');
    await price('csv-a', { node_hour: '0.0333', gpu_hour: '0.1' });
    await price('csv-b', { gpu_hour: '4321' }, 'JPY');
    for (const [index, cluster] of ['a', '+b', 'c,d'].entries()) {
      const to = `2026-03-10 ${11 + index}:34:56`;
      for (const profile of ['csv-a', 'csv-b', 'csv-unrated']) {
        await use(own, { cluster, profile, from: '2026-03-10 10:00', to });
      }
    }
    const report = (await api().ask(`${json}?${march}`, own)).body;
    const answer = await api().ask(`${csv}?${march}`, own);
    expect(answer.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(answer.headers.get('content-disposition')).toBe(
      'attachment; filename="costs_2026-03-01_2026-04-01_UTC.csv"',
    );
    const rows = readCsv(answer.body);
    expect(rows).toHaveLength(12);
    expect(new Set(rows.map(({ ResourceName: name }) => name))).toEqual(new Set(['a', "'+b", 'c,d']));
    for (const { currency, amount } of report.grand_total) {
      const cells = rows.filter((row) => row['BillingCurrency'] === currency).map((row) => row['BilledCost'] ?? '');
      expect(cents(cells, currency)).toBe(cents([amount], currency));
    }
    expect(report.grand_total.map(({ currency }: { currency: string }) => currency)).toEqual(['JPY', 'USD']);
    expect(sum(rows, 'x_NodeHours')).toBeCloseTo(report.totals.node_hours, 6);
    expect(sum(rows, 'x_GpuHours')).toBeCloseTo(report.totals.gpu_hours, 6);
    expect(sum(rows, 'x_UnratedHours')).toBeCloseTo(report.totals.unrated_hours, 6);
    // Unrated hours differ from free ones.
    const unrated = rows.filter((row) => row['SkuId'] === 'csv-unrated');
    expect(unrated.map((row) => [row['BilledCost'], row['SkuPriceId'], Number(row['x_UnratedHours']) > 0])).toEqual(
      Array.from({ length: 3 }, () => ['0', 'unrated/csv-unrated', true]),
    );
  });
});

/** Whole numbers of the smallest unit: sums of them are exact. */
const cents = (amounts: readonly string[], currency: string): number =>
  amounts
    .filter((text) => text !== '')
    .reduce((total, text) => total + Math.round(Number(text) * (currency === 'JPY' ? 1 : 100)), 0);

const sum = (rows: readonly Record<string, string>[], column: string): number =>
  rows.reduce((total, row) => total + Number(row[column]), 0);

describe('GET /v1/billing/costs/series', () => {
  const series = (query: string, key?: string): Promise<Answer> =>
    api().ask(`/v1/billing/costs/series?${query}`, key === undefined ? {} : { key });

  it('returns steps and groups whose amounts add up to the report', async () => {
    const owner = await organization('Series');
    const profile = uuidv7();
    await price(profile, { node_hour: '0.3333' });
    await use(owner, { cluster: 'a', profile, nodes: 2, from: '2026-03-01 10:07', to: '2026-03-03 11:01' });
    await use(owner, { cluster: 'b', profile, from: '2026-03-02', to: '2026-03-02 00:05' });
    const { status, body } = await series(`${march}&step=1d&group_by=cluster&tz=Europe/Berlin`, owner.member);
    const report = (await api().ask(`${json}?${march}&tz=Europe/Berlin`, { key: owner.key })).body;
    expect([status, body.totals, body.grand_total]).toEqual([200, report.totals, report.grand_total]);
    expect(body.steps).toHaveLength(31);
    expect(body.groups.map(({ name }: { name: string }) => name)).toEqual(['a', 'b']);
    const cents = (amounts: readonly { amount: string }[]): number =>
      amounts.reduce((sum, { amount }) => sum + Math.round(Number(amount) * 100), 0);
    const parts = body.steps.flatMap(({ groups }: { groups: { amounts: { amount: string }[] }[] }) => groups);
    expect(parts.reduce((sum: number, { amounts }: (typeof parts)[number]) => sum + cents(amounts), 0)).toBe(
      cents(report.grand_total),
    );
  });

  it('groups by the labels of a cluster and its nodes', async () => {
    const owner = await organization('Labels');
    const profile = `p-${uuidv7()}`;
    await price(profile, { node_hour: '1' });
    const nodes = ['n1', 'n2'].map((name) => ({ name, address: '10.0.0.7', hardware_profile: profile }));
    const labeled = [nodes[0], { ...nodes[1], labels: { team: 'b' } }];
    const body = { name: 'labeled', organization_id: owner.id, labels: { team: 'a' }, nodes: labeled };
    const { id } = (await api().ask('/v1/clusters', { body })).body;
    for (const [name, hours] of [
      ['n1', '03'],
      ['n2', '05'],
    ]) {
      const path = `/v1/clusters/${id}/nodes/${name}`;
      await api().ask(`${path}/allocate`, { body: { at: '2026-03-01T00:00:00Z' } });
      await api().ask(`${path}/release`, { body: { at: `2026-03-01T${hours}:00:00Z` } });
    }
    // The node is removed, and the costs keep its labels.
    await api().ask(`/v1/clusters/${id}/nodes/n2`, { method: 'DELETE' });
    await api().ask(`/v1/clusters/${id}`, { method: 'PATCH', body: { labels: { team: 'later' } } });
    const { groups } = (await series(`${march}&group_by=label:team`, owner.key)).body;
    expect(groups.map(({ value, node_hours }: { value: string; node_hours: number }) => [value, node_hours])).toEqual([
      ['a', 3],
      ['b', 5],
    ]);
  });

  it.each([
    ['step=1w', 'step'],
    ['group_by=team', 'group_by'],
    ['group_by=label:', 'group_by'],
    ['group_by=label:a b', 'group_by'],
  ])('rejects %s', async (query, field) => {
    const { status, body } = await series(`${march}&${query}`);
    expect([status, body.error.details[0].field]).toEqual([400, field]);
  });

  it('rejects more than 1000 steps, and shows only the own organization', async () => {
    const long = await series('from=2026-01-01&to=2026-06-01&step=1h');
    expect([long.status, long.body.error.message]).toEqual([400, expect.stringContaining('more than 1000 steps')]);
    const [owner, other] = [await organization('One'), await organization('Other')];
    expect((await series(`${march}&org=${other.id}`, owner.key)).status).toBe(404);
  });
});
