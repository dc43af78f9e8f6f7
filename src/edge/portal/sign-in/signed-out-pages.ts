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
        <strong>Sign-in requires HTTPS, or a connection from this machine.</strong> This page was loaded over plain HTTP
        from ${host}, where anyone on the network could take over the session.
      </p>
      <p>
        Put a TLS proxy in front of the gateway and name it in <code>HEADGATE_TRUSTED_PROXIES</code>, or connect through
        a tunnel:
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
    'You were signed out: the session was revoked, your password changed, or you left the organization. Sign in again; forms that you submitted while signed out were not saved.',
  lapsed:
    'Your session expired: a session lasts 12 hours without use, and 7 days at most. Sign in again; forms that you submitted after its end were not saved.',
};

function signInForm({ email, next, refusal, providerName, end = null }: SignInForm) {
  return html`<form class="form sign-in" method="post" action="/sign-in">
    ${end === null ? null : notice('plain', ends[end])} ${refusal === null ? null : notice('bad', refusal.message)}
    <input type="hidden" name="next" value="${next}" />
    ${field({ name: 'email', label: 'Email address', value: email, type: 'email', autocomplete: 'username', isRequired: true, maxLength: 254 })}
    ${field({ name: 'password', label: 'Password', value: '', type: 'password', autocomplete: 'current-password', isRequired: true, maxLength: 1024 })}
    <p class="buttons"><button class="primary">Sign in</button> <a href="/sign-in/forgot">Forgot password?</a></p>
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
  const body = html`<p class="lead">An OpenAI-compatible API for vLLM models, billed exactly by token.</p>
    ${place.isSafe ? signInForm(form) : unsafe(place.host)}
    <section aria-labelledby="in-title">
      <h2 id="in-title">First sign-in</h2>
      <p>
        At its first start, the gateway printed a sign-in link for its administrator. The link works once, for ten
        minutes. To create another link, run this on the gateway's machine:
      </p>
      ${copyable('welcome-command', welcomeCommand)}
    </section>
    <section aria-labelledby="api-title">
      <h2 id="api-title">Use an API key for programs</h2>
      ${copyable('api-line', `curl ${place.origin}/v1/models -H "Authorization: Bearer $HEADGATE_API_KEY"`)}
      <p><a href="/docs">API reference</a>, with a page to try requests.</p>
    </section>`;
  return openPage(context, { title: 'Sign in', body, status: form.refusal?.status ?? 200 });
}

/** Opening a link must not use it up: mail programs and chats open links for a preview. */
export function welcomePage(context: HttpContext, place: Place, token: string | null): Response | Promise<Response> {
  if (token === null) return staleLinkPage(context);
  const body = html`${place.isSafe ? null : unsafe(place.host)}
    <p class="lead">This link signs you in once, as the administrator of this gateway.</p>
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
  const body = html`<p class="lead">The link was used, or is older than ten minutes.</p>
    <p>To create another link, run this on the gateway's machine:</p>
    ${copyable('welcome-command', welcomeCommand)}`;
  return openPage(context, { title: 'This link no longer works', body, status: 404 });
}
