import type { ListAnswer } from '#edge/contract/lists.ts';
import type { QuarantinedRecordAnswer } from '#edge/contract/usage.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  empty,
  type Form,
  formToken,
  html,
  type Html,
  notice,
  noticeOf,
  older,
  pathWith,
  queryOf,
  records,
  type Refusal,
  RefusedError,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Usage records that PostgreSQL rejected, for platform administrators: each is retried or discarded here. */

const path = '/portal/quarantine';

const notices = {
  booked: 'The record was charged.',
  discarded: 'The record was discarded. The audit log keeps it.',
} as const;

/** @param refusal why the last decision failed; null if none did */
export async function quarantinePage(visit: Visit, refusal: Refusal | null): Promise<Response> {
  const cursor = queryOf(visit.context, 'cursor');
  const list = await visit.get<ListAnswer<QuarantinedRecordAnswer>>(
    pathWith('/v1/admin/quarantine', { limit: 50, cursor }),
  );
  const said = noticeOf(visit, notices);
  const next = list.next_cursor;
  const body = html`${said === undefined ? null : notice('good', said)}
    ${refusal === null ? null : notice('bad', refusal.message)}
    <p class="lead">
      PostgreSQL rejected these usage records, and nobody was charged. Fix the cause, then retry: that records and
      charges the usage, once. To give a record up, discard it with a reason for the audit log.
    </p>
    ${list.data.length === 0 ? empty('No records in quarantine', 'All usage is recorded.') : recordTable(visit, list.data)}
    ${older(next === null ? null : pathWith(path, { cursor: next }))}`;
  return page(visit, { title: 'Quarantine', body, status: refusal === null ? 200 : statusOf(refusal) });
}

function recordTable(visit: Visit, list: readonly QuarantinedRecordAnswer[]): Html {
  return records({
    caption: 'Records in quarantine, newest first',
    columns: ['Request', 'Organization', 'Error', 'Time', 'Decision'],
    rows: list.map(({ id, organization_id: organization, error, created_at: at }) => [
      html`<code class="wrap">${id}</code>`,
      organization === null
        ? html`<span class="quiet">unknown</span>`
        : html`<a class="wrap" href="/portal/organizations/${organization}">${organization}</a>`,
      html`<span class="wrap">${error}</span>`,
      timeOf(at, ''),
      html`<form method="post" action="${path}/${id}/retry">${formToken(visit)}<button>Retry</button></form>
        <details class="fold">
          <summary>Discard</summary>
          <form class="form" method="post" action="${path}/${id}/discard">
            ${formToken(visit)}
            <div class="field">
              <label for="reason-${id}">Reason</label>
              <input type="text" id="reason-${id}" name="reason" required maxlength="1000" autocomplete="off" />
            </div>
            <p class="buttons"><button class="danger">Discard record</button></p>
          </form>
        </details>`,
    ]),
  });
}

async function decide(visit: Visit, to: string, word: keyof typeof notices, body?: object): Promise<Response> {
  const done = await visit.send('POST', `/v1/admin/quarantine/${to}`, body);
  if (done.ok) return visit.context.redirect(`${path}?notice=${word}`, 303);
  if (done.refusal.status === 403) throw new RefusedError(done.refusal);
  return quarantinePage(visit, done.refusal);
}

export const retryRecord = (visit: Visit, id: string): Promise<Response> =>
  decide(visit, `${encodeURIComponent(id)}/retry`, 'booked');

export const discardRecord = (visit: Visit, id: string, form: Form): Promise<Response> =>
  decide(visit, `${encodeURIComponent(id)}/discard`, 'discarded', { reason: form.text('reason').trim() });
