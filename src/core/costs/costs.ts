import { and, asc, eq, isNotNull, isNull, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import {
  amendAllocation,
  type AllocationList,
  type AllocationPage,
  type Amended,
  type AmendmentRequest,
  listAllocations,
} from './amendments.ts';
import { type BillingCurrencyChange, changeBillingCurrency, readBillingCurrency } from './billing-currency.ts';
import {
  type ConversionRate,
  type ConversionRateList,
  createConversionRates,
  listConversionRates,
  type NewConversionRate,
} from './conversion-rates.ts';
import type { DatedRates, RatePage } from './dated-table.ts';
import { type LabeledNode, recordLabels, renameNode } from './node-labels.ts';
import {
  createRateCards,
  listRateCards,
  readPricedProfiles,
  type NewRateCard,
  type RateCard,
  type RateCardList,
} from './rate-cards.ts';
import { readReplicaCosts, type ReplicaCosts, type ReplicaCostsRequest } from './replica-costs.ts';
import { carryReplicaRuns, type ReplicaRun } from './replica-runs.ts';
import { readReport, type ReportRequest, type ReportResult } from './report.ts';
import { readSeries, type ReadStackSpans, type SeriesRequest, type SeriesResult } from './series.ts';
import { createUsageEvents, type UsageEvents } from './usage-events.ts';
import type { AllocationKey, UsageSource } from './interval-rows.ts';
import { usageAllocations } from './schema.ts';

export { formatPrice, parsePrice, type Scaled } from './amount.ts';
export type {
  AllocationHistory,
  AllocationList,
  AllocationPage,
  AllocationTimes,
  Amended,
  Amendment,
  AmendmentRequest,
} from './amendments.ts';
export { spanText } from './amendments.ts';
export type { BillingCurrencyChange } from './billing-currency.ts';
export type { ConversionRate, ConversionRateList, NewConversionRate } from './conversion-rates.ts';
export { currencies, type Currency, findCurrency } from './currencies.ts';
export type { EndRequest } from './dated-rates.ts';
export type { AddAllResult, AddResult, ChangedBy, EndResult, RatePage } from './dated-table.ts';
export type { OrganizationRef } from './derive-intervals.ts';
export { csvFileName, reportToCsv } from './focus-csv.ts';
export type { AllocationKey, UsageSource } from './interval-rows.ts';
export type { Amount, Hours, LineItem } from './line-items.ts';
export { computeMargin, type Margin, type MarginInput, type TokenCounts, type TokenPrices } from './margins.ts';
export type { NewRateCard, RateCard, RateCardList } from './rate-cards.ts';
export type { ReplicaCosts, ReplicaCostsRequest } from './replica-costs.ts';
export type { ReplicaRun } from './replica-runs.ts';
export type {
  ClusterCosts,
  CostReport,
  CostWarning,
  OrganizationCosts,
  ReportRequest,
  ReportResult,
} from './report.ts';
export {
  aheadMsMax,
  type ClusterRef,
  type Move,
  type NodeAllocation,
  type NodeRelease,
  type UsageOutcome,
} from './usage-events.ts';
export type { Costing, CostGroup, CostSeries, GroupBy, SeriesRequest, SeriesResult } from './series.ts';
export { type CostReportJson, reportToJson, reportToJsonText, seriesToJson } from './report-json.ts';
export {
  type FieldProblem,
  parseWindow,
  type Step,
  steps,
  type Window,
  type WindowQuery,
  type WindowResult,
} from './window.ts';

/** An allocation that was reported and not released. */
export interface OpenInterval extends AllocationKey {
  readonly clusterId: string;
  /** Milliseconds since the Unix epoch. */
  readonly allocatedMs: number;
}

export interface OpenIntervalRequest {
  readonly source: UsageSource;
  /** The last one of the previous page; null for the first page. */
  readonly after: AllocationKey | null;
  readonly limit: number;
}

/**
 * Lists open intervals by node id. The owners of nodes and replicas check them, and end those without a machine.
 */
async function listOpenIntervals(db: Db, request: OpenIntervalRequest): Promise<readonly OpenInterval[]> {
  const { source, after, limit } = request;
  const { nodeId, generation, clusterId, allocatedMs, releasedMs } = usageAllocations;
  const open = and(
    eq(usageAllocations.source, source),
    isNotNull(allocatedMs),
    isNull(releasedMs),
    eq(usageAllocations.voided, false),
    after === null ? undefined : sql`(${nodeId}, ${generation}) > (${after.nodeId}, ${after.generation})`,
  );
  const rows = await db.orm
    .select({ nodeId, generation, clusterId, allocatedMs })
    .from(usageAllocations)
    .where(open)
    .orderBy(asc(nodeId), asc(generation))
    .limit(limit);
  return rows.map((row) => ({ ...row, allocatedMs: row.allocatedMs ?? 0 }));
}

/** The recorded events of one allocation. Milliseconds since the Unix epoch. */
export interface AllocationOnFile extends AllocationKey {
  /** Null if only its release was reported. */
  readonly allocatedMs: number | null;
  readonly releasedMs: number | null;
  readonly releaseEstimated: boolean;
  readonly isVoided: boolean;
}

export interface NodeAllocations {
  readonly nodeIds: readonly string[];
  /**
   * Per node: all allocations with voided ones, the open one, or the one that shows its status (the open one, else the
   * last).
   */
  readonly which: 'all' | 'open' | 'latest';
}

interface Row {
  readonly node_id: string;
  readonly generation: number;
  readonly allocated_ms: string | null;
  readonly released_ms: string | null;
  readonly release_estimated: boolean;
  readonly voided: boolean;
  readonly [column: string]: unknown;
}

const source: UsageSource = 'node';

async function readNodeAllocations(
  tx: Pick<Transaction, 'execute'>,
  { nodeIds, which }: NodeAllocations,
): Promise<readonly AllocationOnFile[]> {
  if (nodeIds.length === 0) return [];
  const isOpen = sql`(a.allocated_ms is not null and a.released_ms is null)`;
  const chosen = { all: sql``, open: sql`and not a.voided and ${isOpen}`, latest: sql`and not a.voided` }[which];
  const rows = await tx.execute<Row>(sql`
    select f.* from json_array_elements_text(${JSON.stringify(nodeIds)}::text::json) as t(id), lateral (
      select a.node_id, a.generation, a.allocated_ms, a.released_ms, a.release_estimated, a.voided
      from usage_allocations a
      where a.source = ${source} and a.node_id = t.id ${chosen}
      order by ${which === 'latest' ? sql`${isOpen} desc, a.allocated_ms desc nulls last` : sql`a.generation`}
      limit ${which === 'latest' ? 1 : null}
    ) f order by f.node_id, f.generation`);
  return rows.map((row) => ({
    nodeId: row.node_id,
    generation: row.generation,
    allocatedMs: row.allocated_ms === null ? null : Number(row.allocated_ms),
    releasedMs: row.released_ms === null ? null : Number(row.released_ms),
    releaseEstimated: row.release_estimated,
    isVoided: row.voided,
  }));
}

/**
 * Hours of nodes and GPUs, and their costs. Intervals are written when something changes, not by a timer: a gateway
 * that stops loses nothing. Prices and conversion rates are dated and never changed, so a report of the past stays the
 * same until an allocation is amended. While Postgres is unreachable, all methods throw the driver's error.
 */

export interface Costs extends UsageEvents {
  /** Open intervals, so that the caller can check whether their machines still exist. */
  listOpen(request: OpenIntervalRequest): Promise<readonly OpenInterval[]>;
  /**
   * Recorded allocations of nodes, by node and generation.
   * @param tx that saw the last change; without it the pool's own
   */
  nodeAllocations(request: NodeAllocations, tx?: Transaction): Promise<readonly AllocationOnFile[]>;
  /**
   * Corrects or voids an allocation of a node, and derives its node's intervals again. Null if it does not exist.
   * @throws AppError invalid_value, conflict
   */
  amend(tx: Transaction, request: AmendmentRequest): Promise<Amended | null>;
  /** Lists allocations of a cluster's nodes with their amendments, latest first; also of removed nodes. */
  listAllocations(list: AllocationList): Promise<AllocationPage>;
  /** Records labels of nodes, with those of their clusters, for hours from now on. */
  recordLabels(tx: Transaction, nodes: readonly LabeledNode[]): Promise<void>;
  /** Reports show a node by its current name. */
  renameNode(tx: Transaction, nodeId: string, name: string): Promise<void>;
  /** Idempotent. @returns the number of runs that were new or had changed */
  carryReplicaRuns(runs: readonly ReplicaRun[]): Promise<number>;
  readonly rateCards: DatedRates<RateCard, NewRateCard>;
  listRateCards(request: RateCardList): Promise<RatePage<RateCard>>;
  /** Returns those of the profiles that a rate card prices now. */
  pricedProfiles(tx: Transaction, profiles: readonly string[]): Promise<ReadonlySet<string>>;
  readonly conversionRates: DatedRates<ConversionRate, NewConversionRate>;
  listConversionRates(request: ConversionRateList): Promise<RatePage<ConversionRate>>;
  /** Null: costs are shown in the currencies of the rate cards. */
  billingCurrency(organizationId: string): Promise<string | null>;
  /** Changes how costs are shown, past ones too. Recorded usage and prices stay the same. */
  changeBillingCurrency(change: BillingCurrencyChange): Promise<void>;
  report(request: ReportRequest): Promise<ReportResult>;
  /** Costs over time and by group. Amounts add up to those of the report. */
  series(request: SeriesRequest): Promise<SeriesResult>;
  /** Costs of replicas by engine, for margins. */
  replicaCosts(request: ReplicaCostsRequest): Promise<ReadonlyMap<string, ReplicaCosts>>;
}

export interface CostsOptions {
  readonly db: Db;
  readonly audit: Audit;
  readonly log: Log;
  /** Currency of the rate card that is used if several cover an hour and none is in the organization's currency. */
  readonly defaultCurrency?: string;
  /** Maximum line items of a report; a larger one is rejected. */
  readonly linesMax?: number;
  /** Reads when stacks were applied, for series that are grouped by stack. */
  readonly readStackSpans?: ReadStackSpans;
}

export function createCosts(options: CostsOptions): Costs {
  const { db, audit, log, defaultCurrency = 'USD', linesMax = 100_000 } = options;
  const { readStackSpans = async () => [] } = options;
  return {
    ...createUsageEvents(log),
    listOpen: (request) => listOpenIntervals(db, request),
    nodeAllocations: (request, tx) => readNodeAllocations(tx ?? db.orm, request),
    amend: amendAllocation,
    listAllocations: (list) => listAllocations(db, list),
    recordLabels,
    renameNode,
    carryReplicaRuns: (runs) => carryReplicaRuns(db, runs),
    rateCards: createRateCards(db, audit),
    listRateCards: (request) => listRateCards(db, request),
    pricedProfiles: readPricedProfiles,
    conversionRates: createConversionRates(db, audit),
    listConversionRates: (request) => listConversionRates(db, request),
    billingCurrency: (organizationId) => readBillingCurrency(db, organizationId),
    changeBillingCurrency: (change) => changeBillingCurrency(db, audit, change),
    report: (request) => readReport({ db, defaultCurrency, linesMax }, request),
    series: (request) => readSeries({ db, defaultCurrency, linesMax, readStackSpans }, request),
    replicaCosts: (request) => readReplicaCosts(db, defaultCurrency, request),
  };
}
