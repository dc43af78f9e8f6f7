import type { ListAnswer } from '#edge/contract/lists.ts';
import type { RejectedRequestAnswer } from '#edge/contract/requests.ts';
import type { SumsAnswer } from '#edge/contract/usage.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  facts,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  table,
  timeInUtc,
  timeToSecond,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Requests that were rejected: their numbers by error code, and those that are kept. */

const listed = 20;

/** Query of the API for the requests that the usage page shows, and of the page for itself. */
export interface RejectedAsked {
  readonly api: Readonly<Record<string, string>>;
  readonly page: Readonly<Record<string, string>>;
  /** Code of the shown requests; empty for all. */
  readonly code: string;
}

const api = '/v1/usage/rejected';

export function readRejected({ get }: Visit, { api: asked, code }: RejectedAsked) {
  return get<ListAnswer<RejectedRequestAnswer>>(pathWith(api, { ...asked, code, limit: listed }));
}

/**
 * Shows nothing if nothing was rejected.
 * @param sums null to show only the newest
 */
export function rejectedSection(
  { data }: ListAnswer<RejectedRequestAnswer>,
  sums: SumsAnswer | null,
  asked: RejectedAsked,
  keyName: (id: string) => MaybeHtml,
): MaybeHtml {
  const codes = Object.entries(sums?.refusals ?? {}).toSorted(([, a], [, b]) => b - a);
  if (codes.length === 0 && data.length === 0) return null;
  const linkOf = (code: string): string => `${pathWith('/portal/usage', { ...asked.page, code })}#rejected-title`;
  const all = asked.code === '' ? null : html`<a href="${linkOf('')}">Show all codes</a>.`;
  return html`<section aria-labelledby="rejected-title">
    <h2 id="rejected-title">Rejected requests</h2>
    <p class="quiet">
      Rejected requests cost nothing. The first 30 of each minute are kept for 7 days, with the error that the client
      got. ${all}
    </p>
    ${
      codes.length === 0
        ? null
        : table({
            caption: 'Rejected requests by error code',
            columns: [{ title: 'Code' }, { title: 'Requests', isNumber: true }],
            rows: codes.map(([code, number]) => [
              html`<a href="${linkOf(code)}"><code>${code}</code></a>`,
              count(number),
            ]),
          })
    }
    ${data.length === 0 ? empty('No details', 'No kept request matches. Requests are kept for 7 days.') : rejectedTable(data, asked, keyName)}
  </section>`;
}

function rejectedTable(
  data: readonly RejectedRequestAnswer[],
  { page: { organization_id: organization = '' } }: RejectedAsked,
  keyName: (id: string) => MaybeHtml,
): Html {
  return table({
    caption: 'The newest of them',
    columns: [{ title: 'Time (UTC)' }, { title: 'Error' }, { title: 'Model' }, { title: 'Key' }],
    rows: data.map(({ id, created_at: at, code, message, model, key_id }) => [
      html`<a href="${pathWith(`/portal/usage/${id}`, { organization_id: organization })}">${timeInUtc(at * 1000)}</a>`,
      html`<code>${code}</code><br /><span class="quiet">${message}</span>`,
      model ?? html`<span class="quiet">–</span>`,
      keyName(key_id),
    ]),
  });
}

/** Shows why a request was rejected. Returns null if no rejected request with this id is kept. */
export async function rejectedPage(visit: Visit, id: string, organization: string) {
  const path = pathWith(api, { request_id: id, organization_id: organization });
  const [request] = (await visit.get<ListAnswer<RejectedRequestAnswer>>(path)).data;
  if (request === undefined) return null;
  const body = html`<p class="lead">This request was rejected, and cost nothing.</p>
    ${facts([
      ['Request', html`<code>${request.id}</code>`],
      ['Time', timeToSecond(request.created_at * 1000)],
      ['Error', html`${badge('bad', `HTTP ${request.status}`)} <code>${request.code}</code>`],
      ['Message', request.message],
      ...(request.param === null ? [] : [['Field', html`<code>${request.param}</code>`] as const]),
      ['Path', html`<code>${request.endpoint}</code>`],
      ['Model', request.model ?? 'not known'],
      ['Key', html`<a href="/portal/keys/${request.key_id}"><code>${request.key_id}</code></a>`],
      ...(request.end_user === null ? [] : [['End user', request.end_user] as const]),
      ...(request.client_request_id === null
        ? []
        : [["Client's request id", html`<code>${request.client_request_id}</code>`] as const]),
    ])}`;
  return page(visit, {
    title: 'Rejected request',
    actions: html`<a class="button" href="/portal/usage">All usage</a>`,
    body,
  });
}

/** Leads to the page of the request whose id was typed. */
export function findRequest(visit: Visit): Response {
  const { context } = visit;
  const id = (context.req.query('id') ?? '').trim();
  const organization = context.req.query('organization_id') ?? '';
  if (id === '') return context.redirect(pathWith('/portal/usage', { organization_id: organization }), 303);
  return context.redirect(pathWith(`/portal/usage/${encodeURIComponent(id)}`, { organization_id: organization }), 303);
}

export function findForm(organization: string): Html {
  return html`<form class="find" method="get" action="/portal/usage/find" role="search">
    ${organization === '' ? null : html`<input type="hidden" name="organization_id" value="${organization}" />`}
    <input
      type="search"
      name="id"
      aria-label="Request id"
      placeholder="Request id"
      maxlength="100"
      autocomplete="off"
    />
    <button>Find</button>
  </form>`;
}
