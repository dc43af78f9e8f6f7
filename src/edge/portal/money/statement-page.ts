import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import type { StatementAnswer } from '#edge/contract/wallet.ts';
import { otherOrganization, page, readKeys } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  counted,
  empty,
  figures,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  type PortalParts,
  queryOf,
  table,
  timeOf,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { readBookers } from './bookers.ts';

/** Monthly statements: a list of months, a page to read or print, and the files. */

const listed = 12;

const monthText = (year: number, month: number): string => new Date(Date.UTC(year, month)).toISOString().slice(0, 7);

/** The month as many months later, such as 2026-10. */
function monthAfter(month: string, months: number): string {
  const [year = 0, number = 1] = month.split('-').map(Number);
  return monthText(year, number - 1 + months);
}

const pathOf = (month: string, organization: string, end = ''): string =>
  pathWith(`/portal/wallet/statements/${month}${end}`, { organization_id: organization });

/** @param organization empty for the viewed organization */
export function statementList(nowMs: number, organization: string): Html {
  const current = new Date(nowMs).toISOString().slice(0, 7);
  const months = Array.from({ length: listed }, (_, index) => monthAfter(current, -index));
  return html`<details class="fold">
    <summary>Statements</summary>
    ${table({
      caption: 'Monthly statements, newest first',
      columns: [{ title: 'Month' }, { title: 'Files' }],
      rows: months.map((month) => [
        html`<a href="${pathOf(month, organization)}">${month}</a>`,
        html`<span class="actions">${files(month, organization)}</span>`,
      ]),
    })}
  </details>`;
}

function files(month: string, organization: string): Html {
  return html`<a class="button" href="${pathOf(month, organization, '/json')}" download aria-label="JSON of ${month}"
      >JSON</a
    >
    <a class="button" href="${pathOf(month, organization, '/csv')}" download aria-label="CSV of ${month}">CSV</a>`;
}

const apiPath = (month: string, organization: string): string =>
  pathWith(`/v1/wallet/statements/${encodeURIComponent(month)}`, { organization_id: organization });

interface Signed {
  readonly statement: StatementAnswer;
  /** The JSON file's signature; null if statements are not signed. */
  readonly signature: string | null;
}

async function readSigned(visit: Visit, month: string, organization: string): Promise<Signed> {
  const answer = await visit.open(apiPath(month, organization), { accept: 'application/json' });
  const signature = answer.headers.get('x-headgate-signature');
  return {
    statement: (await answer.json()) as StatementAnswer,
    signature: signature === 'unsigned' ? null : signature,
  };
}

/** Sends a statement as a file. */
async function sendFile(visit: Visit, month: string, type: 'json' | 'csv'): Promise<Response> {
  const accept = type === 'csv' ? 'text/csv' : 'application/json';
  const { body, headers } = await visit.open(apiPath(month, organizationOf(visit)), { accept });
  for (const name of ['content-type', 'x-headgate-signature']) visit.context.header(name, headers.get(name) ?? '');
  visit.context.header('content-disposition', `attachment; filename="statement-${month}.${type}"`);
  return visit.context.body(body ?? '', 200);
}

export const statementJson = (visit: Visit, _: PortalParts, month: string) => sendFile(visit, month, 'json');
export const statementCsv = (visit: Visit, _: PortalParts, month: string) => sendFile(visit, month, 'csv');

/** The organization of the page's address; empty for the viewed organization. */
function organizationOf(visit: Visit): string {
  const asked = queryOf(visit.context, 'organization_id').trim();
  return asked === visit.organizationId ? '' : asked;
}

export async function statementPage(visit: Visit, { clock }: PortalParts, month: string): Promise<Response> {
  const organization = organizationOf(visit);
  const { statement, signature } = await readSigned(visit, month, organization);
  const [bookers, keys] = await Promise.all([
    readBookers(visit, statement.bookings, statement.organization_id),
    visit.may('keys') ? readKeys(visit, { organization_id: statement.organization_id }) : [],
  ]);
  const names = new Map(keys.map(({ id, name }) => [id, name]));
  const later = monthAfter(month, 1);
  const isLast = later > new Date(clock.now()).toISOString().slice(0, 7);
  const body = html`${otherOrganization(organization, `/portal/wallet/statements/${month}`)}
    <p class="lead">
      <a href="${pathWith('/portal/wallet', { organization_id: organization })}">Wallet</a> of
      <code>${statement.organization_id}</code>. Days and the month are in UTC. ${statusText(statement)}
    </p>
    ${sums(statement)}
    <section aria-labelledby="bookings-title">
      <h2 id="bookings-title">Credits and adjustments</h2>
      ${statement.bookings.length === 0 ? empty('No entries', 'Credits and adjustments of the month appear here.') : bookings(statement, bookers)}
    </section>
    <section aria-labelledby="usage-title">
      <h2 id="usage-title">Usage</h2>
      ${statement.usage.length === 0 ? empty('No requests', 'Charges of the month appear here by model, key and day.') : usage(statement, names)}
    </section>
    ${proof(statement, signature)}
    <p class="pager">
      ${statement.opening_balance === '0' ? null : html`<a class="button" href="${pathOf(monthAfter(month, -1), organization)}">${monthAfter(month, -1)}</a>`}
      ${isLast ? null : html`<a class="button" href="${pathOf(later, organization)}">${later}</a>`}
    </p>`;
  return page(visit, { title: `Statement of ${month}`, actions: files(month, organization), body });
}

function statusText({ status }: StatementAnswer): Html {
  return status === 'final'
    ? html`${badge('good', 'final')}`
    : html`${badge('busy', 'open')} It is final one day after the month.`;
}

function sums(statement: StatementAnswer): Html {
  const { written_off: writtenOff } = statement;
  return figures([
    { label: 'Opening balance', value: usd(statement.opening_balance) },
    { label: 'Credits', value: usd(statement.credits) },
    { label: 'Adjustments', value: usd(statement.adjustments) },
    {
      label: 'Charges',
      value: usd(statement.charges),
      note: counted(statement.requests, 'request'),
    },
    {
      label: 'Closing balance',
      value: usd(statement.closing_balance),
      ...(writtenOff !== null && writtenOff !== '0' && { note: `${usd(writtenOff)} not charged` }),
    },
  ]);
}

function bookings(statement: StatementAnswer, bookers: ReadonlyMap<string, MaybeHtml> | null): Html {
  return table({
    caption: 'Credits and adjustments, oldest first',
    columns: [
      { title: 'Time' },
      { title: 'Type' },
      { title: 'Reference' },
      ...(bookers === null ? [] : [{ title: 'By' }]),
      { title: 'Amount', isNumber: true },
    ],
    rows: statement.bookings.map((entry) => [
      timeOf(entry.created_at, ''),
      entry.type,
      html`<span class="wrap">${entry.reference}</span
        >${entry.note === null || entry.note === '' ? null : html`<br /><span class="quiet wrap">${entry.note}</span>`}`,
      ...(bookers === null ? [] : [bookers.get(entry.id) ?? null]),
      usd(entry.amount),
    ]),
  });
}

type UsageRow = StatementAnswer['usage'][number];

interface Sum {
  readonly name: string;
  readonly rows: readonly UsageRow[];
}

function sumsBy(rows: readonly UsageRow[], nameOf: (row: UsageRow) => string): readonly Sum[] {
  const groups = [...Map.groupBy(rows, nameOf)].map(([name, grouped]) => ({ name, rows: grouped }));
  return groups.toSorted((a, b) => a.name.localeCompare(b.name));
}

const totalOf = (rows: readonly UsageRow[], field: 'requests' | 'input_tokens' | 'output_tokens'): string =>
  count(rows.reduce((sum, row) => sum + row[field], 0));

const costOf = (rows: readonly UsageRow[]): string =>
  usd(formatUsd(rows.reduce((sum, { cost }) => sum + (parseDecimal(cost, PICO_DIGITS) ?? 0n), 0n)));

function usage(statement: StatementAnswer, names: ReadonlyMap<string, string>): Html {
  const parts = [
    ['model', ({ model }: UsageRow) => model],
    ['key', ({ key_id: id }: UsageRow) => names.get(id) ?? id],
    ['day', ({ day }: UsageRow) => day],
  ] as const;
  return html`<p class="quiet">
      By day of admission. A request that ends in the next month is charged in that month's statement.
    </p>
    ${parts.map(([title, nameOf]) =>
      table({
        caption: `Usage by ${title}`,
        columns: [
          { title: `${title.slice(0, 1).toUpperCase()}${title.slice(1)}` },
          { title: 'Requests', isNumber: true },
          { title: 'Input tokens', isNumber: true },
          { title: 'Output tokens', isNumber: true },
          { title: 'Cost', isNumber: true },
        ],
        rows: sumsBy(statement.usage, nameOf).map(({ name, rows }) => [
          html`<span class="wrap">${name}</span>`,
          totalOf(rows, 'requests'),
          totalOf(rows, 'input_tokens'),
          totalOf(rows, 'output_tokens'),
          costOf(rows),
        ]),
      }),
    )}`;
}

function proof({ ledger, signing_key: key, month, status }: StatementAnswer, signature: string | null): Html {
  const when = status === 'final' ? 'at the end of the month' : 'so far';
  return html`<section aria-labelledby="proof-title">
    <h2 id="proof-title">Proof</h2>
    <p>The ledger has ${counted(ledger.entries, 'line')} ${when}.${ledger.head === null ? null : ' Its head:'}</p>
    ${ledger.head === null ? null : html`<pre class="wrap"><code>${ledger.head}</code></pre>`}
    ${
      signature === null
        ? html`<p class="quiet">This gateway does not sign statements.</p>`
        : html`<p>Signature of the JSON file by the key <code>${key}</code>:</p>
            <pre class="wrap"><code>${signature}</code></pre>
            <p>Check it with the key of <code>GET /v1/statement-key</code>:</p>
            <pre
              class="wrap"
            ><code>npx headgate verify-statement statement-${month}.json --signature "…" --key key.json</code></pre>`
    }
  </section>`;
}
