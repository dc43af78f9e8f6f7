import type { LedgerEntryAnswer, ListAnswer, WalletAnswer } from './answers.ts';
import { counted, timeOf, usd } from './format.ts';
import type { Form } from './form.ts';
import { html, type Html, type MaybeHtml } from './html.ts';
import { statusOf } from './key-pages.ts';
import { page } from './layout.ts';
import { badge, empty, field, figures, formToken, notice, older, refused, table, tabs } from './ui.ts';
import { pathWith, queryOf, type Refusal, type Visit } from './visit.ts';

const types = ['credit', 'usage', 'adjustment'] as const;
const titles = { '': 'All', credit: 'Credits', usage: 'Usage', adjustment: 'Adjustments' } as const;
const pageSize = 50;

const notices: Readonly<Record<string, string>> = {
  credited: 'The credit is booked and counts for the next request.',
  repeated: 'That reference was booked before, with the same amount: nothing was added.',
};

interface Typed {
  readonly amount: string;
  readonly reference: string;
  readonly note: string;
}

export function walletPage(visit: Visit): Promise<Response> {
  return walletPageOf(visit, { amount: '', reference: '', note: '' }, null);
}

async function walletPageOf(visit: Visit, typed: Typed, refusal: Refusal | null): Promise<Response> {
  const { context, get } = visit;
  const asked = queryOf(context, 'type');
  const type = types.find((one) => one === asked) ?? '';
  const cursor = queryOf(context, 'cursor');
  const [wallet, ledger] = await Promise.all([
    get<WalletAnswer>('/v1/wallet'),
    get<ListAnswer<LedgerEntryAnswer>>(pathWith('/v1/wallet/ledger', { type, cursor, limit: pageSize })),
  ]);
  const said = notices[queryOf(context, 'notice')];
  const next = ledger.next_cursor === null ? null : pathWith('/portal/wallet', { type, cursor: ledger.next_cursor });
  const body = html`${said === undefined ? null : notice('good', said)} ${amounts(wallet)}
    ${visit.may('wallet.book') ? creditForm(visit, typed, refusal) : null}
    <section aria-labelledby="ledger-title">
      <h2 id="ledger-title">Ledger</h2>
      ${tabs(
        'Which entries',
        (['', ...types] as const).map((one) => ({
          text: titles[one],
          href: pathWith('/portal/wallet', { type: one }),
          isHere: one === type,
        })),
      )}
      ${ledger.data.length === 0 ? empty('Nothing here', 'Credits, adjustments and charges stand here from the newest on, each with the balance after it.') : ledgerTable(ledger.data)}
      ${older(next)}
    </section>`;
  return page(visit, { title: 'Wallet', body, status: refusal === null ? 200 : statusOf(refusal) });
}

function amounts({ balance, held, available }: WalletAnswer): Html {
  const isEmpty = available === '0' || available.startsWith('-');
  return html`${isEmpty ? notice('bad', 'The balance pays for nothing more: requests are refused with 402 until there is credit.') : null}
  ${figures([
    { label: 'Balance', value: usd(balance), note: 'credits less what was used, exact' },
    { label: 'Held', value: usd(held), note: 'set aside for requests that run now' },
    { label: 'Available', value: usd(available), note: 'what the next request may hold' },
  ])}`;
}

function creditForm(visit: Visit, { amount, reference, note }: Typed, refusal: Refusal | null): Html {
  return html`<details class="fold" ${refusal === null ? null : html`open`}>
    <summary>Add credit</summary>
    <form class="form" method="post" action="/portal/wallet/credits">
      ${formToken(visit)} ${refused(refusal)}
      <div class="grid">
        ${field({ name: 'amount', label: 'Amount in USD', value: amount, placeholder: '25.00', refusal, isRequired: true, inputMode: 'decimal', maxLength: 40 })}
        ${field({ name: 'reference', label: 'Reference', value: reference, hint: 'Such as the number of an invoice: it is booked once, however often it is sent.', refusal, isRequired: true, maxLength: 200 })}
      </div>
      ${field({ name: 'note', label: 'Note', value: note, refusal })}
      <p class="buttons"><button class="primary">Book the credit</button></p>
    </form>
  </details>`;
}

function what({ type, request_id, requests, reference, note }: LedgerEntryAnswer): MaybeHtml {
  if (type === 'usage') {
    return request_id === null
      ? counted(requests ?? 0, 'request')
      : html`<a href="/portal/usage/${request_id}">one request</a>`;
  }
  return html`${reference}${note === null || note === '' ? null : html` <span class="quiet">${note}</span>`}`;
}

function ledgerTable(entries: readonly LedgerEntryAnswer[]): Html {
  return table({
    caption: 'Ledger, newest first',
    columns: [
      { title: 'Time' },
      { title: 'Type' },
      { title: 'For' },
      { title: 'Amount', isNumber: true },
      { title: 'Balance after', isNumber: true },
    ],
    rows: entries.map((entry) => [
      timeOf(entry.created_at, ''),
      badge(entry.type === 'credit' ? 'good' : 'plain', entry.type),
      what(entry),
      usd(entry.amount),
      usd(entry.balance_after),
    ]),
  });
}

export async function addCredit(visit: Visit, form: Form): Promise<Response> {
  const typed = { amount: form.text('amount').trim(), reference: form.text('reference'), note: form.text('note') };
  const booked = await visit.send<LedgerEntryAnswer>('POST', '/v1/wallet/credits', typed);
  if (!booked.ok) return walletPageOf(visit, typed, booked.refusal);
  return visit.context.redirect(`/portal/wallet?notice=${booked.isNew ? 'credited' : 'repeated'}`, 303);
}
