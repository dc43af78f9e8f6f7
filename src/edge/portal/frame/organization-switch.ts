import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import { type Form, formToken, html, type Html, type PortalParts, type Visit } from '#edge/portal/ui/ui.ts';
import { handOver } from './visitors.ts';

/** Shows the current organization; for members of several organizations, a menu to switch. */
export function organizationMenu(visit: Visit): Html {
  const { signedIn, organizations } = visit;
  const { organization } = signedIn.member;
  if (organizations.length < 2) return html`<p class="quiet">${organization.name}</p>`;
  return html`<details class="organizations">
    <summary>${organization.name}</summary>
    <form method="post" action="/portal/switch">
      ${formToken(visit)}
      ${organizations
        .filter(({ id }) => id !== organization.id)
        .map(
          ({ id, name }) =>
            html`<button class="plain" name="organization_id" value="${formatId('org', id)}">${name}</button>`,
        )}
    </form>
  </details>`;
}

/**
 * Switches to another organization by replacing the session: a session has one organization, and the new session has a
 * new token.
 */
export async function switchOrganization(visit: Visit, parts: PortalParts, form: Form): Promise<Response> {
  const { context, signedIn } = visit;
  const { session, principal } = signedIn;
  const id = parseId('org', form.text('organization_id'));
  if (id === session.organizationId) return context.redirect('/', 303);
  const author = { actor: principal.actor, requestId: context.get('requestId') };
  const opened = id === null ? null : await parts.sessions.switchOrganization(session, id, author);
  if (opened === null) throw new AppError('not_found', { message: 'You are not a member of this organization.' });
  handOver(context, parts, opened);
  return context.redirect('/', 303);
}
