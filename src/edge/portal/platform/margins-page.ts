import type { MarginsAnswer, ModelMarginAnswer } from '#edge/contract/margins.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  figures,
  html,
  type Html,
  type MaybeHtml,
  notice,
  pathWith,
  type Refusal,
  refused,
  RefusedError,
  table,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { type Asked, askedWindow, windowForm, windowQuery, windowText } from './cost-window.ts';
import { costTabs } from './costs-page.ts';
import { hoursText, momentIn } from './widgets.ts';

/** Compares each model's revenue with the cost of its GPUs. */

const path = '/portal/costs/margins';

async function readMargins({ get }: Visit, asked: Asked): Promise<MarginsAnswer | Refusal> {
  try {
    return await get<MarginsAnswer>(pathWith('/v1/billing/margins', { ...windowQuery(asked), org: '' }));
  } catch (error) {
    if (error instanceof RefusedError && error.refusal.status === 400) return error.refusal;
    throw error;
  }
}

export async function marginsPage(visit: Visit, nowMs: number): Promise<Response> {
  const asked = askedWindow(visit, nowMs);
  const found = await readMargins(visit, asked);
  const refusal = 'problems' in found ? found : null;
  const body = html`${costTabs(visit, 'margins')} ${windowForm(path, asked, refusal)}
    <div id="results">${'problems' in found ? refused(found) : margins(found)}</div>`;
  return page(visit, { title: 'Margins', body, status: refusal === null ? 200 : statusOf(refusal) });
}

const unknown = html`<span class="quiet">unknown</span>`;
const usdOr = (amount: string | null): MaybeHtml => (amount === null ? unknown : usd(amount));

function margins({ window, totals, models, warnings }: MarginsAnswer): Html {
  return html`${figures([
      { label: 'Revenue', value: usd(totals.revenue), note: 'charged for requests' },
      {
        label: 'Cost',
        value: usd(totals.cost),
        note: totals.complete ? 'GPU-hours at their rate cards' : 'at least: some GPU-hours have no price in USD',
      },
      {
        label: 'Margin',
        value: usdOr(totals.margin),
        note: totals.margin === null ? 'unknown without all costs' : undefined,
      },
    ])}
    <p class="quiet">${windowText(window)}</p>
    ${warnings.map(({ kept_from: kept }) => notice('plain', html`<p>Replica utilization before ${momentIn(kept, window.tz)} (${window.tz}) is unavailable, because single requests from that time are no longer stored.</p>`))}
    ${models.length === 0 ? empty('No data in this period', 'No model had requests or used GPUs. Choose another period above.') : modelTable(models)}`;
}

function modelTable(models: readonly ModelMarginAnswer[]): Html {
  const most = Math.max(...models.flatMap(({ revenue, cost }) => [Number(revenue), Number(cost)]));
  return table({
    caption: 'Margins by model',
    columns: [
      { title: 'Model' },
      { title: 'Revenue and cost', isWide: true },
      { title: 'Margin', isNumber: true },
      { title: 'Requests', isNumber: true },
      { title: 'GPU-hours', isNumber: true },
      { title: 'Busy, idle, starting' },
      { title: 'Cost per million tokens', isNumber: true },
      { title: 'Break-even', isNumber: true },
    ],
    rows: models.map((model) => [
      model.model,
      html`${bar('s0', model.revenue, most, `revenue ${usd(model.revenue)}`)}
      ${bar('s1', model.cost, most, `cost ${model.complete ? '' : 'at least '}${usd(model.cost)}`)}`,
      html`${usdOr(model.margin)} ${ratioOf(model)}`,
      count(model.requests),
      html`${hoursText(model.gpu_hours.held)} ${model.gpu_hours.unrated > 0 ? badge('busy', 'some unrated') : null}`,
      shares(model),
      usdOr(model.cost_per_million_tokens),
      factorOf(model),
    ]),
  });
}

function ratioOf({ margin_ratio: ratio }: ModelMarginAnswer): MaybeHtml {
  return ratio === null ? null : html`<span class="quiet">${Math.round(ratio * 100)} %</span>`;
}

function factorOf({ break_even: even }: ModelMarginAnswer): MaybeHtml {
  const factor = even?.factor ?? null;
  return factor === null
    ? unknown
    : `${factor.toLocaleString('en-US', { maximumSignificantDigits: 3 })} × current prices`;
}

/** Draws a bar relative to the largest amount, with the number beside it. */
function bar(series: string, amount: string, most: number, text: string): Html {
  const width = most <= 0 ? 0 : (Math.max(0, Number(amount)) / most) * 100;
  return html`<span class="bar-line"
    ><svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
      <rect class="${series}" x="0" y="0" width="${width.toFixed(2)}" height="10" /></svg
    >${text}</span
  >`;
}

function shares({ shares: found }: ModelMarginAnswer): MaybeHtml {
  if (found === null) return unknown;
  const parts = [
    { series: 's3', value: found.busy },
    { series: 's5', value: found.idle },
    { series: 's1', value: found.starting },
  ];
  let x = 0;
  const rects = parts.map(({ series, value }) => {
    const from = x;
    x += value * 100;
    return html`<rect
      class="${series}"
      x="${from.toFixed(2)}"
      y="0"
      width="${(value * 100).toFixed(2)}"
      height="10"
    />`;
  });
  const text = parts.map(({ value }) => `${Math.round(value * 100)} %`).join(', ');
  return html`<span class="bar-line"
    ><svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">${rects}</svg>${text}</span
  >`;
}
