import { describe, expect, it } from 'vitest';
import { computeMargin, type ReplicaRun, reportToCsv, reportToJson } from '#core/costs/costs.ts';
import { readCsv } from '#test/costs/csv.ts';
import { at, useCosts, windowOf } from '#test/costs/support.ts';

const march = { month: '2026-03' };
const hour = 3_600_000;
const usd = 10n ** 12n;

describe('replica runs', () => {
  const bench = useCosts();
  const platform = bench.organization('Platform');
  const run = (more: Partial<ReplicaRun> = {}): ReplicaRun => ({
    runId: 'run-1',
    replicaName: 'qwen3-4b.0',
    engineId: 'qwen3-4b',
    engineName: 'Qwen3 4B',
    organization: platform,
    hardwareProfile: 'h100',
    gpus: 2,
    gpuShare: 28,
    startedMs: at('2026-03-10 10:00'),
    readyMs: null,
    endedMs: null,
    endEstimated: false,
    ...more,
  });
  const carry = (...runs: ReplicaRun[]) => bench.costs.carryReplicaRuns(runs);
  const rows = () => bench.db.sql<
    { started: string; ready: string | null; ended: string | null; estimated: boolean }[]
  >`
    select started_ms as started, ready_ms as ready, ended_ms as ended, estimated from usage_intervals order by node_id`;

  it('are recorded once, also when they are reported repeatedly', async () => {
    expect(await carry(run(), run())).toBe(1);
    expect(await carry(run())).toBe(0);
    expect(await carry(run({ startedMs: at('2026-03-10 10:01') }))).toBe(0);
    expect(await carry(run({ startedMs: at('2026-03-10 09:30') }))).toBe(1);
    expect(await carry(run({ readyMs: at('2026-03-10 10:05') }))).toBe(1);
    expect(await carry(run({ readyMs: at('2026-03-10 10:07') }), run({ runId: 'run-2' }))).toBe(1);
    const ended = run({ readyMs: at('2026-03-10 10:05'), endedMs: at('2026-03-10 12:00') });
    expect([await carry(ended), await carry(ended)]).toEqual([1, 0]);
    expect(await carry(run({ endedMs: null }), run({ endedMs: at('2026-03-11') }))).toBe(0);
    expect([...(await rows())]).toMatchObject([
      {
        started: String(at('2026-03-10 09:30')),
        ready: String(at('2026-03-10 10:05')),
        ended: String(at('2026-03-10 12:00')),
      },
      { started: String(at('2026-03-10 10:00')), ready: null, ended: null },
    ]);
  });

  it('continue after an estimated end when they are seen again, and end at the reported time', async () => {
    await carry(run({ endedMs: at('2026-03-10 11:00'), endEstimated: true }));
    expect(await rows()).toMatchObject([{ ended: String(at('2026-03-10 11:00')), estimated: true }]);
    expect(await carry(run())).toBe(1);
    expect(await rows()).toMatchObject([{ ended: null, estimated: false }]);
    await carry(run({ endedMs: at('2026-03-10 13:00'), endEstimated: true }));
    await carry(run({ endedMs: at('2026-03-10 12:30') }));
    expect(await carry(run({ endedMs: at('2026-03-10 14:00'), endEstimated: true }))).toBe(0);
    expect(await rows()).toMatchObject([{ ended: String(at('2026-03-10 12:30')), estimated: false }]);
  });

  it('are recorded once by concurrent gateways', async () => {
    const runs = Array.from({ length: 20 }, (_, index) =>
      run({ runId: `run-${index}`, engineId: `engine-${index % 3}` }),
    );
    const counts = await Promise.all([carry(...runs), carry(...runs.toReversed()), carry(...runs)]);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(20);
    expect(await rows()).toHaveLength(20);
  });

  it('appear in the report beside clusters, with GPU-hours only', async () => {
    await bench.card({ profile: 'h100', nodeHour: '100', gpuHour: '2.50' });
    await bench.use({ organization: platform, cluster: 'stack', profile: 'h100', ...oneHour });
    await carry(run({ endedMs: at('2026-03-10 12:00') }));
    const report = await bench.report(march);
    expect(report.organizations[0]?.clusters).toMatchObject([
      {
        source: 'replica',
        id: 'qwen3-4b',
        name: 'Qwen3 4B',
        nodeHours: 0,
        gpuHours: 4,
        amounts: [{ amount: '10.00' }],
      },
      { source: 'node', id: 'cluster_stack', nodeHours: 1, gpuHours: 8, amounts: [{ amount: '120.00' }] },
    ]);
    expect(report.grandTotal).toMatchObject([{ currency: 'USD', amount: '130.00' }]);
    expect(reportToJson(report).organizations[0]?.clusters[0]).toMatchObject({ source: 'replica', running: false });
    expect(readCsv([...reportToCsv(report)].join(''))[0]).toMatchObject({
      ResourceId: 'qwen3-4b',
      ResourceType: 'Inference engine',
      ServiceName: 'Headgate Inference',
      ChargeDescription: 'h100: 4 GPU-Hours',
      ConsumedQuantity: '4',
      ConsumedUnit: 'GPU-Hours',
      x_NodeHours: '0',
    });
  });
  it('with a slice of a card have its part of the card in hours and costs', async () => {
    await bench.card({ profile: 'h100', gpuHour: '7' });
    const slice = { gpus: 1, gpuShare: 12, readyMs: at('2026-03-10 10:30'), endedMs: at('2026-03-10 12:20') };
    await carry(run(slice), run({ ...slice, runId: 'run-2', engineId: 'other', gpuShare: 4 }));
    const report = await bench.report(march);
    expect(report.organizations[0]?.clusters).toMatchObject([
      { id: 'other', gpuHours: 0.333333, amounts: [{ amount: '2.33' }] },
      { id: 'qwen3-4b', gpuHours: 1, amounts: [{ amount: '7.00' }] },
    ]);
    const costs = await bench.costs.replicaCosts({ window: windowOf(march) });
    expect(costs.get('qwen3-4b')).toMatchObject({ heldGpuMs: 3_600_000n, startingGpuMs: 771_428n });
  });
  const oneHour = { from: '2026-03-10 10:00', to: '2026-03-10 11:00' };

  it('have no price with a rate card that prices nodes only', async () => {
    await bench.card({ profile: 'h100', nodeHour: '100' });
    await carry(run({ endedMs: at('2026-03-10 12:00') }));
    const report = await bench.report(march);
    expect(report.totals).toMatchObject({ gpuHours: 4, unratedGpuHours: 4, unratedHours: 0 });
    expect(report.warnings).toEqual([
      { code: 'GPU_PRICE_MISSING', hardwareProfile: 'h100', organizationIds: [platform.id] },
    ]);
  });

  it('use nothing without GPUs', async () => {
    await carry(run({ gpus: 0, endedMs: at('2026-03-10 12:00') }));
    const report = await bench.report(march);
    expect(report.totals.gpuHours).toBe(0);
    expect(report.organizations.flatMap(({ clusters }) => clusters.flatMap(({ lineItems }) => lineItems))).toEqual([]);
  });

  describe('costs for margins', () => {
    const window = windowOf(march);

    it('contain held time, starting time and USD cost of each engine', async () => {
      await bench.card({ profile: 'h100', gpuHour: '2.50' });
      await bench.card({ profile: 'a100', currency: 'EUR', gpuHour: '1' });
      await bench.rate('EUR→USD', '1.10', '2026-03-10 11:00');
      // In which currency somebody reads the report is nothing to the books.
      await bench.bill(platform, 'JPY');
      await bench.use({ organization: platform, profile: 'h100', ...oneHour });
      await carry(
        run({ readyMs: at('2026-03-10 10:30'), endedMs: at('2026-03-10 12:00') }),
        run({ runId: 'run-2', organization: bench.organization('Other'), endedMs: at('2026-03-10 10:30') }),
        run({
          runId: 'run-3',
          engineId: 'bge',
          engineName: 'BGE',
          hardwareProfile: 'a100',
          gpus: 1,
          endedMs: at('2026-03-10 12:00'),
        }),
        run({ runId: 'run-4', engineId: 'bare', hardwareProfile: 'b200', endedMs: at('2026-03-10 12:00') }),
        run({ runId: 'run-5', engineId: 'cpu', gpus: 0 }),
      );
      const costs = await bench.costs.replicaCosts({ window });
      expect([...costs.keys()].toSorted()).toEqual(['bare', 'bge', 'qwen3-4b']);
      expect(costs.get('qwen3-4b')).toEqual({
        engineId: 'qwen3-4b',
        heldGpuMs: BigInt(5 * hour),
        startingGpuMs: BigInt(2 * hour),
        unratedGpuMs: 0n,
        costPicoUsd: (25n * usd) / 2n,
        unconverted: [],
      });
      expect(costs.get('bge')).toMatchObject({
        heldGpuMs: BigInt(2 * hour),
        costPicoUsd: (11n * usd) / 10n,
        unconverted: [{ currency: 'EUR', amount: '1.00', amountExact: '1.0000000000' }],
      });
      expect(costs.get('bare')).toMatchObject({ unratedGpuMs: BigInt(4 * hour), costPicoUsd: 0n });
    });

    it('are limited to the window and to now, also while a replica starts', async () => {
      await bench.card({ profile: 'h100', gpuHour: '1' });
      await carry(run({ startedMs: at('2026-02-28 23:00'), readyMs: at('2026-03-01 01:00') }));
      const costs = await bench.costs.replicaCosts({ window, asOfMs: at('2026-03-01 03:00') });
      expect(costs.get('qwen3-4b')).toMatchObject({
        heldGpuMs: BigInt(6 * hour),
        startingGpuMs: BigInt(2 * hour),
        costPicoUsd: 6n * usd,
      });
      const starting = await bench.costs.replicaCosts({ window, asOfMs: at('2026-03-01 00:30') });
      expect(starting.get('qwen3-4b')).toMatchObject({ heldGpuMs: BigInt(hour), startingGpuMs: BigInt(hour) });
      expect(await bench.costs.replicaCosts({ window, asOfMs: at('2026-02-28') })).toEqual(new Map());
    });

    it('give the margin together with revenue and tokens', async () => {
      await bench.card({ profile: 'h100', gpuHour: '2.50' });
      await carry(run({ readyMs: at('2026-03-10 10:30'), endedMs: at('2026-03-10 12:00') }));
      const held = (await bench.costs.replicaCosts({ window })).get('qwen3-4b') ?? null;
      const margin = computeMargin({
        revenuePicoUsd: 15n * usd,
        tokens: { input: 10_000_000n, cachedInput: 0n, output: 10_000_000n },
        prices: { input: 500_000n, cachedInput: 250_000n, output: 1_000_000n },
        held,
        busyGpuMs: BigInt(2 * hour),
      });
      expect(margin).toMatchObject({
        marginPicoUsd: 5n * usd,
        marginRatio: 0.333333,
        gpuHours: { held: 4, busy: 2, idle: 1, starting: 1, unrated: 0 },
        shares: { busy: 0.5, idle: 0.25, starting: 0.25 },
        costPerMillionTokensPicoUsd: usd / 2n,
        breakEven: { factor: 0.666667, input: 333_334n, output: 666_667n },
      });
    });
  });

  it('has tokens as the consumed quantity of engines, divided by GPU-hours', async () => {
    const organization = bench.organization();
    await bench.card({ profile: 'h100', gpuHour: '2', to: '2026-03-10 11:00' });
    await bench.card({ profile: 'h100', gpuHour: '3', from: '2026-03-10 11:00' });
    const [startedMs, endedMs] = [at('2026-03-10 10:00'), at('2026-03-10 13:00')];
    const replica = { runId: 'r', replicaName: 'r', engineId: 'chat', engineName: 'chat', organization };
    const shape = {
      hardwareProfile: 'h100',
      gpus: 1,
      gpuShare: 28,
      startedMs,
      readyMs: null,
      endedMs,
      endEstimated: false,
    };
    await bench.costs.carryReplicaRuns([{ ...replica, ...shape }]);
    const report = await bench.report({ month: '2026-03' });
    const rows = readCsv([...reportToCsv(report, { tokens: new Map([['chat', 1000n]]) })].join(''));
    const shown = rows.map((row) => [
      row['ConsumedQuantity'],
      row['ConsumedUnit'],
      row['PricingQuantity'],
      row['PricingUnit'],
    ]);
    expect(shown).toEqual([
      ['333', 'Tokens', '1', 'GPU-Hours'],
      ['667', 'Tokens', '2', 'GPU-Hours'],
    ]);
  });
});
