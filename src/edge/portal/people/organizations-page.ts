import { randomUUID } from 'node:crypto';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type {
  CreatedOrganizationAnswer,
  OrganizationAnswer,
  ReportedOrganizationAnswer,
} from '#edge/contract/organizations.ts';
import { page, statusOf, viewButtons } from '#edge/portal/frame/frame.ts';
import {
  badge,
  copyable,
  count,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  onceOf,
  pager,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  select,
  sortColumn,
  sortOf,
  table,
  timeOf,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Lists organizations with their spending, for platform administrators. */

const pageSize = 50;
const sorts = ['name', 'status', 'balance', 'spent_month', 'spent_30_days', 'active_keys', 'created_at'] as const;

const kinds = { active: 'good', suspended: 'busy', closed: 'plain' } as const;

export const organizationBadge = (status: OrganizationAnswer['status']): Html => badge(kinds[status], status);

export async function organizationsPage(visit: Visit): Promise<Response> {
  const { context } = visit;
  const sort = sortOf(queryOf(context, 'sort'), sorts, '-spent_30_days');
  const search = queryOf(context, 'search').trim();
  const asked = queryOf(context, 'status');
  const status = (['active', 'suspended', 'closed'] as const).find((one) => one === asked) ?? '';
  const query = { search, status, sort };
  const path = pathWith('/v1/admin/organizations', { ...query, limit: pageSize, page: queryOf(context, 'page') });
  const list = await visit.get<PageAnswer<ReportedOrganizationAnswer>>(path);
  const body = html`<p class="lead">Balance and spending of each organization, in USD. Days and months are in UTC.</p>
    ${filters(search, status, sort)}
    ${list.data.length === 0 ? empty('No organizations found', 'Change or clear the filters.') : organizationTable(list.data, query)}
    ${pager('/portal/organizations', query, list.pagination)}`;
  const actions = html`<a class="button primary" href="/portal/organizations/new">New organization</a>`;
  return page(visit, { title: 'Organizations', actions, body });
}

function filters(search: string, status: string, sort: string): Html {
  const statuses = ['', 'active', 'suspended', 'closed'].map((value) => ({
    value,
    label: value === '' ? 'All' : value,
  }));
  return html`<form class="filters" method="get" action="/portal/organizations">
    <div class="field">
      <label for="search">Name or id</label>
      <input type="text" id="search" name="search" value="${search}" maxlength="200" autocomplete="off" />
    </div>
    ${select('status', 'Status', statuses, status)} <input type="hidden" name="sort" value="${sort}" />
    <button>Show</button>
  </form>`;
}

interface ListQuery {
  readonly search: string;
  readonly status: string;
  readonly sort: (typeof sorts)[number] | `-${(typeof sorts)[number]}`;
}

function organizationTable(list: readonly ReportedOrganizationAnswer[], { search, status, sort }: ListQuery): Html {
  const sorted = { path: '/portal/organizations', query: { search, status }, sort };
  return table({
    caption: 'Organizations and their spending',
    columns: [
      { ...sortColumn(sorted, 'name', 'Organization'), isWide: true },
      sortColumn(sorted, 'status', 'Status'),
      sortColumn(sorted, 'spent_30_days', 'Last 30 days', true),
      sortColumn(sorted, 'spent_month', 'This month', true),
      sortColumn(sorted, 'balance', 'Balance', true),
      sortColumn(sorted, 'active_keys', 'Keys', true),
      sortColumn(sorted, 'created_at', 'Created'),
    ],
    rows: list.map((one) => [
      html`<a href="/portal/organizations/${one.id}">${one.name}</a>`,
      organizationBadge(one.status),
      usd(one.spent_30_days),
      usd(one.spent_month),
      one.balance === '0' && one.status === 'active' ? badge('bad', usd(one.balance)) : usd(one.balance),
      count(one.active_keys),
      timeOf(one.created_at, ''),
    ]),
  });
}

export function newOrganizationPage(visit: Visit): Promise<Response> {
  return newOrganizationPageOf(visit, { name: '', once: randomUUID() }, null);
}

interface Typed {
  readonly name: string;
  /** Identifies the form if it is sent twice. */
  readonly once: string;
}

async function newOrganizationPageOf(visit: Visit, { name, once }: Typed, refusal: Refusal | null): Promise<Response> {
  const body = html`<form class="form" method="post" action="/portal/organizations">
    ${formToken(visit)} <input type="hidden" name="once" value="${once}" /> ${refused(refusal)}
    ${field({ name: 'name', label: 'Name', value: name, hint: 'Creates the organization with a project, an empty wallet and a management key.', refusal, isRequired: true, maxLength: 200 })}
    <p class="buttons">
      <button class="primary">Create organization</button> <a href="/portal/organizations">Cancel</a>
    </p>
  </form>`;
  return page(visit, { title: 'New organization', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createOrganization(visit: Visit, form: Form): Promise<Response> {
  const [name, once] = [form.text('name'), form.text('once')];
  const headers = once === '' ? {} : { 'idempotency-key': onceOf(once, { name }) };
  const made = await visit.send<CreatedOrganizationAnswer>('POST', '/v1/organizations', { name }, headers);
  if (!made.ok) {
    const before = made.refusal.status === 409 ? /\borg_[0-9a-f]{32}\b/.exec(made.refusal.message)?.[0] : undefined;
    return before === undefined
      ? newOrganizationPageOf(visit, { name, once }, made.refusal)
      : openedBefore(visit, before);
  }
  const { id, name: given, management_key: secret } = made.body;
  const body = html`${notice('good', html`<p><strong>Copy the management key now: it is shown only once.</strong> Anyone who has the key can create keys, users and projects of this organization.</p>`)}
    ${copyable('secret', secret, 'Copy key')}
    <p>The wallet is empty: requests return 402 until you add credit. Invite users so that they can sign in.</p>
    ${viewButtons(visit, id, ['/portal/wallet?open=credits', '/portal/invitations'])}
    <p><a href="/portal/organizations/${id}">View organization</a></p>`;
  return page(visit, { title: given, body, returnTo: `/portal/organizations/${id}` });
}

/** Answers a form that was sent twice, because its answer was lost (the gateway ended) or somebody resent it. */
function openedBefore(visit: Visit, id: string): Response | Promise<Response> {
  const body = html`${notice('plain', html`<p><strong>This form already created an organization. No second organization was created.</strong> The management key was shown only in the first response.</p>`)}
    <p>If you did not see the key, view the organization and create another management key there.</p>
    <p class="buttons">
      <a class="button" href="/portal/organizations/${id}">View organization</a>
      <a href="/portal/organizations/new">Create another organization</a>
    </p>`;
  return page(visit, { title: 'Organization already created', body, status: 409, returnTo: '/portal/organizations' });
}

/** Shows how many entries the page leaves out, and where they are. */
export function moreOf(total: number, shown: number, where: MaybeHtml): MaybeHtml {
  return total <= shown ? null : html`<p class="quiet">${count(total - shown)} more: ${where}</p>`;
}
