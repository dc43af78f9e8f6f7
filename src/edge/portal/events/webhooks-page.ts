import type { ListAnswer } from '#edge/contract/lists.ts';
import type { OrganizationAnswer } from '#edge/contract/organizations.ts';
import type { CreatedWebhookAnswer, WebhookAnswer } from '#edge/contract/webhooks.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import { readOrganization } from '#edge/portal/keys/keys.ts';
import {
  copyable,
  empty,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  older,
  pathWith,
  type PortalParts,
  queryOf,
  records,
  type Refusal,
  refused,
  RefusedError,
  section,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { stateOf } from './webhook-words.ts';
import { mailBoxes, mailChoice, readWebhookFields, type WebhookFields, webhookFields } from './webhook-form.ts';

/** Notifications of an organization: its webhooks, and who gets emails. */

const notices = { saved: 'Email alerts saved.', deleted: 'Webhook deleted.' } as const;

export async function webhooksPage(visit: Visit, { letters }: PortalParts): Promise<Response> {
  const [list, organization] = await Promise.all([
    visit.get<ListAnswer<WebhookAnswer>>(
      pathWith('/v1/webhooks', { limit: 50, cursor: queryOf(visit.context, 'cursor') }),
    ),
    readOrganization(visit),
  ]);
  const said = noticeOf(visit, notices);
  const next = list.next_cursor;
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">
      Webhooks send signed events to your URLs, for example when the balance is low or when a key is created or revoked.
      See <a href="/docs">the API</a> for all events.
    </p>
    ${list.data.length === 0 ? empty('No webhooks', 'Create one to receive events.') : webhookTable(list.data)}
    ${older(next === null ? null : pathWith('/portal/webhooks', { cursor: next }))}
    ${section('mail', 'Email alerts', mailForm(visit, organization, letters.areSent))}`;
  const actions = html`<a class="button primary" href="/portal/webhooks/new">New webhook</a>`;
  return page(visit, { title: 'Webhooks', actions, body });
}

function webhookTable(webhooks: readonly WebhookAnswer[]): Html {
  return records({
    caption: 'Webhooks of this organization',
    columns: ['Webhook', 'Events', 'Status', 'Created'],
    rows: webhooks.map((webhook) => [
      html`<a href="/portal/webhooks/${webhook.id}"
        >${webhook.description === '' ? webhook.url : webhook.description}</a
      >`,
      webhook.events === null ? 'all' : webhook.events.join(', '),
      stateOf(webhook),
      timeOf(webhook.created_at, 'never'),
    ]),
  });
}

function mailForm(visit: Visit, { alert_emails: chosen }: OrganizationAnswer, sendsMail: boolean): Html {
  const hint = sendsMail
    ? 'Each of them receives the email.'
    : 'This gateway sends no email until its operator sets HEADGATE_SMTP_URL. Your selection is saved and takes effect then.';
  return html`<form class="form" method="post" action="/portal/webhooks/mail">
    ${formToken(visit)} ${mailBoxes(chosen)}
    <p class="hint">${hint}</p>
    <p class="buttons"><button>Save</button></p>
  </form>`;
}

export async function changeAlertMails(visit: Visit, form: Form): Promise<Response> {
  const { alert_emails: now } = await readOrganization(visit);
  const body = { alert_emails: mailChoice(form, now) };
  const changed = await visit.send('PATCH', `/v1/organizations/${visit.organizationId}`, body);
  if (!changed.ok) throw new RefusedError(changed.refusal);
  return visit.context.redirect('/portal/webhooks?notice=saved', 303);
}

export async function newWebhookPage(visit: Visit): Promise<Response> {
  return formPage(visit, { url: '', description: '', events: null }, null);
}

function formPage(visit: Visit, typed: WebhookFields, refusal: Refusal | null): Response | Promise<Response> {
  const body = html`<form class="form" method="post" action="/portal/webhooks">
    ${formToken(visit)} ${refused(refusal)} ${webhookFields(typed, refusal)}
    <p class="buttons"><button class="primary">Create webhook</button> <a href="/portal/webhooks">Cancel</a></p>
  </form>`;
  return page(visit, { title: 'New webhook', body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createWebhook(visit: Visit, form: Form): Promise<Response> {
  const typed = readWebhookFields(form);
  const made = await visit.send<CreatedWebhookAnswer>('POST', '/v1/webhooks', typed);
  if (made.ok) return secretPage(visit, made.body, null);
  if (made.refusal.status === 403) throw new RefusedError(made.refusal);
  return formPage(visit, typed, made.refusal);
}

/** Shows a webhook's secret. No other page does. */
export function secretPage(
  visit: Visit,
  { id, secret }: CreatedWebhookAnswer,
  further: MaybeHtml,
): Response | Promise<Response> {
  const returnTo = `/portal/webhooks/${id}`;
  const body = html`${notice('good', html`<p><strong>Copy the secret now. It is shown only once.</strong> Your receiver verifies signatures with this secret, as defined by Standard Webhooks.</p>`)}
    ${copyable('secret', secret, 'Copy secret')} ${further}
    <p class="buttons"><a class="button" href="${returnTo}">View webhook</a></p>`;
  return page(visit, { title: 'Webhook secret', body, returnTo });
}
