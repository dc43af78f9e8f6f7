import { createHmac } from 'node:crypto';
import { deleteCookie, setCookie } from 'hono/cookie';
import { parse } from 'hono/utils/cookie';
import { AppError } from '#base/errors.ts';
import { extentOf } from '#core/accounts/accounts.ts';
import { formTokenOf, type SignedIn } from '#core/sessions/sessions.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import type { HttpContext } from '#edge/http/http.ts';
import {
  type Form,
  formToken,
  headerOf,
  html,
  type MaybeHtml,
  notice,
  type Place,
  placeOf,
  type PortalParts,
  refusalOf,
  RefusedError,
  type Viewed,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/**
 * Platform administrators can view any organization: its keys, usage, wallet, budgets, users, webhooks and more. They
 * keep their own rights, which the API checks on every call. A cookie names the viewed organization, and is valid only
 * for the session that chose it. A form is valid only for the organization that its page showed.
 */

/**
 * Proves that this session chose the organization. Other sessions, and attackers who can only plant cookies, cannot
 * compute the proof.
 */
const proofOf = (formTokenText: string, id: string): string =>
  createHmac('sha256', formTokenText).update(`view ${id}`).digest('base64url');

const nameOf = ({ cookieName }: Place): string => `${cookieName}-view`;
const attributes = ({ isSecure: secure }: Place) => ({ path: '/', httpOnly: true, sameSite: 'Lax', secure }) as const;

/**
 * Returns the viewed organization; null for the visitor's own, or if the viewed one does not exist.
 * @throws RefusedError if the API does not return the organization: the visitor's own pages must not appear in its
 * place
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

/** @throws AppError conflict if the form's page showed another organization than the one viewed now */
export function requireSameView(form: Form, { viewed }: Visit): void {
  if (form.text('viewed') === (viewed?.id ?? '')) return;
  throw new AppError('conflict', {
    message:
      'This page belongs to a different organization than the one you view now, so nothing was changed. Open the page again.',
  });
}

/** Returns a page's session and organization, which the page sends when it refreshes a part of itself. */
export const aboutOf = ({ formToken: token, viewed }: Visit): string => `${token}.${viewed?.id ?? ''}`;

/**
 * True if a page of another session or organization refreshes a part of itself: numbers of one organization must not
 * appear under the name of another.
 */
export function isOfOtherPage(visit: Visit): boolean {
  const said = headerOf(visit.context, 'x-about');
  return said !== null && said !== aboutOf(visit);
}

/** Pages on which the view of an organization can start. */
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

/** Switches the view to the form's `organization_id`; empty means the visitor's own. */
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

/** Renders the banner that every page has while another organization is viewed. */
export function viewBanner(visit: Visit): MaybeHtml {
  if (visit.viewed === null) return null;
  return html`<div class="view-banner" role="status">
    <p>
      You are viewing <strong>${visit.viewed.name}</strong> as platform administrator. Keys, usage, batches, wallet,
      budgets, users, invitations, projects, webhooks and audit log belong to this organization.
    </p>
    <form method="post" action="/portal/view">
      ${formToken(visit)}<button name="organization_id" value="">Back to your organization</button>
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

/** Renders buttons to the pages of an organization. */
export function viewButtons(visit: Visit, organizationId: string, paths: readonly Entrance[] = lookedAt): MaybeHtml {
  return html`<form class="buttons" method="post" action="/portal/view">
    ${formToken(visit)} <input type="hidden" name="organization_id" value="${organizationId}" />
    ${paths.map((path) => html`<button name="to" value="${path}">${entrances[path]}</button>`)}
  </form>`;
}

/**
 * Shows a notice that the page is about another organization than the visitor's own, with a link back.
 * @param id the organization in the query; empty for the visitor's own, which gets no notice
 */
export function otherOrganization(id: string, ownPath: string): MaybeHtml {
  if (id === '') return null;
  return notice(
    'plain',
    html`<p>
      You are viewing the organization <code>${id}</code>. <a href="${ownPath}">Back to your organization</a>.
    </p>`,
  );
}
