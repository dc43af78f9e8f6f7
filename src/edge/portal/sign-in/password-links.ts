import type { Hono } from 'hono';
import type { Log } from '#base/log.ts';
import { type Accounts, type Letters, passwordProblem } from '#core/accounts/accounts.ts';
import type { Author } from '#core/audit/audit.ts';
import type { HttpContext, HttpEnv } from '#edge/http/http.ts';
import { begin, clientOf, openPage, requireSafe, visitorOf } from '#edge/portal/frame/frame.ts';
import { copyable, field, html, notice, type PortalParts, readForm, type Refusal } from '#edge/portal/ui/ui.ts';
import { asRefusal, type TakeForm } from './sign-in-form.ts';

/** Password reset: requests a link, and uses it. */

const welcomeCommand = 'npx headgate welcome';

/** Returns the system as author, because nobody is signed in. */
export const authorOf = (context: HttpContext): Author => ({
  actor: { kind: 'system' },
  requestId: context.get('requestId'),
});

function forgotPage(
  context: HttpContext,
  { letters }: PortalParts,
  refusal: { message: string; status: 429 | 503 } | null,
) {
  const otherwise = html`<p>
      An administrator of your organization can create a reset link for you. To sign in as the administrator of the
      gateway, run this on the gateway's machine:
    </p>
    ${copyable('welcome-command', welcomeCommand)}`;
  const form = html`<form class="form sign-in" method="post" action="/sign-in/forgot">
    ${refusal === null ? null : notice('bad', refusal.message)}
    ${field({ name: 'email', label: 'Email address', value: '', type: 'email', autocomplete: 'username', isRequired: true, maxLength: 254 })}
    <p class="buttons"><button class="primary">Send reset link</button> <a href="/">Back</a></p>
  </form>`;
  const body = letters.areSent
    ? html`<p class="lead">You get a reset link by email. The link works once, for an hour.</p>
        ${form}${otherwise}`
    : html`<p class="lead">This gateway sends no email.</p>
        ${otherwise}`;
  return openPage(context, { title: 'Reset password', body, status: refusal?.status ?? 200 });
}

/** Sends links in the background: neither the answer nor its timing reveals whether the account exists. */
export interface Sending {
  send(email: string, author: Author): void;
}

const sendingMax = 100;

export function createSending(users: Pick<Accounts['users'], 'resetLinks'>, letters: Letters, log: Log): Sending {
  let running = 0;
  const send = async (email: string, author: Author): Promise<void> => {
    const link = await users.resetLinks.makeFor(email, author);
    if (link !== null) await letters.sendReset(link);
  };
  return {
    send(email, author) {
      if (running >= sendingMax) {
        log.warn(
          `a password reset email was not sent, because ${sendingMax} others are being sent; the user must request it again`,
        );
        return;
      }
      running += 1;
      void send(email, author)
        .catch((error: unknown) =>
          log.error({ err: error }, 'a password reset email was not sent; the user must request it again'),
        )
        .finally(() => {
          running -= 1;
        });
    },
  };
}

function passwordPage(context: HttpContext, token: string, refusal: Refusal | null) {
  const body = html`<p class="lead">This link sets a new password once. All sessions of the account end.</p>
    <form class="form sign-in" method="post" action="/reset-password">
      <input type="hidden" name="token" value="${token}" />
      ${refusal === null ? null : notice('bad', refusal.message)}
      ${field({ name: 'password', label: 'New password', value: '', type: 'password', autocomplete: 'new-password', hint: 'At least 8 characters; a sentence works well.', refusal, isRequired: true, maxLength: 1024 })}
      <p class="buttons"><button class="primary">Set password</button></p>
    </form>`;
  return openPage(context, { title: 'New password', body, status: refusal === null ? 200 : 400 });
}

function stalePage(context: HttpContext) {
  const body = html`<p class="lead">The link was used, is older than an hour, or the password changed since.</p>
    <p class="buttons"><a class="button" href="/sign-in/forgot">Request another link</a></p>`;
  return openPage(context, { title: 'This link no longer works', body, status: 404 });
}

export function registerPasswordLinks(app: Hono<HttpEnv>, parts: PortalParts, takeForm: TakeForm): void {
  const { accounts, letters, sessions, log } = parts;
  const { resetLinks } = accounts.users;
  const sending = createSending(accounts.users, letters, log);
  app.get('/sign-in/forgot', (context) => forgotPage(context, parts, null));
  app.post('/sign-in/forgot', takeForm, async (context) => {
    if (!letters.areSent) return forgotPage(context, parts, null);
    const form = await readForm(context);
    try {
      await resetLinks.countAsking(clientOf(context, parts).network);
    } catch (error) {
      return forgotPage(context, parts, asRefusal(context, error));
    }
    sending.send(form.text('email').trim(), authorOf(context));
    const body = html`<p class="lead">If this address has an account, a reset link is on its way to it.</p>
      <p>The link works once, for an hour. At most three links are sent per hour.</p>
      <p class="buttons"><a class="button" href="/">Back</a></p>`;
    return openPage(context, { title: 'Check your email', body });
  });
  // Opening a link must not use it up: mail programs and chats open links for a preview.
  app.get('/reset-password', async (context) => {
    const token = context.req.query('token') ?? '';
    return (await resetLinks.isOpen(token)) ? passwordPage(context, token, null) : stalePage(context);
  });
  app.post('/reset-password', takeForm, async (context) => {
    requireSafe(context, parts);
    const form = await readForm(context);
    const [token, password] = [form.text('token'), form.text('password')];
    const problem = passwordProblem(password);
    if (problem !== null) {
      const refusal = {
        status: 400,
        message: 'The password was not changed.',
        problems: new Map([['password', problem]]),
      };
      return (await resetLinks.isOpen(token)) ? passwordPage(context, token, refusal) : stalePage(context);
    }
    const before = await visitorOf(context, parts);
    const userId = await resetLinks.use(token, password, authorOf(context));
    if (userId === null) return stalePage(context);
    // Signs in at once, so that strangers who used up the account's sign-in attempts do not lock the user out.
    const opened = await sessions.openFor(userId, clientOf(context, parts));
    if (opened !== null) await begin(context, parts, opened, before);
    return context.redirect('/', 303);
  });
}
