import type { TransactionSql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { parsePrice, type Scaled } from './amount.ts';
import type { UsageSource } from './interval-rows.ts';
import {
  type DatedConversion,
  priceBorders,
  type PricedCard,
  type PriceList,
  type Pricing,
  pricingAt,
} from './pricing.ts';
import type { Split } from './split-usage.ts';
import { type EdgeSums, readEdgeSums, type UsedPiece, usedPieces } from './usage-sums.ts';
import type { Window } from './window.ts';

export interface UsageRequest {
  readonly window: Window;
  /** UUIDs; null for all organizations. */
  readonly organizationIds: readonly string[] | null;
  readonly source: UsageSource | null;
  readonly defaultCurrency: string;
  /** Converts all costs to this currency; null uses the billing currency of each organization. */
  readonly inCurrency: string | null;
  readonly split?: Split | null;
  /** Moments at which pieces of usage are cut, besides changes of prices; milliseconds since the Unix epoch. */
  readonly cuts?: readonly number[];
}

/** The owner and the resource of usage. */
export interface Snapshot {
  readonly source: UsageSource;
  readonly organizationId: string;
  readonly organizationName: string;
  readonly clusterId: string;
  readonly clusterName: string;
  readonly hardwareProfile: string;
}

/** Usage of one snapshot within a window, or its part with one value of the split. Times are milliseconds since the Unix epoch. */
export interface SnapshotUsage extends Snapshot {
  readonly split: string | null;
  /** The first start; not cut to the window. */
  readonly startedMs: number;
  readonly lastStartMs: number;
  /** Null while an interval is open. */
  readonly endedMs: number | null;
  readonly billingCurrency: string | null;
  readonly pieces: readonly PricedPiece[];
}

export interface PricedPiece extends UsedPiece {
  readonly pricing: Pricing;
}

/** A snapshot of the database, and the moment up to which it counts usage. */
export interface UsageView {
  readonly sql: TransactionSql;
  readonly asOfMs: number;
}

/** Reads in one snapshot of the database. @param asOfMs null for now, by the database's clock */
export async function viewUsage<T>(db: Db, asOfMs: number | null, read: (view: UsageView) => Promise<T>): Promise<T> {
  const result = await db.sql.begin('isolation level repeatable read read only', async (sql) => {
    // Sums of millions of rows stay in memory instead of being sorted on disk.
    await sql`set local work_mem = '64MB'`;
    return { value: await read({ sql, asOfMs: asOfMs ?? (await readNowMs(sql)) }) };
  });
  return result.value;
}

/**
 * Reads all usage of a window with its prices. Keeps in memory only the usage of one row of usage_snapshots at a time.
 * @param take gets usage one by one, in arbitrary order; returns false to stop
 */
export async function readRatedUsage(
  { sql, asOfMs }: UsageView,
  request: UsageRequest,
  take: (usage: SnapshotUsage) => boolean,
): Promise<void> {
  const { organizationIds, source, split = null, cuts = [] } = request;
  const { fromMs } = request.window;
  const toMs = Math.min(request.window.toMs, asOfMs);
  if (toMs <= fromMs) return;
  const currencies = await readBillingCurrencies(sql, request);
  const list = await readPriceList(sql, request, currencies);
  const segments = { borders: priceBorders(list, cuts, { fromMs, toMs }), endMs: toMs - fromMs };
  const snapshots = await readSnapshots(sql, request);
  const priced = createPricer(list, segments.borders, fromMs);
  const sums = readEdgeSums(sql, { fromMs, toMs, organizationIds, source, split }, segments.borders);
  for await (const edges of bySnapshot(sums)) {
    const snapshot = snapshots.get(edges[0]?.snapshotId ?? 0);
    if (snapshot === undefined) throw new Error('an interval has no snapshot');
    const billingCurrency = request.inCurrency ?? currencies.get(snapshot.organizationId) ?? null;
    const pieces = usedPieces(edges, segments, fromMs).map((piece) => {
      return { ...piece, pricing: priced(snapshot, billingCurrency, piece.segment) };
    });
    const value = edges[0]?.split ?? null;
    if (!take({ ...snapshot, split: value, ...extentOf(edges), billingCurrency, pieces })) return;
  }
}

async function readNowMs(sql: TransactionSql): Promise<number> {
  const [row] = await sql<{ now_ms: string }[]>`select floor(extract(epoch from now()) * 1000)::bigint as now_ms`;
  return Number(row?.now_ms);
}

async function* bySnapshot(pages: AsyncIterable<readonly EdgeSums[]>): AsyncGenerator<readonly EdgeSums[]> {
  let edges: EdgeSums[] = [];
  for await (const page of pages) {
    for (const edge of page) {
      const [first] = edges;
      if (first !== undefined && (first.snapshotId !== edge.snapshotId || first.split !== edge.split)) {
        yield edges;
        edges = [];
      }
      edges.push(edge);
    }
  }
  if (edges.length > 0) yield edges;
}

function extentOf(edges: readonly EdgeSums[]): Pick<SnapshotUsage, 'startedMs' | 'lastStartMs' | 'endedMs'> {
  const starts = edges.filter(({ isStart }) => isStart);
  const ends = edges.filter(({ isStart }) => !isStart).map(({ outerMs }) => outerMs);
  const known = ends.filter((endedMs) => endedMs !== null);
  return {
    startedMs: Math.min(...starts.map(({ outerMs }) => outerMs ?? 0)),
    lastStartMs: Math.max(...starts.map(({ lastStartMs }) => lastStartMs ?? 0)),
    endedMs: known.length < ends.length ? null : Math.max(...known),
  };
}

/** Creates a price lookup by segment; each kind of use is looked up once per segment. */
function createPricer(list: PriceList, borders: readonly number[], fromMs: number) {
  const known = new Map<string, (Pricing | undefined)[]>();
  return ({ source, hardwareProfile }: Snapshot, billingCurrency: string | null, segment: number): Pricing => {
    const key = `${source} ${billingCurrency ?? ''} ${hardwareProfile}`;
    const prices = known.get(key) ?? [];
    known.set(key, prices);
    const pricing = (prices[segment] ??= pricingAt(
      list,
      { source, hardwareProfile, billingCurrency },
      fromMs + (borders[segment] ?? 0),
    ));
    return pricing;
  };
}

async function readBillingCurrencies(sql: TransactionSql, request: UsageRequest): Promise<ReadonlyMap<string, string>> {
  const { organizationIds, inCurrency } = request;
  if (inCurrency !== null) return new Map();
  const rows = await sql<{ organization_id: string; currency: string }[]>`
    select organization_id, currency from billing_currencies
    ${organizationIds === null ? sql`` : sql`where organization_id = any(${idList(organizationIds)}::text::uuid[])`}`;
  return new Map(rows.map((row) => [row.organization_id, row.currency]));
}

const idList = (ids: readonly string[]): string => `{${ids.join(',')}}`;

async function readSnapshots(sql: TransactionSql, request: UsageRequest): Promise<ReadonlyMap<number, Snapshot>> {
  const { organizationIds } = request;
  const rows = await sql<(Snapshot & { id: number })[]>`
    select id, source, organization_id as "organizationId", organization_name as "organizationName",
      cluster_id as "clusterId", cluster_name as "clusterName", hardware_profile as "hardwareProfile"
    from usage_snapshots
    ${organizationIds === null ? sql`` : sql`where organization_id = any(${idList(organizationIds)}::text::uuid[])`}`;
  return new Map(rows.map(({ id, ...snapshot }) => [id, snapshot]));
}

interface DatedRow {
  readonly id: string;
  readonly from_ms: string;
  readonly to_ms: string | null;
}

interface CardRow extends DatedRow {
  readonly hardware_profile: string;
  readonly currency: string;
  readonly node_hour: string | null;
  readonly gpu_hour: string | null;
}

interface ConversionRow extends DatedRow {
  readonly from_currency: string;
  readonly to_currency: string;
  readonly rate: string;
}

/**
 * Reads cards and conversion rates in effect within the window; of the latter only those that an organization could
 * need.
 */
async function readPriceList(
  sql: TransactionSql,
  { window, defaultCurrency, inCurrency }: UsageRequest,
  billingCurrencies: ReadonlyMap<string, string>,
): Promise<PriceList> {
  const [from, to] = [window.fromMs, window.toMs].map((ms) => new Date(ms).toISOString());
  const bounds = sql`(extract(epoch from effective_from) * 1000)::bigint as from_ms,
    (extract(epoch from effective_to) * 1000)::bigint as to_ms`;
  const within = sql`effective_from < ${to ?? ''}::text::timestamptz
    and (effective_to is null or (effective_to > effective_from and effective_to > ${from ?? ''}::text::timestamptz))`;
  const cards = await sql<CardRow[]>`
    select id, hardware_profile, currency, node_hour, gpu_hour, ${bounds} from rate_cards where ${within}`;
  const [into, outOf] = [
    new Set(inCurrency === null ? billingCurrencies.values() : [inCurrency]),
    new Set(cards.map(({ currency }) => currency)),
  ];
  const conversions = await sql<ConversionRow[]>`
    select id, from_currency, to_currency, rate, ${bounds} from conversion_rates
    where ${within} and to_currency = any(${idList([...into])}::text::text[])
      and from_currency = any(${idList([...outOf])}::text::text[])`;
  return { cards: cards.map(toCard), conversions: conversions.map(toConversion), defaultCurrency };
}

function toCard(row: CardRow): PricedCard {
  return {
    ...toDates(row),
    hardwareProfile: row.hardware_profile,
    currency: row.currency,
    nodeHour: row.node_hour === null ? null : toScaled(row.node_hour),
    gpuHour: row.gpu_hour === null ? null : toScaled(row.gpu_hour),
  };
}

function toConversion(row: ConversionRow): DatedConversion {
  return { ...toDates(row), from: row.from_currency, to: row.to_currency, rate: toScaled(row.rate) };
}

function toDates({ id, from_ms, to_ms }: DatedRow): { id: string; fromMs: number; toMs: number | null } {
  return { id, fromMs: Number(from_ms), toMs: to_ms === null ? null : Number(to_ms) };
}

/** Parses a `numeric(20,10)` that is not negative. */
function toScaled(text: string): Scaled {
  const value = parsePrice(text);
  if (value === null) throw new Error('a stored price cannot be read');
  return value;
}
