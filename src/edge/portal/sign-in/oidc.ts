import type { Hono } from 'hono';
import { deleteCookie, setCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import { AppError } from '#base/errors.ts';
import { OidcError, type OidcSecrets } from '#base/oidc.ts';
import type { HttpContext, HttpEnv } from '#edge/http/http.ts';
import { begin, clientOf, localPath, openPage, requireSafe, visitorOf } from '#edge/portal/frame/frame.ts';
import { headerOf, html, type Place, placeOf, type PortalParts, type ProviderParts } from '#edge/portal/ui/ui.ts';
import { authorOf } from './password-links.ts';

/**
 * Signs in with an OpenID Connect provider. The secrets of an attempt are in a cookie of the browser that started it.
 */

export const oidcPath = '/sign-in/oidc';
export const callbackPath = '/sign-in/oidc/callback';
const attemptSeconds = 600;
const secretPattern = /^[A-Za-z0-9_-]{43}$/;

const cookieNameOf = ({ cookieName }: Place): string => `${cookieName}-oidc`;

function keepAttempt(context: HttpContext, place: Place, secrets: OidcSecrets, next: string): void {
  const { state, nonce, verifier } = secrets;
  const value = [state, nonce, verifier, Buffer.from(next).toString('base64url')].join('.');
  // Lax: the provider sends the browser back from another site.
  setCookie(context, cookieNameOf(place), value, {
    path: '/',
    httpOnly: true,
    sameSite: 'Lax',
    secure: place.isSecure,
    maxAge: attemptSeconds,
  });
}

/** Reads and deletes the cookie of an attempt. Returns null if there is no valid one. */
function takeAttempt(context: HttpContext, place: Place): (OidcSecrets & { readonly next: string }) | null {
  const name = cookieNameOf(place);
  const value = parse(headerOf(context, 'cookie') ?? '', name)[name] ?? '';
  deleteCookie(context, name, { path: '/', secure: place.isSecure, httpOnly: true, sameSite: 'Lax' });
  const [state = '', nonce = '', verifier = '', next = ''] = value.split('.');
  if (![state, nonce, verifier].every((secret) => secretPattern.test(secret))) return null;
  return { state, nonce, verifier, next: localPath(Buffer.from(next, 'base64url').toString('utf8')) };
}

function failedPage(context: HttpContext, message: string, status: 403 | 409 | 503) {
  const body = html`<p class="lead">${message}</p>
    <p>You can still sign in with a password, if your account has one.</p>
    <p class="buttons"><a class="button" href="/">Back to sign-in</a></p>`;
  return openPage(context, { title: 'Sign-in failed', body, status });
}

function answerFailure(context: HttpContext, error: unknown, name: string) {
  if (error instanceof AppError && error.status < 500) {
    return failedPage(
      context,
      'Your account could not be created: the organization for new users (HEADGATE_OIDC_ORGANIZATION) does not exist or is not active. Ask the administrator of this gateway.',
      409,
    );
  }
  if (!(error instanceof OidcError)) throw error;
  if (error.kind === 'unavailable') {
    const message = `${name} is unavailable. Try again later, or ask the administrator of this gateway.`;
    return failedPage(context, message, 503);
  }
  return failedPage(
    context,
    `${name} did not sign you in, or the attempt did not start in this browser. Try again.`,
    403,
  );
}

const unseenTls = (origin: string, publicUrl: string): string =>
  `This request came to ${origin}, but HEADGATE_PUBLIC_URL is ${publicUrl}. The operator must name the TLS proxy in ` +
  'HEADGATE_TRUSTED_PROXIES and let it send X-Forwarded-Proto.';

const unknown =
  'You have no account here, or your account cannot sign in. An administrator of your organization can invite you.';

export function registerOidc(app: Hono<HttpEnv>, parts: PortalParts, provider: ProviderParts): void {
  const { oidc, name, newPeople, publicUrl } = provider;
  const { accounts, sessions, isSecure } = parts;
  // A link instead of a form: browsers check the target of a form's redirect against the page's policy.
  app.get(oidcPath, async (context) => {
    const place = placeOf(context, isSecure);
    const next = localPath(context.req.query('next') ?? '');
    if (place.origin !== publicUrl) {
      // A redirect would loop back to this request: TLS is missing, or its proxy is not a trusted one.
      if (place.host === new URL(publicUrl).host) return failedPage(context, unseenTls(place.origin, publicUrl), 403);
      return context.redirect(`${publicUrl}${oidcPath}?next=${encodeURIComponent(next)}`, 303);
    }
    requireSafe(context, parts);
    try {
      const { url, secrets } = await oidc.attempt();
      keepAttempt(context, place, secrets, next);
      return context.redirect(url, 303);
    } catch (error) {
      return answerFailure(context, error, name);
    }
  });
  app.get(callbackPath, async (context) => {
    requireSafe(context, parts);
    const attempt = takeAttempt(context, placeOf(context, isSecure));
    if (attempt === null)
      return failedPage(context, 'This sign-in attempt expired, or did not start in this browser. Try again.', 403);
    try {
      const person = await oidc.finish(new URL(context.req.url).search, attempt);
      const userId = await accounts.users.identities.findOrLink(person, newPeople, authorOf(context));
      const before = await visitorOf(context, parts);
      const opened = userId === null ? null : await sessions.openFor(userId, clientOf(context, parts));
      if (opened === null) return await failedPage(context, unknown, 403);
      await begin(context, parts, opened, before);
      return context.redirect(attempt.next, 303);
    } catch (error) {
      return answerFailure(context, error, name);
    }
  });
}
