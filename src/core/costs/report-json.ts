import { formatId } from '#base/id.ts';
import type { Amount, Hours, LineItem } from './line-items.ts';
import type { CostGroup, Costing, CostSeries } from './series.ts';
import type { ClusterCosts, CostReport, CostWarning, OrganizationCosts } from './report.ts';

const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();
const isoOrNull = (momentMs: number | null): string | null => (momentMs === null ? null : isoOf(momentMs));
export const organizationIdOf = (uuid: string): string => formatId('org', uuid);
export const rateCardIdOf = (uuid: string): string => formatId('rate', uuid);

/** Converts a report to the API's JSON: ISO times, hours as numbers, amounts as decimal strings. */
export function reportToJson(report: CostReport) {
  const { window, asOfMs } = report;
  return {
    window: { from: isoOf(window.fromMs), to: isoOf(window.toMs), tz: window.tz, as_of: isoOf(asOfMs) },
    totals: hoursToJson(report.totals),
    grand_total: report.grandTotal.map(amountToJson),
    organizations: report.organizations.map(organizationToJson),
    warnings: report.warnings.map(warningToJson),
  };
}

const costingToJson = (costing: Costing) => ({
  ...hoursToJson(costing),
  amounts: costing.amounts.map(amountToJson),
});

const groupToJson = ({ value, name, ...costing }: CostGroup) => ({ value, name, ...costingToJson(costing) });

/** Converts a series to the API's JSON, in the form of the report. */
export function seriesToJson({ window, asOfMs, totals, groups, steps, warnings }: CostSeries) {
  return {
    window: { from: isoOf(window.fromMs), to: isoOf(window.toMs), tz: window.tz, as_of: isoOf(asOfMs) },
    totals: hoursToJson(totals),
    grand_total: totals.amounts.map(amountToJson),
    groups: groups.map(groupToJson),
    steps: steps.map(({ fromMs, toMs, groups: own, ...costing }) => ({
      from: isoOf(fromMs),
      to: isoOf(toMs),
      ...costingToJson(costing),
      groups: own.map(groupToJson),
    })),
    warnings: warnings.map(warningToJson),
  };
}

/** Writes the JSON of `reportToJson` as text, cluster by cluster: a large report is generated while it is sent. */
export function* reportToJsonText(report: CostReport): Generator<string> {
  yield openArray(reportToJson({ ...report, organizations: [] }), 'organizations');
  for (const [index, organization] of report.organizations.entries()) {
    yield `${index === 0 ? '' : ','}${openArray(organizationToJson({ ...organization, clusters: [] }), 'clusters')}`;
    for (const [at, cluster] of organization.clusters.entries()) {
      yield `${at === 0 ? '' : ','}${JSON.stringify(clusterToJson(cluster))}`;
    }
    yield ']}';
  }
  yield ']}';
}

/** Writes an object as text up to the start of its last member, an array. */
function openArray(object: object, last: string): string {
  const members = Object.entries(object).filter(([name]) => name !== last);
  return `${JSON.stringify(Object.fromEntries([...members, [last, []]])).slice(0, -']}'.length)}`;
}

export type CostReportJson = ReturnType<typeof reportToJson>;

const hoursToJson = ({ nodeHours, gpuHours, unratedHours, unratedGpuHours }: Hours) => ({
  node_hours: nodeHours,
  gpu_hours: gpuHours,
  unrated_hours: unratedHours,
  unrated_gpu_hours: unratedGpuHours,
});

const amountToJson = ({ currency, amount, amountExact }: Amount) => ({ currency, amount, amount_exact: amountExact });

const organizationToJson = (organization: OrganizationCosts) => ({
  id: organizationIdOf(organization.id),
  name: organization.name,
  billing_currency: organization.billingCurrency,
  ...hoursToJson(organization),
  amounts: organization.amounts.map(amountToJson),
  clusters: organization.clusters.map(clusterToJson),
});

const clusterToJson = (cluster: ClusterCosts) => ({
  id: cluster.id,
  name: cluster.name,
  source: cluster.source,
  started_at: isoOf(cluster.startedMs),
  ended_at: isoOrNull(cluster.endedMs),
  running: cluster.endedMs === null,
  estimated: cluster.estimated,
  ...hoursToJson(cluster),
  amounts: cluster.amounts.map(amountToJson),
  line_items: cluster.lineItems.map(lineToJson),
});

const lineToJson = ({ native, ...line }: LineItem) => ({
  hardware_profile: line.hardwareProfile,
  rate_card_id: line.rateCardId === null ? null : rateCardIdOf(line.rateCardId),
  from: isoOf(line.fromMs),
  to: isoOf(line.toMs),
  node_hours: line.nodeHours,
  gpu_hours: line.gpuHours,
  rated: native !== null,
  unrated_reason: line.unratedReason,
  native:
    native === null
      ? null
      : { ...amountToJson(native), node_hour_price: native.nodeHourPrice, gpu_hour_price: native.gpuHourPrice },
  billed: line.billed === null ? null : amountToJson(line.billed),
  conversion: line.conversion,
  conversion_rate: line.conversionRate,
  estimated: line.estimated,
});

function warningToJson(warning: CostWarning) {
  const organizationIds = warning.organizationIds.map(organizationIdOf);
  return warning.code === 'CONVERSION_RATE_MISSING'
    ? { code: warning.code, from: warning.from, to: warning.to, organization_ids: organizationIds }
    : { code: warning.code, hardware_profile: warning.hardwareProfile, organization_ids: organizationIds };
}
