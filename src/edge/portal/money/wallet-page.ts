import { randomBytes } from 'node:crypto';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import type { LedgerEntryAnswer, WalletAnswer } from '#edge/contract/wallet.ts';
import { assets, otherOrganization, page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  counted,
  empty,
  field,
  figures,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  type Refusal,
  refused,
  RefusedError,
  table,
  tabs,
  timeOf,
  usd,
  usdOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { balanceWarning, readRunway, type Runway, runwayText } from './balance-forecast.ts';
import { balanceSection } from './balance-chart.ts';
import { readBookers } from './bookers.ts';
import { readWallet, unknownBalance } from './read-wallet.ts';
import { statementList } from './statement-page.ts';

const types = ['credit', 'usage', 'adjustment'] as const;
const titles = { '': 'All', credit: 'Credits', usage: 'Usage', adjustment: 'Adjustments' } as const;
const pageSize = 50;

const kinds: Readonly<Record<LedgerEntryAnswer['type'], readonly ['good' | 'plain' | 'busy', string]>> = {
  credit: ['good', 'credit'],
  usage: ['plain', 'usage'],
  adjustment: ['busy', 'adjustment'],
};

const notices: Readonly<Record<string, string>> = {
  credited: 'Credit added. It is available to the next request.',
  adjusted: 'Adjustment posted. It applies from the next request.',
  repeated: 'This reference was already applied with the same amount. The balance was not changed.',
};

/** Contents of the two forms, one of which was rejected. */
interface Typed {
  readonly which: 'credits' | 'adjustments';
  readonly amount: string;
  readonly reference: string;
  readonly note: string;
  readonly refusal: Refusal | null;
}

const nothingTyped: Typed = { which: 'credits', amount: '', reference: '', note: '', refusal: null };

export function walletPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const asked = queryOf(visit.context, 'organization_id').trim();
  return walletPageOf(visit, parts, asked === visit.organizationId ? '' : asked, nothingTyped);
}

async function walletPageOf(
  visit: Visit,
  { clock }: PortalParts,
  organization: string,
  typed: Typed,
): Promise<Response> {
  const mayBook = visit.may('wallet.book');
  const id = organization === '' ? visit.organizationId : organization;
  const [wallet, owner, ledger] = await Promise.all([
    readWallet(visit, pathWith('/v1/wallet', { organization_id: organization })),
    mayBook ? visit.get<OrganizationAnswer>(`/v1/organizations/${encodeURIComponent(id)}`) : null,
    ledgerSection(visit, organization, id),
  ]);
  const runway = wallet === null ? null : await readRunway(visit, wallet, { nowMs: clock.now(), organization });
  const said = noticeOf(visit, notices);
  const body = html`${otherOrganization(organization, '/portal/wallet')}
  ${said === undefined ? null : notice('good', said)}
  ${wallet === null || runway === null ? unknownBalance() : html`${balanceWarning(wallet, runway, mayBook)} ${amounts(wallet, runway)}`}
  ${owner === null ? null : html`${bookingForms(visit, owner, typed)} ${otherWallet()}`}
  ${wallet === null ? null : await balanceSection(visit, organization)}
  ${visit.may('wallet.statements') ? statementList(clock.now(), organization) : null} ${ledger}`;
  return page(visit, {
    title: 'Wallet',
    body,
    status: typed.refusal === null ? 200 : statusOf(typed.refusal),
    script: assets.chart,
  });
}

/** @param id the wallet's organization; `organization` is empty if it is the viewed one */
async function ledgerSection(visit: Visit, organization: string, id: string): Promise<Html> {
  const { context, get } = visit;
  const asked = queryOf(context, 'type');
  const type = types.find((one) => one === asked) ?? '';
  const cursor = queryOf(context, 'cursor');
  const of = { organization_id: organization };
  const ledger = await get<ListAnswer<LedgerEntryAnswer>>(
    pathWith('/v1/wallet/ledger', { type, cursor, limit: pageSize, ...of }),
  );
  const booked = ledger.data.filter((entry) => entry.type !== 'usage');
  const bookers = booked.length === 0 ? null : await readBookers(visit, booked, id);
  const next =
    ledger.next_cursor === null ? null : pathWith('/portal/wallet', { type, cursor: ledger.next_cursor, ...of });
  return html`<section aria-labelledby="ledger-title">
    <h2 id="ledger-title">Ledger</h2>
    ${tabs(
      'Ledger entries by type',
      (['', ...types] as const).map((one) => ({
        text: titles[one],
        href: pathWith('/portal/wallet', { type: one, ...of }),
        isHere: one === type,
      })),
    )}
    ${ledger.data.length === 0 ? empty('No entries', 'Credits, adjustments and charges appear here, newest first, with the balance after each entry.') : ledgerTable(visit, ledger.data, { organization, bookers })}
    ${older(next)}
  </section>`;
}

function amounts({ balance, held, available }: WalletAnswer, runway: Runway): Html {
  return figures([
    { label: 'Balance', value: usd(balance), note: 'credits and adjustments minus charges' },
    { label: 'Held', value: usd(held), note: 'for running requests' },
    { label: 'Available', value: usd(available), note: runwayText(runway) ?? 'available to the next request' },
  ]);
}

interface BookingForm {
  readonly which: Typed['which'];
  readonly title: string;
  readonly amountHint: string;
  readonly example: string;
  readonly noteLabel: string;
  readonly isNoteRequired: boolean;
  readonly button: string;
}

const forms: readonly BookingForm[] = [
  {
    which: 'credits',
    title: 'Add credit',
    amountHint: 'Added to the balance.',
    example: '25.00',
    noteLabel: 'Note (optional)',
    isNoteRequired: false,
    button: 'Post credit',
  },
  {
    which: 'adjustments',
    title: 'Adjust balance',
    amountHint: 'Added to the balance. Use a minus sign to subtract; the balance cannot go below zero.',
    example: '-2.50',
    noteLabel: 'Reason',
    isNoteRequired: true,
    button: 'Post adjustment',
  },
];

/** Leads to the page of another wallet. A form always changes the wallet that its page shows. */
function otherWallet(): Html {
  return html`<details class="fold">
    <summary>Another organization</summary>
    <form class="filters" method="get" action="/portal/wallet">
      ${field({ id: 'other-organization', name: 'organization_id', label: 'Organization id', value: '', placeholder: 'org_…', isRequired: true, maxLength: 60 })}
      <p class="buttons"><button>Show wallet</button></p>
    </form>
  </details>`;
}

function bookingForms(visit: Visit, owner: OrganizationAnswer, typed: Typed): Html {
  return html`${forms.map((form) => bookingForm(visit, form, owner, form.which === typed.which ? typed : nothingTyped))}`;
}

/**
 * Returns an unused reference: a form that is sent twice is applied once. Users can replace it, for example by an
 * invoice number.
 */
const freshReference = (): string =>
  `portal-${new Date().toISOString().slice(0, 10)}-${randomBytes(4).toString('hex')}`;

function bookingForm(visit: Visit, form: BookingForm, owner: OrganizationAnswer, typed: Typed): Html {
  const { which, title, amountHint, example, noteLabel, isNoteRequired, button } = form;
  const { amount, reference, note, refusal } = typed;
  const id = (name: string): string => `${which}-${name}`;
  const isAsked = refusal !== null || queryOf(visit.context, 'open') === which;
  return html`<details class="fold" ${isAsked ? html`open` : null}>
    <summary>${title}</summary>
    <form class="form" method="post" action="${pathWith(`/portal/wallet/${which}`, { organization_id: owner.id })}">
      ${formToken(visit)} <input type="hidden" name="organization_id" value="${owner.id}" /> ${refused(refusal)}
      <p>Applies to <strong>${owner.name}</strong> <code>${owner.id}</code>.</p>
      <div class="grid">
        ${field({ id: id('amount'), name: 'amount', label: 'Amount in USD', value: amount, hint: amountHint, placeholder: example, refusal, isRequired: true, inputMode: 'decimal', maxLength: 40 })}
        ${field({ id: id('reference'), name: 'reference', label: 'Reference', value: refusal === null ? freshReference() : reference, hint: 'Each reference is applied once, even if you send it again. You can use an invoice number.', refusal, isRequired: true, maxLength: 200 })}
        ${field({ id: id(isNoteRequired ? 'reason' : 'note'), name: isNoteRequired ? 'reason' : 'note', label: noteLabel, value: note, refusal, isRequired: isNoteRequired })}
      </div>
      <p class="buttons"><button class="primary">${button}</button></p>
    </form>
  </details>`;
}

/**
 * Describes an entry. Visitors who see only their own requests get no link: the ledger does not say whose request it
 * is.
 */
function what(visit: Visit, entry: LedgerEntryAnswer, organization: string): MaybeHtml {
  const { type, request_id, requests, reference, note } = entry;
  if (type === 'usage') {
    if (request_id === null) return counted(requests ?? 0, 'request');
    return !visit.may('usage.read')
      ? 'one request'
      : html`<a href="${pathWith(`/portal/usage/${request_id}`, { organization_id: organization })}">one request</a>`;
  }
  return html`<span class="wrap">${reference}</span
    >${note === null || note === '' ? null : html`<br /><span class="quiet wrap">${note}</span>`}`;
}

interface LedgerContext {
  readonly organization: string;
  /** Names of the people who posted credits and adjustments, by id of the entry; null if they are not shown. */
  readonly bookers: ReadonlyMap<string, MaybeHtml> | null;
}

function ledgerTable(
  visit: Visit,
  entries: readonly LedgerEntryAnswer[],
  { organization, bookers }: LedgerContext,
): Html {
  return table({
    caption: 'Ledger, newest first',
    columns: [
      { title: 'Time' },
      { title: 'Type' },
      { title: 'Description' },
      ...(bookers === null ? [] : [{ title: 'By' }]),
      { title: 'Amount', isNumber: true },
      { title: 'Balance after', isNumber: true },
    ],
    rows: entries.map((entry) => [
      timeOf(entry.created_at, ''),
      badge(...kinds[entry.type]),
      what(visit, entry, organization),
      ...(bookers === null ? [] : [bookers.get(entry.id) ?? null]),
      usd(entry.amount),
      usd(entry.balance_after),
    ]),
  });
}

interface Booking {
  readonly which: Typed['which'];
  /** The field with the reason. */
  readonly why: 'note' | 'reason';
  readonly done: 'credited' | 'adjusted';
}

async function book(visit: Visit, parts: PortalParts, form: Form, { which, why, done }: Booking): Promise<Response> {
  const inQuery = queryOf(visit.context, 'organization_id').trim();
  const inForm = form.text('organization_id').trim();
  // The page's organization is the viewed one: `requireSameView` has rejected forms of other pages.
  const named = inForm === '' ? (inQuery === '' ? visit.organizationId : inQuery) : inForm;
  const [amount, reference, note] = [form.text('amount').trim(), form.text('reference'), form.text(why)];
  const path = pathWith(`/v1/wallet/${which}`, { organization_id: inQuery === '' ? named : inQuery });
  const body = { organization_id: named, amount: usdOf(amount), reference, [why]: note };
  const booked = await visit.send<LedgerEntryAnswer>('POST', path, body);
  const organization = named === visit.organizationId ? '' : named;
  if (!booked.ok) {
    const { refusal } = booked;
    // Throws if the organization cannot be seen: its page does not exist, and a form on another organization's page
    // would change the wrong wallet when sent again.
    if (refusal.problems.has('organization_id') || refusal.status === 404) throw new RefusedError(refusal);
    return walletPageOf(visit, parts, organization, { which, amount, reference, note, refusal });
  }
  const notice = booked.isNew ? done : 'repeated';
  return visit.context.redirect(pathWith('/portal/wallet', { notice, organization_id: organization }), 303);
}

export function addCredit(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  return book(visit, parts, form, { which: 'credits', why: 'note', done: 'credited' });
}

export function addAdjustment(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  return book(visit, parts, form, { which: 'adjustments', why: 'reason', done: 'adjusted' });
}
