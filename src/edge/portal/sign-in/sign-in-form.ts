import type { Hono, MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import type { HttpContext, HttpEnv } from '#edge/http/http.ts';
import { begin, clientOf, localPath, requireSafe, visitorOf } from '#edge/portal/frame/frame.ts';
import { forgetToken, placeOf, type PortalParts, readForm, tokenOf } from '#edge/portal/ui/ui.ts';
import { signedOutPage, staleLinkPage, welcomePage } from './signed-out-pages.ts';

/**
 * Sign-in forms. Forms of signed-out visitors have no token: the portal checks their origin as browsers send it (OWASP,
 * Cross-Site Request Forgery Prevention: verifying the origin).
 */

export type TakeForm = MiddlewareHandler<HttpEnv>;

const wrong = 'Wrong email address or password, or this account cannot sign in here.';

/** Converts an error to a message beside the form, so that the visitor can try again. */
export function asRefusal(context: HttpContext, error: unknown): { message: string; status: 429 | 503 } {
  if (!(error instanceof AppError) || (error.status !== 429 && error.status !== 503)) throw error;
  for (const [name, value] of Object.entries(error.headers)) context.header(name, value);
  return { message: error.message, status: error.status };
}

export function registerSignIn(app: Hono<HttpEnv>, parts: PortalParts, takeForm: TakeForm): void {
  const { sessions, isSecure } = parts;
  const providerName = parts.provider?.name ?? null;
  app.get('/sign-in', (context) => context.redirect('/', 303));
  app.post('/sign-in', takeForm, async (context) => {
    requireSafe(context, parts);
    const form = await readForm(context);
    const [email, next] = [form.text('email').trim(), localPath(form.text('next'))];
    const refused = (message: string, status: 403 | 429 | 503) =>
      signedOutPage(context, placeOf(context, isSecure), { providerName, email, next, refusal: { message, status } });
    const before = await visitorOf(context, parts);
    try {
      const guess = { email, password: form.text('password'), client: clientOf(context, parts) };
      const opened = await sessions.openByPassword(guess);
      if (opened === null) return await refused(wrong, 403);
      await begin(context, parts, opened, before);
      return context.redirect(next, 303);
    } catch (error) {
      const { message, status } = asRefusal(context, error);
      return refused(message, status);
    }
  });
}

export function registerWelcome(app: Hono<HttpEnv>, parts: PortalParts, takeForm: TakeForm): void {
  const { sessions, isSecure } = parts;
  app.get('/welcome', async (context) => {
    const token = context.req.query('token') ?? '';
    const isOpen = await sessions.isLinkOpen(token);
    return welcomePage(context, placeOf(context, isSecure), isOpen ? token : null);
  });
  app.post('/welcome', takeForm, async (context) => {
    requireSafe(context, parts);
    const form = await readForm(context);
    const before = await visitorOf(context, parts);
    const opened = await sessions.openByLink(form.text('token'), clientOf(context, parts));
    if (opened === null) return staleLinkPage(context);
    await begin(context, parts, opened, before);
    return context.redirect('/', 303);
  });
}

/** Answers a browser without a session with the sign-in page. */
export async function signedOut(context: HttpContext, parts: PortalParts, refusal?: AppError) {
  const next = localPath(context.req.query('next') ?? '');
  const place = placeOf(context, parts.isSecure);
  const token = tokenOf(context, place);
  if (token !== null) forgetToken(context, place);
  const said = refusal === undefined ? null : { message: refusal.message, status: 403 as const };
  return signedOutPage(context, place, {
    // Only this browser has the token, so the reason is shown to nobody who was not signed in here.
    end: token === null || said !== null ? null : await parts.sessions.endOf(token),
    providerName: parts.provider?.name ?? null,
    email: '',
    next,
    refusal: said,
  });
}
