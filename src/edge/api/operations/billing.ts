import { exampleId, isoTime, laterIsoTime, model, numberedPage } from './examples.ts';
import type { Tag } from './operation.ts';

const dates = { effective_from: isoTime, effective_to: null, created_at: isoTime };
const rateCard = {
  id: exampleId('rate'),
  hardware_profile: 'h100-8x',
  currency: 'USD',
  node_hour: null,
  gpu_hour: '2.49',
  ...dates,
};
const conversionRate = { id: exampleId('conv'), from: 'USD', to: 'EUR', rate: '0.92345', ...dates };
const billingCurrency = { organization_id: exampleId('org'), currency: 'EUR' };

const window = { from: isoTime, to: laterIsoTime, tz: 'UTC', as_of: laterIsoTime };
const hours = { node_hours: 24, gpu_hours: 192, unrated_hours: 0, unrated_gpu_hours: 0 };
const amount = { currency: 'USD', amount: '478.08', amount_exact: '478.0800000000' };
const costBudget = {
  organization_id: exampleId('org'),
  budget: { amount: '10000', currency: 'USD', alert_percents: [80, 100] },
  month: '2026-11',
  spent: [{ currency: 'USD', amount: '4780.80', amount_exact: '4780.8000000000' }],
  forecast: [{ currency: 'USD', amount: '9561.60', amount_exact: '9561.6000000000' }],
  spent_percent: 47,
  forecast_percent: 95,
};
const line = {
  hardware_profile: 'h100-8x',
  rate_card_id: rateCard.id,
  from: isoTime,
  to: laterIsoTime,
  node_hours: 24,
  gpu_hours: 192,
  rated: true,
  unrated_reason: null,
  native: { ...amount, node_hour_price: null, gpu_hour_price: '2.49' },
  billed: amount,
  conversion: 'none',
  conversion_rate: null,
  estimated: false,
};
const clusterCosts = {
  id: exampleId('cluster'),
  name: 'research',
  source: 'node',
  started_at: isoTime,
  ended_at: null,
  running: true,
  estimated: false,
  ...hours,
  amounts: [amount],
  line_items: [line],
};
const report = {
  window,
  totals: hours,
  grand_total: [amount],
  organizations: [
    {
      id: exampleId('org'),
      name: 'Acme',
      billing_currency: null,
      ...hours,
      amounts: [amount],
      clusters: [clusterCosts],
    },
  ],
  warnings: [],
};

const group = { value: 'research', name: 'research', ...report.totals, amounts: report.grand_total };

const margin = { revenue: '600', cost: '478.08', complete: true, margin: '121.92' };
const prices = { input_per_million: '0.15', cached_input_per_million: '0.075', output_per_million: '0.6' };
const breakEven = { input_per_million: '0.12', cached_input_per_million: '0.06', output_per_million: '0.48' };
const modelMargin = {
  model,
  requests: 100_000,
  tokens: { input: 2_000_000_000, cached_input: 0, output: 500_000_000 },
  ...margin,
  margin_ratio: 0.2032,
  unconverted: [],
  gpu_hours: { held: 192, busy: 144, idle: 46, starting: 2, unrated: 0 },
  shares: { busy: 0.75, idle: 0.239583, starting: 0.010417 },
  cost_per_million_tokens: '0.191232',
  prices,
  break_even: { factor: 0.7968, ...breakEven },
};

const operators = 'Requires a management key of a platform administrator.';
const readers = 'Requires a management key.';
const sees = 'Any API key sees its own organization; a platform administrator sees all.';
const undated = '`effective_from` defaults to now; a time in the past requires `retroactive: true`.';

export const billing: Tag = {
  name: 'Billing',
  description:
    'Costs of nodes and GPUs: rate cards, currencies, cost reports and margins. Amounts are exact decimal strings, ' +
    'times are ISO 8601.',
  operations: {
    'GET /v1/billing/currencies': {
      operationId: 'listCurrencies',
      summary: 'List currencies',
      description: 'Returns the currencies that costs can be shown in (ISO 4217). Any API key may call it.',
      answer: numberedPage({ code: 'EUR', name: 'Euro', symbol: '€', minor_units: 2 }),
    },
    'GET /v1/billing/budget': {
      operationId: 'retrieveCostBudget',
      summary: 'Retrieve the cost budget and forecast',
      description: `Returns the monthly budget of an organization for node-hours and GPU-hours, with the costs of this month and their forecast. ${sees}`,
      answer: costBudget,
    },
    'PUT /v1/billing/budget': {
      operationId: 'setCostBudget',
      summary: 'Set the cost budget',
      description:
        'Sets the monthly budget of an organization for node-hours and GPU-hours. It sends alerts and stops nothing. ' +
        'A changed budget sends its alerts again. Requires a management key of the organization.',
      request: { amount: '10000', currency: 'USD', alert_percents: [80, 100] },
      answer: costBudget,
    },
    'DELETE /v1/billing/budget': {
      operationId: 'deleteCostBudget',
      summary: 'Delete the cost budget',
      description: 'Removes the monthly budget. Requires a management key of the organization.',
    },
    'GET /v1/orgs/{id}/billing-currency': {
      operationId: 'retrieveBillingCurrency',
      summary: 'Retrieve the billing currency',
      description: `Returns the currency that an organization sees its costs in. ${sees}`,
      answer: billingCurrency,
    },
    'PATCH /v1/orgs/{id}/billing-currency': {
      operationId: 'updateBillingCurrency',
      summary: 'Update the billing currency',
      description:
        'Shows an organization its costs in another currency, past costs included. `null` shows them in the ' +
        'currencies of the rate cards. Requires a management key of the organization.',
      request: { currency: 'EUR' },
      answer: billingCurrency,
    },
    'GET /v1/billing/rate-cards': {
      operationId: 'listRateCards',
      summary: 'List rate cards',
      description: `Returns a page of prices of node and GPU hours; the latest \`effective_from\` comes first. ${readers}`,
      answer: numberedPage(rateCard),
    },
    'POST /v1/billing/rate-cards': {
      operationId: 'createRateCard',
      summary: 'Create a rate card',
      description:
        'Sets the price per hour of a hardware profile in one currency, and ends the previous rate card. ' +
        `${undated} ${operators}`,
      request: { hardware_profile: rateCard.hardware_profile, currency: 'USD', gpu_hour: '2.49' },
      answer: { ...rateCard, follows: null },
    },
    'POST /v1/billing/rate-cards/import': {
      operationId: 'importRateCards',
      summary: 'Import rate cards from CSV',
      description: `Adds all rate cards of a CSV text, in order, or none. Errors name their line. ${undated} ${operators}`,
      request: { csv: 'hardware_profile,currency,gpu_hour\nh100-8x,USD,2.49\n' },
      answer: { data: [rateCard] },
    },
    'POST /v1/billing/rate-cards/{id}/end': {
      operationId: 'endRateCard',
      summary: 'End a rate card',
      description:
        'Ends a rate card, now or at `at`; a time in the past requires `retroactive: true`. Later hours are unrated ' +
        `until another rate card prices them. ${operators}`,
      request: { at: laterIsoTime },
      answer: { ...rateCard, effective_to: laterIsoTime },
    },
    'GET /v1/billing/conversion-rates': {
      operationId: 'listConversionRates',
      summary: 'List conversion rates',
      description: `Returns a page of currency conversion rates; the latest \`effective_from\` comes first. ${readers}`,
      answer: numberedPage(conversionRate),
    },
    'POST /v1/billing/conversion-rates': {
      operationId: 'createConversionRate',
      summary: 'Create a conversion rate',
      description:
        'Sets the value of one unit of `from` in `to`, in this direction only, and ends the previous rate. ' +
        `${undated} ${operators}`,
      request: { from: 'USD', to: 'EUR', rate: '0.92345' },
      answer: { ...conversionRate, follows: null },
    },
    'POST /v1/billing/conversion-rates/import': {
      operationId: 'importConversionRates',
      summary: 'Import conversion rates from CSV',
      description: `Adds all conversion rates of a CSV text, in order, or none. Errors name their line. ${undated} ${operators}`,
      request: { csv: 'from,to,rate\nUSD,EUR,0.92345\n' },
      answer: { data: [conversionRate] },
    },
    'POST /v1/billing/conversion-rates/{id}/end': {
      operationId: 'endConversionRate',
      summary: 'End a conversion rate',
      description:
        'Ends a conversion rate, now or at `at`; a time in the past requires `retroactive: true`. Later costs are shown ' +
        `unconverted until another rate converts them. ${operators}`,
      request: { at: laterIsoTime },
      answer: { ...conversionRate, effective_to: laterIsoTime },
    },
    'GET /v1/billing/costs': {
      operationId: 'retrieveCosts',
      summary: 'Report costs of nodes and GPUs',
      description:
        'Returns node-hours, GPU-hours and costs by organization and cluster, for `month`, or for `from` and `to`. Hours ' +
        `without a rate card are unrated, not free. ${sees}`,
      answer: report,
    },
    'GET /v1/billing/costs.csv': {
      operationId: 'exportCosts',
      summary: 'Export costs as CSV',
      description: `Returns the cost report with one row per line item, in the columns of FOCUS 1.2. ${sees}`,
      answer:
        'BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd\r\n478.08,USD,2026-09-21T14:13:20Z,2026-09-22T14:13:20Z\r\n',
    },
    'GET /v1/billing/costs/series': {
      operationId: 'retrieveCostSeries',
      summary: 'Report costs over time and by group',
      description:
        'Returns the costs of the report in steps of hours, days or months, and by organization, cluster, node, hardware ' +
        `profile, stack or label. Rounded amounts add up to those of the report. ${sees}`,
      answer: {
        window,
        totals: report.totals,
        grand_total: report.grand_total,
        groups: [group],
        steps: [{ from: isoTime, to: laterIsoTime, ...report.totals, amounts: report.grand_total, groups: [group] }],
        warnings: [],
      },
    },
    'GET /v1/billing/margins': {
      operationId: 'retrieveMargins',
      summary: 'Report margins by model',
      description:
        'Returns the revenue of each model and the cost of the GPU-hours of its replicas, in USD. LoRA adapters count ' +
        `with their base model. ${operators}`,
      answer: { window, currency: 'USD', totals: margin, models: [modelMargin], warnings: [] },
    },
  },
};
