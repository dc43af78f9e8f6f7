import { createHmac } from 'node:crypto';
import { deleteCookie, setCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import { AppError } from '#base/errors.ts';
import { extentOf } from '#core/accounts/accounts.ts';
import { formTokenOf, type SignedIn } from '#core/sessions/sessions.ts';
import type { HttpContext } from '#edge/http/http.ts';
import type { OrganizationAnswer } from './answers.ts';
import type { Form } from './form.ts';
import { html, type MaybeHtml } from './html.ts';
import type { PortalParts } from './parts.ts';
import { headerOf, type Place, placeOf } from './place.ts';
import { formToken } from './ui.ts';
import { RefusedError, refusalOf, type Viewed, type Visit } from './visit.ts';

/**
 * Platform administrators look at any organization: its keys, usage, wallet, budgets, users, webhooks and the like, with
 * their own rights, which the API asks for every time. The cookie says which one, and counts for the session that chose it alone.
 * A form is sent for the organization that its page was made for, or for none.
 */

/** That this session chose it: no other one, and nobody who can only plant cookies, makes this. */
const proofOf = (formTokenText: string, id: string): string =>
  createHmac('sha256', formTokenText).update(`view ${id}`).digest('base64url');

const nameOf = ({ cookieName }: Place): string => `${cookieName}-view`;
const attributes = ({ isSecure: secure }: Place) => ({ path: '/', httpOnly: true, sameSite: 'Lax', secure }) as const;

/**
 * Null while the visitor's own organization is looked at, or the other one is not there.
 * @throws RefusedError where the API does not say which organization it is: own pages must not stand in for it
 */
export async function readView(
  context: HttpContext,
  { signedIn, token }: { readonly signedIn: SignedIn; readonly token: string },
  { ask, isSecure }: Pick<PortalParts, 'ask' | 'isSecure'>,
): Promise<Viewed | null> {
  const { principal } = signedIn;
  const name = nameOf(placeOf(context, isSecure));
  const [id = '', proof] = (parse(headerOf(context, 'cookie') ?? '', name)[name] ?? '').split('.');
  if (proof !== proofOf(formTokenOf(token), id) || extentOf(principal, 'organizations') !== 'any') return null;
  const { remoteAddress } = context.env.incoming.socket;
  const request = { method: 'GET', path: `/v1/organizations/${encodeURIComponent(id)}`, remoteAddress };
  const answer = await ask(principal, { ...request, requestId: context.get('requestId') });
  if (answer.status === 404) return null;
  if (answer.status !== 200) throw new RefusedError(refusalOf(answer, answer.body));
  const { id: known, name: shown } = answer.body as OrganizationAnswer;
  return { id: known, name: shown };
}

/** @throws AppError conflict for a form of a page about another organization than is looked at now */
export function requireSameView(form: Form, { viewed }: Visit): void {
  if (form.text('viewed') === (viewed?.id ?? '')) return;
  throw new AppError('conflict', {
    message:
      'This page was about another organization than the one that you look at now: nothing was done. Open it again.',
  });
}

/** By whose session a page was made, and about which organization: what it asks for parts of itself with. */
export const aboutOf = ({ formToken: token, viewed }: Visit): string => `${token}.${viewed?.id ?? ''}`;

/**
 * Whether a page that was made for another session, or about another organization, asks for a part of itself: numbers of
 * one must not be put under the name of the other.
 */
export function isOfOtherPage(visit: Visit): boolean {
  const said = headerOf(visit.context, 'x-about');
  return said !== null && said !== aboutOf(visit);
}

/** Where a look at an organization begins. */
const entrances = {
  '/portal/keys': 'Keys',
  '/portal/usage': 'Usage',
  '/portal/batches': 'Batches',
  '/portal/wallet': 'Wallet, credit and corrections',
  '/portal/budgets': 'Budgets',
  '/portal/users': 'Users',
  '/portal/invitations': 'Invitations',
  '/portal/projects': 'Projects',
  '/portal/webhooks': 'Webhooks',
  '/portal/audit': 'Audit log',
  '/portal/wallet?open=credits': 'Add credit',
} as const;

type Entrance = keyof typeof entrances;

const isEntrance = (path: string): path is Entrance => Object.hasOwn(entrances, path);

/** `organization_id`: whom to look at; empty for one's own. */
export async function changeView(visit: Visit, { isSecure }: PortalParts, form: Form): Promise<Response> {
  const { context } = visit;
  const place = placeOf(context, isSecure);
  const id = form.text('organization_id');
  if (id === '') {
    deleteCookie(context, nameOf(place), attributes(place));
    return context.redirect(visit.viewed === null ? '/' : `/portal/organizations/${visit.viewed.id}`, 303);
  }
  if (!visit.may('organizations')) throw new AppError('insufficient_scope');
  const { id: known } = await visit.get<OrganizationAnswer>(`/v1/organizations/${encodeURIComponent(id)}`);
  setCookie(context, nameOf(place), `${known}.${proofOf(visit.formToken, known)}`, attributes(place));
  const to = form.text('to');
  return context.redirect(isEntrance(to) ? to : '/', 303);
}

/** Stands on every page while another organization is looked at. */
export function viewBanner(visit: Visit): MaybeHtml {
  if (visit.viewed === null) return null;
  return html`<div class="view-banner" role="status">
    <p>
      You look at <strong>${visit.viewed.name}</strong> as platform administrator: keys, usage, batches, wallet,
      budgets, users, invitations, projects, webhooks and audit log are this organization’s.
    </p>
    <form method="post" action="/portal/view">
      ${formToken(visit)}<button name="organization_id" value="">Back to your own</button>
    </form>
  </div>`;
}

const lookedAt = [
  '/portal/keys',
  '/portal/usage',
  '/portal/batches',
  '/portal/wallet',
  '/portal/budgets',
  '/portal/users',
  '/portal/invitations',
  '/portal/projects',
  '/portal/webhooks',
  '/portal/audit',
] as const satisfies readonly Entrance[];

/** Buttons that lead to the pages of an organization. */
export function viewButtons(visit: Visit, organizationId: string, paths: readonly Entrance[] = lookedAt): MaybeHtml {
  return html`<form class="buttons" method="post" action="/portal/view">
    ${formToken(visit)} <input type="hidden" name="organization_id" value="${organizationId}" />
    ${paths.map((path) => html`<button name="to" value="${path}">${entrances[path]}</button>`)}
  </form>`;
}
