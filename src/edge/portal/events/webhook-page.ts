import type { CreatedWebhookAnswer, DeliveryAnswer, WebhookAnswer } from '#edge/contract/webhooks.ts';
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
import { readDeliveries, readWebhook, resultOf, stateOf, webhookPath } from './webhook-words.ts';
import { readWebhookFields, webhookFields, type WebhookFields } from './webhook-form.ts';
import { secretPage } from './webhooks-page.ts';

/** One webhook: its settings, its deliveries and its actions. */

const notices = {
  saved: 'Webhook saved.',
  tested: 'Test requested. It is sent within about two seconds; the result appears below.',
  replayed: 'Redelivery requested. It is sent within about two seconds.',
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
  const list = html`${deliveries.data.length === 0 ? empty('No deliveries yet', 'Send a test to see one.') : deliveryTable(visit, webhook, deliveries.data)}
  ${older(next === null ? null : pathWith(pageOf(id), { cursor: next }))}`;
  const body = html`${said === undefined ? null : notice('good', said)}
  ${wrong !== null && wrong.typed === null ? refused(wrong.refusal) : null}
  ${facts([
    ['URL', html`<code>${webhook.url}</code>`],
    ['Status', stateOf(webhook)],
    ...dated('Failing since', webhook.failing_since),
    ['Secret created', timeOf(webhook.secret_rotated_at ?? webhook.created_at, 'never')],
    ...dated('Former secret valid until', webhook.former_secret_ends_at),
  ])}
  ${buttons(visit, webhook)} ${section('deliveries', 'Deliveries (last 30 days)', list)}
  ${section('change', 'Settings', changeForm(visit, webhook, wrong))}`;
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
    ${enabled ? act(visit, `${pageOf(id)}/test`, 'Send test') : null}
    ${act(visit, `${pageOf(id)}/${enabled ? 'off' : 'on'}`, enabled ? 'Disable' : 'Enable')}
    <a class="button" href="${pageOf(id)}/rotate">Rotate secret</a> <a href="${pageOf(id)}/delete">Delete</a>
  </div>`;
}

function deliveryTable(visit: Visit, { id, enabled }: WebhookAnswer, deliveries: readonly DeliveryAnswer[]): Html {
  return records({
    caption: 'Webhook deliveries',
    columns: ['Event', 'Result', 'Attempts', 'Last attempt', 'Next attempt', 'Action'],
    rows: deliveries.map((delivery) => [
      html`${delivery.type}<br /><code class="quiet">${delivery.event_id}</code>`,
      resultOf(delivery),
      String(delivery.attempts),
      timeOf(delivery.last_attempt_at, 'none yet'),
      timeOf(delivery.next_attempt_at, 'none'),
      enabled
        ? act(visit, `${pageOf(id)}/deliveries/${delivery.id}/replay`, 'Redeliver', `Redeliver ${delivery.event_id}`)
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
  { value: '0', label: 'Immediately' },
  { value: '3600', label: 'After 1 hour' },
  { value: '86400', label: 'After 24 hours' },
  { value: '604800', label: 'After 7 days' },
] as const;

const sentTwice: Refusal = {
  status: 409,
  message:
    'Nothing was changed: this webhook got a new secret after the form was opened. If this form was sent twice and you ' +
    'did not see the new secret, send the form again.',
  problems: new Map(),
};

export async function rotateWebhookPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const webhook = await readWebhook(visit, id);
  const body = html`${refused(refusal)}
    <div class="confirm">
      <p>
        The webhook gets a new secret, shown only once. Until the current secret expires, each delivery has two
        signatures, one per secret.
      </p>
      <form method="post" action="${pageOf(webhook.id)}/rotate">
        ${formToken(visit)}
        <input type="hidden" name="secret_rotated_at" value="${webhook.secret_rotated_at?.toString() ?? ''}" />
        ${radios({ name: 'grace_seconds', legend: 'Current secret expires', choices: graces, chosen: '86400', hint: 'Allow enough time to deploy the new secret to your receiver. Choose "Immediately" if the secret has leaked.' })}
        <p class="buttons"><button class="primary">Rotate secret</button> <a href="${pageOf(webhook.id)}">Cancel</a></p>
      </form>
    </div>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: 'Rotate the webhook secret', body, status });
}

export async function rotateWebhook(visit: Visit, id: string, form: Form): Promise<Response> {
  const grace = form.text('grace_seconds');
  const [rotatedAt, seconds] = [form.text('secret_rotated_at'), /^\d{1,9}$/.test(grace) ? Number(grace) : null];
  // Sends `secret_rotated_at`, so that the same form sent twice rotates once: a second rotation would end the
  // receiver's secret before its grace is over.
  const body = { grace_seconds: seconds, secret_rotated_at: rotatedAt === '' ? null : Number(rotatedAt) };
  const made = await visit.send<CreatedWebhookAnswer>('POST', `${webhookPath(id)}/rotate`, body);
  if (!made.ok) {
    if (made.refusal.problems.has('secret_rotated_at')) return rotateWebhookPage(visit, id, sentTwice);
    throw new RefusedError(made.refusal);
  }
  const { former_secret_ends_at: end } = made.body;
  const former =
    end === null
      ? html`The former secret is no longer valid.`
      : html`The former secret is valid until ${timeOf(end, '')}.`;
  return secretPage(visit, made.body, html`<p>${former}</p>`);
}

export async function deleteWebhookPage(visit: Visit, id: string): Promise<Response> {
  const webhook = await readWebhook(visit, id);
  const body = html`<div class="confirm">
    <p>Deliveries to <code>${webhook.url}</code> stop, and the delivery history is deleted.</p>
    <form method="post" action="${pageOf(webhook.id)}/delete">
      ${formToken(visit)}
      <p class="buttons"><button class="danger">Delete webhook</button> <a href="${pageOf(webhook.id)}">Cancel</a></p>
    </form>
  </div>`;
  return page(visit, { title: 'Delete the webhook?', body });
}

export async function deleteWebhook(visit: Visit, id: string): Promise<Response> {
  const ended = await visit.send('DELETE', webhookPath(id));
  if (!ended.ok) throw new RefusedError(ended.refusal);
  return visit.context.redirect('/portal/webhooks?notice=deleted', 303);
}
