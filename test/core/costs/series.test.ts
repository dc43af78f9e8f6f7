import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { systemClock } from '#base/clock.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createCosts, type CostSeries, type Costing, type GroupBy, type SeriesRequest } from '#core/costs/costs.ts';
import { parseDecimal } from '#base/money.ts';
import { at, useCosts, windowOf } from '#test/costs/support.ts';

const bench = useCosts();

async function seriesOf(request: Omit<SeriesRequest, 'organizationIds'>): Promise<CostSeries> {
  const result = await bench.costs.series({ organizationIds: null, ...request });
  if (result.kind !== 'series') throw new Error(result.kind);
  return result.series;
}

const amountOf = ({ amounts }: Costing): string =>
  amounts.map(({ amount, currency }) => `${amount} ${currency}`).join();
const label = (nodeId: string, labels: Record<string, string>) =>
  bench.db.orm.transaction((tx) => bench.costs.recordLabels(tx, [{ nodeId, labels }]));

/** One node that is held from one moment to another. */
async function hold(nodeId: string, from: string, to: string, gpus = 8): Promise<void> {
  const cluster = { id: 'cluster_one', name: 'one', organization: { id: crypto.randomUUID(), name: 'Acme' } };
  const shape = { nodeName: `name of ${nodeId}`, hardwareProfile: 'h100-8x', gpus, atMs: at(from) };
  await bench.db.orm.transaction(async (tx) => {
    await bench.costs.allocate(tx, cluster, [{ nodeId, generation: 1, ...shape }]);
    await bench.costs.release(tx, cluster.id, [{ nodeId, generation: 1, atMs: at(to), estimated: false }]);
  });
}

describe('a cost series', () => {
  it('has the days and months of the time zone, also where clocks change', async () => {
    await bench.card({ nodeHour: '10' });
    await bench.use({ organization: bench.organization(), from: '2025-12-01', to: '2026-11-20' });
    const march = await seriesOf({
      window: windowOf({ month: '2026-03', tz: 'Europe/Berlin' }),
      step: '1d',
      groupBy: null,
    });
    expect(march.steps).toHaveLength(31);
    expect(march.steps.map(({ nodeHours }) => nodeHours).filter((hours) => hours !== 24)).toEqual([23]);
    expect(march.steps[28]?.nodeHours).toBe(23);
    const year = windowOf({ from: '2026-01-01', to: '2027-01-01', tz: 'Europe/Berlin' });
    const months = await seriesOf({ window: year, step: '1mo', groupBy: null });
    expect(months.steps.map(amountOf).slice(0, 4)).toEqual([
      '7440.00 USD',
      '6720.00 USD',
      '7430.00 USD',
      '7200.00 USD',
    ]);
    expect(months.steps.at(9)?.nodeHours).toBe(745);
    const hours = await seriesOf({
      window: windowOf({ from: '2026-03-29', to: '2026-03-30', tz: 'Europe/Berlin' }),
      step: '1h',
      groupBy: null,
    });
    expect(hours.steps).toHaveLength(23);
    const kathmandu = windowOf({ from: '2026-03-01T00:00:00Z', to: '2026-03-01T02:00:00Z', tz: 'Asia/Kathmandu' });
    expect(
      (await seriesOf({ window: kathmandu, step: '1h', groupBy: null })).steps.map(({ nodeHours }) => nodeHours),
    ).toEqual([0.25, 1, 0.75]);
  });

  it('has steps without usage, and at most 1000 steps', async () => {
    const month = await seriesOf({ window: windowOf({ month: '2026-02' }), step: '1d', groupBy: null });
    expect(month.steps.map(amountOf)).toEqual(Array.from({ length: 28 }, () => ''));
    const window = windowOf({ from: '2026-01-01', to: '2026-03-01' });
    expect(await bench.costs.series({ window, step: '1h', groupBy: null, organizationIds: null })).toEqual({
      kind: 'too_many_steps',
      stepsMax: 1000,
    });
  });

  it('adds up to the rounded total, though each third of a cent is less', async () => {
    await bench.card({ nodeHour: '0.01' });
    await hold('node_1', '2026-03-01', '2026-03-01 01:00');
    const window = { fromMs: at('2026-03-01'), toMs: at('2026-03-01 01:00'), tz: 'Asia/Kathmandu' };
    const { steps, totals } = await seriesOf({ window, step: '1h', groupBy: null });
    expect([steps.map(amountOf), amountOf(totals)]).toEqual([['0.00 USD', '0.01 USD'], '0.01 USD']);
  });

  it('groups by node, by the names of nodes', async () => {
    await bench.card({ nodeHour: '1' });
    await hold('node_1', '2026-03-01', '2026-03-01 05:00');
    await hold('node_2', '2026-03-01', '2026-03-01 02:00');
    const { groups } = await seriesOf({ window: windowOf({ month: '2026-03' }), step: null, groupBy: { by: 'node' } });
    expect(groups.map((group) => [group.value, group.name, amountOf(group)])).toEqual([
      ['node_1', 'name of node_1', '5.00 USD'],
      ['node_2', 'name of node_2', '2.00 USD'],
    ]);
  });

  it('groups by the labels that a node had at the time', async () => {
    await bench.card({ nodeHour: '1' });
    await hold('node_1', '2026-03-01', '2026-03-01 10:00');
    await hold('node_2', '2026-03-01', '2026-03-01 03:00');
    await label('node_1', { team: 'a' });
    await bench.db.sql`insert into node_labels (node_id, since_ms, labels)
      values ('node_1', ${at('2026-03-01 04:00')}, '{"team":"b"}'), ('node_1', ${at('2026-03-01 06:00')}, '{}')`;
    const groupBy = { by: 'label', key: 'team' } as const;
    const { groups, steps } = await seriesOf({ window: windowOf({ month: '2026-03' }), step: '1d', groupBy });
    const shown = [
      ['a', '4.00 USD'],
      ['b', '2.00 USD'],
      [null, '7.00 USD'],
    ];
    expect(groups.map((group) => [group.value, amountOf(group)])).toEqual(shown);
    expect(steps[0]?.groups.map((group) => [group.value, amountOf(group)])).toEqual(shown);
  });

  it('keeps labels of earlier hours when a label changes', async () => {
    await bench.card({ nodeHour: '1' });
    await hold('node_1', '2026-03-01', '2026-03-01 10:00');
    await label('node_1', { team: 'a' });
    await label('node_1', { team: 'b' });
    await label('node_1', { team: 'b' });
    const rows = await bench.db
      .sql`select since_ms, labels from node_labels where node_id = 'node_1' order by since_ms`;
    expect(rows.map(({ labels }) => labels)).toEqual([{ team: 'a' }, { team: 'b' }]);
    const groupBy = { by: 'label', key: 'team' } as const;
    const { groups } = await seriesOf({ window: windowOf({ month: '2026-03' }), step: null, groupBy });
    expect(groups.map(({ value }) => value)).toEqual(['a']);
  });
});

const unitsOf = (one: Costing, currency: string): bigint =>
  one.amounts
    .filter((amount) => amount.currency === currency)
    .reduce((sum, { amount }) => sum + (parseDecimal(amount, 2) ?? -1n), 0n);
const sumOf = (list: readonly Costing[], currency: string): bigint =>
  list.reduce((sum, one) => sum + unitsOf(one, currency), 0n);
const microOf = (list: readonly Costing[]): [number, number] => [
  list.reduce((sum, one) => sum + Math.round(one.nodeHours * 1e6), 0),
  list.reduce((sum, one) => sum + Math.round(one.gpuHours * 1e6), 0),
];

describe('a cost series by stack', () => {
  it('has the stacks that were applied on a node at the time as one group', async () => {
    const spans = [
      {
        clusterId: 'cluster_one',
        node: null,
        stack: 'ray',
        fromMs: at('2026-03-01 01:00'),
        toMs: at('2026-03-01 05:00'),
      },
      { clusterId: 'cluster_one', node: 'name of node_1', stack: 'k3s', fromMs: at('2026-03-01 03:00'), toMs: null },
      { clusterId: 'cluster_two', node: null, stack: 'other', fromMs: 0, toMs: null },
    ];
    const costs = createCosts({
      db: bench.db,
      audit: createAudit({ clock: systemClock }),
      log: createLog('silent'),
      readStackSpans: async () => spans,
    });
    await bench.card({ nodeHour: '1' });
    await hold('node_1', '2026-03-01', '2026-03-01 10:00');
    await hold('node_2', '2026-03-01', '2026-03-01 10:00');
    const request = {
      window: windowOf({ month: '2026-03' }),
      step: null,
      groupBy: { by: 'stack' },
      organizationIds: null,
    } as const;
    const result = await costs.series(request);
    const groups = result.kind === 'series' ? result.series.groups : [];
    expect(groups.map((group) => [group.value, amountOf(group)])).toEqual([
      ['k3s', '5.00 USD'],
      ['k3s + ray', '2.00 USD'],
      ['ray', '6.00 USD'],
      [null, '7.00 USD'],
    ]);
  });
});

describe('a random division of costs', () => {
  it('adds up to the report in every step and every group, to the last minor unit', async () => {
    const minute = fc.integer({ min: 0, max: 2880 });
    const use = fc.record({
      from: minute,
      length: fc.integer({ min: 1, max: 900 }),
      gpus: fc.constantFrom(0, 1, 8),
      cluster: fc.constantFrom('a', 'b'),
      team: fc.constantFrom('x', 'y', null),
    });
    const world = fc.record({
      uses: fc.array(use, { minLength: 1, maxLength: 12 }),
      prices: fc.array(fc.record({ at: minute, price: fc.integer({ min: 0, max: 99_999 }) }), {
        minLength: 1,
        maxLength: 4,
      }),
      labelsAt: fc.array(fc.record({ at: minute, use: fc.nat(11), team: fc.constantFrom('x', 'z') }), { maxLength: 5 }),
      tz: fc.constantFrom('UTC', 'Asia/Kathmandu', 'America/St_Johns'),
      from: fc.integer({ min: 0, max: 1000 }),
    });
    const groupings: GroupBy[] = [
      { by: 'organization' },
      { by: 'cluster' },
      { by: 'node' },
      { by: 'hardware_profile' },
      { by: 'label', key: 'team' },
    ];
    const momentOf = (minutes: number): number => at('2026-03-01') + minutes * 60_000 + 777;
    await fc.assert(
      fc.asyncProperty(world, async ({ uses, prices, labelsAt, tz, from }) => {
        await bench.db.sql`truncate usage_allocations, usage_intervals, usage_snapshots, rate_cards, node_labels`;
        const organization = bench.organization();
        for (const [index, one] of [...new Map(prices.map((price) => [price.at, price])).values()]
          .toSorted((a, b) => a.at - b.at)
          .entries()) {
          const dates = { fromMs: momentOf(one.at) - (index === 0 ? 60_000 : 0), toMs: null, retroactive: true };
          const price = BigInt(one.price) * 1_000_000n;
          await bench.costs.rateCards.add(
            { hardwareProfile: 'h', currency: 'USD', nodeHour: price, gpuHour: price / 7n, ...dates },
            bench.by,
          );
        }
        await bench.db.orm.transaction(async (tx) => {
          for (const [index, one] of uses.entries()) {
            const ref = { id: `cluster_${one.cluster}`, name: one.cluster, organization };
            const key = { nodeId: `node_${index}`, generation: 1 };
            await bench.costs.allocate(tx, ref, [
              { ...key, nodeName: 'n', hardwareProfile: 'h', gpus: one.gpus, atMs: momentOf(one.from) },
            ]);
            await bench.costs.release(tx, ref.id, [
              { ...key, atMs: momentOf(one.from + one.length), estimated: false },
            ]);
            if (one.team !== null)
              await bench.costs.recordLabels(tx, [{ nodeId: key.nodeId, labels: { team: one.team } }]);
          }
        });
        for (const one of labelsAt) {
          await bench.db.sql`insert into node_labels (node_id, since_ms, labels)
            values (${`node_${one.use}`}, ${momentOf(one.at)}, ${JSON.stringify({ team: one.team })}::text::jsonb) on conflict do nothing`;
        }
        const window = { fromMs: momentOf(from), toMs: momentOf(4000), tz };
        const result = await bench.costs.report({ window, organizationIds: null });
        if (result.kind !== 'report') throw new Error(result.kind);
        const whole = { ...result.report.totals, amounts: result.report.grandTotal };
        for (const groupBy of [null, ...groupings]) {
          for (const step of [null, '1h', '1d', '1mo'] as const) {
            const series = await seriesOf({ window, step, groupBy });
            const exact = series.totals.amounts.map(({ amountExact }) => amountExact);
            expect(exact).toEqual(whole.amounts.map(({ amountExact }) => amountExact));
            const parts = groupBy === null ? series.steps : series.steps.flatMap(({ groups }) => groups);
            for (const list of [[series.totals], series.steps, parts, ...(groupBy === null ? [] : [series.groups])]) {
              expect(sumOf(list, 'USD')).toBe(unitsOf(whole, 'USD'));
              expect(microOf(list)).toEqual(microOf([whole]));
            }
          }
        }
      }),
      { numRuns: 12, endOnFailure: true },
    );
  });
});
