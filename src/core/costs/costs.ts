import type { Db, Transaction } from '#base/database/database.ts';
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
 * Hours of nodes and GPUs, and their costs. Intervals are written when something changes, not by a timer: a gateway
 * that stops loses nothing. Prices and conversion rates are dated and never changed, so a report of the past stays the
 * same. While Postgres is unreachable, all methods throw the driver's error.
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
  /** Open intervals, so that the caller can check whether their machines still exist. */
  listOpen(request: OpenIntervalRequest): Promise<readonly OpenInterval[]>;
  /**
   * Recorded allocations of nodes, by node and generation.
   * @param tx that saw the last change; without it the pool's own
   */
  nodeAllocations(request: NodeAllocations, tx?: Transaction): Promise<readonly AllocationOnFile[]>;
  /** Idempotent. @returns the number of runs that were new or had changed */
  carryReplicaRuns(runs: readonly ReplicaRun[]): Promise<number>;
  readonly rateCards: DatedRates<RateCard, NewRateCard>;
  listRateCards(request: RateCardList): Promise<RatePage<RateCard>>;
  readonly conversionRates: DatedRates<ConversionRate, NewConversionRate>;
  listConversionRates(request: ConversionRateList): Promise<RatePage<ConversionRate>>;
  /** Null: costs are shown in the currencies of the rate cards. */
  billingCurrency(organizationId: string): Promise<string | null>;
  /** Changes how costs are shown, past ones too. Recorded usage and prices stay the same. */
  changeBillingCurrency(change: BillingCurrencyChange): Promise<void>;
  report(request: ReportRequest): Promise<ReportResult>;
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
