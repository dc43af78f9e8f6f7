import { Hono, type MiddlewareHandler } from 'hono';
import { every } from 'hono/combine';
import { AppError } from '#base/errors.ts';
import { createReadBody, type HttpContext, type HttpEnv, requestId } from '#edge/http/http.ts';
import {
  modelPage,
  modelsPage,
  playgroundCalls,
  playgroundModels,
  playgroundPage,
  serveCall,
} from '#edge/portal/engines/engines.ts';
import { batchesPage, batchFile, batchPage, cancelBatch } from '#edge/portal/events/events.ts';
import {
  changeView,
  endSession,
  isOfOtherPage,
  isPart,
  loadedAgain,
  only,
  ownVisitOf,
  registerAssets,
  requireSameView,
  switchOrganization,
  toSignIn,
  visitOf,
} from '#edge/portal/frame/frame.ts';
import {
  changeKey,
  createKey,
  deleteKey,
  deletePage,
  keyPage,
  keysPage,
  newKeyPage,
  rotateKey,
  rotateKeyPage,
} from '#edge/portal/keys/keys.ts';
import {
  addAdjustment,
  addCredit,
  budgetPage,
  budgetsPage,
  changeBudget,
  createBudget,
  deleteBudget,
  newBudgetPage,
  raiseBudget,
  resetBudget,
  resetBudgetPage,
  statementCsv,
  statementJson,
  statementPage,
  walletPage,
} from '#edge/portal/money/money.ts';
import {
  accountPage,
  changeAccount,
  endSessions,
  invitationsPage,
  invite,
  makeResetLink,
  removeIdentity,
  revokeInvitation,
  sessionsPage,
} from '#edge/portal/people/people.ts';
import { platformChanges, platformPages, platformUploads } from '#edge/portal/platform/platform.ts';
import {
  registerInvitation,
  registerOidc,
  registerPasswordLinks,
  registerSignIn,
  registerWelcome,
  signedOut,
} from '#edge/portal/sign-in/sign-in.ts';
import {
  type Change,
  forgetToken,
  formBody,
  headerOf,
  type Page,
  placeOf,
  type PortalParts,
  readForm,
  readUpload,
  requireFormToken,
  requireOwnOrigin,
  type Upload,
  uploadBody,
  type Visit,
  withNotice,
} from '#edge/portal/ui/ui.ts';
import { deleteContent, findRequest, requestPage, usageExport, usagePage } from '#edge/portal/usage/usage.ts';
import { adminChanges, adminPages } from './admin-pages.ts';
import { failurePage } from './failure-page.ts';
import { changeFirstSteps } from './first-steps.ts';
import { overviewPage } from './overview.ts';
import { discardRecord, quarantinePage, retryRecord } from './quarantine-page.ts';
import { searchPage } from './search-page.ts';

export type { PortalParts, ProviderParts } from '#edge/portal/ui/ui.ts';
export { callbackPath } from '#edge/portal/sign-in/sign-in.ts';

/**
 * Pages for people. Pages call the JSON API as the signed-in user, so a page can show and do nothing that the API
 * rejects for that user. A page is a function of a visit, in its own file, with an entry in `pages` below and its place
 * in the menu in `layout.ts`.
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

/** `same-origin`, not `no-referrer`: with `no-referrer` browsers omit the form's origin, which the portal checks. */
const securityHeaders: Readonly<Record<string, string>> = {
  'content-security-policy': contentSecurityPolicy,
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'cross-origin-opener-policy': 'same-origin',
  'permissions-policy': 'camera=(), microphone=(), geolocation=()',
  'cache-control': 'no-store',
};

const pages: Readonly<Record<string, Page>> = {
  '/portal/keys': keysPage,
  '/portal/keys/new': newKeyPage,
  '/portal/keys/:id': (visit, parts, param) => keyPage(visit, parts, param('id')),
  '/portal/keys/:id/delete': (visit, parts, param) => deletePage(visit, parts, param('id')),
  '/portal/keys/:id/rotate': (visit, _, param) => rotateKeyPage(visit, param('id')),
  '/portal/usage': usagePage,
  '/portal/usage/requests.csv': (visit, parts) => usageExport(visit, parts, 'csv'),
  '/portal/usage/requests.ndjson': (visit, parts) => usageExport(visit, parts, 'ndjson'),
  '/portal/usage/find': async (visit) => findRequest(visit),
  '/portal/usage/:id': (visit, parts, param) => requestPage(visit, parts, param('id')),
  '/portal/batches': (visit) => batchesPage(visit),
  '/portal/batches/:id': (visit, _, param) => batchPage(visit, param('id')),
  '/portal/batches/:id/output': (visit, _, param) => batchFile(visit, param('id'), 'output'),
  '/portal/batches/:id/errors': (visit, _, param) => batchFile(visit, param('id'), 'errors'),
  '/portal/wallet': walletPage,
  '/portal/wallet/statements/:month': (visit, parts, param) => statementPage(visit, parts, param('month')),
  '/portal/wallet/statements/:month/json': (visit, parts, param) => statementJson(visit, parts, param('month')),
  '/portal/wallet/statements/:month/csv': (visit, parts, param) => statementCsv(visit, parts, param('month')),
  '/portal/budgets': (visit) => budgetsPage(visit),
  '/portal/budgets/new': only('budgets', (visit) => newBudgetPage(visit)),
  '/portal/budgets/:id': only('budgets', (visit, _, param) => budgetPage(visit, param('id'))),
  '/portal/budgets/:id/reset': only('budgets', (visit, _, param) => resetBudgetPage(visit, param('id'))),
  '/portal/models': modelsPage,
  '/portal/models/:id': (visit, parts, param) => modelPage(visit, parts, param('id')),
  '/portal/playground': playgroundPage,
  '/portal/playground/models': playgroundModels,
  '/portal/search': searchPage,
  '/portal/quarantine': only('books', (visit) => quarantinePage(visit, null)),
  '/portal/sessions': sessionsPage,
  '/portal/account': (visit) => accountPage(visit),
  '/portal/invitations': (visit) => invitationsPage(visit),
  ...adminPages,
  ...platformPages,
};

/** Paths of the pages, except `/`. */
export const pagePaths: readonly string[] = Object.keys(pages);

const changes: Readonly<Record<string, Change>> = {
  '/portal/keys': createKey,
  '/portal/keys/:id': (visit, parts, form, param) => changeKey(visit, parts, param('id'), form),
  '/portal/keys/:id/delete': (visit, _parts, _form, param) => deleteKey(visit, param('id')),
  '/portal/keys/:id/rotate': (visit, parts, form, param) => rotateKey(visit, parts, param('id'), form),
  '/portal/usage/:id/content/delete': (visit, _parts, _form, param) => deleteContent(visit, param('id')),
  '/portal/batches/:id/cancel': (visit, _parts, _form, param) => cancelBatch(visit, param('id')),
  '/portal/wallet/credits': (visit, parts, form) => addCredit(visit, parts, form),
  '/portal/wallet/adjustments': (visit, parts, form) => addAdjustment(visit, parts, form),
  '/portal/budgets/new': (visit, _, form) => createBudget(visit, form),
  '/portal/budgets/:id': (visit, _parts, form, param) => changeBudget(visit, param('id'), form),
  '/portal/budgets/:id/delete': (visit, _parts, _form, param) => deleteBudget(visit, param('id')),
  '/portal/budgets/:id/raise': (visit, _parts, form, param) => raiseBudget(visit, param('id'), form),
  '/portal/budgets/:id/reset': (visit, _parts, _form, param) => resetBudget(visit, param('id')),
  '/portal/first-steps': changeFirstSteps,
  '/portal/quarantine/:id/retry': (visit, _parts, _form, param) => retryRecord(visit, param('id')),
  '/portal/quarantine/:id/discard': (visit, _, form, param) => discardRecord(visit, param('id'), form),
  '/portal/sessions/end': endSessions,
  '/portal/account': (visit, _, form) => changeAccount(visit, form),
  '/portal/account/identities/remove': (visit, _, form) => removeIdentity(visit, form),
  '/portal/invitations': (visit, _, form) => invite(visit, form),
  '/portal/invitations/:id/revoke': (visit, _parts, _form, param) => revokeInvitation(visit, param('id')),
  '/portal/reset-links': (visit, _, form) => makeResetLink(visit, form),
  '/portal/switch': switchOrganization,
  '/portal/view': changeView,
  ...adminChanges,
  ...platformChanges,
};

/** Handlers of forms with a file. */
const uploads: Readonly<Record<string, Upload>> = { ...platformUploads };

/** Paths that the portal answers, except `/`. */
const paths = ['/welcome', '/sign-in', '/sign-in/*', '/reset-password', '/invitation', '/portal', '/portal/*'];

/** Where visitors look for the sign-in page, as other programs call it. */
const otherSignInPaths = ['/login', '/signin'];

/** Thrown if the client does not want a page. */
class NoPageError extends AppError {}

/** True if the client accepts HTML. Other clients get the API's 404 for `/`. */
const wantsPage = (context: HttpContext): boolean => /\btext\/html\b/i.test(headerOf(context, 'accept') ?? '');

const paramOf =
  ({ req }: HttpContext) =>
  (name: string): string =>
    req.param(name) ?? '';

/** Creates the routes, which are mounted at the root, behind the JSON API. */
export function createPortal(parts: PortalParts): Hono<HttpEnv> {
  const { limits, shares, log } = parts;
  const app = new Hono<HttpEnv>();
  app.onError((error, context) => {
    // The outer app answers this error, as for every unknown path.
    if (error instanceof NoPageError) throw error;
    return failurePage(error, context, log);
  });
  const secured: MiddlewareHandler<HttpEnv> = async (context, next) => {
    for (const [name, value] of Object.entries(securityHeaders)) context.header(name, value);
    await next();
  };
  // Checks the origin before reading the body of a form.
  const ownOrigin: MiddlewareHandler<HttpEnv> = async (context, next) => {
    requireOwnOrigin(context, placeOf(context, parts.isSecure));
    await next();
  };
  const takeForm = every(ownOrigin, createReadBody({ limits, shares }, [formBody]));
  for (const path of paths) app.use(path, requestId);
  registerAssets(app);
  for (const path of paths) app.use(path, secured);
  registerOverview(app, parts, secured);
  registerWelcome(app, parts, takeForm);
  registerSignIn(app, parts, takeForm);
  registerPasswordLinks(app, parts, takeForm);
  if (parts.provider !== null) registerOidc(app, parts, parts.provider);
  registerInvitation(app, parts, takeForm);
  registerPages(app, parts, takeForm);
  registerUploads(app, parts, ownOrigin);
  // The body goes to the model unread.
  for (const [path, call] of Object.entries(playgroundCalls))
    app.post(path, (context) => serveCall(call, context, parts, () => ownVisitOf(context, parts)));
  for (const path of ['/portal', '/portal/']) app.get(path, (context) => context.redirect('/', 303));
  app.all('/portal/*', () => {
    throw new AppError('not_found', { message: 'Page not found.' });
  });
  return app;
}

const shown = (visit: Visit, make: () => Response | Promise<Response>): Response | Promise<Response> =>
  isOfOtherPage(visit) ? loadedAgain(visit.context) : make();

function registerOverview(app: Hono<HttpEnv>, parts: PortalParts, secured: MiddlewareHandler<HttpEnv>): void {
  const forPeople: MiddlewareHandler<HttpEnv> = async (context, next) => {
    if (!wantsPage(context)) throw new NoPageError('not_found');
    await next();
  };
  for (const path of otherSignInPaths) app.get(path, requestId, forPeople, (context) => context.redirect('/', 303));
  app.get('/', requestId, forPeople, secured, async (context) => {
    try {
      const visit = await visitOf(context, parts);
      if (visit !== null) return await shown(visit, () => overviewPage(visit, parts));
    } catch (error) {
      // The visitor may sign in to another organization, or as another person.
      if (error instanceof AppError && error.code === 'organization_suspended') return signedOut(context, parts, error);
      throw error;
    }
    return isPart(context) ? toSignIn(context) : signedOut(context, parts);
  });
}

const withNoticeFor =
  ({ isSecure }: PortalParts) =>
  ({ context, token }: Pick<Visit, 'context'> & { readonly token: string }, response: Response): Response =>
    withNotice(response, placeOf(context, isSecure), token);

function registerPages(app: Hono<HttpEnv>, parts: PortalParts, takeForm: MiddlewareHandler<HttpEnv>): void {
  const answered = withNoticeFor(parts);
  for (const [path, make] of Object.entries(pages)) {
    app.get(path, async (context) => {
      const visit = await visitOf(context, parts);
      return visit === null ? toSignIn(context) : shown(visit, () => make(visit, parts, paramOf(context)));
    });
  }
  const change = (path: string, make: Change, find = visitOf): void => {
    app.post(path, takeForm, async (context) => {
      const visit = await find(context, parts);
      if (visit === null) return toSignIn(context);
      const form = await readForm(context);
      requireFormToken(form, visit.token);
      if (path !== '/portal/view' && path !== '/portal/sign-out') requireSameView(form, visit);
      return answered(visit, await make(visit, parts, form, paramOf(context)));
    });
  };
  for (const [path, make] of Object.entries(changes)) change(path, make);
  const signOut: Change = async (visit) => {
    await endSession(visit.context, parts, visit.signedIn);
    forgetToken(visit.context, placeOf(visit.context, parts.isSecure));
    return visit.context.redirect('/', 303);
  };
  change('/portal/sign-out', signOut, ownVisitOf);
}

/** Registers uploads. Files are large, so the session is checked before the body is read. */
function registerUploads(app: Hono<HttpEnv>, parts: PortalParts, ownOrigin: MiddlewareHandler<HttpEnv>): void {
  const { limits, shares } = parts;
  const answered = withNoticeFor(parts);
  const signedIn: MiddlewareHandler<HttpEnv> = async (context, next) => {
    if ((await visitOf(context, parts)) === null) return toSignIn(context);
    await next();
  };
  const take = every(ownOrigin, signedIn, createReadBody({ limits, shares }, [uploadBody]));
  for (const [path, make] of Object.entries(uploads)) {
    app.post(path, take, async (context) => {
      const visit = await visitOf(context, parts);
      if (visit === null) return toSignIn(context);
      const form = await readUpload(context);
      requireFormToken(form, visit.token);
      return answered(visit, await make(visit, form));
    });
  }
}
