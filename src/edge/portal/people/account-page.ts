import { formatId } from '#base/id.ts';
import type { UserIdentityListAnswer } from '#edge/contract/users.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  field,
  type Form,
  formToken,
  html,
  notice,
  noticeOf,
  type Refusal,
  refused,
  RefusedError,
  renamed,
  table,
  time,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** The account page: the visitor's own name, address and password. */

interface Typed {
  readonly name: string;
  readonly email: string;
}

interface Refused {
  readonly of: string;
  readonly refusal: Refusal;
}

const notices: Readonly<Record<string, string>> = {
  name: 'Name changed.',
  email: 'Email address changed. Sign in with the new address from now on; open password reset links no longer work.',
  identity: 'Link removed. The provider account can no longer sign in to your account.',
  password: 'Password set. Sign in with your email address and the new password; your other sessions have ended.',
};

/** Returns null for an account without a password, such as the account of the first start. */
const currentPassword = (visit: Visit, of: string, refusal: Refusal | null) =>
  visit.signedIn.member.hasPassword
    ? field({
        name: `${of}_current_password`,
        label: 'Current password',
        value: '',
        type: 'password',
        autocomplete: 'current-password',
        refusal: refusal && renamed(refusal, (name) => (name === 'current_password' ? `${of}_current_password` : name)),
        isRequired: true,
        maxLength: 1024,
      })
    : null;

const identitiesOf = ({ signedIn }: Visit): string =>
  `/v1/users/${formatId('user', signedIn.session.userId)}/identities`;

/** Lists the provider accounts that sign in as this user. Returns null if there are none. */
async function identitiesSection(visit: Visit) {
  const { data } = await visit.get<UserIdentityListAnswer>(identitiesOf(visit));
  if (data.length === 0) return null;
  return html`<section aria-labelledby="identities-title">
    <h2 id="identities-title">Linked sign-in providers</h2>
    ${table({
      caption: 'Provider accounts that sign in to this account',
      columns: [{ title: 'Provider' }, { title: 'Subject' }, { title: 'Linked' }, { title: 'Action' }],
      rows: data.map(({ issuer, subject, linked_at: linkedAt }) => [
        html`<span class="wrap">${issuer}</span>`,
        html`<code class="wrap">${subject}</code>`,
        time(Date.parse(linkedAt)),
        html`<form method="post" action="/portal/account/identities/remove">
          ${formToken(visit)}<input type="hidden" name="issuer" value="${issuer}" /><button
            class="plain"
            name="subject"
            value="${subject}"
          >
            Remove
          </button>
        </form>`,
      ]),
    })}
  </section>`;
}

/** Removes the identity that the fields `issuer` and `subject` name. */
export async function removeIdentity(visit: Visit, form: Form): Promise<Response> {
  const named = new URLSearchParams({ issuer: form.text('issuer'), subject: form.text('subject') });
  const removed = await visit.send('DELETE', `${identitiesOf(visit)}?${named.toString()}`);
  if (!removed.ok) throw new RefusedError(removed.refusal);
  return visit.context.redirect('/portal/account?notice=identity', 303);
}

export function accountPage(visit: Visit): Promise<Response> {
  const { name, email } = visit.signedIn.member;
  return accountPageOf(visit, { name, email }, null);
}

async function accountPageOf(visit: Visit, { name, email }: Typed, last: Refused | null): Promise<Response> {
  const refusalOf = (of: string): Refusal | null => (last?.of === of ? last.refusal : null);
  const said = last === null ? noticeOf(visit, notices) : undefined;
  const form = (of: string, title: string, fields: unknown, button: string) =>
    html`<section aria-labelledby="${of}-title">
      <h2 id="${of}-title">${title}</h2>
      <form class="form" method="post" action="/portal/account">
        ${formToken(visit)} ${refused(refusalOf(of))} ${fields}
        <p class="buttons"><button class="primary" name="what" value="${of}">${button}</button></p>
      </form>
    </section>`;
  const password = field({
    name: 'password',
    label: 'New password',
    value: '',
    type: 'password',
    autocomplete: 'new-password',
    hint: 'At least 8 characters; a sentence works well. All your other sessions end.',
    refusal: refusalOf('password'),
    isRequired: true,
    maxLength: 1024,
  });
  const body = html`${said === undefined ? null : notice('good', said)}
  ${form('name', 'Name', field({ name: 'name', label: 'Name', value: name, refusal: refusalOf('name'), isRequired: true, autocomplete: 'name', maxLength: 100 }), 'Change name')}
  ${form('email', 'Email address', [field({ name: 'email', label: 'Email address', value: email, type: 'email', refusal: refusalOf('email'), isRequired: true, autocomplete: 'email', maxLength: 254 }), currentPassword(visit, 'email', refusalOf('email'))], 'Change email address')}
  ${form('password', 'Password', [password, currentPassword(visit, 'password', refusalOf('password'))], `${visit.signedIn.member.hasPassword ? 'Change' : 'Set'} password`)}
  ${await identitiesSection(visit)}`;
  return page(visit, { title: 'Account', body, status: last === null ? 200 : statusOf(last.refusal) });
}

export async function changeAccount(visit: Visit, form: Form): Promise<Response> {
  const { member, session } = visit.signedIn;
  const what = ['name', 'email', 'password'].find((one) => one === form.text('what')) ?? 'name';
  const current = form.text(`${what}_current_password`);
  const given = { [what]: what === 'password' ? form.text(what) : form.text(what).trim() };
  const body = { ...given, ...(current !== '' && { current_password: current }) };
  const changed = await visit.send('PUT', `/v1/users/${formatId('user', session.userId)}`, body);
  const { name, email } = { ...member, ...given } as Typed;
  if (!changed.ok) return accountPageOf(visit, { name, email }, { of: what, refusal: changed.refusal });
  return visit.context.redirect(`/portal/account?notice=${what}`, 303);
}
