import type { PageAnswer } from '#edge/contract/lists.ts';
import type { ConversionRateAnswer, CreatedRateAnswer, RateCardAnswer } from '#edge/contract/rates.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  area,
  badge,
  checkbox,
  decimalOf,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  queryOf,
  type Refusal,
  refused,
  renamed,
  select,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { costTabs } from './costs-page.ts';
import { momentIn, pageNumber, pager } from './widgets.ts';

/**
 * Prices of hours, and conversion rates. A price has a start date; it can be ended and followed by another, but not
 * edited.
 */

const path = '/portal/costs/rates';
const pageSize = 50;

const notices: Readonly<Record<string, string>> = {
  added: 'Rate added.',
  followed: 'Rate added. It ended the previous rate.',
  ended: 'Rate ended.',
  imported: 'Rates imported.',
};

type Kind = 'cards' | 'conversions';

/** A rejected form, with its kind and the reason. */
interface Refused {
  readonly kind: Kind | 'end' | 'import';
  readonly form: Form;
  readonly refusal: Refusal;
}

export async function ratesPage(visit: Visit, nowMs: number, wrong: Refused | null = null): Promise<Response> {
  const { context, get, may } = visit;
  const asked = (name: string): string => pageNumber(queryOf(context, name));
  // Each of the two lists has its own page number.
  const [cardsAt, conversionsAt] = [asked('cards'), asked('conversions')];
  const [cards, conversions] = await Promise.all([
    get<PageAnswer<RateCardAnswer>>(`/v1/billing/rate-cards?limit=${pageSize}&page=${cardsAt}`),
    get<PageAnswer<ConversionRateAnswer>>(`/v1/billing/conversion-rates?limit=${pageSize}&page=${conversionsAt}`),
  ]);
  const said = noticeOf(visit, notices);
  const mayChange = may('rates');
  const ofKind = (kind: Kind): Refused | null => (wrong?.kind === kind ? wrong : null);
  const body = html`${costTabs(visit, 'rates')} ${said === undefined ? null : notice('good', said)}
    ${wrong?.kind === 'end' ? refused(wrong.refusal) : null}
    <section aria-labelledby="cards-title">
      <h2 id="cards-title">Rate cards</h2>
      <p class="hint">Prices of node-hours and GPU-hours, by hardware profile.</p>
      ${cards.data.length === 0 ? empty('No rate cards yet', mayChange ? 'All hours are unrated. Add a rate card below.' : 'All hours are unrated. Ask a platform administrator to add a rate card.') : cardTable(visit, cards.data, nowMs)}
      ${pager(path, { conversions: conversionsAt }, cards, 'cards')}
      ${mayChange ? cardForm(visit, ofKind('cards')) : null}
    </section>
    <section aria-labelledby="conversions-title">
      <h2 id="conversions-title">Conversion rates</h2>
      <p class="hint">Value of one currency in another. The opposite direction needs its own rate.</p>
      ${conversions.data.length === 0 ? empty('No conversion rates yet', 'Costs are shown in the currencies of their rate cards.') : conversionTable(visit, conversions.data, nowMs)}
      ${pager(path, { cards: cardsAt }, conversions, 'conversions')}
      ${mayChange ? conversionForm(visit, ofKind('conversions')) : null}
    </section>
    ${mayChange ? importForm(visit, wrong?.kind === 'import' ? wrong : null) : null}`;
  return page(visit, { title: 'Rates', body, status: wrong === null ? 200 : statusOf(wrong.refusal) });
}

interface Dated {
  readonly id: string;
  readonly effective_from: string;
  readonly effective_to: string | null;
}

function stateOf({ effective_from: from, effective_to: to }: Dated, nowMs: number): Html {
  if (Date.parse(from) > nowMs) return badge('busy', 'upcoming');
  return to !== null && Date.parse(to) <= nowMs ? badge('plain', 'ended') : badge('good', 'in effect');
}

const datedColumns = [{ title: 'From (UTC)' }, { title: 'Until (UTC)' }, { title: 'State' }] as const;

const datedCells = (rate: Dated, nowMs: number): MaybeHtml[] => [
  momentIn(rate.effective_from, 'UTC'),
  momentIn(rate.effective_to, 'UTC', 'indefinitely'),
  stateOf(rate, nowMs),
];

function endCell(visit: Visit, rate: Dated, nowMs: number): MaybeHtml[] {
  if (!visit.may('rates')) return [];
  const isOver = rate.effective_to !== null && Date.parse(rate.effective_to) <= nowMs;
  const button = html`<form method="post" action="${path}/${rate.id}/end">
    ${formToken(visit)}<button class="plain">End now</button>
  </form>`;
  return [isOver || Date.parse(rate.effective_from) > nowMs ? '' : button];
}

const endColumn = ({ may }: Visit) => (may('rates') ? [{ title: 'End' }] : []);
const priceText = (price: string | null): MaybeHtml => price ?? html`<span class="quiet">no price</span>`;

function cardTable(visit: Visit, list: readonly RateCardAnswer[], nowMs: number): Html {
  return table({
    caption: 'Rate cards, latest start first',
    columns: [
      { title: 'Profile' },
      { title: 'Currency' },
      { title: 'Node-hour', isNumber: true },
      { title: 'GPU-hour', isNumber: true },
      ...datedColumns,
      ...endColumn(visit),
    ],
    rows: list.map((card) => [
      card.hardware_profile,
      card.currency,
      priceText(card.node_hour),
      priceText(card.gpu_hour),
      ...datedCells(card, nowMs),
      ...endCell(visit, card, nowMs),
    ]),
  });
}

function conversionTable(visit: Visit, list: readonly ConversionRateAnswer[], nowMs: number): Html {
  return table({
    caption: 'Conversion rates, latest start first',
    columns: [
      { title: 'From currency' },
      { title: 'To currency' },
      { title: 'Rate', isNumber: true },
      ...datedColumns,
      ...endColumn(visit),
    ],
    rows: list.map((rate) => [
      rate.from,
      rate.to,
      rate.rate,
      ...datedCells(rate, nowMs),
      ...endCell(visit, rate, nowMs),
    ]),
  });
}

/** Prefixes a field with its kind: the two forms on the page have fields of the same names. */
const fieldOf = (kind: Kind, name: string): string => `${kind}.${name}`;

const typed = (wrong: Refused | null, name: string): string => wrong?.form.text(name) ?? '';

function dates(kind: Kind, wrong: Refused | null): Html {
  const refusal = wrong?.refusal ?? null;
  return html`<div class="grid">
      ${field({ name: fieldOf(kind, 'effective_from'), label: 'Start', value: typed(wrong, fieldOf(kind, 'effective_from')), refusal, placeholder: '2026-03-01', hint: 'A date (midnight UTC) or an RFC 3339 time. If empty, now.', maxLength: 40 })}
      ${field({ name: fieldOf(kind, 'effective_to'), label: 'End', value: typed(wrong, fieldOf(kind, 'effective_to')), refusal, hint: 'If empty, the rate applies indefinitely.', maxLength: 40 })}
    </div>
    ${checkbox(fieldOf(kind, 'retroactive'), 'Allow past dates', wrong?.form.has(fieldOf(kind, 'retroactive')) ?? false, 'This changes reports that may already have been read.')}`;
}

function cardForm(visit: Visit, wrong: Refused | null): Html {
  const refusal = wrong?.refusal ?? null;
  return html`<details class="fold" ${wrong === null ? null : html`open`}>
    <summary>Add a rate card</summary>
    <form class="form" method="post" action="${path}/cards">
      ${formToken(visit)} ${refused(refusal)}
      <div class="grid">
        ${field({ name: fieldOf('cards', 'hardware_profile'), label: 'Hardware profile', value: typed(wrong, fieldOf('cards', 'hardware_profile')), refusal, isRequired: true, maxLength: 100, placeholder: 'h100-8x' })}
        ${field({ name: fieldOf('cards', 'currency'), label: 'Currency', value: typed(wrong, fieldOf('cards', 'currency')), refusal, isRequired: true, maxLength: 3, placeholder: 'USD' })}
        ${field({ name: fieldOf('cards', 'node_hour'), label: 'Node-hour price', value: typed(wrong, fieldOf('cards', 'node_hour')), refusal, inputMode: 'decimal', maxLength: 30, placeholder: 'no price' })}
        ${field({ name: fieldOf('cards', 'gpu_hour'), label: 'GPU-hour price', value: typed(wrong, fieldOf('cards', 'gpu_hour')), refusal, inputMode: 'decimal', maxLength: 30, placeholder: 'no price' })}
      </div>
      ${dates('cards', wrong)}
      <p class="buttons"><button class="primary">Add rate card</button></p>
    </form>
  </details>`;
}

function conversionForm(visit: Visit, wrong: Refused | null): Html {
  const refusal = wrong?.refusal ?? null;
  return html`<details class="fold" ${wrong === null ? null : html`open`}>
    <summary>Add a conversion rate</summary>
    <form class="form" method="post" action="${path}/conversions">
      ${formToken(visit)} ${refused(refusal)}
      <div class="grid">
        ${field({ name: fieldOf('conversions', 'from'), label: 'From currency', value: typed(wrong, fieldOf('conversions', 'from')), refusal, isRequired: true, maxLength: 3, placeholder: 'USD' })}
        ${field({ name: fieldOf('conversions', 'to'), label: 'To currency', value: typed(wrong, fieldOf('conversions', 'to')), refusal, isRequired: true, maxLength: 3, placeholder: 'EUR' })}
        ${field({ name: fieldOf('conversions', 'rate'), label: 'Rate', value: typed(wrong, fieldOf('conversions', 'rate')), refusal, isRequired: true, inputMode: 'decimal', maxLength: 30, placeholder: '0.92345' })}
      </div>
      ${dates('conversions', wrong)}
      <p class="buttons"><button class="primary">Add conversion rate</button></p>
    </form>
  </details>`;
}

const importKinds = [
  { value: 'cards', label: 'Rate cards' },
  { value: 'conversions', label: 'Conversion rates' },
];

function importForm(visit: Visit, wrong: Refused | null): Html {
  const refusal = wrong?.refusal ?? null;
  const hint =
    'The first line has the names of the columns: hardware_profile, currency, node_hour and gpu_hour, or from, to and rate; and effective_from and effective_to. All rows are added, or none.';
  return html`<details class="fold" ${wrong === null ? null : html`open`}>
    <summary>Import CSV</summary>
    <form class="form" method="post" action="${path}/import">
      ${formToken(visit)} ${refused(refusal)} ${select('kind', 'Import', importKinds, typed(wrong, 'kind'))}
      ${area({ name: 'csv', label: 'CSV', value: typed(wrong, 'csv'), hint, refusal, rows: 8, isRequired: true, placeholder: 'hardware_profile,currency,gpu_hour,effective_from' })}
      ${checkbox('retroactive', 'Allow past dates', wrong?.form.has('retroactive') ?? false, 'This changes reports that may already have been read.')}
      <p class="buttons"><button class="primary">Import rates</button></p>
    </form>
  </details>`;
}

export async function importRates(visit: Visit, nowMs: number, form: Form): Promise<Response> {
  const { api } = form.text('kind') === 'conversions' ? kinds.conversions : kinds.cards;
  const body = { csv: form.text('csv'), retroactive: form.has('retroactive') };
  const added = await visit.send('POST', `${api}/import`, body);
  if (!added.ok) return ratesPage(visit, nowMs, { kind: 'import', form, refusal: added.refusal });
  return visit.context.redirect(`${path}?notice=imported`, 303);
}

/** Returns the fields that are not empty, and whether past costs may change. */
function bodyOf(kind: Kind, form: Form): object {
  const { names } = kinds[kind];
  const texts = [...names, 'effective_from', 'effective_to'].map((name): [string, string] => [
    name,
    decimalOf(form.text(fieldOf(kind, name))),
  ]);
  return {
    ...Object.fromEntries(texts.filter(([, text]) => text !== '')),
    retroactive: form.has(fieldOf(kind, 'retroactive')),
  };
}

const kinds = {
  cards: { api: '/v1/billing/rate-cards', names: ['hardware_profile', 'currency', 'node_hour', 'gpu_hour'] },
  conversions: { api: '/v1/billing/conversion-rates', names: ['from', 'to', 'rate'] },
} as const;

export async function addRate(visit: Visit, nowMs: number, kind: Kind, form: Form): Promise<Response> {
  const { api } = kinds[kind];
  const added = await visit.send<CreatedRateAnswer>('POST', api, bodyOf(kind, form));
  if (!added.ok)
    return ratesPage(visit, nowMs, { kind, form, refusal: renamed(added.refusal, (name) => fieldOf(kind, name)) });
  return visit.context.redirect(`${path}?notice=${added.body.follows === null ? 'added' : 'followed'}`, 303);
}

export async function endRate(visit: Visit, nowMs: number, id: string, form: Form): Promise<Response> {
  const { api } = id.startsWith('rate_') ? kinds.cards : kinds.conversions;
  const ended = await visit.send('POST', `${api}/${encodeURIComponent(id)}/end`, {});
  if (!ended.ok) return ratesPage(visit, nowMs, { kind: 'end', form, refusal: ended.refusal });
  return visit.context.redirect(`${path}?notice=ended`, 303);
}
