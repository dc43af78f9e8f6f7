import { describe, expect, it } from 'vitest';
import type { CostReport, LineItem } from '#core/costs/costs.ts';
import { at, useCosts, windowOf } from '#test/costs/support.ts';

/** Examples that were worked out by hand with exact fractions; in March 2026 and UTC unless noted. */
describe('worked example', () => {
  const bench = useCosts();
  const march = { month: '2026-03' };
  const lines = (report: CostReport): LineItem[] =>
    report.organizations.flatMap(({ clusters }) => clusters.flatMap(({ lineItems }) => lineItems));
  const amounts = (list: readonly { currency: string; amount: string }[]): string[] =>
    list.map(({ currency, amount }) => `${currency} ${amount}`);
  const exact = (report: CostReport): string[] => report.grandTotal.map(({ amountExact }) => amountExact);

  it('1: two nodes of eight GPUs for two hours', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '32.50' });
    await bench.use({ organization, nodes: 2, from: '2026-03-10 10:00', to: '2026-03-10 12:00' });
    const report = await bench.report(march);
    expect(report.totals).toEqual({ nodeHours: 4, gpuHours: 32, unratedHours: 0, unratedGpuHours: 0 });
    expect(amounts(report.grandTotal)).toEqual(['USD 130.00']);
  });

  it('2: one second', async () => {
    await bench.card({ nodeHour: '2.00' });
    await bench.use({
      organization: bench.organization(),
      from: '2026-03-10 10:00:00',
      to: '2026-03-10 10:00:01',
    });
    const report = await bench.report(march);
    expect(report.totals.nodeHours).toBe(0.000278);
    expect([amounts(report.grandTotal), exact(report)]).toEqual([['USD 0.00'], ['0.0005555556']]);
  });

  it('3: over the end of a month, in parts and as a whole', async () => {
    await bench.card({ nodeHour: '24' });
    await bench.use({ organization: bench.organization(), from: '2026-03-31 22:00', to: '2026-04-01 03:00' });
    const parts = [await bench.report(march), await bench.report({ month: '2026-04' })];
    expect(parts.map((report) => [report.totals.nodeHours, ...amounts(report.grandTotal)])).toEqual([
      [2, 'USD 48.00'],
      [3, 'USD 72.00'],
    ]);
    const both = await bench.report({ from: '2026-03-01', to: '2026-05-01' });
    expect(amounts(both.grandTotal)).toEqual(['USD 120.00']);
  });

  it('4: longer than the window on both sides', async () => {
    await bench.card({ gpuHour: '1.10' });
    await bench.use({ organization: bench.organization(), nodes: 3, gpus: 4, from: '2026-02-20', to: '2026-05-01' });
    const report = await bench.report(march);
    expect(report.totals).toMatchObject({ nodeHours: 2232, gpuHours: 8928 });
    expect(amounts(report.grandTotal)).toEqual(['USD 9820.80']);
  });

  it('5: usage that ends as the window begins, or begins as it ends', async () => {
    await bench.card({ nodeHour: '1' });
    await bench.use({ organization: bench.organization(), from: '2026-02-01', to: '2026-03-01' });
    await bench.use({ organization: bench.organization(), from: '2026-04-01', to: '2026-04-02' });
    const report = await bench.report(march);
    expect(report).toMatchObject({ organizations: [], grandTotal: [], totals: { nodeHours: 0 } });
  });

  it('6: three thirds of an hour, rounded line by line', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '1.00' });
    for (const cluster of ['one', 'two', 'three']) {
      await bench.use({ organization, cluster, from: '2026-03-10 10:00', to: '2026-03-10 10:20' });
    }
    const report = await bench.report(march);
    for (const line of lines(report)) {
      expect(line).toMatchObject({ nodeHours: 0.333333, billed: { amount: '0.33', amountExact: '0.3333333333' } });
    }
    expect(lines(report)).toHaveLength(3);
    expect(report.grandTotal).toEqual([{ currency: 'USD', amount: '0.99', amountExact: '1.0000000000' }]);
  });

  it('7: half a cent is rounded away from zero', async () => {
    await bench.card({ nodeHour: '0.05' });
    await bench.use({ organization: bench.organization(), from: '2026-03-10 10:00', to: '2026-03-10 10:06' });
    expect(amounts((await bench.report(march)).grandTotal)).toEqual(['USD 0.01']);
  });

  it('8: a currency without minor units', async () => {
    await bench.card({ currency: 'JPY', nodeHour: '4321' });
    await bench.use({ organization: bench.organization(), from: '2026-03-10 10:00', to: '2026-03-10 10:30' });
    const report = await bench.report(march);
    expect(report.grandTotal).toEqual([{ currency: 'JPY', amount: '2161', amountExact: '2160.5000000000' }]);
  });

  it('9: a currency with three minor units', async () => {
    await bench.card({ currency: 'KWD', nodeHour: '1.0005' });
    await bench.use({ organization: bench.organization(), from: '2026-03-10 10:00', to: '2026-03-10 10:20' });
    const report = await bench.report(march);
    expect(report.grandTotal).toEqual([{ currency: 'KWD', amount: '0.334', amountExact: '0.3335000000' }]);
  });

  it('10: February of a common and of a leap year', async () => {
    await bench.card({ nodeHour: '10' });
    await bench.use({ organization: bench.organization(), from: '2026-01-15' });
    const february = async (month: string, asOf: string) => {
      const result = await bench.costs.report({
        window: windowOf({ month }),
        organizationIds: null,
        asOfMs: at(asOf),
      });
      if (result.kind !== 'report') throw new Error(result.kind);
      return [result.report.totals.nodeHours, ...amounts(result.report.grandTotal)];
    };
    expect(await february('2026-02', '2026-03-01')).toEqual([672, 'USD 6720.00']);
    expect(await february('2028-02', '2028-03-01')).toEqual([696, 'USD 6960.00']);
  });

  it('11: months of a zone whose clocks change', async () => {
    await bench.card({ nodeHour: '10' });
    await bench.use({ organization: bench.organization(), from: '2026-01-15' });
    const month = async (query: { month: string; tz: string }) => {
      const result = await bench.costs.report({
        window: windowOf(query),
        organizationIds: null,
        asOfMs: at('2026-12-01'),
      });
      if (result.kind !== 'report') throw new Error(result.kind);
      return [result.report.totals.nodeHours, ...amounts(result.report.grandTotal)];
    };
    expect(await month({ month: '2026-03', tz: 'Europe/Berlin' })).toEqual([743, 'USD 7430.00']);
    expect(await month({ month: '2026-10', tz: 'Europe/Berlin' })).toEqual([745, 'USD 7450.00']);
  });

  it('12: the price changes during the usage', async () => {
    await bench.card({ nodeHour: '24' });
    await bench.card({ nodeHour: '30', from: '2026-03-15 12:00' });
    await bench.use({
      organization: bench.organization(),
      nodes: 2,
      from: '2026-03-15 06:00',
      to: '2026-03-15 18:30',
    });
    const report = await bench.report(march);
    expect(lines(report)).toMatchObject([
      { fromMs: at('2026-03-15 06:00'), toMs: at('2026-03-15 12:00'), billed: { amount: '288.00' } },
      { fromMs: at('2026-03-15 12:00'), toMs: at('2026-03-15 18:30'), billed: { amount: '390.00' } },
    ]);
    expect([report.totals.nodeHours, amounts(report.grandTotal)]).toEqual([25, ['USD 678.00']]);
  });

  it('13: the only price begins during the usage', async () => {
    await bench.card({ nodeHour: '30', from: '2026-03-15 12:00' });
    await bench.use({
      organization: bench.organization(),
      nodes: 2,
      from: '2026-03-15 06:00',
      to: '2026-03-15 18:30',
    });
    const report = await bench.report(march);
    expect(lines(report)).toMatchObject([
      { nodeHours: 12, gpuHours: 96, native: null, billed: null, unratedReason: 'no_rate_card', rateCardId: null },
      { nodeHours: 13, unratedReason: null, billed: { amount: '390.00' } },
    ]);
    expect(report.totals).toEqual({ nodeHours: 25, gpuHours: 200, unratedHours: 12, unratedGpuHours: 96 });
    expect(amounts(report.grandTotal)).toEqual(['USD 390.00']);
  });

  it('14: into currencies of two and of no minor units', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '32.50' });
    await bench.rate('USD→EUR', '0.92345');
    await bench.rate('USD→JPY', '149.8765');
    await bench.use({ organization, nodes: 2, from: '2026-03-10 10:00', to: '2026-03-10 12:00' });
    await bench.bill(organization, 'EUR');
    const euro = await bench.report(march);
    expect(euro.grandTotal).toEqual([{ currency: 'EUR', amount: '120.05', amountExact: '120.0485000000' }]);
    expect(lines(euro)).toMatchObject([
      { native: { currency: 'USD', amount: '130.00' }, conversion: 'converted', conversionRate: '0.92345' },
    ]);
    await bench.bill(organization, 'JPY');
    const yen = await bench.report(march);
    expect(yen.grandTotal).toEqual([{ currency: 'JPY', amount: '19484', amountExact: '19483.9450000000' }]);
  });

  it('15: the exact amount is converted, not the rounded one', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '200' });
    await bench.rate('USD→NGN', '1500.75');
    await bench.bill(organization, 'NGN');
    await bench.use({ organization, from: '2026-03-10 10:00', to: '2026-03-10 10:20' });
    const report = await bench.report(march);
    expect(amounts(report.grandTotal)).toEqual(['NGN 100050.00']);
    expect(lines(report)[0]?.native?.amount).toBe('66.67');
  });

  it('16: the conversion rate changes during the usage', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '10' });
    await bench.rate('USD→EUR', '0.90');
    await bench.rate('USD→EUR', '0.95', '2026-03-10 14:00');
    await bench.bill(organization, 'EUR');
    await bench.use({ organization, from: '2026-03-10 10:00', to: '2026-03-10 20:00' });
    const report = await bench.report(march);
    expect(lines(report).map((line) => line.billed?.amount)).toEqual(['36.00', '57.00']);
    expect(amounts(report.grandTotal)).toEqual(['EUR 93.00']);
  });

  it('17: no rate in this direction gives the native amount and a warning', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '32.50' });
    await bench.rate('EUR→USD', '1.08');
    await bench.bill(organization, 'EUR');
    await bench.use({ organization, nodes: 2, from: '2026-03-10 10:00', to: '2026-03-10 12:00' });
    const report = await bench.report(march);
    expect(amounts(report.grandTotal)).toEqual(['USD 130.00']);
    expect(lines(report)).toMatchObject([
      { conversion: 'skipped_missing_rate', conversionRate: null, billed: { currency: 'USD', amount: '130.00' } },
    ]);
    expect(report.warnings).toEqual([
      { code: 'CONVERSION_RATE_MISSING', from: 'USD', to: 'EUR', organizationIds: [organization.id] },
    ]);
  });

  it('18: currencies are separate in the grand total', async () => {
    const [a, b] = [bench.organization('A'), bench.organization('B')];
    await bench.card({ nodeHour: '32.50' });
    await bench.rate('USD→EUR', '0.92345');
    await bench.bill(a, 'EUR');
    await bench.bill(b, 'GBP');
    for (const organization of [a, b]) {
      const cluster = organization.name;
      await bench.use({ organization, cluster, nodes: 2, from: '2026-03-10 10:00', to: '2026-03-10 12:00' });
    }
    const report = await bench.report(march);
    expect(amounts(report.grandTotal)).toEqual(['EUR 120.05', 'USD 130.00']);
    expect(report.organizations.map((organization) => amounts(organization.amounts))).toEqual([
      ['EUR 120.05'],
      ['USD 130.00'],
    ]);
  });

  it('19: more nodes join', async () => {
    const organization = bench.organization();
    await bench.card({ gpuHour: '2.49' });
    await bench.use({ organization, from: '2026-03-10 09:00', to: '2026-03-10 12:00' });
    await bench.use({ organization, nodes: 3, from: '2026-03-10 12:00', to: '2026-03-10 13:30' });
    const report = await bench.report(march);
    expect(report.totals).toMatchObject({ nodeHours: 7.5, gpuHours: 60 });
    expect(amounts(report.grandTotal)).toEqual(['USD 149.40']);
  });

  it('20: a card that prices nodes and GPUs', async () => {
    await bench.card({ nodeHour: '1.20', gpuHour: '2.49' });
    await bench.use({
      organization: bench.organization(),
      nodes: 2,
      from: '2026-03-10 10:00',
      to: '2026-03-10 11:30',
    });
    const report = await bench.report(march);
    expect(report.totals).toMatchObject({ nodeHours: 3, gpuHours: 24 });
    expect(amounts(report.grandTotal)).toEqual(['USD 63.36']);
  });

  it('21: a node with overlapping allocations counts once', async () => {
    const cluster = { id: 'cluster_1', name: 'one', organization: bench.organization() };
    await bench.card({ nodeHour: '5' });
    const shape = { nodeId: 'node_1', nodeName: 'one', hardwareProfile: 'h100-8x', gpus: 8, estimated: false };
    await bench.db.orm.transaction(async (tx) => {
      const told = [
        { generation: 1, from: '10:00', to: '12:00' },
        { generation: 2, from: '11:00', to: '13:00' },
      ].map(({ generation, from, to }) => ({ ...shape, generation, from, to }));
      for (const one of told) {
        await bench.costs.allocate(tx, cluster, [{ ...one, atMs: at(`2026-03-10 ${one.from}`) }]);
      }
      for (const one of told) {
        await bench.costs.release(tx, cluster.id, [{ ...one, atMs: at(`2026-03-10 ${one.to}`) }]);
      }
    });
    const report = await bench.report(march);
    expect([report.totals.nodeHours, amounts(report.grandTotal)]).toEqual([3, ['USD 15.00']]);
  });

  it('22: a quarter of a second', async () => {
    await bench.card({ nodeHour: '98.32' });
    await bench.use({
      organization: bench.organization(),
      from: '2026-03-10 10:00:00.500',
      to: '2026-03-10 10:00:00.750',
    });
    const report = await bench.report(march);
    expect(report.grandTotal).toEqual([{ currency: 'USD', amount: '0.01', amountExact: '0.0068277778' }]);
  });

  it('23: ties that binary fractions lose', async () => {
    await bench.card({ profile: 'a', nodeHour: '1.005' });
    await bench.card({ profile: 'b', nodeHour: '0.25' });
    const organization = bench.organization();
    await bench.use({ organization, profile: 'a', from: '2026-03-10 10:00', to: '2026-03-10 11:00' });
    await bench.use({ organization, profile: 'b', from: '2026-03-10 10:00', to: '2026-03-10 10:30' });
    expect(lines(await bench.report(march)).map((line) => line.billed?.amount)).toEqual(['1.01', '0.13']);
  });

  it('24: ten thousand nodes for a leap year', async () => {
    await bench.card({ gpuHour: '2.4899999999' });
    await bench.use({
      organization: bench.organization(),
      nodes: 10_000,
      from: '2024-01-01',
      to: '2025-01-01',
    });
    const report = await bench.report({ from: '2024-01-01', to: '2025-01-01' });
    expect(report.totals.gpuHours).toBe(702_720_000);
    expect(report.grandTotal).toEqual([
      { currency: 'USD', amount: '1749772799.93', amountExact: '1749772799.9297280000' },
    ]);
  });

  it('25: running usage counts up to now', async () => {
    await bench.card({ nodeHour: '10' });
    await bench.use({ organization: bench.organization(), from: '2026-03-10 10:00' });
    const window = windowOf(march);
    const asOfMs = at('2026-03-10 13:30');
    const result = await bench.costs.report({ window, organizationIds: null, asOfMs });
    if (result.kind !== 'report') throw new Error(result.kind);
    expect(result.report).toMatchObject({ asOfMs, totals: { nodeHours: 3.5 } });
    expect(amounts(result.report.grandTotal)).toEqual(['USD 35.00']);
    expect(result.report.organizations[0]?.clusters[0]?.endedMs).toBeNull();
  });

  it('26: a price of zero, and a price per GPU without GPUs, are prices', async () => {
    const organization = bench.organization();
    await bench.card({ profile: 'free', nodeHour: '0' });
    await bench.card({ profile: 'cpu', gpuHour: '2.49' });
    const times = { organization, from: '2026-03-10 10:00', to: '2026-03-10 15:00' };
    await bench.use({ ...times, profile: 'free' });
    await bench.use({ ...times, profile: 'cpu', gpus: 0 });
    const report = await bench.report(march);
    expect(lines(report)).toMatchObject([
      { nodeHours: 5, gpuHours: 0, unratedReason: null, billed: { amount: '0.00' } },
      { nodeHours: 5, gpuHours: 40, unratedReason: null, billed: { amount: '0.00' } },
    ]);
    expect(report.totals).toMatchObject({ nodeHours: 10, unratedHours: 0 });
    expect(report.warnings).toEqual([]);
  });

  it('27: only exact amounts add up over reports', async () => {
    const organization = bench.organization();
    await bench.card({ nodeHour: '0.0333' });
    const days = Array.from({ length: 31 }, (_, day) => `2026-03-${String(day + 1).padStart(2, '0')}`);
    for (const day of days) await bench.use({ organization, from: `${day} 08:00`, to: `${day} 15:20:34.567` });
    const month = await bench.report(march);
    expect(amounts(month.grandTotal)).toEqual(['USD 7.58']);
    let cents = 0;
    for (const [index, from] of days.entries()) {
      const day = await bench.report({ from, to: days[index + 1] ?? '2026-04-01' });
      expect(day.grandTotal).toEqual([{ currency: 'USD', amount: '0.24', amountExact: '0.2445197448' }]);
      cents += 24;
    }
    expect(cents).toBe(744);
  });
});
