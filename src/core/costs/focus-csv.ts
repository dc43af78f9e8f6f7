import { csvRow } from '#base/csv.ts';
import type { LineItem } from './line-items.ts';
import type { ClusterCosts, CostReport, OrganizationCosts } from './report.ts';
import { organizationIdOf, rateCardIdOf } from './report-json.ts';
import { findZone } from './zone.ts';

/** A cell: null is empty. Numbers have at most six decimal places, and no exponent. */
type Cell = string | number | null;

interface Row {
  readonly organization: OrganizationCosts;
  readonly cluster: ClusterCosts;
  readonly line: LineItem;
}

const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();

/**
 * Columns of FOCUS 1.2 (FinOps Open Cost and Usage Specification), and Headgate's own with `x_`. Deviation: costs of
 * unrated usage are empty, because 0 would read as free.
 */
const columns: readonly (readonly [string, (row: Row) => Cell])[] = [
  ['BillingAccountId', ({ organization }) => organizationIdOf(organization.id)],
  ['BillingAccountName', ({ organization }) => organization.name],
  ['ResourceId', ({ cluster }) => cluster.id],
  ['ResourceName', ({ cluster }) => cluster.name],
  ['ResourceType', ({ cluster }) => (cluster.source === 'node' ? 'Cluster' : 'Inference engine')],
  ['ServiceName', ({ cluster }) => (cluster.source === 'node' ? 'Headgate Clusters' : 'Headgate Inference')],
  ['ServiceCategory', () => 'Compute'],
  ['ChargeCategory', () => 'Usage'],
  ['ChargeDescription', describe],
  ['ChargePeriodStart', ({ line }) => isoOf(line.fromMs)],
  ['ChargePeriodEnd', ({ line }) => isoOf(line.toMs)],
  ['SkuId', ({ line }) => line.hardwareProfile],
  ['SkuPriceId', ({ line }) => (line.rateCardId === null ? null : rateCardIdOf(line.rateCardId))],
  ['ConsumedQuantity', (row) => (isByGpu(row) ? row.line.gpuHours : row.line.nodeHours)],
  ['ConsumedUnit', (row) => (isByGpu(row) ? 'GPU-Hours' : 'Node-Hours')],
  ['PricingCurrency', ({ line }) => line.native?.currency ?? null],
  ['PricingCurrencyListUnitPrice', ({ line }) => unitPriceOf(line)],
  ['PricingCurrencyEffectiveCost', ({ line }) => line.native?.amount ?? null],
  ['BillingCurrency', ({ organization, line }) => line.billed?.currency ?? organization.billingCurrency],
  ['BilledCost', ({ line }) => line.billed?.amount ?? null],
  ['EffectiveCost', ({ line }) => line.billed?.amount ?? null],
  ['x_NodeHours', ({ line }) => line.nodeHours],
  ['x_GpuHours', ({ line }) => line.gpuHours],
  ['x_UnratedHours', ({ line }) => (line.native === null ? line.nodeHours : 0)],
  ['x_ConversionRate', ({ line }) => line.conversionRate],
  ['x_ConversionStatus', ({ line }) => line.conversion],
  ['x_Estimated', ({ line }) => String(line.estimated)],
];

/** True if the price is per GPU-hour: a replica uses only GPUs, and some cards price only GPUs. */
function isByGpu({ cluster, line }: Row): boolean {
  return cluster.source === 'replica' || (line.native !== null && line.native.nodeHourPrice === null);
}

/** Returns null if a card prices both node and GPU: the cost has no single price then. */
function unitPriceOf({ native }: LineItem): string | null {
  if (native === null || (native.nodeHourPrice !== null && native.gpuHourPrice !== null)) return null;
  return native.nodeHourPrice ?? native.gpuHourPrice;
}

function describe({ cluster, line }: Row): string {
  const hours = `${line.nodeHours} node-hours, ${line.gpuHours} GPU-hours`;
  const of = cluster.source === 'node' ? hours : `${line.gpuHours} GPU-hours`;
  return `${line.hardwareProfile}: ${of}${line.native === null ? ', not rated' : ''}`;
}

/**
 * Formats a report as RFC 4180: UTF-8 text with a header, CRLF after every row, one row per line item. Its sums equal
 * those of the report.
 */
export function* reportToCsv(report: CostReport): Generator<string> {
  yield csvRow(columns.map(([name]) => name));
  for (const organization of report.organizations) {
    for (const cluster of organization.clusters) {
      for (const line of cluster.lineItems) {
        yield csvRow(columns.map(([, read]) => read({ organization, cluster, line })));
      }
    }
  }
}

/** Returns a file name that names the window: dates if it consists of whole days, otherwise times in UTC. */
export function csvFileName({ window }: CostReport): string {
  const zone = findZone(window.tz);
  const clocks = [window.fromMs, window.toMs].map((momentMs) => zone?.clockMs(momentMs) ?? momentMs);
  const isOfDays = clocks.every((clockMs) => clockMs % 86_400_000 === 0);
  const names = isOfDays
    ? clocks.map((clockMs) => isoOf(clockMs).slice(0, 10))
    : [window.fromMs, window.toMs].map((momentMs) => isoOf(momentMs).replaceAll(/[-:]|\.\d+/g, ''));
  const tz = isOfDays ? `_${window.tz.replaceAll(/[^A-Za-z0-9+-]/g, '-')}` : '';
  return `costs_${names.join('_')}${tz}.csv`;
}
