import { roleWords } from '#core/accounts/accounts.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer, PageAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer, ReportedOrganizationAnswer } from '#edge/contract/organizations.ts';
import type { UserAnswer } from '#edge/contract/users.ts';
import { page, statusOf, viewButtons } from '#edge/portal/frame/frame.ts';
import { limitFields, limitTexts } from '#edge/portal/keys/keys.ts';
import {
  beganWith,
  changesIn,
  count,
  counted,
  empty,
  field,
  figures,
  type Form,
  formToken,
  type Html,
  html,
  isEmpty,
  type MaybeHtml,
  modelsField,
  modelsOf,
  notice,
  noticeOf,
  numberOf,
  pathWith,
  type PortalParts,
  type Refusal,
  refused,
  section,
  table,
  timeOf,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { moreOf, organizationBadge } from './organizations-page.ts';

/** One organization, for platform administrators. Its own administrators see `own-organization-page.ts`. */

const shownMax = 10;

const notices: Readonly<Record<string, string>> = {
  saved: 'Saved. Changes apply from the next request.',
  suspended: 'Organization suspended. Its keys are rejected, and its running streams have ended.',
  active: 'Organization reactivated. Its keys work again.',
  closed: 'Organization closed.',
};

type Texts = Readonly<Record<string, string>>;

const apiPath = (id: string): string => `/v1/organizations/${encodeURIComponent(id)}`;
const pagePath = (id: string, rest = ''): string => `/portal/organizations/${encodeURIComponent(id)}${rest}`;

function textsOf({ name, default_limits: limits, max_active_keys: max, models }: OrganizationAnswer): Texts {
  return {
    name,
    ...limitTexts(limits),
    max_active_keys: max === null ? '' : String(max),
    models: (models ?? []).join('\n'),
  };
}

export async function organizationPage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  return organizationPageOf(visit, parts, { id, typed: null, refusal: null });
}

interface Shown {
  readonly id: string;
  readonly typed: Texts | null;
  /** The form that the API rejected. */
  readonly form?: Form;
  readonly refusal: Refusal | null;
}

async function readReported({ get }: Visit, id: string): Promise<ReportedOrganizationAnswer | null> {
  const path = pathWith('/v1/admin/organizations', { search: id, limit: 1 });
  return (await get<PageAnswer<ReportedOrganizationAnswer>>(path)).data[0] ?? null;
}

async function organizationPageOf(visit: Visit, parts: PortalParts, shown: Shown): Promise<Response> {
  const { id, typed, form = null, refusal } = shown;
  const organization = await visit.get<OrganizationAnswer>(apiPath(id));
  const of = { organization_id: organization.id };
  const [reported, keys, users] = await Promise.all([
    readReported(visit, organization.id),
    visit.get<ListAnswer<KeyAnswer>>(pathWith('/v1/keys', { ...of, status: 'active', limit: shownMax })),
    visit.get<PageAnswer<UserAnswer>>(pathWith('/v1/users', { ...of, limit: shownMax })),
  ]);
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">
      ${organizationBadge(organization.status)} <code>${organization.id}</code>, created
      ${timeOf(organization.created_at, '')}
    </p>
    ${reported === null ? null : numbers(reported, parts)}
    ${section(
      'look',
      'Organization pages',
      html`<p>View the pages of this organization with your rights as platform administrator.</p>
        ${viewButtons(visit, organization.id)}`,
    )}
    ${organization.status === 'closed' ? null : section('limits', 'Name and limits', limitsForm(visit, parts, { organization, typed: typed ?? textsOf(organization), form, refusal }))}
    ${section('keys', 'Active keys', keyTable(keys.data))}
    ${moreOf(reported?.active_keys ?? 0, keys.data.length, 'see “Keys” above')}
    ${section('users', 'Users', userTable(users.data, organization.id))}
    ${moreOf(users.pagination.total, users.data.length, 'see “Users” above')}`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: organization.name, actions: actions(visit, organization), body, status });
}

function numbers(one: ReportedOrganizationAnswer, { maxActiveKeys }: PortalParts): Html {
  return figures([
    {
      label: 'Balance',
      value: usd(one.balance),
      note: one.balance === '0' ? 'requests return 402' : 'credits and adjustments minus charges',
    },
    { label: 'Last 30 days', value: usd(one.spent_30_days), note: counted(one.requests_30_days, 'request') },
    { label: 'This month', value: usd(one.spent_month), note: 'calendar month in UTC' },
    { label: 'Active keys', value: count(one.active_keys), note: `of ${count(one.max_active_keys ?? maxActiveKeys)}` },
  ]);
}

function actions(visit: Visit, { id, status }: OrganizationAnswer): MaybeHtml {
  if (status === 'closed') return null;
  const close = html`<a class="button danger" href="${pagePath(id, '/close')}">Close</a>`;
  if (status === 'active')
    return html`<a class="button danger" href="${pagePath(id, '/suspend')}">Suspend</a> ${close}`;
  return html`<form method="post" action="${pagePath(id, '/status')}">
      ${formToken(visit)}<button class="primary" name="status" value="active">Reactivate</button>
    </form>
    ${close}`;
}

interface LimitsShown {
  readonly organization: OrganizationAnswer;
  readonly typed: Texts;
  readonly form: Form | null;
  readonly refusal: Refusal | null;
}

/** Renames problems of `default_limits.x` to `x`, so that they are shown beside that field. */
function besideFields(refusal: Refusal | null): Refusal | null {
  if (refusal === null) return null;
  const problems = [...refusal.problems].map(([name, text]): [string, string] => [
    name.replace('default_limits.', ''),
    text,
  ]);
  return { ...refusal, problems: new Map(problems) };
}

function limitsForm(visit: Visit, { prices, maxActiveKeys }: PortalParts, shown: LimitsShown): Html {
  const { organization, typed } = shown;
  const refusal = besideFields(shown.refusal);
  const known = prices().map(({ model }) => model);
  return html`<form class="form" method="post" action="${pagePath(organization.id)}">
    ${formToken(visit)} ${beganWith(toPatch(textsOf(organization)), shown.form)} ${refused(refusal)}
    ${field({ name: 'name', label: 'Name', value: typed['name'] ?? '', refusal, isRequired: true, maxLength: 200 })}
    ${field({ name: 'max_active_keys', label: 'Maximum active keys', value: typed['max_active_keys'] ?? '', hint: `Empty means ${maxActiveKeys}, the setting HEADGATE_MAX_ACTIVE_KEYS of this gateway.`, refusal, inputMode: 'numeric', maxLength: 20 })}
    <fieldset class="limits">
      <legend>Default key limits</legend>
      <p class="hint">
        Applied to new keys without limits of their own. Existing keys keep their limits. Empty means unlimited.
      </p>
      <div class="grid">
        ${limitFields.map((limit) => field({ ...limit, value: typed[limit.name] ?? '', refusal, inputMode: 'numeric', maxLength: 20, placeholder: 'unlimited' }))}
      </div>
    </fieldset>
    ${modelsField(typed['models'] ?? '', known, refusal)}
    <p class="buttons"><button class="primary">Save</button></p>
  </form>`;
}

function keyTable(keys: readonly KeyAnswer[]): Html {
  if (keys.length === 0) return empty('No active keys', 'Programs of this organization need a key to call models.');
  return table({
    caption: 'Active keys, newest first',
    columns: [{ title: 'Key', isWide: true }, { title: 'Scope' }, { title: 'Last used' }, { title: 'Expires' }],
    rows: keys.map(({ name, prefix, last4, scope, last_used_at: used, expires_at: expires }) => [
      html`${name}<br /><code class="quiet">${prefix}…${last4}</code>`,
      scope,
      timeOf(used, 'never'),
      timeOf(expires, 'never'),
    ]),
  });
}

function roleIn({ memberships }: UserAnswer, id: string): string {
  const role = memberships.find(({ organization_id }) => organization_id === id)?.role;
  return role === undefined ? '–' : roleWords[role];
}

function userTable(users: readonly UserAnswer[], id: string): Html {
  if (users.length === 0) return empty('No users', 'Open “Invitations” under Organization pages to invite a user.');
  return table({
    caption: 'Users of the organization',
    columns: [{ title: 'Name' }, { title: 'Email' }, { title: 'Role' }],
    rows: users.map((user) => [
      html`<a href="/portal/users/${user.id}">${user.name}</a>`,
      html`<span class="wrap">${user.email}</span>`,
      roleIn(user, id),
    ]),
  });
}

function typedOf(form: Form): Texts {
  const names = ['name', 'max_active_keys', 'models', ...limitFields.map(({ name }) => name)];
  return Object.fromEntries(names.map((name) => [name, form.text(name)]));
}

function toPatch(typed: Texts): Readonly<Record<string, unknown>> {
  return {
    name: typed['name'] ?? '',
    max_active_keys: numberOf(typed['max_active_keys'] ?? ''),
    default_limits: Object.fromEntries(limitFields.map(({ name }) => [name, numberOf(typed[name] ?? '')])),
    models: modelsOf(typed['models'] ?? ''),
  };
}

export async function changeOrganization(visit: Visit, parts: PortalParts, id: string, form: Form): Promise<Response> {
  const typed = typedOf(form);
  const changes = changesIn(form, toPatch(typed));
  const changed = isEmpty(changes) ? null : await visit.send<OrganizationAnswer>('PATCH', apiPath(id), changes);
  if (changed?.ok === false) return organizationPageOf(visit, parts, { id, typed, form, refusal: changed.refusal });
  return visit.context.redirect(`${pagePath(id)}?notice=saved`, 303);
}

const ends = {
  suspend: {
    title: 'Suspend',
    says: 'Requests with its keys will return 403, its users lose access, and its running streams end. No data is deleted; reactivating the organization restores everything.',
  },
  close: {
    title: 'Close',
    says: 'Its keys are revoked permanently, its users lose access, and its running streams end. This cannot be undone. Wallet, usage and audit log stay readable for platform administrators.',
  },
} as const;

export async function endOrganizationPage(visit: Visit, id: string, how: keyof typeof ends): Promise<Response> {
  const organization = await visit.get<OrganizationAnswer>(apiPath(id));
  const reported = await readReported(visit, organization.id);
  const { title, says } = ends[how];
  const body = html`<div class="confirm">
    <p><strong>${organization.name}</strong>: ${says}</p>
    ${reported === null ? null : html`<p>The organization has <strong>${counted(reported.active_keys, 'active key')}</strong>, sent ${counted(reported.requests_30_days, 'request')} in the last 30 days, and has a balance of ${usd(reported.balance)}.</p>`}
    <form method="post" action="${pagePath(organization.id, how === 'close' ? '/close' : '/status')}">
      ${formToken(visit)} <input type="hidden" name="status" value="suspended" />
      <p class="buttons">
        <button class="danger">${title} ${organization.name}</button>
        <a href="${pagePath(organization.id)}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `${title} ${organization.name}?`, body });
}

export async function setStatus(visit: Visit, parts: PortalParts, id: string, form: Form): Promise<Response> {
  const status = form.text('status') === 'active' ? 'active' : 'suspended';
  const changed = await visit.send<OrganizationAnswer>('PATCH', apiPath(id), { status });
  if (!changed.ok) return organizationPageOf(visit, parts, { id, typed: null, refusal: changed.refusal });
  return visit.context.redirect(`${pagePath(id)}?notice=${status}`, 303);
}

export async function closeOrganization(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const closed = await visit.send<OrganizationAnswer>('DELETE', apiPath(id));
  if (!closed.ok) return organizationPageOf(visit, parts, { id, typed: null, refusal: closed.refusal });
  return visit.context.redirect(`${pagePath(id)}?notice=closed`, 303);
}
