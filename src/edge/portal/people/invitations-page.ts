import { roleWords } from '#core/accounts/accounts.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { CreatedInvitationAnswer, InvitationAnswer, ResetLinkAnswer, UserAnswer } from '#edge/contract/users.ts';
import { page, readPages, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  copyable,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  older,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  select,
  table,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Invitations to the organization, and password links for members. */

interface Typed {
  readonly email: string;
  readonly role: string;
}

const roles = (['member', 'admin', 'owner'] as const).map((value) => ({ value, label: roleWords[value] }));

export function invitationsPage(visit: Visit): Promise<Response> {
  const said =
    visit.takeNotice() === 'revoked' ? notice('good', 'Invitation revoked. The link no longer works.') : null;
  return show(visit, { said });
}

interface Shown {
  readonly said?: MaybeHtml;
  readonly typed?: Typed;
  readonly refusal?: Refusal;
  /** The rejection of the form for a member's password link. */
  readonly resetRefusal?: Refusal;
  readonly returnTo?: string;
}

async function show(visit: Visit, { said = null, typed, refusal, resetRefusal, returnTo }: Shown): Promise<Response> {
  const cursor = queryOf(visit.context, 'cursor');
  const [open, members] = await Promise.all([
    visit.get<ListAnswer<InvitationAnswer>>(pathWith('/v1/invitations', { cursor })),
    readPages<UserAnswer>(visit, '/v1/users', { organization_id: visit.organizationId, sort: 'name' }),
  ]);
  const next = open.next_cursor === null ? null : pathWith('/portal/invitations', { cursor: open.next_cursor });
  const body = html`${said}
    <section aria-labelledby="invite-title">
      <h2 id="invite-title">Invite user</h2>
      ${inviteForm(visit, typed ?? { email: '', role: 'member' }, refusal ?? null)}
    </section>
    <section aria-labelledby="open-title">
      <h2 id="open-title">Open invitations</h2>
      ${open.data.length === 0 ? empty('No open invitations', 'Invite a user above. An invitation is listed until its link is used, for up to a week.') : invitationTable(visit, open.data)}
      ${older(next)}
    </section>
    ${resetSection(visit, members, resetRefusal ?? null)}`;
  const last = refusal ?? resetRefusal;
  const status = last === undefined ? 200 : statusOf(last);
  return page(visit, { title: 'Invitations', body, status, ...(returnTo !== undefined && { returnTo }) });
}

function inviteForm(visit: Visit, { email, role }: Typed, refusal: Refusal | null): Html {
  return html`<form class="form" method="post" action="/portal/invitations">
    ${formToken(visit)} ${refused(refusal)}
    <div class="grid">
      ${field({ name: 'email', label: 'Email address', value: email, type: 'email', refusal, isRequired: true, maxLength: 254 })}
      ${select(
        'role',
        'Role',
        roles.filter(({ value }) => visit.gives.some((one) => one === value)),
        role,
      )}
    </div>
    <p class="buttons"><button class="primary">Invite</button></p>
  </form>`;
}

function invitationTable(visit: Visit, list: readonly InvitationAnswer[]): Html {
  return table({
    caption: 'Open invitations, newest first',
    columns: [{ title: 'Email' }, { title: 'Role' }, { title: 'Created' }, { title: 'Expires' }, { title: 'Action' }],
    rows: list.map(({ id, email, role, created_at, expires_at }) => [
      html`<span class="wrap">${email}</span>`,
      badge('plain', roleWords[role]),
      timeOf(created_at, ''),
      timeOf(expires_at, ''),
      html`<form method="post" action="/portal/invitations/${id}/revoke">
        ${formToken(visit)}<button class="plain" aria-label="Revoke invitation of ${email}">Revoke</button>
      </form>`,
    ]),
  });
}

function resetSection(visit: Visit, members: readonly UserAnswer[], refusal: Refusal | null): Html {
  const choices = members.map(({ id, name, email }) => ({ value: id, label: `${name} (${email})` }));
  return html`<section aria-labelledby="reset-title">
    <h2 id="reset-title">Password reset</h2>
    <form class="form" method="post" action="/portal/reset-links">
      ${formToken(visit)} ${refused(refusal)} ${select('user_id', 'Member', choices, '')}
      <p class="hint">
        The reset link works once, within an hour. Members of several organizations must request the link on the sign-in
        page.
      </p>
      <p class="buttons"><button>Create reset link</button></p>
    </form>
  </section>`;
}

/** Confirms that the link was sent by email, or shows it once. */
function madeNotice(visit: Visit, { email, link }: Pick<ResetLinkAnswer, 'email' | 'link'>, what: string): Html {
  if (link === null) return notice('good', html`<p>${what} was sent to ${email}.</p>`);
  const shown = new URL(link, visit.origin).href;
  return notice(
    'good',
    html`<p>
        Send this link to <strong>${email}</strong>. The link is shown only once, and anyone who has it can use it.
      </p>
      ${copyable('made-link', shown)}`,
  );
}

export async function invite(visit: Visit, form: Form): Promise<Response> {
  const typed = { email: form.text('email').trim(), role: form.text('role') };
  const made = await visit.send<CreatedInvitationAnswer>('POST', '/v1/invitations', typed);
  if (!made.ok) return show(visit, { typed, refusal: made.refusal });
  return show(visit, { said: madeNotice(visit, made.body, 'The invitation'), returnTo: '/portal/invitations' });
}

export async function revokeInvitation(visit: Visit, id: string): Promise<Response> {
  const revoked = await visit.send('DELETE', `/v1/invitations/${encodeURIComponent(id)}`);
  if (!revoked.ok) return show(visit, { refusal: revoked.refusal });
  return visit.context.redirect('/portal/invitations?notice=revoked', 303);
}

export async function makeResetLink(visit: Visit, form: Form): Promise<Response> {
  const path = `/v1/users/${encodeURIComponent(form.text('user_id'))}/reset-link`;
  const made = await visit.send<ResetLinkAnswer>('POST', path);
  if (!made.ok) return show(visit, { resetRefusal: made.refusal });
  return show(visit, { said: madeNotice(visit, made.body, 'The reset link'), returnTo: '/portal/invitations' });
}
