import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { type HttpContext, toAppError } from '#edge/http/http.ts';
import { openPage, statusOf } from '#edge/portal/frame/frame.ts';
import { html, type Refusal, RefusedError, retryAfterOf } from '#edge/portal/ui/ui.ts';

const titles: Readonly<Record<number, string>> = {
  403: 'You may not do this',
  404: 'There is nothing here',
  429: 'Too much at once',
  503: 'Not just now',
};

/** The API's message about keys. Signed-in visitors have none, so they get a message about roles. */
const ofKeys = new AppError('insufficient_scope').message;
const ofRoles = 'Your role in this organization does not allow this: ask one of its owners or administrators.';

const forPeople: ReadonlyMap<string, string> = new Map([
  [ofKeys, ofRoles],
  [
    new AppError('outcome_unknown').message,
    'The outcome is unknown: the database did not confirm this change in time, and it may have been made. Look for it before you send the form again.',
  ],
  [needsPlatformAdmin, 'This is for administrators of the platform: your role in this organization does not allow it.'],
]);

/** Shows an error as a page: the problem, the next action, and the request id for failures of the gateway. */
export function failurePage(error: unknown, context: HttpContext, log: Log): Response | Promise<Response> {
  const refusal = error instanceof RefusedError ? error.refusal : refusalOf(error, context, log);
  const { status, retryAfter = null } = refusal;
  const message = forPeople.get(refusal.message) ?? refusal.message;
  const body = html`<p class="lead">${message}</p>
    ${whenAgain(status, retryAfter)}
    ${status >= 500 ? html`<p>The log of the gateway has it under <code>${context.get('requestId')}</code>.</p>` : null}
    <p class="buttons"><a class="button" href="/">To the overview</a></p>`;
  if (retryAfter !== null) context.header('retry-after', String(retryAfter));
  const title = titles[status] ?? (status >= 500 ? 'Something went wrong' : 'That did not work');
  return openPage(context, { title, body, status: statusOf(refusal) });
}

/** Suggests a retry. For errors of the server it suggests reloading, not resending: the change may have been made. */
function whenAgain(status: number, seconds: number | null) {
  if (seconds !== null) {
    return html`<p>Try it again in ${seconds === 1 ? 'a second' : `${seconds} seconds`}.</p>`;
  }
  return status >= 500 ? html`<p>Loading the page again may help in a moment.</p>` : null;
}

function refusalOf(error: unknown, context: HttpContext, log: Log): Refusal {
  const failure = toAppError(error);
  const { code, status, message, param, reason } = failure;
  context.set('failureCode', code);
  context.set('failureParam', param);
  context.set('failureReason', reason);
  if (status >= 500) {
    const fields = { requestId: context.get('requestId'), method: context.req.method, code };
    log.error({ ...fields, err: failure.cause ?? failure }, 'a page was answered with 5xx; err is its cause');
  }
  for (const [name, value] of Object.entries(failure.headers)) context.header(name, value);
  return { status, message, problems: new Map(), retryAfter: retryAfterOf(new Headers(failure.headers)) };
}
