import { AppError } from '#base/errors.ts';
import { absoluteSessionMs, type Client, type OpenedSession, type SignedIn } from '#core/sessions/sessions.ts';
import type { Caller, HttpContext } from '#edge/http/http.ts';
import {
  asksByItself,
  createVisit,
  headerOf,
  keepToken,
  placeOf,
  type PortalParts,
  takeNotice,
  tokenOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { signInPath } from './local-path.ts';
import { pathFor } from './view-paths.ts';
import { readView } from './viewed-organization.ts';

/** Finds out who requests a page, by the browser's session. */

interface Visitor {
  readonly signedIn: SignedIn;
  readonly token: string;
}

/** Returns null if nobody is signed in. The visitor's organization may be suspended. */
export async function visitorOf(context: HttpContext, parts: Pick<PortalParts, 'sessions' | 'isSecure'>) {
  const place = placeOf(context, parts.isSecure);
  const token = tokenOf(context, place);
  if (token === null) return null;
  const signedIn = await parts.sessions.find(token, !asksByItself(context));
  // Keeps the token in the browser until the sign-in page has shown why the session ended: see `signedOut`.
  return signedIn === null ? null : ({ signedIn, token } satisfies Visitor);
}

/** Returns null if nobody is signed in. @throws AppError organization_suspended, RefusedError */
export async function visitOf(
  context: HttpContext,
  parts: PortalParts,
  look: typeof readView = readView,
): Promise<(Visit & { readonly token: string }) | null> {
  const visitor = await visitorOf(context, parts);
  if (visitor === null) return null;
  const { signedIn, token } = visitor;
  if (signedIn.member.organization.status !== 'active') throw new AppError('organization_suspended');
  context.set('caller', signedIn.principal);
  const place = placeOf(context, parts.isSecure);
  const { sessions, ask, open: openApi } = parts;
  const stillSignedIn = async (): Promise<Caller> => {
    const now = await sessions.find(token, false);
    if (now === null) throw new AppError('unauthorized', { message: 'The session has ended.' });
    if (now.member.organization.status !== 'active') throw new AppError('organization_suspended');
    return now.principal;
  };
  const organizations = await parts.accounts.users.organizationsOf(signedIn.session.userId);
  const viewed = await look(context, { signedIn, token }, parts);
  const about = { viewed, pathFor: (path: string) => pathFor(viewed, path) };
  const whose = { context, signedIn, organizations, token, origin: place.origin };
  const notice = { takeNotice: () => takeNotice(context, place, token) };
  return { ...createVisit({ ask, openApi, stillSignedIn, ...whose, ...notice, ...about }), token };
}

/** Returns a visit for the visitor's own data. Does not read which organization is viewed. */
export const ownVisitOf = (context: HttpContext, parts: PortalParts) =>
  visitOf(context, parts, () => Promise.resolve(null));

/** True if a page refreshes a part of itself. */
export const isPart = (context: HttpContext): boolean => headerOf(context, 'hx-request') !== null;

/**
 * Redirects to the sign-in page, which leads back. For a part of a page it sends the whole page to `/`, because the
 * sign-in page would be inserted into the page.
 */
export function toSignIn(context: HttpContext): Response {
  if (!isPart(context)) {
    const { pathname, search } = new URL(context.req.url);
    return context.redirect(signInPath(context.req.method === 'GET' ? `${pathname}${search}` : '/'), 303);
  }
  context.header('hx-redirect', '/');
  return context.body(null, 204);
}

/** Makes the page that refreshes a part of itself reload completely. */
export function loadedAgain(context: HttpContext): Response {
  context.header('hx-refresh', 'true');
  return context.body(null, 204);
}

export function clientOf(
  context: HttpContext,
  { addressOf, wholeAddressOf }: Pick<PortalParts, 'addressOf' | 'wholeAddressOf'>,
): Client {
  const { incoming } = context.env;
  return {
    address: wholeAddressOf(incoming),
    network: addressOf(incoming),
    userAgent: headerOf(context, 'user-agent') ?? '',
  };
}

/** @throws AppError insufficient_scope if somebody on the network could take over the session */
export function requireSafe(context: HttpContext, { isSecure }: Pick<PortalParts, 'isSecure'>): void {
  if (placeOf(context, isSecure).isSafe) return;
  throw new AppError('insufficient_scope', { message: 'Sign-in requires HTTPS, or a connection from this machine.' });
}

/**
 * Hands a new session to the browser.
 * @param before the browser's former session, which ends. The new session has a new token, so a planted token is
 * worthless
 */
export async function begin(
  context: HttpContext,
  parts: PortalParts,
  opened: OpenedSession,
  before: Visitor | null,
): Promise<void> {
  if (before !== null) await endSession(context, parts, before.signedIn);
  handOver(context, parts, opened);
}

export function handOver(
  context: HttpContext,
  { isSecure }: Pick<PortalParts, 'isSecure'>,
  { token }: OpenedSession,
): void {
  keepToken(context, placeOf(context, isSecure), token, absoluteSessionMs / 1000);
}

export async function endSession(
  context: HttpContext,
  { sessions }: Pick<PortalParts, 'sessions'>,
  { session, principal }: SignedIn,
): Promise<void> {
  const author = { actor: principal.actor, requestId: context.get('requestId') };
  await sessions.end(session.userId, { id: session.id }, author);
}
