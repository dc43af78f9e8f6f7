import { formatId } from '#base/id.ts';
import { rolesGivenBy, roleWords } from '#core/accounts/accounts.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import type { UserAnswer } from '#edge/contract/users.ts';
import { assets, page, readKeys, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  beganWith,
  changesIn,
  type Choice,
  counted,
  empty,
  facts,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  notice,
  noticeOf,
  pager,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  RefusedError,
  section,
  select,
  sortColumn,
  sortOf,
  table,
  time,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const pageSize = 25;
const sorts = ['created_at', 'name', 'email'] as const;

const roleHints = {
  member: 'calls models with API keys',
  admin: 'manages keys and projects, and adds administrators and members',
  owner: 'can also add owners',
} as const;

const notices: Readonly<Record<string, string>> = {
  made: 'User created. The user can sign in with the email address and the password.',
  changed: 'Role changed, in effect from the next request.',
  removed: 'User removed. The keys and sessions of this user in the organization have ended.',
};

const withOrganization = (path: string, organizationId: string): string =>
  pathWith(path, { organization_id: organizationId });

/** Returns the organization that a form about a membership names; by default, the organization that pages show. */
const organizationIn = (form: Form, visit: Visit): string => {
  const named = form.text('organization_id');
  return named === '' ? visit.organizationId : named;
};

function roleOf({ memberships }: UserAnswer, organizationId: string): MaybeHtml {
  const role = memberships.find((one) => one.organization_id === organizationId)?.role;
  return role === undefined ? html`<span class="quiet">–</span>` : roleWords[role];
}

/** Returns the roles that the visitor may give. */
function choices({ signedIn }: Visit): readonly Choice[] {
  return rolesGivenBy(signedIn.principal)
    .toReversed()
    .map((role) => ({ value: role, label: `${roleWords[role]}: ${roleHints[role]}` }));
}

export async function usersPage(visit: Visit): Promise<Response> {
  const { context, may, viewed, organizationId } = visit;
  const sort = sortOf(queryOf(context, 'sort'), sorts, '-created_at');
  const seesAll = may('organizations') && viewed === null && queryOf(context, 'of') === 'all';
  // Without `organization_id` the API lists everybody to platform administrators.
  const scope = may('organizations') && !seesAll ? { organization_id: organizationId } : {};
  const path = pathWith('/v1/users', { sort, limit: pageSize, page: queryOf(context, 'page'), ...scope });
  const list = await visit.get<PageAnswer<UserAnswer>>(path);
  const query = { sort, of: seesAll ? 'all' : '' };
  const sorted = { path: '/portal/users', query: { of: query.of }, sort };
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)}
  ${may('organizations') && viewed === null ? whose(seesAll) : null}
  ${
    list.data.length === 0
      ? empty('No users', 'This page of the list is empty. Go back to the first page.')
      : table({
          caption: 'Users',
          list: list.pagination.pages > 1 ? 'part' : 'whole',
          columns: [
            { ...sortColumn(sorted, 'name', 'Name'), isWide: true },
            { ...sortColumn(sorted, 'email', 'Email'), isWide: true },
            { title: seesAll ? 'Organizations' : 'Role' },
            sortColumn(sorted, 'created_at', 'Created'),
          ],
          rows: list.data.map((user) => [
            html`<a href="/portal/users/${user.id}">${user.name}</a
              >${user.platform_role === 'admin' ? html` ${badge('busy', 'platform administrator')}` : null}`,
            html`<span class="wrap">${user.email}</span>`,
            seesAll ? String(user.memberships.length) : roleOf(user, organizationId),
            time(Date.parse(user.created_at)),
          ]),
        })
  }
  ${pager('/portal/users', query, list.pagination)}`;
  const actions = may('users.manage')
    ? html`${viewed === null ? html`<a class="button" href="/portal/invitations">Invite user</a>` : null}
        <a class="button primary" href="/portal/users/new">New user</a>`
    : null;
  return page(visit, { title: 'Users', actions, body, script: assets.lists });
}

function whose(seesAll: boolean): Html {
  return html`<nav class="tabs" aria-label="Users by organization">
    <a href="/portal/users" ${seesAll ? null : html`aria-current="true"`}>This organization</a>
    <a href="/portal/users?of=all" ${seesAll ? html`aria-current="true"` : null}>All organizations</a>
  </nav>`;
}

interface Typed {
  readonly name: string;
  readonly email: string;
  readonly role: string;
}

export function newUserPage(visit: Visit): Promise<Response> {
  return newUserPageOf(visit, { name: '', email: '', role: 'member' }, null);
}

async function newUserPageOf(visit: Visit, { name, email, role }: Typed, refusal: Refusal | null): Promise<Response> {
  const problem = refusal?.problems.get('password') ?? null;
  const body = html`<form class="form" method="post" action="/portal/users">
    ${formToken(visit)} ${refused(refusal)}
    <div class="grid">
      ${field({ name: 'name', label: 'Name', value: name, refusal, isRequired: true, maxLength: 100 })}
      ${field({ name: 'email', label: 'Email', value: email, refusal, isRequired: true, maxLength: 254 })}
    </div>
    <div class="field">
      <label for="password">Initial password</label>
      <input
        type="password"
        id="password"
        name="password"
        required
        minlength="8"
        maxlength="128"
        autocomplete="new-password"
        aria-describedby="password-hint${problem === null ? '' : ' password-problem'}"
        ${problem === null ? null : html`aria-invalid="true"`}
      />
      <p class="hint" id="password-hint">
        8 to 128 characters. Send the password to the user in a secure way; it is not shown again.
      </p>
      ${problem === null ? null : html`<p class="problem" id="password-problem">Password ${problem}</p>`}
    </div>
    ${select('role', 'Role', choices(visit), role)}
    <p class="buttons"><button class="primary">Create user</button> <a href="/portal/users">Cancel</a></p>
  </form>`;
  return page(visit, { title: 'New user', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createUser(visit: Visit, form: Form): Promise<Response> {
  const typed = { name: form.text('name'), email: form.text('email').trim(), role: form.text('role') };
  const body = { ...typed, password: form.text('password') };
  const made = await visit.send<UserAnswer>('POST', withOrganization('/v1/users', visit.organizationId), body);
  if (!made.ok) return newUserPageOf(visit, typed, made.refusal);
  return visit.context.redirect('/portal/users?notice=made', 303);
}

/** Reads the names of the user's organizations by id, for visitors who may see all of them. */
async function organizationNames(visit: Visit, user: UserAnswer): Promise<ReadonlyMap<string, string>> {
  if (!visit.may('organization.read')) return new Map();
  const named = await Promise.all(
    user.memberships.map(({ organization_id: id }) => visit.send<OrganizationAnswer>('GET', `/v1/organizations/${id}`)),
  );
  return new Map(named.flatMap((one): [string, string][] => (one.ok ? [[one.body.id, one.body.name]] : [])));
}

async function readUser(visit: Visit, id: string): Promise<UserAnswer> {
  return visit.get<UserAnswer>(`/v1/users/${encodeURIComponent(id)}`);
}

export function userPage(visit: Visit, id: string): Promise<Response> {
  return userPageOf(visit, id, null);
}

async function userPageOf(visit: Visit, id: string, refusal: Refusal | null): Promise<Response> {
  const user = await readUser(visit, id);
  const names = await organizationNames(visit, user);
  const isSelf = user.id === selfOf(visit);
  const said = noticeOf(visit, notices);
  const body = html`${said === undefined ? null : notice('good', said)} ${refused(refusal)}
  ${facts([
    ['Email', user.email],
    ['Created', time(Date.parse(user.created_at))],
    ...(user.platform_role === 'admin' ? [['Platform role', badge('busy', 'platform administrator')] as const] : []),
  ])}
  ${section('roles', 'Roles', roles(visit, user, { names, isSelf }))}
  ${mayResetPassword(visit, user) ? section('password', 'Password reset', resetForm(visit, user)) : null}
  ${visit.may('keys') ? section('keys', 'Keys', await keysOf(visit, user)) : null}`;
  return page(visit, { title: user.name, body, status: refusal === null ? 200 : statusOf(refusal) });
}

/** True for a person who is only in the visitor's own organization, with a role that the visitor could have given. */
function mayResetPassword(visit: Visit, user: UserAnswer): boolean {
  const [membership, ...others] = user.memberships;
  if (membership === undefined || others.length > 0 || visit.viewed !== null || user.id === selfOf(visit)) return false;
  const isOwn = membership.organization_id === visit.ownOrganizationId;
  return isOwn && visit.may('users.manage') && visit.gives.some((role) => role === membership.role);
}

function resetForm(visit: Visit, { id }: UserAnswer): Html {
  return html`<form method="post" action="/portal/reset-links">
    ${formToken(visit)} <input type="hidden" name="user_id" value="${id}" />
    <p class="hint">The reset link works once, within an hour. A new password ends all sessions of this user.</p>
    <p class="buttons"><button>Create reset link</button></p>
  </form>`;
}

const selfOf = ({ signedIn }: Visit): string => formatId('user', signedIn.session.userId);

function roles(
  visit: Visit,
  { id, memberships, platform_role: platformRole }: UserAnswer,
  { names, isSelf }: { readonly names: ReadonlyMap<string, string>; readonly isSelf: boolean },
): MaybeHtml {
  if (memberships.length === 0)
    return empty('No organizations', 'This user cannot see anything. Invite the user to an organization.');
  const given = choices(visit);
  return memberships.map(({ organization_id: organizationId, role }) => {
    const name = names.get(organizationId) ?? visit.signedIn.member.organization.name;
    const isLower = platformRole !== 'admin' || visit.may('organizations');
    const mayChange = !isSelf && isLower && visit.may('users.manage') && given.some(({ value }) => value === role);
    if (!mayChange) {
      return html`<p>
        <strong>${name}</strong>:
        ${roleWords[role]}${isSelf ? html` <span class="quiet">(another administrator must change your role)</span>` : null}
      </p>`;
    }
    return html`<form class="filters" method="post" action="/portal/users/${id}">
      ${formToken(visit)} <input type="hidden" name="organization_id" value="${organizationId}" />
      ${beganWith({ role }, null)}
      <div class="field">
        <label for="role-${organizationId}">Role in ${name}</label>
        <select id="role-${organizationId}" name="role">
          ${given.map(({ value, label }) => html`<option value="${value}" ${value === role ? html`selected` : null}>${label}</option>`)}
        </select>
      </div>
      <p class="buttons">
        <button>Change role</button>
        <a class="button danger" href="/portal/users/${id}/remove?organization_id=${organizationId}">Remove</a>
      </p>
    </form>`;
  });
}

async function keysOf(visit: Visit, { id, memberships }: UserAnswer): Promise<MaybeHtml> {
  const lists = await Promise.all(memberships.map((one) => activeKeys(visit, id, one.organization_id)));
  const keys = lists.flat();
  if (keys.length === 0) return empty('No active keys', 'Active API keys of this user appear here.');
  return keyNames(keys);
}

async function activeKeys(visit: Visit, userId: string, organizationId: string): Promise<readonly KeyAnswer[]> {
  try {
    return await readKeys(visit, { user_id: userId, status: 'active', organization_id: organizationId });
  } catch (error) {
    // The visitor does not administer this organization's keys.
    if (error instanceof RefusedError) return [];
    throw error;
  }
}

function keyNames(keys: readonly KeyAnswer[]): Html {
  return table({
    caption: 'Active keys of this user',
    columns: [{ title: 'Key', isWide: true }, { title: 'Scope' }, { title: 'Last used' }],
    rows: keys.map(({ name, prefix, last4, scope, last_used_at: used }) => [
      html`${name}<br /><code class="quiet">${prefix}…${last4}</code>`,
      scope,
      timeOf(used, 'never'),
    ]),
  });
}

export async function changeUser(visit: Visit, id: string, form: Form): Promise<Response> {
  const path = withOrganization(`/v1/users/${encodeURIComponent(id)}`, organizationIn(form, visit));
  const changes = changesIn(form, { role: form.text('role') });
  if (isEmpty(changes)) return visit.context.redirect(`/portal/users/${encodeURIComponent(id)}`, 303);
  const changed = await visit.send<UserAnswer>('PUT', path, changes);
  if (!changed.ok) return userPageOf(visit, id, changed.refusal);
  return visit.context.redirect(`/portal/users/${encodeURIComponent(id)}?notice=changed`, 303);
}

/**
 * Describes what happens to an account that leaves one organization. Administrators of that organization do not learn
 * whether the account is in others.
 */
function whatBecomes(visit: Visit, { memberships }: UserAnswer): string {
  if (memberships.length > 1) return ', but stays a member of other organizations';
  return visit.may('organizations')
    ? ', and the account is deleted, because it belongs to no other organization'
    : ', and the account is deleted, unless it belongs to another organization';
}

export async function removeUserPage(visit: Visit, id: string): Promise<Response> {
  const user = await readUser(visit, id);
  const asked = queryOf(visit.context, 'organization_id');
  const organizationId = asked === '' ? visit.organizationId : asked;
  const [names, keys] = await Promise.all([organizationNames(visit, user), activeKeys(visit, id, organizationId)]);
  const name = names.get(organizationId) ?? 'the organization';
  const body = html`<div class="confirm">
    <p>
      <strong>${user.name}</strong> (${user.email}) will leave <strong>${name}</strong>${whatBecomes(visit, user)}.
      Usage, charges and audit log entries are kept.
    </p>
    ${
      keys.length === 0
        ? html`<p>This user has no active keys in this organization.</p>`
        : html`<p>
              <strong>${counted(keys.length, 'active key')} will be revoked</strong>, and running requests stop within
              seconds:
            </p>
            ${keyNames(keys)}`
    }
    <form method="post" action="/portal/users/${user.id}/remove">
      ${formToken(visit)} <input type="hidden" name="organization_id" value="${organizationId}" />
      <p class="buttons">
        <button class="danger">Remove ${user.name}</button> <a href="/portal/users/${user.id}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `Remove ${user.name}?`, body });
}

export async function removeUser(visit: Visit, id: string, form: Form): Promise<Response> {
  const path = withOrganization(`/v1/users/${encodeURIComponent(id)}`, organizationIn(form, visit));
  const removed = await visit.send<null>('DELETE', path);
  if (!removed.ok) return userPageOf(visit, id, removed.refusal);
  return visit.context.redirect('/portal/users?notice=removed', 303);
}
