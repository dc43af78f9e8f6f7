import { formatId } from '#base/id.ts';
import type {
  ClusterCostsAnswer,
  CostLineAnswer,
  CostReportAnswer,
  CostWarningAnswer,
  HoursAnswer,
  OrganizationCostsAnswer,
} from '#edge/contract/costs.ts';
import type { BillingCurrencyAnswer, CurrencyAnswer } from '#edge/contract/rates.ts';
import { page, readPages, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  empty,
  figures,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  problemOf,
  type Refusal,
  refused,
  RefusedError,
  table,
  tabs,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { amountsText, amountText } from './amount-text.ts';
import { budgetSection, type RejectedBudget, saveBudget } from './cost-budget.ts';
import { type Asked, askedWindow, windowForm, windowQuery, windowText } from './cost-window.ts';
import { readOrganizationNames } from './organization-names.ts';
import { chooser, hoursText, momentIn } from './widgets.ts';
import { passOn } from './stack-files.ts';

/** Reports the allocated hours of nodes and GPUs, with their costs. */

const path = '/portal/costs';

const notices: Readonly<Record<string, string>> = {
  budget: 'Budget saved.',
  currency: 'Billing currency saved. All costs, including past costs, are shown in this currency.',
};

export function costTabs({ may }: Visit, here: 'report' | 'series' | 'rates' | 'margins'): Html {
  const list = [
    { key: 'report', text: 'Report', href: path, isSeen: true },
    { key: 'series', text: 'Over time', href: `${path}/series`, isSeen: true },
    { key: 'rates', text: 'Rates', href: `${path}/rates`, isSeen: may('rates.read') },
    { key: 'margins', text: 'Margins', href: `${path}/margins`, isSeen: may('margins') },
  ].filter(({ isSeen }) => isSeen);
  return tabs(
    'Costs',
    list.map(({ key, text, href }) => ({ text, href, isHere: key === here })),
  );
}

/** Returns the report, or the API's reason for rejecting the window. */
async function readReport({ get }: Visit, asked: Asked): Promise<CostReportAnswer | Refusal> {
  try {
    return await get<CostReportAnswer>(pathWith('/v1/billing/costs', windowQuery(asked)));
  } catch (error) {
    if (error instanceof RefusedError && error.refusal.status === 400) return error.refusal;
    throw error;
  }
}

const isRefusal = (value: CostReportAnswer | Refusal): value is Refusal => 'problems' in value;

export async function costsPage(
  visit: Visit,
  nowMs: number,
  formRefusal: Refusal | null = null,
  rejectedBudget: RejectedBudget | null = null,
): Promise<Response> {
  const asked = askedWindow(visit, nowMs);
  const [found, names] = await Promise.all([readReport(visit, asked), readOrganizationNames(visit)]);
  const refusal = isRefusal(found) ? found : null;
  const said = noticeOf(visit, notices);
  const choices = [
    { value: '', label: 'All organizations' },
    ...[...names].map(([value, label]) => ({ value, label })),
  ];
  const organization =
    names.size > 1 ? chooser({ name: 'org', label: 'Organization', options: choices, chosen: asked.org }) : null;
  const body = html`${costTabs(visit, 'report')} ${said === undefined ? null : notice('good', said)}
    ${windowForm(path, asked, refusal, organization)}
    <div id="results">${isRefusal(found) ? refused(found) : report(found, asked)}</div>
    ${await budgetSection(visit, rejectedBudget)} ${await currencySection(visit, formRefusal)}`;
  const worst = formRefusal ?? rejectedBudget?.refusal ?? refusal;
  return page(visit, { title: 'Costs', body, status: worst === null ? 200 : statusOf(worst) });
}

function report({ window, totals, grand_total: grand, organizations, warnings }: CostReportAnswer, asked: Asked): Html {
  const csv = pathWith(`${path}.csv`, windowQuery(asked));
  return html`${figures([
      {
        label: 'Grand total',
        value: amountsText(grand),
        note: grand.length > 1 ? 'currencies are not added' : 'sum of rounded lines',
      },
      { label: 'Node-hours', value: hoursText(totals.node_hours) },
      { label: 'GPU-hours', value: hoursText(totals.gpu_hours) },
      {
        label: 'Unrated hours',
        value: hoursText(totals.unrated_hours),
        note:
          totals.unrated_hours + totals.unrated_gpu_hours === 0
            ? 'every hour has a price'
            : `of nodes, and ${hoursText(totals.unrated_gpu_hours)} of GPUs, without a price`,
      },
    ])}
    <p class="quiet">
      ${windowText(window, html`, metered until ${momentIn(window.as_of, window.tz)}`)}
      <a href="${csv}">CSV</a> with FOCUS 1.2 columns.
    </p>
    ${warnings.map(warning)}
    ${organizations.length === 0 ? empty('No hours in this period', 'Hours are metered while a node is allocated or a model replica uses GPUs. Platform administrators allocate nodes on the page of their cluster. Choose another period above.') : organizations.map((one) => organizationCosts(one, window.tz, organizations.length === 1))}`;
}

function warning({ code, from, to, hardware_profile: profile }: CostWarningAnswer): Html {
  const texts: Readonly<Record<CostWarningAnswer['code'], string>> = {
    CONVERSION_RATE_MISSING: `No conversion rate from ${from ?? ''} to ${to ?? ''}. These costs are shown in ${from ?? ''} and marked below. A platform administrator can add the rate under Rates.`,
    RATE_CARD_MISSING: `Some hours of ${profile ?? ''} in this period have no rate card and are unrated. A platform administrator can add one under Rates that starts with the first of these hours.`,
    AMBIGUOUS_RATE: `Several rate cards price the hours of ${profile ?? ''} in different currencies. These hours are unrated until one card is ended, or the organization has a billing currency.`,
    GPU_PRICE_MISSING: `The rate card of ${profile ?? ''} has no GPU-hour price. These GPU-hours are unrated.`,
  };
  return notice('plain', texts[code]);
}

function hoursOf({
  node_hours: nodes,
  gpu_hours: gpus,
  unrated_hours: unrated,
  unrated_gpu_hours: unratedGpus,
}: HoursAnswer): Html {
  return html`<span class="quiet"
    >${hoursText(nodes)} of nodes, ${hoursText(gpus)} of
    GPUs${unrated + unratedGpus > 0 ? html`, <strong>${hoursText(unrated)} and ${hoursText(unratedGpus)} unrated</strong>` : null}</span
  >`;
}

function organizationCosts(organization: OrganizationCostsAnswer, zone: string, isOpen: boolean): Html {
  const { name, amounts, clusters, billing_currency: currency } = organization;
  return html`<details class="fold costs" ${isOpen ? html`open` : null}>
    <summary>
      <span class="cost-name">${name}</span> <span class="cost-amount">${amountsText(amounts)}</span>
      ${hoursOf(organization)}
    </summary>
    <div class="costs-inside">
      <p class="quiet">
        ${currency === null ? 'No billing currency. Costs are in the currency of each rate card.' : `Billing currency: ${currency}.`}
      </p>
      ${clusters.map((cluster) => clusterCosts(cluster, zone))}
    </div>
  </details>`;
}

function clusterCosts(cluster: ClusterCostsAnswer, zone: string): Html {
  const { name, source, running, estimated, amounts, line_items: lines } = cluster;
  const skipped = lines.filter(({ conversion }) => conversion === 'skipped_missing_rate').length;
  return html`<details class="fold costs">
    <summary>
      <span class="cost-name">${name}</span> <span class="cost-amount">${amountsText(amounts)}</span>
      ${hoursOf(cluster)} ${source === 'replica' ? badge('plain', 'model') : null}
      ${running ? badge('good', 'running') : null} ${estimated ? badge('busy', 'estimated end') : null}
      ${skipped === 0 ? null : badge('bad', 'not converted')}
    </summary>
    ${lineTable(name, lines, zone)}
  </details>`;
}

const reasons = {
  no_rate_card: 'no rate card',
  ambiguous_rate: 'several rate cards',
  no_gpu_price: 'no GPU price',
} as const;

function priceOf({ native, unrated_reason: reason }: CostLineAnswer): MaybeHtml {
  const unrated = reason === null ? null : badge('busy', reasons[reason]);
  if (native === null) return unrated;
  const parts = [
    ...(native.node_hour_price === null ? [] : [`${native.node_hour_price} per node`]),
    ...(native.gpu_hour_price === null ? [] : [`${native.gpu_hour_price} per GPU`]),
  ];
  return html`${parts.map((part, index) => html`${index === 0 ? null : html`<br />`}${native.currency} ${part}`)}
  ${unrated}`;
}

function billedOf({ native, billed, conversion, conversion_rate: rate }: CostLineAnswer): MaybeHtml {
  if (billed === null) return html`<span class="quiet">none</span>`;
  if (conversion === 'skipped_missing_rate')
    return html`${amountText(billed)}<br />${badge('bad', 'not converted: no rate')}`;
  if (conversion === 'none' || native === null) return amountText(billed);
  return html`${amountText(billed)} <span class="quiet">${amountText(native)} × ${rate}</span>`;
}

function lineTable(name: string, lines: readonly CostLineAnswer[], zone: string): Html {
  return table({
    caption: `Line items of ${name}`,
    columns: [
      { title: 'Profile' },
      { title: `From, until (${zone})` },
      { title: 'Node-hours', isNumber: true },
      { title: 'GPU-hours', isNumber: true },
      { title: 'Hourly price' },
      { title: 'Cost', isNumber: true },
    ],
    rows: lines.map((line) => [
      html`${line.hardware_profile} ${line.estimated ? badge('busy', 'estimated') : null}`,
      html`${momentIn(line.from, zone)}<br />${momentIn(line.to, zone)}`,
      hoursText(line.node_hours),
      hoursText(line.gpu_hours),
      priceOf(line),
      billedOf(line),
    ]),
  });
}

/** Sets the currency of the visitor's own organization. Returns null for visitors who may not set it. */
async function currencySection(visit: Visit, refusal: Refusal | null): Promise<MaybeHtml> {
  if (!visit.may('costs.currency')) return null;
  const id = formatId('org', visit.signedIn.principal.organizationId);
  const [data, { currency }] = await Promise.all([
    readPages<CurrencyAnswer>(visit, '/v1/billing/currencies'),
    visit.get<BillingCurrencyAnswer>(`/v1/orgs/${id}/billing-currency`),
  ]);
  const options = [
    { value: '', label: 'currency of each rate card' },
    ...data.map(({ code, name }) => ({ value: code, label: `${code}, ${name}` })),
  ];
  const hint = 'Costs of the organization are shown in this currency if a conversion rate exists.';
  return html`<section aria-labelledby="currency-title">
    <h2 id="currency-title">Billing currency of ${visit.signedIn.member.organization.name}</h2>
    <form class="form" method="post" action="${path}/currency">
      ${formToken(visit)} ${refused(refusal)}
      ${chooser({ name: 'currency', label: 'Currency', options, chosen: currency ?? '', hint, problem: problemOf(refusal, 'currency', 'The currency') })}
      <p class="buttons"><button>Save</button></p>
    </form>
  </section>`;
}

export async function changeCurrency(visit: Visit, nowMs: number, form: Form): Promise<Response> {
  const id = formatId('org', visit.signedIn.principal.organizationId);
  const currency = form.text('currency');
  const changed = await visit.send('PATCH', `/v1/orgs/${id}/billing-currency`, {
    currency: currency === '' ? null : currency,
  });
  if (!changed.ok) return costsPage(visit, nowMs, changed.refusal);
  return visit.context.redirect(`${path}?notice=currency`, 303);
}

export async function changeBudget(visit: Visit, nowMs: number, form: Form): Promise<Response> {
  const rejected = await saveBudget(visit, form);
  if (rejected !== null) return costsPage(visit, nowMs, null, rejected);
  return visit.context.redirect(`${path}?notice=budget`, 303);
}

export function costsCsv(visit: Visit, nowMs: number): Promise<Response> {
  return passOn(visit, pathWith('/v1/billing/costs.csv', windowQuery(askedWindow(visit, nowMs))));
}
