import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import { type BillingCurrencyChange, changeBillingCurrency, readBillingCurrency } from './billing-currency.ts';
import {
  type ConversionRate,
  type ConversionRateList,
  createConversionRates,
  listConversionRates,
  type NewConversionRate,
} from './conversion-rates.ts';
import type { DatedRates, RatePage } from './dated-table.ts';
import { createRateCards, listRateCards, type NewRateCard, type RateCard, type RateCardList } from './rate-cards.ts';
import { listOpenIntervals, type OpenInterval, type OpenIntervalRequest } from './open-intervals.ts';
import { type AllocationOnFile, type NodeAllocations, readNodeAllocations } from './node-allocations.ts';
import { readReplicaCosts, type ReplicaCosts, type ReplicaCostsRequest } from './replica-costs.ts';
import { carryReplicaRuns, type ReplicaRun } from './replica-runs.ts';
import { readReport, type ReportRequest, type ReportResult } from './report.ts';
import { createUsageEvents, type UsageEvents } from './usage-events.ts';

/**
 * Hours of nodes and GPUs, and what they cost. Intervals are written when something changes, never by a clock that
 * ticks: a gateway that stands still loses nothing. Prices and conversion rates are dated and never changed, so a report
 * of the past stays what it was. While Postgres is away everything here throws the driver's error.
 */

export { formatPrice, parsePrice, type Scaled } from './amount.ts';
export type { BillingCurrencyChange } from './billing-currency.ts';
export type { ConversionRate, ConversionRateList, NewConversionRate } from './conversion-rates.ts';
export { currencies, type Currency, findCurrency } from './currencies.ts';
export type { EndRequest } from './dated-rates.ts';
export type { AddResult, ChangedBy, EndResult, RatePage } from './dated-table.ts';
export type { OrganizationRef } from './derive-intervals.ts';
export { csvFileName, reportToCsv } from './focus-csv.ts';
export type { AllocationKey, UsageSource } from './interval-rows.ts';
export type { Amount, Hours, LineItem } from './line-items.ts';
export { computeMargin, type Margin, type MarginInput, type TokenCounts, type TokenPrices } from './margins.ts';
export type { AllocationOnFile, NodeAllocations } from './node-allocations.ts';
export type { OpenInterval, OpenIntervalRequest } from './open-intervals.ts';
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
export { aheadMsMax } from './usage-events.ts';
export { type CostReportJson, reportToJson, reportToJsonText } from './report-json.ts';
export type { ClusterRef, Move, NodeAllocation, NodeRelease, UsageOutcome } from './usage-events.ts';
export { type FieldProblem, parseWindow, type Window, type WindowQuery, type WindowResult } from './window.ts';

export interface Costs extends UsageEvents {
  /** What is held now, for whoever looks whether it still is. */
  listOpen(request: OpenIntervalRequest): Promise<readonly OpenInterval[]>;
  /** What was told of nodes, by node and generation. @param tx that saw the last change, or the pool's own */
  nodeAllocations(request: NodeAllocations, tx?: Transaction): Promise<readonly AllocationOnFile[]>;
  /** Idempotent. @returns how many runs were new or had changed */
  carryReplicaRuns(runs: readonly ReplicaRun[]): Promise<number>;
  readonly rateCards: DatedRates<RateCard, NewRateCard>;
  listRateCards(request: RateCardList): Promise<RatePage<RateCard>>;
  readonly conversionRates: DatedRates<ConversionRate, NewConversionRate>;
  listConversionRates(request: ConversionRateList): Promise<RatePage<ConversionRate>>;
  /** Null: costs are shown in the currencies of the rate cards. */
  billingCurrency(organizationId: string): Promise<string | null>;
  /** Changes how costs are shown, those of the past too, and nothing that was written. */
  changeBillingCurrency(change: BillingCurrencyChange): Promise<void>;
  report(request: ReportRequest): Promise<ReportResult>;
  /** For margins, by engine. */
  replicaCosts(request: ReplicaCostsRequest): Promise<ReadonlyMap<string, ReplicaCosts>>;
}

export interface CostsOptions {
  readonly db: Db;
  readonly audit: Audit;
  readonly log: Log;
  /** Of the rate card that is taken where several cover an hour and none is in the organization's currency. */
  readonly defaultCurrency?: string;
  /** A report with more line items is refused. */
  readonly linesMax?: number;
}

export function createCosts(options: CostsOptions): Costs {
  const { db, audit, log, defaultCurrency = 'USD', linesMax = 100_000 } = options;
  return {
    ...createUsageEvents(log),
    listOpen: (request) => listOpenIntervals(db, request),
    nodeAllocations: (request, tx) => readNodeAllocations(tx ?? db.orm, request),
    carryReplicaRuns: (runs) => carryReplicaRuns(db, runs),
    rateCards: createRateCards(db, audit),
    listRateCards: (request) => listRateCards(db, request),
    conversionRates: createConversionRates(db, audit),
    listConversionRates: (request) => listConversionRates(db, request),
    billingCurrency: (organizationId) => readBillingCurrency(db, organizationId),
    changeBillingCurrency: (change) => changeBillingCurrency(db, audit, change),
    report: (request) => readReport({ db, defaultCurrency, linesMax }, request),
    replicaCosts: (request) => readReplicaCosts(db, defaultCurrency, request),
  };
}
