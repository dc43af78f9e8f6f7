import type { Db } from '#base/database/database.ts';
import type { UsageSource } from './interval-rows.ts';
import {
  addPiece,
  type Amount,
  type Hours,
  type LineItem,
  type LineSum,
  type RoundedPart,
  roundParts,
  toLineItem,
  Totals,
} from './line-items.ts';
import type { Pricing } from './pricing.ts';
import { readRatedUsage, type SnapshotUsage, viewUsage } from './rated-usage.ts';
import type { Window } from './window.ts';

export interface ReportRequest {
  readonly window: Window;
  /** UUIDs of the organizations that the caller may see; null for all. */
  readonly organizationIds: readonly string[] | null;
  /** Usage counts up to this moment; without it up to now, by the database's clock. */
  readonly asOfMs?: number | undefined;
  /** True to divide lines by all labels of their nodes. */
  readonly byLabels?: boolean | undefined;
}

/** Costs of a window. Times are milliseconds since the Unix epoch, amounts decimal strings, ids UUIDs. */
export interface CostReport {
  readonly window: Window;
  /** The moment up to which open intervals are counted. */
  readonly asOfMs: number;
  readonly totals: Hours;
  /** One entry per currency. */
  readonly grandTotal: readonly Amount[];
  /** Organizations with usage, by name. */
  readonly organizations: readonly OrganizationCosts[];
  readonly warnings: readonly CostWarning[];
}

export interface OrganizationCosts extends Hours {
  readonly id: string;
  /** The name in the latest interval. */
  readonly name: string;
  readonly billingCurrency: string | null;
  readonly amounts: readonly Amount[];
  /** Sorted by name. */
  readonly clusters: readonly ClusterCosts[];
}

/** A cluster of nodes, or an inference engine with its replicas. */
export interface ClusterCosts extends Hours {
  readonly source: UsageSource;
  readonly id: string;
  readonly name: string;
  /** Start of the first interval that reaches into the window; not cut to the window. */
  readonly startedMs: number;
  /** Null while the cluster has open intervals. */
  readonly endedMs: number | null;
  readonly estimated: boolean;
  readonly amounts: readonly Amount[];
  /** Sorted by profile, then by time. */
  readonly lineItems: readonly LineItem[];
}

/** Facts that a reader needs to understand the sums. */
export type CostWarning =
  | {
      readonly code: 'CONVERSION_RATE_MISSING';
      readonly from: string;
      readonly to: string;
      readonly organizationIds: readonly string[];
    }
  | {
      readonly code: 'RATE_CARD_MISSING' | 'AMBIGUOUS_RATE' | 'GPU_PRICE_MISSING';
      readonly hardwareProfile: string;
      readonly organizationIds: readonly string[];
    };

export type ReportResult =
  | { readonly kind: 'report'; readonly report: CostReport }
  /** Shorter windows or fewer organizations have fewer lines. */
  | { readonly kind: 'too_many_lines'; readonly linesMax: number };

export interface ReportOptions {
  readonly db: Db;
  readonly defaultCurrency: string;
  readonly linesMax: number;
}

export async function readReport(options: ReportOptions, request: ReportRequest): Promise<ReportResult> {
  const { db, defaultCurrency, linesMax } = options;
  const { window, organizationIds, asOfMs, byLabels = false } = request;
  return viewUsage(db, asOfMs ?? null, async (view): Promise<ReportResult> => {
    const draft = new ReportDraft(window);
    const split = byLabels ? ({ by: 'labels' } as const) : null;
    const usage = { window, organizationIds, source: null, defaultCurrency, inCurrency: null, split };
    await readRatedUsage(view, usage, (used) => {
      draft.add(used);
      return draft.lines <= linesMax;
    });
    if (draft.lines > linesMax) return { kind: 'too_many_lines', linesMax };
    return { kind: 'report', report: draft.finish(view.asOfMs) };
  });
}

/** A name that changes; the latest one is shown. */
interface Named {
  name: string;
  namedMs: number;
}

interface OrganizationDraft extends Named {
  readonly id: string;
  readonly billingCurrency: string | null;
  readonly clusters: Map<string, ClusterDraft>;
}

interface ClusterDraft extends Named {
  readonly source: UsageSource;
  readonly id: string;
  startedMs: number;
  endedMs: number | null;
  readonly lines: Map<string, LineSum>;
}

class ReportDraft {
  /** Number of lines so far. */
  lines = 0;
  readonly #window: Window;
  readonly #organizations = new Map<string, OrganizationDraft>();

  constructor(window: Window) {
    this.#window = window;
  }

  add(usage: SnapshotUsage): void {
    const cluster = this.#clusterOf(usage);
    for (const piece of usage.pieces) {
      if (addPiece(cluster.lines, usage, piece, this.#window.fromMs)) this.lines += 1;
    }
  }

  #clusterOf(usage: SnapshotUsage): ClusterDraft {
    const { organizationId, billingCurrency, source, clusterId, startedMs, endedMs } = usage;
    const unnamed = { name: '', namedMs: Number.NEGATIVE_INFINITY };
    const organization: OrganizationDraft = this.#organizations.get(organizationId) ?? {
      ...unnamed,
      id: organizationId,
      billingCurrency,
      clusters: new Map(),
    };
    this.#organizations.set(organizationId, organization);
    const key = `${source} ${clusterId}`;
    const cluster: ClusterDraft = organization.clusters.get(key) ?? {
      ...unnamed,
      source,
      id: clusterId,
      startedMs,
      endedMs,
      lines: new Map(),
    };
    organization.clusters.set(key, cluster);
    cluster.startedMs = Math.min(cluster.startedMs, startedMs);
    cluster.endedMs = cluster.endedMs === null || endedMs === null ? null : Math.max(cluster.endedMs, endedMs);
    nameBy(organization, usage.organizationName, usage.lastStartMs);
    nameBy(cluster, usage.clusterName, usage.lastStartMs);
    return cluster;
  }

  finish(asOfMs: number): CostReport {
    const totals = new Totals();
    const warnings = new Warnings();
    const organizations = [...this.#organizations.values()]
      .toSorted(byName)
      .map((draft) => finishOrganization(draft, { asOfMs, totals, warnings }));
    return {
      window: this.#window,
      asOfMs,
      totals: totals.hours(),
      grandTotal: totals.amounts(),
      organizations,
      warnings: warnings.list(),
    };
  }
}

function nameBy(named: Named, name: string, atMs: number): void {
  if (atMs < named.namedMs) return;
  named.name = name;
  named.namedMs = atMs;
}

function byName(a: { name: string; id: string }, b: { name: string; id: string }): number {
  if (a.name !== b.name) return a.name < b.name ? -1 : 1;
  return a.id < b.id ? -1 : 1;
}

interface Sums {
  readonly asOfMs: number;
  readonly totals: Totals;
  readonly warnings: Warnings;
}

function finishOrganization(draft: OrganizationDraft, sums: Sums): OrganizationCosts {
  const totals = new Totals();
  const clusters = [...draft.clusters.values()].toSorted(byName).map((cluster) => {
    const lines = roundLines([...cluster.lines.values()]);
    for (const { line, part } of lines) {
      totals.add(part);
      sums.totals.add(part);
      sums.warnings.add(line, draft.id);
    }
    return finishCluster(cluster, lines, sums.asOfMs);
  });
  const { id, name, billingCurrency } = draft;
  return { id, name, billingCurrency, ...totals.hours(), amounts: totals.amounts(), clusters };
}

interface RoundedLine {
  readonly line: LineSum;
  readonly part: RoundedPart;
}

/** Rounds the lines of a cluster. Lines that differ only by the value of the split are parts of one line. */
function roundLines(lines: readonly LineSum[]): readonly RoundedLine[] {
  const sorted = lines.toSorted(byProfileAndTime);
  const whole = Map.groupBy(sorted, ({ pricing, hardwareProfile }) => `${pricing.key}\n${hardwareProfile}`);
  return [...whole.values()].flatMap((own) => {
    const [first] = own;
    if (first === undefined) return [];
    const rounded = roundParts(first.pricing, own);
    return own.flatMap((line, index) => {
      const part = rounded[index];
      return part === undefined ? [] : [{ line, part }];
    });
  });
}

function finishCluster(draft: ClusterDraft, lines: readonly RoundedLine[], asOfMs: number): ClusterCosts {
  const totals = new Totals();
  for (const { part } of lines) totals.add(part);
  const { source, id, name, startedMs, endedMs } = draft;
  return {
    source,
    id,
    name,
    startedMs,
    endedMs: endedMs !== null && endedMs <= asOfMs ? endedMs : null,
    estimated: lines.some(({ line }) => line.estimated),
    ...totals.hours(),
    amounts: totals.amounts(),
    lineItems: lines.map(({ line, part }) => toLineItem(line, part)),
  };
}

function byProfileAndTime(a: LineSum, b: LineSum): number {
  if (a.hardwareProfile !== b.hardwareProfile) return a.hardwareProfile < b.hardwareProfile ? -1 : 1;
  if (a.fromMs !== b.fromMs) return a.fromMs - b.fromMs;
  if (a.pricing.key !== b.pricing.key) return a.pricing.key < b.pricing.key ? -1 : 1;
  return (a.split ?? '') < (b.split ?? '') ? -1 : 1;
}

const codeOf = {
  no_rate_card: 'RATE_CARD_MISSING',
  ambiguous_rate: 'AMBIGUOUS_RATE',
  no_gpu_price: 'GPU_PRICE_MISSING',
} as const;

/** A warning without its organizations. */
type Cause = CostWarning extends infer W ? (W extends CostWarning ? Omit<W, 'organizationIds'> : never) : never;

export class Warnings {
  readonly #found = new Map<string, { readonly cause: Cause; readonly organizationIds: Set<string> }>();

  add({ pricing, hardwareProfile }: Pick<LineSum, 'pricing' | 'hardwareProfile'>, organizationId: string): void {
    const cause = causeOf(pricing, hardwareProfile);
    if (cause === null) return;
    const key = JSON.stringify(cause);
    const found = this.#found.get(key) ?? { cause, organizationIds: new Set<string>() };
    found.organizationIds.add(organizationId);
    this.#found.set(key, found);
  }

  list(): CostWarning[] {
    const sorted = [...this.#found].toSorted(([a], [b]) => (a < b ? -1 : 1));
    return sorted.map(([, { cause, organizationIds }]) => ({ ...cause, organizationIds: [...organizationIds] }));
  }
}

function causeOf(pricing: Pricing, hardwareProfile: string): Cause | null {
  if (!pricing.rated) return { code: codeOf[pricing.reason], hardwareProfile };
  if (pricing.wanted === null) return null;
  return { code: 'CONVERSION_RATE_MISSING', from: pricing.card.currency, to: pricing.wanted };
}
