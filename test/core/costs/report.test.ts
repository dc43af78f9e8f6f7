import { describe, expect, it } from 'vitest';
import { csvFileName, reportToCsv, reportToJson, reportToJsonText } from '#core/costs/costs.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import { readCsv } from '#test/costs/csv.ts';
import { at, useCosts, windowOf } from '#test/costs/support.ts';

const march = { month: '2026-03' };
const day = { from: '2026-03-10 10:00', to: '2026-03-10 12:00' };

describe('a cost report', () => {
  const bench = useCosts();

  it('shows an organization only its own usage', async () => {
    const [own, other] = [bench.organization('Own'), bench.organization('Other')];
    await bench.card({ nodeHour: '1' });
    await bench.use({ organization: own, cluster: 'own', ...day });
    await bench.use({ organization: other, cluster: 'other', nodes: 5, ...day });
    const report = await bench.report(march, own);
    expect(report.organizations.map(({ id }) => id)).toEqual([own.id]);
    expect(report.totals.nodeHours).toBe(2);
    expect((await bench.report(march, bench.organization())).organizations).toEqual([]);
    expect((await bench.report(march)).organizations).toHaveLength(2);
  });

  it('counts nothing after now, and nothing in a window that has not begun', async () => {
    await bench.card({ nodeHour: '1' });
    await bench.use({ organization: bench.organization(), from: '2026-03-01' });
    const asOfMs = at('2026-03-01 05:00');
    const ahead = await bench.costs.report({ window: windowOf({ month: '2026-04' }), organizationIds: null, asOfMs });
    expect(ahead).toMatchObject({ report: { asOfMs, totals: { nodeHours: 0 }, organizations: [] } });
    const running = await bench.costs.report({ window: windowOf(march), organizationIds: null, asOfMs });
    expect(running).toMatchObject({ report: { totals: { nodeHours: 5 } } });
  });

  it('is the same JSON when it is streamed as text', async () => {
    await bench.card({ nodeHour: '1' });
    const empty = await bench.report(march);
    expect(JSON.parse([...reportToJsonText(empty)].join(''))).toEqual(reportToJson(empty));
    for (const name of ['One', 'Two "of" [two]}']) {
      const organization = bench.organization(name);
      await bench.use({ organization, cluster: `${name} a`, ...day });
      await bench.use({ organization, cluster: `${name} b`, profile: 'unrated', ...day });
    }
    const report = await bench.report(march);
    expect(report.organizations).toHaveLength(2);
    expect(JSON.parse([...reportToJsonText(report)].join(''))).toEqual(reportToJson(report));
  });

  it('lists organizations, clusters and line items by name, with totals that add up', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '0.005' });
    await bench.card({ profile: 'a100', nodeHour: '0.005' });
    for (const cluster of ['b', 'a']) {
      for (const profile of ['h100-8x', 'a100']) {
        await bench.use({ organization, cluster, profile, from: '2026-03-10 10:00', to: '2026-03-10 11:00' });
      }
    }
    const [found] = (await bench.report(march)).organizations;
    expect(found?.clusters.map(({ name }) => name)).toEqual(['a', 'b']);
    const items = found?.clusters[0]?.lineItems;
    expect(items?.map(({ hardwareProfile, billed }) => [hardwareProfile, billed?.amount])).toEqual([
      ['a100', '0.01'],
      ['h100-8x', '0.01'],
    ]);
    expect(found?.clusters[0]?.amounts).toEqual([{ currency: 'USD', amount: '0.02', amountExact: '0.0100000000' }]);
    expect(found?.amounts).toEqual([{ currency: 'USD', amount: '0.04', amountExact: '0.0200000000' }]);
  });

  it('shows when a cluster began and ended, and whether the end is estimated', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '1' });
    await bench.use({ organization, cluster: 'ended', from: '2026-02-20', to: '2026-04-02' });
    await bench.use({ organization, cluster: 'running', from: '2026-03-20' });
    const ref = { id: 'cluster_lost', name: 'lost', organization };
    const key = { nodeId: 'node_lost', generation: 1 };
    await bench.db.orm.transaction(async (tx) => {
      const shape = { nodeName: 'node', hardwareProfile: 'h100-8x', gpus: 8, atMs: at('2026-03-05') };
      await bench.costs.allocate(tx, ref, [{ ...key, ...shape }]);
      await bench.costs.release(tx, ref.id, [{ ...key, atMs: at('2026-03-06'), estimated: true }]);
    });
    const clusters = (await bench.report(march)).organizations[0]?.clusters;
    expect(clusters).toMatchObject([
      { name: 'ended', startedMs: at('2026-02-20'), endedMs: at('2026-04-02'), estimated: false, nodeHours: 744 },
      { name: 'lost', startedMs: at('2026-03-05'), endedMs: at('2026-03-06'), estimated: true, nodeHours: 24 },
      { name: 'running', startedMs: at('2026-03-20'), endedMs: null, estimated: false },
    ]);
  });

  it('divides a moved cluster between its owners', async () => {
    const [former, latter] = [bench.organization('Former'), bench.organization('Latter')];
    await bench.card({ nodeHour: '1' });
    await bench.use({ organization: former, cluster: 'one', from: '2026-03-10', to: '2026-03-20' });
    await bench.db.orm.transaction((tx) =>
      bench.costs.moveCluster(tx, { clusterId: 'cluster_one', from: former, to: latter, atMs: at('2026-03-12') }),
    );
    const report = await bench.report(march);
    expect(report.organizations).toMatchObject([
      { name: 'Former', nodeHours: 48, clusters: [{ id: 'cluster_one', nodeHours: 48 }] },
      { name: 'Latter', nodeHours: 192, clusters: [{ id: 'cluster_one', nodeHours: 192 }] },
    ]);
  });

  it('keeps one line for a renamed cluster, under its latest name', async () => {
    const id = uuidv7();
    await bench.card({ nodeHour: '1' });
    for (const [index, name] of ['first', 'second', 'first'].entries()) {
      await bench.db.orm.transaction(async (tx) => {
        const ref = { id: 'cluster_one', name, organization: { id, name: `Org ${name}` } };
        const [key, atMs] = [{ nodeId: `node_${index}`, generation: 1 }, at(`2026-03-1${index}`)];
        const shape = { nodeName: 'node', hardwareProfile: 'h100-8x', gpus: 8 };
        await bench.costs.allocate(tx, ref, [{ ...key, ...shape, atMs }]);
        await bench.costs.release(tx, ref.id, [{ ...key, atMs: atMs + 1_200_000, estimated: false }]);
      });
    }
    const report = await bench.report(march);
    expect(report.organizations).toMatchObject([
      { name: 'Org first', clusters: [{ name: 'first', lineItems: [{ nodeHours: 1, billed: { amount: '1.00' } }] }] },
    ]);
  });

  it('warns of usage without a price, with the reason', async () => {
    const organization = bench.organization();
    await bench.card({ profile: 'two', currency: 'EUR', nodeHour: '1' });
    await bench.card({ profile: 'two', currency: 'GBP', nodeHour: '1' });
    await bench.use({ organization, profile: 'none', ...day });
    await bench.use({ organization, profile: 'two', ...day });
    const report = await bench.report(march);
    expect(report.warnings).toEqual([
      { code: 'AMBIGUOUS_RATE', hardwareProfile: 'two', organizationIds: [organization.id] },
      { code: 'RATE_CARD_MISSING', hardwareProfile: 'none', organizationIds: [organization.id] },
    ]);
    expect(report.totals).toMatchObject({ nodeHours: 4, unratedHours: 4, unratedGpuHours: 32 });
    expect(report.grandTotal).toEqual([]);
  });

  it('does not change for the past when prices and rates change', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '10' });
    await bench.rate('USD→EUR', '0.9');
    await bench.bill(organization, 'EUR');
    await bench.use({ organization, ...day });
    const before = await bench.report(march);
    await bench.card({ nodeHour: '99', from: '2026-04-01' });
    await bench.rate('USD→EUR', '0.5', '2026-04-01');
    const after = await bench.report(march);
    expect({ ...after, asOfMs: 0 }).toEqual({ ...before, asOfMs: 0 });
  });

  it('has ISO times and public ids in JSON', async () => {
    const organization = bench.organization();
    const card = await bench.card({ nodeHour: '32.50' });
    await bench.rate('USD→EUR', '0.92345');
    await bench.bill(organization, 'EUR');
    await bench.use({ organization, nodes: 2, ...day });
    const report = await bench.report({ ...march, tz: 'Europe/Berlin' });
    const hours = { node_hours: 4, gpu_hours: 32, unrated_hours: 0, unrated_gpu_hours: 0 };
    const euros = { currency: 'EUR', amount: '120.05', amount_exact: '120.0485000000' };
    expect(JSON.parse(JSON.stringify(reportToJson(report)))).toEqual({
      window: {
        from: '2026-02-28T23:00:00.000Z',
        to: '2026-03-31T22:00:00.000Z',
        tz: 'Europe/Berlin',
        as_of: new Date(report.asOfMs).toISOString(),
      },
      totals: hours,
      grand_total: [euros],
      organizations: [
        {
          id: formatId('org', organization.id),
          name: 'Acme',
          billing_currency: 'EUR',
          ...hours,
          amounts: [euros],
          clusters: [
            {
              id: 'cluster_one',
              name: 'one',
              source: 'node',
              started_at: '2026-03-10T10:00:00.000Z',
              ended_at: '2026-03-10T12:00:00.000Z',
              running: false,
              estimated: false,
              ...hours,
              amounts: [euros],
              line_items: [
                {
                  hardware_profile: 'h100-8x',
                  rate_card_id: formatId('rate', card.id),
                  from: '2026-03-10T10:00:00.000Z',
                  to: '2026-03-10T12:00:00.000Z',
                  node_hours: 4,
                  gpu_hours: 32,
                  rated: true,
                  unrated_reason: null,
                  native: {
                    currency: 'USD',
                    amount: '130.00',
                    amount_exact: '130.0000000000',
                    node_hour_price: '32.5',
                    gpu_hour_price: null,
                  },
                  billed: euros,
                  conversion: 'converted',
                  conversion_rate: '0.92345',
                  estimated: false,
                },
              ],
            },
          ],
        },
      ],
      warnings: [],
    });
  });
});

describe('a cost report that is too long', () => {
  const bench = useCosts({ linesMax: 3 });

  it('is rejected with too_many_lines, while a window with fewer lines is not', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '1' });
    for (const cluster of ['a', 'b', 'c', 'd']) await bench.use({ organization, cluster, ...day });
    const ask = (window: ReturnType<typeof windowOf>) => bench.costs.report({ window, organizationIds: null });
    expect(await ask(windowOf(march))).toEqual({ kind: 'too_many_lines', linesMax: 3 });
    expect(await ask(windowOf({ month: '2026-02' }))).toMatchObject({ kind: 'report' });
    // The connection is whole after a query that was not read to its end.
    expect((await bench.report({ month: '2026-02' })).organizations).toEqual([]);
  });
});

describe('a cost report as CSV', () => {
  const bench = useCosts();
  it('is only the header when there is no usage', async () => {
    const report = await bench.report(march);
    const [header = '', ...rows] = reportToCsv(report);
    expect(rows).toEqual([]);
    expect(header).toMatch(/^AvailabilityZone,BilledCost,BillingAccountId,.*,Tags,x_NodeHours,.*,x_Estimated\r\n$/);
  });

  it('has one row per line item, with the columns of FOCUS', async () => {
    const organization = bench.organization();
    const card = await bench.card({ nodeHour: '32.50', from: '2026-03-10 11:00' });
    await bench.rate('USD→EUR', '0.92345');
    await bench.bill(organization, 'EUR');
    await bench.use({ organization, nodes: 2, ...day });
    const text = [...reportToCsv(await bench.report(march))].join('');
    const account = { BillingAccountId: formatId('org', organization.id), BillingAccountName: 'Acme' };
    const always = {
      ...account,
      ResourceId: 'cluster_one',
      ResourceName: 'one',
      ResourceType: 'Cluster',
      ServiceName: 'Headgate Clusters',
      ServiceCategory: 'Compute',
      ChargeCategory: 'Usage',
      SkuId: 'h100-8x',
      ConsumedQuantity: '2',
      ConsumedUnit: 'Node-Hours',
      BillingCurrency: 'EUR',
      x_NodeHours: '2',
      x_GpuHours: '16',
      x_Estimated: 'false',
    };
    expect(readCsv(text)).toMatchObject([
      {
        ...always,
        ChargeDescription: 'h100-8x: 2 Node-Hours, not rated',
        ChargePeriodStart: '2026-03-10T10:00:00.000Z',
        ChargePeriodEnd: '2026-03-10T11:00:00.000Z',
        SkuPriceId: 'unrated/h100-8x',
        PricingCategory: 'Other',
        PricingCurrency: 'EUR',
        PricingCurrencyListUnitPrice: '0',
        PricingCurrencyEffectiveCost: '0',
        BilledCost: '0',
        EffectiveCost: '0',
        ListCost: '0',
        x_UnratedHours: '2',
        x_ConversionRate: '',
        x_ConversionStatus: 'none',
      },
      {
        ...always,
        ChargeDescription: 'h100-8x: 2 Node-Hours',
        ChargePeriodStart: '2026-03-10T11:00:00.000Z',
        ChargePeriodEnd: '2026-03-10T12:00:00.000Z',
        SkuPriceId: `${formatId('rate', card.id)}/node_hour`,
        PricingCategory: 'Standard',
        PricingCurrency: 'USD',
        ListUnitPrice: '30.012125',
        ListCost: '60.02425',
        ContractedCost: '60.02425',
        PricingCurrencyListUnitPrice: '32.5',
        PricingCurrencyEffectiveCost: '65.00',
        BilledCost: '60.02',
        EffectiveCost: '60.02',
        x_UnratedHours: '0',
        x_ConversionRate: '0.92345',
        x_ConversionStatus: 'converted',
      },
    ]);
  });

  it('counts GPU-hours when only GPUs are priced, and has one row for each price when nodes and GPUs are', async () => {
    const organization = bench.organization();
    await bench.card({ profile: 'gpu', gpuHour: '2' });
    await bench.card({ profile: 'both', gpuHour: '2', nodeHour: '1' });
    await bench.use({ organization, profile: 'gpu', ...day });
    await bench.use({ organization, profile: 'both', ...day });
    const rows = readCsv([...reportToCsv(await bench.report(march))].join(''));
    expect(rows).toMatchObject([
      { SkuId: 'both', ConsumedQuantity: '2', ConsumedUnit: 'Node-Hours', ListUnitPrice: '1', BilledCost: '2.00' },
      { SkuId: 'both', ConsumedQuantity: '16', ConsumedUnit: 'GPU-Hours', ListUnitPrice: '2', BilledCost: '32.00' },
      { SkuId: 'gpu', ConsumedQuantity: '16', ConsumedUnit: 'GPU-Hours', PricingCurrencyListUnitPrice: '2' },
    ]);
  });

  it.each(['=1+1', '+1', '-1+1', '@x', '\tx', '\rx', '\nx', '=HYPERLINK("http://x","y")'])(
    'escapes a formula at the beginning of a name: %j',
    async (name) => {
      const organization = bench.organization(name);
      await bench.use({ organization, cluster: name, profile: name, ...day });
      const [row] = readCsv([...reportToCsv(await bench.report(march))].join(''));
      expect(row).toMatchObject({ BillingAccountName: `'${name}`, ResourceName: `'${name}`, SkuId: `'${name}` });
      for (const cell of Object.values(row ?? {})) expect(cell).not.toMatch(/^[=+\-@\t\r\n]/);
    },
  );

  it('keeps names with commas, quotes and line breaks', async () => {
    const name = 'Müller, "Sons"\r\n& Cie';
    await bench.use({ organization: bench.organization(name), ...day });
    const text = [...reportToCsv(await bench.report(march))].join('');
    expect(readCsv(text)[0]?.['BillingAccountName']).toBe(name);
  });

  it('has the labels of nodes as tags, and rows that add up to the line', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '0.01' });
    const cluster = { id: 'cluster_one', name: 'one', organization };
    const shape = { generation: 1, nodeName: 'n', hardwareProfile: 'h100-8x', gpus: 0, atMs: at('2026-03-10 10:00') };
    await bench.db.orm.transaction(async (tx) => {
      const labels = [{ team: 'a' }, { team: 'b', spot: '' }, {}];
      for (const [index, own] of labels.entries()) {
        const nodeId = `node_${index}`;
        await bench.costs.allocate(tx, cluster, [{ ...shape, nodeId }]);
        const end = { nodeId, generation: 1, atMs: at('2026-03-10 10:30'), estimated: false };
        await bench.costs.release(tx, cluster.id, [end]);
        await bench.costs.recordLabels(tx, [{ nodeId, labels: own }]);
      }
    });
    const result = await bench.costs.report({ window: windowOf(march), organizationIds: null, byLabels: true });
    if (result.kind !== 'report') throw new Error(result.kind);
    expect(result.report.grandTotal).toMatchObject([{ amount: '0.02' }]);
    const rows = readCsv([...reportToCsv(result.report)].join(''));
    expect(rows.map((row) => [row['Tags'], row['BilledCost']])).toEqual([
      ['', '0.01'],
      ['{"spot":true,"team":"b"}', '0.00'],
      ['{"team":"a"}', '0.01'],
    ]);
  });

  it.each([
    [{ month: '2026-03' }, 'costs_2026-03-01_2026-04-01_UTC.csv'],
    [{ month: '2026-03', tz: 'Europe/Berlin' }, 'costs_2026-03-01_2026-04-01_Europe-Berlin.csv'],
    [
      { from: '2026-03-01T09:30:00+01:00', to: '2026-03-02', tz: 'Europe/Berlin' },
      'costs_20260301T083000Z_20260301T230000Z.csv',
    ],
  ])('has for %j the file name %s', async (query, name) => {
    expect(csvFileName(await bench.report(query))).toBe(name);
  });
});
