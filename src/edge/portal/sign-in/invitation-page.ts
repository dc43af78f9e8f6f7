import type { Hono } from 'hono';
import { AppError } from '#base/errors.ts';
import { type MadeInvitation, passwordProblem, roleWords } from '#core/accounts/accounts.ts';
import { formTokenOf } from '#core/sessions/sessions.ts';
import type { HttpContext, HttpEnv } from '#edge/http/http.ts';
import { begin, clientOf, handOver, openPage, requireSafe, signInPath, visitorOf } from '#edge/portal/frame/frame.ts';
import { field, html, notice, type PortalParts, readForm, type Refusal, requireFormToken } from '#edge/portal/ui/ui.ts';
import { authorOf } from './password-links.ts';
import type { TakeForm } from './sign-in-form.ts';

/** Accepts an invitation, with a new account or an existing one. */

type Found = Omit<MadeInvitation, 'token'>;
type Known = NonNullable<Awaited<ReturnType<typeof visitorOf>>>;

function joinForm(token: string, { signedIn, token: sessionToken }: Known) {
  return html`<form class="form sign-in" method="post" action="/invitation">
    <input type="hidden" name="token" value="${token}" />
    <input type="hidden" name="form_token" value="${formTokenOf(sessionToken)}" />
    <p>You are signed in as <strong>${signedIn.member.email}</strong>.</p>
    <p class="buttons"><button class="primary" name="as" value="member">Join</button> <a href="/">Not now</a></p>
  </form>`;
}

/** Shows both forms, whether or not the address has an account: holders of the link must not learn which. */
function newForms(token: string, name: string, refusal: Refusal | null) {
  const next = `/invitation?token=${token}`;
  return html`<section aria-labelledby="new-title">
      <h2 id="new-title">New account</h2>
      <form class="form sign-in" method="post" action="/invitation">
        <input type="hidden" name="token" value="${token}" />
        ${field({ name: 'name', label: 'Name', value: name, autocomplete: 'name', refusal, isRequired: true, maxLength: 100 })}
        ${field({ name: 'password', label: 'Password', value: '', type: 'password', autocomplete: 'new-password', hint: 'At least 8 characters; a sentence works well.', refusal, isRequired: true, maxLength: 1024 })}
        <p class="buttons"><button class="primary" name="as" value="new">Create account</button></p>
      </form>
    </section>
    <section aria-labelledby="known-title">
      <h2 id="known-title">Existing account</h2>
      <p class="buttons"><a class="button" href="${signInPath(next)}">Sign in and join</a></p>
    </section>`;
}

interface Shown {
  readonly token: string;
  readonly found: Found;
  readonly visitor: Known | null;
  readonly name?: string;
  readonly refusal?: Refusal;
}

function invitationPage(context: HttpContext, { token, found, visitor, name = '', refusal }: Shown) {
  const { invitation, organizationName } = found;
  const body = html`<p class="lead">
      <strong>${invitation.email}</strong> is invited to the organization <strong>${organizationName}</strong>, with the
      role ${roleWords[invitation.role]}.
    </p>
    ${refusal === undefined ? null : notice('bad', refusal.message)}
    ${visitor === null ? newForms(token, name, refusal ?? null) : joinForm(token, visitor)}`;
  const status = refusal === undefined ? 200 : refusal.status === 403 ? 403 : refusal.status === 409 ? 409 : 400;
  return openPage(context, { title: 'Invitation', body, status });
}

function stalePage(context: HttpContext) {
  const body = html`<p class="lead">The invitation was used or revoked, or is older than a week.</p>
    <p>Ask the person who invited you for another invitation.</p>
    <p class="buttons"><a class="button" href="/">Go to Headgate</a></p>`;
  return openPage(context, { title: 'This invitation no longer works', body, status: 404 });
}

function nameProblem(name: string): string | null {
  if (name === '') return 'must not be empty';
  if (name.length > 100) return 'must have at most 100 characters';
  return /\p{Cc}/u.test(name) || !name.isWellFormed() ? 'must not contain control characters' : null;
}

function problemsOf(name: string, password: string, email: string): Refusal | null {
  const all: [string, string | null][] = [
    ['name', nameProblem(name)],
    ['password', passwordProblem(password, email)],
  ];
  const problems = all.flatMap(([field, problem]): [string, string][] => (problem === null ? [] : [[field, problem]]));
  return problems.length === 0
    ? null
    : { status: 400, message: 'The account was not created.', problems: new Map(problems) };
}

export function registerInvitation(app: Hono<HttpEnv>, parts: PortalParts, takeForm: TakeForm): void {
  const { accounts, sessions } = parts;
  const { invitations } = accounts.users;
  // Opening a link must not use it up: mail programs and chats open links for a preview.
  app.get('/invitation', async (context) => {
    const token = context.req.query('token') ?? '';
    const found = await invitations.find(token);
    return found === null
      ? stalePage(context)
      : invitationPage(context, { token, found, visitor: await visitorOf(context, parts) });
  });
  app.post('/invitation', takeForm, async (context) => {
    requireSafe(context, parts);
    const form = await readForm(context);
    const [token, visitor] = [form.text('token'), await visitorOf(context, parts)];
    const found = await invitations.find(token);
    if (found === null) return stalePage(context);
    if (form.text('as') === 'member') {
      if (visitor === null) return context.redirect(signInPath(`/invitation?token=${token}`), 303);
      requireFormToken(form, visitor.token);
      return join(context, parts, { token, found, visitor });
    }
    const [name, password] = [form.text('name').trim(), form.text('password')];
    const refusal = problemsOf(name, password, found.invitation.email);
    if (refusal !== null) return invitationPage(context, { token, found, visitor: null, name, refusal });
    try {
      const userId = await invitations.acceptAsNew(token, { name, password }, authorOf(context));
      if (userId === null) return await stalePage(context);
      const opened = await sessions.openFor(userId, clientOf(context, parts));
      if (opened !== null) await begin(context, parts, opened, visitor);
      return context.redirect('/', 303);
    } catch (error) {
      if (!(error instanceof AppError) || error.status !== 409) throw error;
      const message =
        'The account was not created. If you already have an account with this address, sign in with it and join.';
      const taken = { status: 409, message, problems: new Map() };
      return invitationPage(context, { token, found, visitor: null, name, refusal: taken });
    }
  });
}

/** Adds the signed-in visitor to the organization, and switches the session to it. */
async function join(context: HttpContext, parts: PortalParts, { token, found, visitor }: Shown & { visitor: Known }) {
  const { session, principal } = visitor.signedIn;
  const author = { actor: principal.actor, requestId: context.get('requestId') };
  try {
    const invitation = await parts.accounts.users.invitations.acceptAs(token, session.userId, author);
    if (invitation === null) return await stalePage(context);
    const opened = await parts.sessions.switchOrganization(session, invitation.organizationId, author);
    if (opened !== null) handOver(context, parts, opened);
    return context.redirect('/', 303);
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 403) throw error;
    const refusal = { status: 403, message: error.message, problems: new Map() };
    return invitationPage(context, { token, found, visitor, refusal });
  }
}
