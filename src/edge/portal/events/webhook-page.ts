import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  beganWith,
  changesIn,
  empty,
  facts,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  notice,
  noticeOf,
  older,
  pathWith,
  queryOf,
  radios,
  records,
  type Refusal,
  refused,
  RefusedError,
  section,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import {
  type DeliveryAnswer,
  readDeliveries,
  readWebhook,
  resultOf,
  stateOf,
  type WebhookAnswer,
  webhookPath,
  type WebhookWithSecret,
} from './webhook-answers.ts';
import { readWebhookFields, webhookFields, type WebhookFields } from './webhook-form.ts';
import { secretPage } from './webhooks-page.ts';

/** One webhook: its settings, its deliveries and its actions. */

const notices = {
  saved: 'It is kept.',
  tested: 'A test is sent within a second or two: what came of it stands below.',
  replayed: 'It is sent again within a second or two.',
} as const;

/** A rejected form, as it was sent. */
interface Refused {
  readonly typed: WebhookFields | null;
  readonly form: Form | null;
  readonly refusal: Refusal;
}

const pageOf = (id: string): string => `/portal/webhooks/${id}`;

export function webhookPageOf(visit: Visit, id: string): Promise<Response> {
  return show(visit, id, null);
}

async function show(visit: Visit, id: string, wrong: Refused | null): Promise<Response> {
  const cursor = queryOf(visit.context, 'cursor');
  const [webhook, deliveries] = await Promise.all([readWebhook(visit, id), readDeliveries(visit, id, cursor)]);
  const said = noticeOf(visit, notices);
  const next = deliveries.next_cursor;
  const list = html`${deliveries.data.length === 0 ? empty('Nothing was sent', 'Send a test to see what arrives.') : deliveryTable(visit, webhook, deliveries.data)}
  ${older(next === null ? null : pathWith(pageOf(id), { cursor: next }))}`;
  const body = html`${said === undefined ? null : notice('good', said)}
  ${wrong !== null && wrong.typed === null ? refused(wrong.refusal) : null}
  ${facts([
    ['Address', html`<code>${webhook.url}</code>`],
    ['State', stateOf(webhook)],
    ...dated('Failing since', webhook.failing_since),
    ['Secret since', timeOf(webhook.secret_rotated_at ?? webhook.created_at, 'never')],
    ...dated('The secret before signs until', webhook.former_secret_ends_at),
  ])}
  ${buttons(visit, webhook)} ${section('deliveries', 'Deliveries of the last 30 days', list)}
  ${section('change', 'Change it', changeForm(visit, webhook, wrong))}`;
  const title = webhook.description === '' ? new URL(webhook.url).host : webhook.description;
  return page(visit, { title, body, status: wrong === null ? 200 : statusOf(wrong.refusal) });
}

/** Shows a time that only some webhooks have. */
const dated = (name: string, at: number | null): (readonly [string, MaybeHtml])[] =>
  at === null ? [] : [[name, timeOf(at, '')]];

/** Renders a form with one button. */
function act(visit: Visit, path: string, text: string, label?: string): Html {
  return html`<form method="post" action="${path}">
    ${formToken(visit)}<button ${label === undefined ? null : html`aria-label="${label}"`}>${text}</button>
  </form>`;
}

function buttons(visit: Visit, { id, enabled }: WebhookAnswer): Html {
  return html`<div class="buttons">
    ${enabled ? act(visit, `${pageOf(id)}/test`, 'Send a test') : null}
    ${act(visit, `${pageOf(id)}/${enabled ? 'off' : 'on'}`, enabled ? 'Switch it off' : 'Switch it on')}
    <a class="button" href="${pageOf(id)}/rotate">Another secret</a> <a href="${pageOf(id)}/delete">Delete</a>
  </div>`;
}

function deliveryTable(visit: Visit, { id, enabled }: WebhookAnswer, deliveries: readonly DeliveryAnswer[]): Html {
  return records({
    caption: 'Deliveries of the webhook',
    columns: ['Event', 'Result', 'Tries', 'Last try', 'Next try', 'Action'],
    rows: deliveries.map((delivery) => [
      html`${delivery.type}<br /><code class="quiet">${delivery.event_id}</code>`,
      resultOf(delivery),
      String(delivery.attempts),
      timeOf(delivery.last_attempt_at, 'none yet'),
      timeOf(delivery.next_attempt_at, 'none'),
      enabled
        ? act(visit, `${pageOf(id)}/deliveries/${delivery.id}/replay`, 'Send again', `Send again: ${delivery.event_id}`)
        : null,
    ]),
  });
}

function changeForm(visit: Visit, webhook: WebhookAnswer, wrong: Refused | null): Html {
  const { url, description, events } = webhook;
  const refusal = wrong === null || wrong.typed === null ? null : wrong.refusal;
  return html`<form class="form" method="post" action="${pageOf(webhook.id)}">
    ${formToken(visit)} ${beganWith({ url, description, events }, wrong?.form ?? null)} ${refused(refusal)}
    ${webhookFields(wrong?.typed ?? { url, description, events }, refusal)}
    <p class="buttons"><button class="primary">Save</button></p>
  </form>`;
}

export async function changeWebhook(visit: Visit, id: string, form: Form): Promise<Response> {
  const typed = readWebhookFields(form);
  const changes = changesIn(form, { ...typed });
  const changed = isEmpty(changes) ? null : await visit.send('PATCH', webhookPath(id), changes);
  if (changed?.ok === false) {
    if (changed.refusal.status !== 400) throw new RefusedError(changed.refusal);
    return show(visit, id, { typed, form, refusal: changed.refusal });
  }
  return visit.context.redirect(`${pageOf(encodeURIComponent(id))}?notice=saved`, 303);
}

export async function switchWebhook(visit: Visit, id: string, enabled: boolean): Promise<Response> {
  const changed = await visit.send('PATCH', webhookPath(id), { enabled });
  if (!changed.ok) throw new RefusedError(changed.refusal);
  return visit.context.redirect(`${pageOf(encodeURIComponent(id))}?notice=saved`, 303);
}

export function testWebhook(visit: Visit, id: string): Promise<Response> {
  return sent(visit, id, `${webhookPath(id)}/test`, 'tested');
}

export function replayDelivery(visit: Visit, id: string, delivery: string): Promise<Response> {
  return sent(visit, id, `${webhookPath(id)}/deliveries/${encodeURIComponent(delivery)}/replay`, 'replayed');
}

async function sent(visit: Visit, id: string, path: string, word: keyof typeof notices): Promise<Response> {
  const asked = await visit.send('POST', path);
  if (asked.ok) return visit.context.redirect(`${pageOf(encodeURIComponent(id))}?notice=${word}`, 303);
  if (asked.refusal.status !== 409) throw new RefusedError(asked.refusal);
  return show(visit, id, { typed: null, form: null, refusal: asked.refusal });
}

const graces = [
  { value: '0', label: 'Not at all' },
  { value: '3600', label: '1 hour' },
  { value: '86400', label: '24 hours' },
  { value: '604800', label: '7 days' },
] as const;

const sentTwice: Refusal = {
  status: 409,
  message:
    'Nothing was done: this webhook has got another secret since the form was shown. Where that was this form, sent ' +
    'twice, and you have not seen the secret, send it once more.',
  problems: new Map(),
};

export async function rotateWebhookPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const webhook = await readWebhook(visit, id);
  const body = html`${refused(refusal)}
    <div class="confirm">
      <p>It gets another secret, shown once. What is sent meanwhile has two signatures, one of each secret.</p>
      <form method="post" action="${pageOf(webhook.id)}/rotate">
        ${formToken(visit)}
        <input type="hidden" name="secret_rotated_at" value="${webhook.secret_rotated_at?.toString() ?? ''}" />
        ${radios({ name: 'grace_seconds', legend: 'The secret of now signs on for', choices: graces, chosen: '86400', hint: 'Long enough to give your receiver the new one. "Not at all" is for a secret that leaked.' })}
        <p class="buttons">
          <button class="primary">Make another secret</button> <a href="${pageOf(webhook.id)}">Cancel</a>
        </p>
      </form>
    </div>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: 'Another secret for the webhook', body, status });
}

export async function rotateWebhook(visit: Visit, id: string, form: Form): Promise<Response> {
  const grace = form.text('grace_seconds');
  const [rotatedAt, seconds] = [form.text('secret_rotated_at'), /^\d{1,9}$/.test(grace) ? Number(grace) : null];
  // Sends `secret_rotated_at`, so that the same form sent twice rotates once: a second rotation would end the
  // receiver's secret before its grace is over.
  const body = { grace_seconds: seconds, secret_rotated_at: rotatedAt === '' ? null : Number(rotatedAt) };
  const made = await visit.send<WebhookWithSecret>('POST', `${webhookPath(id)}/rotate`, body);
  if (!made.ok) {
    if (made.refusal.problems.has('secret_rotated_at')) return rotateWebhookPage(visit, id, sentTwice);
    throw new RefusedError(made.refusal);
  }
  const { former_secret_ends_at: end } = made.body;
  const former = end === null ? html`The one before has ended.` : html`The one before signs until ${timeOf(end, '')}.`;
  return secretPage(visit, made.body, html`<p>${former}</p>`);
}

export async function deleteWebhookPage(visit: Visit, id: string): Promise<Response> {
  const webhook = await readWebhook(visit, id);
  const body = html`<div class="confirm">
    <p>Nothing more is sent to <code>${webhook.url}</code>, and the list of what was sent is gone too.</p>
    <form method="post" action="${pageOf(webhook.id)}/delete">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger">Delete the webhook</button> <a href="${pageOf(webhook.id)}">Keep it</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: 'Delete the webhook?', body });
}

export async function deleteWebhook(visit: Visit, id: string): Promise<Response> {
  const ended = await visit.send('DELETE', webhookPath(id));
  if (!ended.ok) throw new RefusedError(ended.refusal);
  return visit.context.redirect('/portal/webhooks?notice=deleted', 303);
}
