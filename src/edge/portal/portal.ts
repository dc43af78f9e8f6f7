import { Hono, type MiddlewareHandler } from 'hono';
import { every } from 'hono/combine';
import { AppError } from '#base/errors.ts';
import { absoluteSessionMs, type Client } from '#core/sessions/sessions.ts';
import { createReadBody, type HttpContext, type HttpEnv, requestId } from '#edge/http/http.ts';
import { registerAssets } from './assets.ts';
import { failurePage } from './failure-page.ts';
import { type Form, formBody, readForm, requireFormToken } from './form.ts';
import { changeKey, createKey, deleteKey, deletePage, keyPage, newKeyPage } from './key-pages.ts';
import { keysPage } from './keys-page.ts';
import { modelPage, modelsPage } from './models-page.ts';
import { signedOutPage, staleLinkPage, welcomePage } from './open-pages.ts';
import { overviewPage } from './overview.ts';
import type { PortalParts } from './parts.ts';
import { forgetToken, headerOf, keepToken, placeOf, requireOwnOrigin, tokenOf } from './place.ts';
import { requestPage } from './request-page.ts';
import { endSessions, sessionsPage } from './sessions-page.ts';
import { usagePage } from './usage-page.ts';
import { createVisit, type Visit } from './visit.ts';
import { addCredit, walletPage } from './wallet-page.ts';

export type { KeyAnswer, ModelAnswer, PriceAnswer } from './answers.ts';
export type { PortalParts } from './parts.ts';

/**
 * Pages for people. They ask the JSON API, as who is signed in, so that a page can show and do nothing that the API
 * refuses to the same person. A page is a function of a visit, in a file of its own, and a line in `pages` below; its
 * place in the menu is a line in `layout.ts`.
 */

const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** `same-origin`, not `no-referrer`: under that browsers send forms without their origin, which is looked at. */
const securityHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': contentSecurityPolicy,
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=()',
  'cache-control': 'no-store',
};

type Page = (visit: Visit, parts: PortalParts, param: (name: string) => string) => Promise<Response>;
type Change = (visit: Visit, parts: PortalParts, form: Form, param: (name: string) => string) => Promise<Response>;

const pages: Readonly<Record<string, Page>> = {
  '/portal/keys': keysPage,
  '/portal/keys/new': newKeyPage,
  '/portal/keys/:id': (visit, _, param) => keyPage(visit, param('id')),
  '/portal/keys/:id/delete': (visit, parts, param) => deletePage(visit, parts, param('id')),
  '/portal/usage': usagePage,
  '/portal/usage/:id': (visit, _, param) => requestPage(visit, param('id')),
  '/portal/wallet': (visit) => walletPage(visit),
  '/portal/models': modelsPage,
  '/portal/models/:id': (visit, parts, param) => modelPage(visit, parts, param('id')),
  '/portal/sessions': sessionsPage,
};

const changes: Readonly<Record<string, Change>> = {
  '/portal/keys': createKey,
  '/portal/keys/:id': (visit, _, form, param) => changeKey(visit, param('id'), form),
  '/portal/keys/:id/delete': (visit, _parts, _form, param) => deleteKey(visit, param('id')),
  '/portal/wallet/credits': (visit, _, form) => addCredit(visit, form),
  '/portal/sessions/end': endSessions,
};

/** What was asked for is no page to who asks. */
class NoPageError extends AppError {}

/** Programs that ask for `/` get what they get of every path that is not there. */
const wantsPage = (context: HttpContext): boolean => /\btext\/html\b/i.test(headerOf(context, 'accept') ?? '');

const paramOf =
  ({ req }: HttpContext) =>
  (name: string): string =>
    req.param(name) ?? '';

/** Mounted at the root, behind the JSON API. */
export function createPortal(parts: PortalParts): Hono<HttpEnv> {
  const { limits, shares, log } = parts;
  const app = new Hono<HttpEnv>();
  app.onError((error, context) => {
    // Answered by the app around this one, as for every path that is not there.
    if (error instanceof NoPageError) throw error;
    return failurePage(error, context, log);
  });
  const secured: MiddlewareHandler<HttpEnv> = async (context, next) => {
    for (const [name, value] of Object.entries(securityHeaders)) context.header(name, value);
    await next();
  };
  // Before any of it is read: a form of another site is not looked at.
  const ownOrigin: MiddlewareHandler<HttpEnv> = async (context, next) => {
    requireOwnOrigin(context, placeOf(context, parts.isSecure));
    await next();
  };
  const takeForm = every(ownOrigin, createReadBody({ limits, shares }, [formBody]));
  for (const path of ['/welcome', '/portal', '/portal/*']) app.use(path, requestId);
  registerAssets(app);
  for (const path of ['/welcome', '/portal', '/portal/*']) app.use(path, secured);
  registerOverview(app, parts, secured);
  registerWelcome(app, parts, takeForm);
  registerPages(app, parts, takeForm);
  app.get('/portal', (context) => context.redirect('/', 303));
  app.all('/portal/*', () => {
    throw new AppError('not_found', { message: 'There is no such page.' });
  });
  return app;
}

/** Null for who is not signed in. */
async function visitOf(context: HttpContext, parts: PortalParts): Promise<(Visit & { readonly token: string }) | null> {
  const place = placeOf(context, parts.isSecure);
  const token = tokenOf(context, place);
  if (token === null) return null;
  // A page that is left open asks by itself, which is no use of the session.
  const signedIn = await parts.sessions.find(token, headerOf(context, 'x-poll') === null);
  if (signedIn === null) {
    forgetToken(context, place);
    return null;
  }
  if (signedIn.member.organization.status !== 'active') throw new AppError('organization_suspended');
  context.set('caller', signedIn.principal);
  return { ...createVisit({ ask: parts.ask, context, signedIn, token, origin: place.origin }), token };
}

/** Whether a page asks for a part of itself. */
const isPart = (context: HttpContext): boolean => headerOf(context, 'hx-request') !== null;

/** Where to sign in; a part of a page would be put into the page. */
function toSignIn(context: HttpContext): Response {
  if (!isPart(context)) return context.redirect('/', 303);
  context.header('hx-redirect', '/');
  return context.body(null, 204);
}

function registerOverview(app: Hono<HttpEnv>, parts: PortalParts, secured: MiddlewareHandler<HttpEnv>): void {
  const forPeople: MiddlewareHandler<HttpEnv> = async (context, next) => {
    if (!wantsPage(context)) throw new NoPageError('not_found');
    await next();
  };
  app.get('/', requestId, forPeople, secured, async (context) => {
    const visit = await visitOf(context, parts);
    if (visit !== null) return overviewPage(visit, parts);
    return isPart(context) ? toSignIn(context) : signedOutPage(context, placeOf(context, parts.isSecure));
  });
}

function registerWelcome(app: Hono<HttpEnv>, parts: PortalParts, takeForm: MiddlewareHandler<HttpEnv>): void {
  const { sessions, isSecure, addressOf } = parts;
  app.get('/welcome', async (context) => {
    const token = context.req.query('token') ?? '';
    const isOpen = await sessions.isLinkOpen(token);
    return welcomePage(context, placeOf(context, isSecure), isOpen ? token : null);
  });
  app.post('/welcome', takeForm, async (context) => {
    const place = placeOf(context, isSecure);
    if (!place.isSafe)
      throw new AppError('insufficient_scope', { message: 'Signing in takes TLS, or the machine itself.' });
    const form = await readForm(context);
    const client: Client = {
      address: addressOf(context.env.incoming),
      userAgent: headerOf(context, 'user-agent') ?? '',
    };
    // What the browser had before is no part of the new session: a token that somebody planted there stays worthless.
    const before = await visitOf(context, parts);
    const opened = await sessions.openByLink(form.text('token'), client);
    if (opened === null) return staleLinkPage(context);
    if (before !== null) await endSession(before, parts);
    keepToken(context, place, opened.token, absoluteSessionMs / 1000);
    return context.redirect('/', 303);
  });
}

async function endSession(
  { context, signedIn: { session, principal } }: Visit,
  { sessions }: PortalParts,
): Promise<void> {
  await sessions.end(
    session.userId,
    { id: session.id },
    { actor: principal.actor, requestId: context.get('requestId') },
  );
}

function registerPages(app: Hono<HttpEnv>, parts: PortalParts, takeForm: MiddlewareHandler<HttpEnv>): void {
  for (const [path, make] of Object.entries(pages)) {
    app.get(path, async (context) => {
      const visit = await visitOf(context, parts);
      return visit === null ? toSignIn(context) : make(visit, parts, paramOf(context));
    });
  }
  const change = (path: string, make: Change): void => {
    app.post(path, takeForm, async (context) => {
      const visit = await visitOf(context, parts);
      if (visit === null) return toSignIn(context);
      const form = await readForm(context);
      requireFormToken(form, visit.token);
      return make(visit, parts, form, paramOf(context));
    });
  };
  for (const [path, make] of Object.entries(changes)) change(path, make);
  change('/portal/sign-out', async (visit) => {
    await endSession(visit, parts);
    forgetToken(visit.context, placeOf(visit.context, parts.isSecure));
    return visit.context.redirect('/', 303);
  });
}
