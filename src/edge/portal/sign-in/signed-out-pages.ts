import type { SessionEnd } from '#core/sessions/sessions.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { openPage } from '#edge/portal/frame/frame.ts';
import { copyable, field, html, notice, type Place } from '#edge/portal/ui/ui.ts';

/** Pages for signed-out visitors. Their content does not depend on which accounts exist. */

const welcomeCommand = 'npx headgate welcome';

/** Explains why this page cannot start a session, and how to reach one that can. */
function unsafe(host: string) {
  return notice(
    'bad',
    html`<p>
        <strong>Signing in takes TLS, or the machine itself.</strong> This page came over plain HTTP from ${host}, where
        everybody on the way could take the session over.
      </p>
      <p>
        Put a proxy with TLS before it and name that in <code>HEADGATE_TRUSTED_PROXIES</code>, or come through a tunnel:
      </p>
      ${copyable('tunnel', 'ssh -L 8080:127.0.0.1:8080 user@this-machine')}`,
  );
}

export interface SignInForm {
  /** The name of the sign-in provider; null if there is none. */
  readonly providerName: string | null;
  readonly email: string;
  /** The page after sign-in; a path of this portal. */
  readonly next: string;
  /** The reason why the browser's session ended; absent if the browser had no session. */
  readonly end?: SessionEnd | null;
  readonly refusal: { readonly message: string; readonly status: 403 | 429 | 503 } | null;
}

const ends: Readonly<Record<SessionEnd, string>> = {
  ended:
    'Your session was ended: among the sessions of your account, by another password, or since you left the organization. Sign in again; nothing that was sent after its end was done.',
  lapsed:
    'Your session is over: it lasts 12 hours without use, and 7 days in any case. Sign in again; nothing that was sent after its end was done.',
};

function signInForm({ email, next, refusal, providerName, end = null }: SignInForm) {
  return html`<form class="form sign-in" method="post" action="/sign-in">
    ${end === null ? null : notice('plain', ends[end])} ${refusal === null ? null : notice('bad', refusal.message)}
    <input type="hidden" name="next" value="${next}" />
    ${field({ name: 'email', label: 'Email address', value: email, type: 'email', autocomplete: 'username', isRequired: true, maxLength: 254 })}
    ${field({ name: 'password', label: 'Password', value: '', type: 'password', autocomplete: 'current-password', isRequired: true, maxLength: 1024 })}
    <p class="buttons"><button class="primary">Sign in</button> <a href="/sign-in/forgot">Forgotten?</a></p>
    ${
      providerName === null
        ? null
        : html`<p class="buttons">
            <a class="button" href="/sign-in/oidc?next=${encodeURIComponent(next)}">Sign in with ${providerName}</a>
          </p>`
    }
  </form>`;
}

export function signedOutPage(context: HttpContext, place: Place, form: SignInForm): Response | Promise<Response> {
  const body = html`<p class="lead">OpenAI's API outside, vLLM inside, and books that are right to the token.</p>
    ${place.isSafe ? signInForm(form) : unsafe(place.host)}
    <section aria-labelledby="in-title">
      <h2 id="in-title">How to get in</h2>
      <p>
        The first start of the gateway printed a link that signs its administrator in. It works once, for ten minutes.
        On the machine that the gateway runs on, this makes another:
      </p>
      ${copyable('welcome-command', welcomeCommand)}
    </section>
    <section aria-labelledby="api-title">
      <h2 id="api-title">Programs come in by their key</h2>
      ${copyable('api-line', `curl ${place.origin}/v1/models -H "Authorization: Bearer $HEADGATE_API_KEY"`)}
      <p><a href="/docs">All of the API</a>, with a page to try it.</p>
    </section>`;
  return openPage(context, { title: 'Your models, behind one gate', body, status: form.refusal?.status ?? 200 });
}

/** Opening a link must not use it up: mail programs and chats open links for a preview. */
export function welcomePage(context: HttpContext, place: Place, token: string | null): Response | Promise<Response> {
  if (token === null) return staleLinkPage(context);
  const body = html`${place.isSafe ? null : unsafe(place.host)}
    <p class="lead">This link signs you in as the administrator of this gateway, once.</p>
    ${
      place.isSafe
        ? html`<form method="post" action="/welcome">
            <input type="hidden" name="token" value="${token}" />
            <p class="buttons"><button class="primary">Sign in</button></p>
          </form>`
        : null
    }`;
  return openPage(context, { title: 'Welcome', body });
}

export function staleLinkPage(context: HttpContext): Response | Promise<Response> {
  const body = html`<p class="lead">It was used, or it is older than ten minutes.</p>
    <p>On the machine that the gateway runs on, this makes another:</p>
    ${copyable('welcome-command', welcomeCommand)}`;
  return openPage(context, { title: 'This link no longer works', body, status: 404 });
}
