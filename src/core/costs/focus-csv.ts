import { csvRow } from '#base/csv.ts';
import { formatDecimal, parseDecimal } from '#base/money.ts';
import { formatFixed, parsePrice, roundHalfAway, type Scaled } from './amount.ts';
import { minorUnitsOf } from './currencies.ts';
import type { Amount, LineItem } from './line-items.ts';
import type { ClusterCosts, CostReport, OrganizationCosts } from './report.ts';
import { organizationIdOf, rateCardIdOf } from './report-json.ts';
import { findZone } from './zone.ts';

/** A cell: null is empty. Numbers have at most six decimal places, and no exponent. */
type Cell = string | number | null;

/** Values of rows that a report does not have. */
export interface FocusExtras {
  /** Tokens that engines served within the window, by engine. An engine that is missing has no known tokens. */
  readonly tokens: ReadonlyMap<string, bigint>;
}

const noExtras: FocusExtras = { tokens: new Map() };

/** Cells that all rows of an organization share. */
interface Account {
  readonly id: string;
  readonly name: string;
  readonly currency: string;
  readonly periodStart: string;
  readonly periodEnd: string;
  readonly invoiceId: string;
}

interface Row {
  readonly account: Account;
  readonly cluster: ClusterCosts;
  readonly line: LineItem;
  readonly charge: Charge;
  /** Tokens of this row; null if its consumption is measured in hours. */
  readonly tokens: bigint | null;
}

/** A line at one of its prices: a card with prices of nodes and of GPUs makes two charges of a line. */
interface Charge {
  readonly unit: 'Node-Hours' | 'GPU-Hours';
  readonly hours: number;
  /** Null if unrated. */
  readonly price: { readonly native: string; readonly billed: string } | null;
  readonly native: string;
  readonly billed: string;
  readonly nodeHours: number;
  readonly gpuHours: number;
}

const isoOf = (momentMs: number): string => new Date(momentMs).toISOString();
const empty = (): null => null;

const isNode = ({ cluster }: Row): boolean => cluster.source === 'node';
/** Currency of costs of 0 without a price, for organizations without a billing currency. */
const unpricedCurrency = 'USD';

const billedCurrency = ({ account, line }: Row): string => line.billed?.currency ?? account.currency;
const unitPrice = ({ charge }: Row): string => charge.price?.billed ?? '0';
const nativeUnitPrice = ({ charge }: Row): string => charge.price?.native ?? '0';
const exactCost = ({ charge }: Row): string => multiply(charge.price?.billed ?? '0', charge.hours);

/**
 * Columns of FOCUS 1.2 (FinOps Open Cost and Usage Specification), and Headgate's own with `x_`. Empty columns are
 * those of FOCUS 1.0 that Headgate has no values for. Usage without a rate card costs 0, because no cost may be empty:
 * `x_UnratedHours` tells it from free usage.
 */
const columns: readonly (readonly [string, (row: Row) => Cell])[] = [
  ['AvailabilityZone', empty],
  ['BilledCost', ({ charge }) => charge.billed],
  ['BillingAccountId', ({ account }) => account.id],
  ['BillingAccountName', ({ account }) => account.name],
  ['BillingAccountType', () => 'Organization'],
  ['BillingCurrency', billedCurrency],
  ['BillingPeriodEnd', ({ account }) => account.periodEnd],
  ['BillingPeriodStart', ({ account }) => account.periodStart],
  ['ChargeCategory', () => 'Usage'],
  ['ChargeClass', empty],
  ['ChargeDescription', describe],
  ['ChargeFrequency', () => 'Usage-Based'],
  ['ChargePeriodEnd', ({ line }) => isoOf(line.toMs)],
  ['ChargePeriodStart', ({ line }) => isoOf(line.fromMs)],
  ['CommitmentDiscountCategory', empty],
  ['CommitmentDiscountId', empty],
  ['CommitmentDiscountName', empty],
  ['CommitmentDiscountStatus', empty],
  ['CommitmentDiscountType', empty],
  ['ConsumedQuantity', ({ charge, tokens }) => (tokens === null ? charge.hours : tokens.toString())],
  ['ConsumedUnit', ({ charge, tokens }) => (tokens === null ? charge.unit : 'Tokens')],
  ['ContractedCost', exactCost],
  ['ContractedUnitPrice', unitPrice],
  ['EffectiveCost', ({ charge }) => charge.billed],
  ['InvoiceId', ({ account }) => account.invoiceId],
  ['InvoiceIssuerName', () => 'Headgate'],
  ['ListCost', exactCost],
  ['ListUnitPrice', unitPrice],
  ['PricingCategory', ({ charge }) => (charge.price === null ? 'Other' : 'Standard')],
  ['PricingCurrency', (row) => row.line.native?.currency ?? billedCurrency(row)],
  ['PricingCurrencyContractedUnitPrice', nativeUnitPrice],
  ['PricingCurrencyEffectiveCost', ({ charge }) => charge.native],
  ['PricingCurrencyListUnitPrice', nativeUnitPrice],
  ['PricingQuantity', ({ charge }) => charge.hours],
  ['PricingUnit', ({ charge }) => charge.unit],
  ['ProviderName', () => 'Headgate'],
  ['PublisherName', () => 'Headgate'],
  ['RegionId', empty],
  ['RegionName', empty],
  ['ResourceId', ({ cluster }) => cluster.id],
  ['ResourceName', ({ cluster }) => cluster.name],
  ['ResourceType', (row) => (isNode(row) ? 'Cluster' : 'Inference engine')],
  ['ServiceCategory', (row) => (isNode(row) ? 'Compute' : 'AI and Machine Learning')],
  ['ServiceName', (row) => (isNode(row) ? 'Headgate Clusters' : 'Headgate Inference')],
  ['ServiceSubcategory', (row) => (isNode(row) ? 'Other (Compute)' : 'Generative AI')],
  ['SkuId', ({ line }) => line.hardwareProfile],
  ['SkuMeter', ({ charge }) => charge.unit],
  ['SkuPriceDetails', empty],
  ['SkuPriceId', skuPriceId],
  ['SubAccountId', empty],
  ['SubAccountName', empty],
  ['SubAccountType', empty],
  ['Tags', ({ line }) => (line.split === null ? null : tagsOf(line.split))],
  ['x_NodeHours', ({ charge }) => charge.nodeHours],
  ['x_GpuHours', ({ charge }) => charge.gpuHours],
  ['x_UnratedHours', ({ charge }) => (charge.price === null ? charge.nodeHours : 0)],
  ['x_ConversionRate', ({ line }) => line.conversionRate],
  ['x_ConversionStatus', ({ line }) => line.conversion],
  ['x_Estimated', ({ line }) => String(line.estimated)],
];

function accountOf({ id: uuid, name, billingCurrency }: OrganizationCosts, { window }: CostReport): Account {
  const id = organizationIdOf(uuid);
  const [periodStart, periodEnd] = [isoOf(window.fromMs), isoOf(window.toMs)];
  // Names a provisional invoice: FOCUS allows no empty id.
  const invoiceId = [id, periodStart, periodEnd].join('/');
  return { id, name, currency: billingCurrency ?? unpricedCurrency, periodStart, periodEnd, invoiceId };
}

/** Names one price, which belongs to one SKU. */
function skuPriceId({ line, charge }: Row): string {
  const unit = charge.unit === 'Node-Hours' ? 'node_hour' : 'gpu_hour';
  return line.rateCardId === null ? `unrated/${line.hardwareProfile}` : `${rateCardIdOf(line.rateCardId)}/${unit}`;
}

/** Converts labels as JSON to tags: a label without a value is `true`. */
function tagsOf(labels: string): string {
  const entries = Object.entries(JSON.parse(labels) as Readonly<Record<string, string>>);
  return JSON.stringify(Object.fromEntries(entries.map(([key, value]) => [key, value === '' ? true : value])));
}

function describe({ line, charge }: Row): string {
  return `${line.hardwareProfile}: ${charge.hours} ${charge.unit}${charge.price === null ? ', not rated' : ''}`;
}

/** Multiplies a price with hours, exactly. */
function multiply(price: string, hours: number): string {
  const [scaled, microHours] = [parseDecimal(price, priceDigits) ?? 0n, toMicro(hours)];
  return formatDecimal(scaled * microHours, priceDigits + hourDigits);
}

const hourDigits = 6;
/** Decimal places of a price times a conversion rate. */
const priceDigits = 20;
const toMicro = (hours: number): bigint => BigInt(Math.round(hours * 10 ** hourDigits));

function chargesOf({ cluster, line }: Pick<Row, 'cluster' | 'line'>): Charge[] {
  const { native, billed, nodeHours, gpuHours } = line;
  const whole = { nodeHours, gpuHours };
  if (native === null || billed === null) {
    const used =
      cluster.source === 'node'
        ? { unit: 'Node-Hours' as const, hours: nodeHours }
        : { unit: 'GPU-Hours' as const, hours: gpuHours };
    return [{ ...used, ...whole, price: null, native: '0', billed: '0' }];
  }
  const { nodeHourPrice, gpuHourPrice } = native;
  const costs = { native: native.amount, billed: billed.amount };
  if (gpuHourPrice === null || (nodeHourPrice !== null && gpuHours === 0)) {
    const price = priceIn(line, nodeHourPrice ?? '0');
    return [{ unit: 'Node-Hours', hours: nodeHours, ...whole, price, ...costs }];
  }
  const gpuPrice = priceIn(line, gpuHourPrice);
  if (nodeHourPrice === null || nodeHours === 0) {
    return [{ unit: 'GPU-Hours', hours: gpuHours, ...whole, price: gpuPrice, ...costs }];
  }
  const price = priceIn(line, nodeHourPrice);
  // The GPUs cost what the nodes leave of the line, so that the charges add up to the line.
  const nativeCosts = divide(native, price.native, nodeHours);
  const billedCosts = divide(billed, price.billed, nodeHours);
  return [
    {
      unit: 'Node-Hours',
      hours: nodeHours,
      nodeHours,
      gpuHours: 0,
      price,
      native: nativeCosts[0],
      billed: billedCosts[0],
    },
    {
      unit: 'GPU-Hours',
      hours: gpuHours,
      nodeHours: 0,
      gpuHours,
      price: gpuPrice,
      native: nativeCosts[1],
      billed: billedCosts[1],
    },
  ];
}

/** Returns a price in the card's currency and in the billed one. */
function priceIn({ conversionRate }: LineItem, native: string): { native: string; billed: string } {
  if (conversionRate === null) return { native, billed: native };
  const scaledOf = (text: string): Scaled => parsePrice(text) ?? 0n;
  return { native, billed: formatDecimal(scaledOf(native) * scaledOf(conversionRate), priceDigits) };
}

/** Returns the rounded cost of hours at a price, and the rest of an amount. */
function divide({ amount, currency }: Amount, price: string, hours: number): readonly [string, string] {
  const digits = minorUnitsOf(currency);
  const exact = (parseDecimal(price, priceDigits) ?? 0n) * toMicro(hours);
  const part = roundHalfAway(exact * 10n ** BigInt(digits), 10n ** BigInt(priceDigits + hourDigits));
  const rest = (parseDecimal(amount, digits) ?? 0n) - part;
  return [formatFixed(part, digits), formatFixed(rest, digits)];
}

/** Divides the tokens of an engine between its lines by their GPU-hours; the parts add up to all tokens. */
function tokensOfLines({ lineItems }: ClusterCosts, tokens: bigint): readonly bigint[] {
  const weights = lineItems.map(({ gpuHours }) => toMicro(gpuHours));
  const whole = weights.reduce((sum, weight) => sum + weight, 0n);
  let [upTo, given] = [0n, 0n];
  return weights.map((weight, index) => {
    upTo += weight;
    // Without any GPU-hours, the last line has all tokens.
    const isLast = index === weights.length - 1;
    const sum = isLast ? tokens : whole === 0n ? 0n : (tokens * upTo) / whole;
    const part = sum - given;
    given = sum;
    return part;
  });
}

/**
 * Formats a report as RFC 4180: UTF-8 text with a header, CRLF after every row, one row per charge. Its sums equal those
 * of the report.
 * @param report divided by labels, which are its tags
 */
export function* reportToCsv(report: CostReport, extras: FocusExtras = noExtras): Generator<string> {
  yield csvRow(columns.map(([name]) => name));
  for (const organization of report.organizations) {
    const account = accountOf(organization, report);
    for (const cluster of organization.clusters) {
      const tokens = cluster.source === 'replica' ? extras.tokens.get(cluster.id) : undefined;
      const divided = tokens === undefined ? null : tokensOfLines(cluster, tokens);
      const rows = cluster.lineItems.flatMap((line, index) =>
        chargesOf({ cluster, line }).map((charge): Row => {
          return { account, cluster, line, charge, tokens: divided?.[index] ?? null };
        }),
      );
      for (const row of rows) yield csvRow(columns.map(([, read]) => read(row)));
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
