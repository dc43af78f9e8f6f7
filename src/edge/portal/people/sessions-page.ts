import { formatId, parseId } from '#base/id.ts';
import { page } from '#edge/portal/frame/frame.ts';
import { browserName } from '#edge/portal/sign-in/sign-in.ts';
import {
  badge,
  type Form,
  formToken,
  html,
  notice,
  pager,
  type PortalParts,
  queryOf,
  records,
  time,
  type Visit,
} from '#edge/portal/ui/ui.ts';

const pageSize = 50;

/** Lists the visitor's own sessions, with buttons to end them. */
export async function sessionsPage(visit: Visit, { sessions }: PortalParts): Promise<Response> {
  const { session } = visit.signedIn;
  const list = await sessions.list(session.userId);
  const pages = Math.max(1, Math.ceil(list.length / pageSize));
  const asked = Number(queryOf(visit.context, 'page'));
  const at = Number.isSafeInteger(asked) ? Math.min(Math.max(asked, 1), pages) : 1;
  const said = visit.takeNotice() === 'ended';
  const others =
    list.length > 1
      ? html`<form method="post" action="/portal/sessions/end">
          ${formToken(visit)}<button name="which" value="others">End all other sessions</button>
        </form>`
      : null;
  const body = html`${said ? notice('good', 'Ended. A browser whose session has ended must sign in again.') : null}
    <p class="lead">A session ends after 12 hours without use, after 7 days at the latest, or when you end it.</p>
    ${records({
      caption: 'Your sessions',
      columns: ['Started', 'Last seen', 'IP address', 'Browser', 'Action'],
      rows: list
        .slice((at - 1) * pageSize, at * pageSize)
        .map(({ id, createdAtMs, lastSeenAtMs, address, userAgent }) => [
          time(createdAtMs),
          time(lastSeenAtMs),
          html`<code>${address}</code>`,
          html`<span class="wrap" title="${userAgent}">${browserName(userAgent) ?? userAgent}</span>`,
          id === session.id
            ? badge('good', 'this session')
            : html`<form method="post" action="/portal/sessions/end">
                ${formToken(visit)}<button class="plain" name="which" value="${formatId('session', id)}">End</button>
              </form>`,
        ]),
    })}
    ${pager('/portal/sessions', {}, { page: at, pages, total: list.length })}`;
  return page(visit, { title: 'Sessions', actions: others, body });
}

export async function endSessions(visit: Visit, { sessions }: PortalParts, form: Form): Promise<Response> {
  const { session, principal } = visit.signedIn;
  const author = { actor: principal.actor, requestId: visit.context.get('requestId') };
  const which = form.text('which');
  const id = parseId('session', which);
  if (which === 'others') await sessions.end(session.userId, { allBut: session.id }, author);
  else if (id !== null) await sessions.end(session.userId, { id }, author);
  return visit.context.redirect('/portal/sessions?notice=ended', 303);
}
