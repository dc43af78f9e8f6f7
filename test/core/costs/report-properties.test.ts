import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type CostReport, type OrganizationRef, reportToCsv, reportToJson } from '#core/costs/costs.ts';
import { parseDecimal } from '#base/money.ts';
import { readCsv } from '#test/costs/csv.ts';
import { at, useCosts } from '#test/costs/support.ts';

const begin = at('2026-03-01');
/** A unit that divides no hour: borders fall everywhere. */
const tickMs = 1_234_567;
const ticks = 200;
const momentOf = (tick: number): number => begin + tick * tickMs;
const profiles = ['h100', 'a100'];
const minorUnits: Record<string, number> = { USD: 2, EUR: 2, JPY: 0, KWD: 3 };
const hourMs = 3_600_000n;
const decimals = 10n ** 10n;

interface Interval {
  readonly organization: number;
  readonly cluster: number;
  readonly profile: number;
  readonly gpus: number;
  readonly from: number;
  readonly to: number | null;
}

interface Dated {
  readonly id: string;
  readonly from: number;
  readonly to: number;
}

interface Card extends Dated {
  readonly profile: string;
  readonly currency: string;
  readonly nodeHour: bigint | null;
  readonly gpuHour: bigint | null;
}

interface Rate extends Dated {
  readonly pair: string;
  readonly rate: bigint;
}

interface World {
  readonly intervals: readonly Interval[];
  readonly cards: readonly Card[];
  readonly rates: readonly Rate[];
  readonly billing: readonly (string | null)[];
}

const tick = fc.integer({ min: 0, max: ticks });
const scaled = fc.bigInt({ min: 0n, max: 10n ** 13n });

/** Spans of one series that follow one another, with gaps. */
const spans = fc
  .uniqueArray(tick, { minLength: 2, maxLength: 6 })
  .map((all) => all.toSorted((a, b) => a - b))
  .map((all) => all.slice(1).map((to, index) => ({ from: all[index] ?? 0, to })))
  .chain((list) => fc.subarray(list, { minLength: 1 }));

const cardsOf = (profile: string, currency: string) =>
  spans.chain((list) =>
    fc.tuple(...list.map(() => fc.tuple(scaled, scaled, fc.constantFrom('node', 'gpu', 'both')))).map((prices) =>
      list.map((span, index): Card => {
        const [nodeHour, gpuHour, kind] = prices[index] ?? [0n, 0n, 'both'];
        const id = `${profile} ${currency} ${span.from}`;
        const hours = { nodeHour: kind === 'gpu' ? null : nodeHour, gpuHour: kind === 'node' ? null : gpuHour };
        return { id, profile, currency, ...span, ...hours };
      }),
    ),
  );

const ratesOf = (pair: string) =>
  spans.chain((list) =>
    fc
      .tuple(...list.map(() => fc.bigInt({ min: 1n, max: 10n ** 13n })))
      .map((rates) =>
        list.map((span, index): Rate => ({ id: `${pair} ${span.from}`, pair, ...span, rate: rates[index] ?? 1n })),
      ),
  );

const none = <T>() => fc.constant<T[]>([]);
const worlds: fc.Arbitrary<World> = fc.record({
  intervals: fc.array(
    fc
      .record({
        organization: fc.integer({ min: 0, max: 1 }),
        cluster: fc.integer({ min: 0, max: 1 }),
        profile: fc.integer({ min: 0, max: 1 }),
        gpus: fc.integer({ min: 0, max: 8 }),
        from: tick,
        length: fc.option(fc.integer({ min: 1, max: 80 }), { freq: 4 }),
      })
      .map(({ length, ...rest }): Interval => ({ ...rest, to: length === null ? null : rest.from + length })),
    { minLength: 1, maxLength: 8 },
  ),
  cards: fc
    .tuple(
      ...profiles.flatMap((profile) =>
        ['USD', 'EUR'].map((currency) => fc.oneof(none<Card>(), cardsOf(profile, currency))),
      ),
    )
    .map((lists) => lists.flat()),
  rates: fc
    .tuple(...['USD→EUR', 'EUR→USD', 'USD→JPY', 'EUR→KWD'].map((pair) => fc.oneof(none<Rate>(), ratesOf(pair))))
    .map((lists) => lists.flat()),
  billing: fc.tuple(...[0, 1].map(() => fc.constantFrom(null, 'USD', 'EUR', 'JPY', 'KWD'))),
});

interface Expected {
  nodeMs: bigint;
  gpuMs: bigint;
  from: number;
  to: number;
  /** Numerator over hourMs × 10²⁰ of what is billed; null when unrated. */
  exact: bigint | null;
  currency: string | null;
}

const holds = ({ from, to }: { readonly from: number; readonly to: number | null }, moment: number): boolean =>
  from <= moment && (to === null || moment < to);

/** Every border there is, within the window. */
function cutsOf({ intervals, cards, rates }: World, fromTick: number, toTick: number): number[] {
  const edges = [...intervals, ...cards, ...rates].flatMap(({ from, to }) => [from, to ?? toTick]);
  const inside = edges.filter((edge) => edge >= fromTick && edge <= toTick);
  return [...new Set([fromTick, toTick, ...inside])].toSorted((a, b) => a - b);
}

/** The card that prices a profile at a moment: in the organization's currency, else in USD, else the only one. */
function cardAt(covering: readonly Card[], into: string | null): Card | undefined {
  const only = covering.length === 1 ? covering[0] : undefined;
  return (
    covering.find(({ currency }) => currency === into) ?? covering.find(({ currency }) => currency === 'USD') ?? only
  );
}

/** Uses that stand together in one line of the report, and their price there. */
interface Priced {
  readonly key: string;
  readonly card: Card | undefined;
  readonly rate: bigint;
  readonly currency: string | null;
}

function pricedAt({ cards, rates, billing }: World, interval: World['intervals'][number], moment: number): Priced {
  const into = billing[interval.organization] ?? null;
  const covering = cards.filter((card) => card.profile === profiles[interval.profile] && holds(card, moment));
  const card = cardAt(covering, into);
  const place = [interval.organization, interval.cluster, interval.profile];
  if (card === undefined) {
    const reason = covering.length === 0 ? 'none' : 'ambiguous';
    return { key: [...place, reason, false].join('|'), card, rate: decimals, currency: null };
  }
  const rate = rates.find(({ pair, ...dated }) => pair === `${card.currency}→${into}` && holds(dated, moment));
  const isUnconverted = into !== null && into !== card.currency;
  return {
    key: [...place, card.id, rate?.id ?? isUnconverted].join('|'),
    card,
    rate: rate?.rate ?? decimals,
    currency: rate === undefined ? card.currency : into,
  };
}

function addTo(lines: Map<string, Expected>, key: string, slice: Expected): void {
  const line = lines.get(key);
  if (line === undefined) {
    lines.set(key, slice);
    return;
  }
  line.nodeMs += slice.nodeMs;
  line.gpuMs += slice.gpuMs;
  line.from = Math.min(line.from, slice.from);
  line.to = Math.max(line.to, slice.to);
  if (line.exact !== null) line.exact += slice.exact ?? 0n;
}

/** The report by hand: every interval is cut at every border there is, and every slice priced by itself. */
function expectedLines(world: World, fromTick: number, toTick: number): Map<string, Expected> {
  const cuts = cutsOf(world, fromTick, toTick);
  const lines = new Map<string, Expected>();
  const slices = world.intervals.flatMap((interval) =>
    cuts.slice(0, -1).flatMap((cut, index) => (holds(interval, cut) ? [{ interval, cut, index }] : [])),
  );
  for (const { interval, cut, index } of slices) {
    const end = cuts[index + 1] ?? toTick;
    const nodeMs = BigInt((end - cut) * tickMs);
    const gpuMs = nodeMs * BigInt(interval.gpus);
    const { key, card, rate, currency } = pricedAt(world, interval, cut);
    const exact = card === undefined ? null : (nodeMs * (card.nodeHour ?? 0n) + gpuMs * (card.gpuHour ?? 0n)) * rate;
    addTo(lines, key, { nodeMs, gpuMs, from: cut, to: end, exact, currency });
  }
  return lines;
}

const half = (numerator: bigint, denominator: bigint): bigint => (numerator * 2n + denominator) / (denominator * 2n);
const sum = (values: readonly bigint[]): bigint => values.reduce((total, value) => total + value, 0n);
const micro = (hours: number): bigint => BigInt(Math.round(hours * 1e6));
const units = (amount: string, currency: string): bigint => parseDecimal(amount, minorUnits[currency] ?? 0) ?? -1n;

/** A line without what cannot be foreseen: the ids of cards. */
function describeLines(lines: Map<string, Expected>): string[] {
  const texts = [...lines.values()].map(({ nodeMs, gpuMs, from, to, exact, currency }) => {
    const digits = minorUnits[currency ?? ''] ?? 0;
    const amount = exact === null ? null : half(exact * 10n ** BigInt(digits), hourMs * decimals * decimals);
    const tenth = exact === null ? null : half(exact * decimals, hourMs * decimals * decimals);
    return [
      momentOf(from),
      momentOf(to),
      half(nodeMs * 1_000_000n, hourMs),
      half(gpuMs * 1_000_000n, hourMs),
      currency,
      amount,
      tenth,
    ].join(' ');
  });
  return texts.toSorted();
}

function describeReport(report: CostReport): string[] {
  const items = report.organizations.flatMap(({ clusters }) => clusters.flatMap(({ lineItems }) => lineItems));
  const texts = items.map(({ fromMs, toMs, nodeHours, gpuHours, billed }) => {
    const currency = billed?.currency ?? null;
    const amount = billed === null ? null : units(billed.amount, billed.currency);
    const tenth = billed === null ? null : parseDecimal(billed.amountExact, 10);
    return [fromMs, toMs, micro(nodeHours), micro(gpuHours), currency, amount, tenth].join(' ');
  });
  return texts.toSorted();
}

describe('a cost report of random usage', () => {
  const bench = useCosts();

  async function build(world: World): Promise<OrganizationRef[]> {
    const { db, costs, by } = bench;
    await db.sql`truncate usage_allocations, cluster_moves, usage_intervals, usage_snapshots, rate_cards,
      conversion_rates, billing_currencies`;
    const organizations = [bench.organization('A'), bench.organization('B')];
    for (const { profile, from, to, ...card } of world.cards) {
      const dates = { fromMs: momentOf(from), toMs: momentOf(to), retroactive: true };
      const result = await costs.rateCards.add({ ...card, hardwareProfile: profile, ...dates }, by);
      expect(result.kind).toBe('created');
    }
    for (const { pair, rate, ...span } of world.rates) {
      const [from = '', to = ''] = pair.split('→');
      const dates = { fromMs: momentOf(span.from), toMs: momentOf(span.to), retroactive: true };
      const result = await costs.conversionRates.add({ from, to, rate, ...dates }, by);
      expect(result.kind).toBe('created');
    }
    for (const [index, currency] of world.billing.entries()) {
      const organization = organizations[index];
      if (organization !== undefined) await bench.bill(organization, currency);
    }
    await db.orm.transaction(async (tx) => {
      for (const [index, { organization, cluster, profile, gpus, from, to }] of world.intervals.entries()) {
        const owner = organizations[organization] ?? bench.organization();
        const ref = { id: `cluster_${organization}_${cluster}`, name: `c${cluster}`, organization: owner };
        const key = { nodeId: `node_${index}`, generation: 1 };
        const shape = { nodeName: 'node', hardwareProfile: profiles[profile] ?? '', gpus, atMs: momentOf(from) };
        await costs.allocate(tx, ref, [{ ...key, ...shape }]);
        if (to !== null) await costs.release(tx, ref.id, [{ ...key, atMs: momentOf(to), estimated: false }]);
      }
    });
    return organizations;
  }

  async function read(fromTick: number, toTick: number): Promise<CostReport> {
    const window = { fromMs: momentOf(fromTick), toMs: momentOf(toTick), tz: 'UTC' };
    const result = await bench.costs.report({ window, organizationIds: null });
    if (result.kind !== 'report') throw new Error(result.kind);
    return result.report;
  }

  const windows = fc.uniqueArray(tick, { minLength: 3, maxLength: 3 }).map((all) => all.toSorted((a, b) => a - b));

  it('has the lines of a calculation over every interval and border, in CSV and JSON', async () => {
    await fc.assert(
      fc.asyncProperty(worlds, windows, async (world, [from = 0, middle = 0, to = 0]) => {
        await build(world);
        const report = await read(from, to);
        expect(describeReport(report)).toEqual(describeLines(expectedLines(world, from, to)));
        expectToAddUp(report);
        expectCsvToAddUp(report);
        // Two halves of a window hold what the whole holds, to the last digit of what is exact.
        const parts = [expectedLines(world, from, middle), expectedLines(world, middle, to)].flatMap((lines) => [
          ...lines.values(),
        ]);
        const whole = [...expectedLines(world, from, to).values()];
        expect(sum(parts.map(({ nodeMs }) => nodeMs))).toBe(sum(whole.map(({ nodeMs }) => nodeMs)));
        const halves = [await read(from, middle), await read(middle, to)];
        expect(halves.flatMap(describeReport).toSorted()).toEqual(
          [expectedLines(world, from, middle), expectedLines(world, middle, to)].flatMap(describeLines).toSorted(),
        );
      }),
      { numRuns: 20 },
    );
  });
});

interface Level {
  readonly nodeHours: number;
  readonly gpuHours: number;
  readonly unratedHours: number;
  readonly unratedGpuHours: number;
  readonly amounts: CostReport['grandTotal'];
}

/** Every total is the sum of what stands below it. */
function expectToAddUp(report: CostReport): void {
  const hours = ['nodeHours', 'gpuHours', 'unratedHours', 'unratedGpuHours'] as const;
  const expectSum = (above: Level, below: readonly Level[]): void => {
    for (const name of hours) expect(micro(above[name])).toBe(sum(below.map((one) => micro(one[name]))));
    const currencies = [...new Set(below.flatMap(({ amounts }) => amounts.map(({ currency }) => currency)))];
    expect(above.amounts.map(({ currency }) => currency)).toEqual(currencies.toSorted());
    for (const { currency, amount } of above.amounts) {
      const parts = below.flatMap(({ amounts }) => amounts.filter((one) => one.currency === currency));
      expect(units(amount, currency)).toBe(sum(parts.map((one) => units(one.amount, currency))));
    }
  };
  expectSum({ ...report.totals, amounts: report.grandTotal }, report.organizations);
  for (const organization of report.organizations) {
    expectSum(organization, organization.clusters);
    for (const cluster of organization.clusters) {
      const lines = cluster.lineItems.map(({ nodeHours, gpuHours, billed }) => ({
        nodeHours,
        gpuHours,
        unratedHours: billed === null ? nodeHours : 0,
        unratedGpuHours: billed === null ? gpuHours : 0,
        amounts: billed === null ? [] : [billed],
      }));
      expectSum(cluster, lines);
    }
  }
}

/** The rows of the CSV are the lines of the JSON, and their sums its totals. */
function expectCsvToAddUp(report: CostReport): void {
  const rows = readCsv([...reportToCsv(report)].join(''));
  const json = reportToJson(report);
  const items = json.organizations.flatMap(({ clusters }) => clusters.flatMap(({ line_items }) => line_items));
  const shown = rows.map((row) => [row['ChargePeriodStart'], row['ChargePeriodEnd'], row['x_ConversionStatus']].join());
  // A line with prices of nodes and GPUs has two rows.
  expect(new Set(shown)).toEqual(new Set(items.map(({ from, to, conversion }) => [from, to, conversion].join())));
  const total = (name: string): bigint => sum(rows.map((row) => parseDecimal(row[name] ?? '', 6) ?? -1n));
  expect(total('x_NodeHours')).toBe(micro(json.totals.node_hours));
  expect(total('x_GpuHours')).toBe(micro(json.totals.gpu_hours));
  expect(total('x_UnratedHours')).toBe(micro(json.totals.unrated_hours));
  for (const { currency, amount } of json.grand_total) {
    const billed = rows.filter((row) => row['PricingCategory'] !== 'Other' && row['BillingCurrency'] === currency);
    expect(sum(billed.map((row) => units(row['BilledCost'] ?? '', currency)))).toBe(units(amount, currency));
  }
}
