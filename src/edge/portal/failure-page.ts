import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { type HttpContext, toAppError } from '#edge/http/http.ts';
import { openPage, statusOf } from '#edge/portal/frame/frame.ts';
import { html, type Refusal, RefusedError, retryAfterOf } from '#edge/portal/ui/ui.ts';

const titles: Readonly<Record<number, string>> = {
  403: 'Not allowed',
  404: 'Not found',
  429: 'Too many requests',
  503: 'Temporarily unavailable',
};

/** The API's message about keys. Signed-in visitors have none, so they get a message about roles. */
const ofKeys = new AppError('insufficient_scope').message;
const ofRoles =
  'Your role in this organization does not allow this. Ask an owner or administrator of the organization.';

const forPeople: ReadonlyMap<string, string> = new Map([
  [ofKeys, ofRoles],
  [
    new AppError('outcome_unknown').message,
    'The outcome is unknown: the database did not confirm this change in time. Check whether the change was made before you send the form again.',
  ],
  [needsPlatformAdmin, 'Only platform administrators can do this. Your role in this organization does not allow it.'],
]);

/** Shows an error as a page: the problem, the next action, and the request id for failures of the gateway. */
export function failurePage(error: unknown, context: HttpContext, log: Log): Response | Promise<Response> {
  const refusal = error instanceof RefusedError ? error.refusal : refusalOf(error, context, log);
  const { status, retryAfter = null } = refusal;
  const message = forPeople.get(refusal.message) ?? refusal.message;
  const body = html`<p class="lead">${message}</p>
    ${whenAgain(status, retryAfter)}
    ${status >= 500 ? html`<p>The gateway log has the cause under <code>${context.get('requestId')}</code>.</p>` : null}
    <p class="buttons"><a class="button" href="/">Go to overview</a></p>`;
  if (retryAfter !== null) context.header('retry-after', String(retryAfter));
  const title = titles[status] ?? (status >= 500 ? 'Something went wrong' : 'Request failed');
  return openPage(context, { title, body, status: statusOf(refusal) });
}

/** Suggests a retry. For errors of the server it suggests reloading, not resending: the change may have been made. */
function whenAgain(status: number, seconds: number | null) {
  if (seconds !== null) {
    return html`<p>Try again in ${seconds === 1 ? 'a second' : `${seconds} seconds`}.</p>`;
  }
  return status >= 500 ? html`<p>Reload the page in a moment.</p>` : null;
}

function refusalOf(error: unknown, context: HttpContext, log: Log): Refusal {
  const failure = toAppError(error);
  const { code, status, message, param, reason } = failure;
  context.set('failureCode', code);
  context.set('failureParam', param);
  context.set('failureReason', reason);
  if (status >= 500) {
    const fields = { requestId: context.get('requestId'), method: context.req.method, code };
    log.error({ ...fields, err: failure.cause ?? failure }, 'a page of the portal failed with a 5xx status (see err)');
  }
  for (const [name, value] of Object.entries(failure.headers)) context.header(name, value);
  return { status, message, problems: new Map(), retryAfter: retryAfterOf(new Headers(failure.headers)) };
}
