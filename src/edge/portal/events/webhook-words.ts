import type { ListAnswer } from '#edge/contract/lists.ts';
import type { DeliveryAnswer, WebhookAnswer } from '#edge/contract/webhooks.ts';
import { badge, html, type Html, pathWith, type Visit } from '#edge/portal/ui/ui.ts';

/** Reads webhooks, and formats the states of webhooks and deliveries. */

export const webhookPath = (id: string): string => `/v1/webhooks/${encodeURIComponent(id)}`;

export const readWebhook = (visit: Visit, id: string): Promise<WebhookAnswer> =>
  visit.get<WebhookAnswer>(webhookPath(id));

export const readDeliveries = (visit: Visit, id: string, cursor: string): Promise<ListAnswer<DeliveryAnswer>> =>
  visit.get<ListAnswer<DeliveryAnswer>>(pathWith(`${webhookPath(id)}/deliveries`, { limit: 25, cursor }));

export function stateOf({ enabled, disabled_reason: reason, failing_since: since }: WebhookAnswer): Html {
  if (!enabled)
    return badge(
      'bad',
      reason === null ? 'disabled' : reason === 'gone' ? 'disabled: receiver gone' : 'disabled: failing',
    );
  return since === null ? badge('good', 'enabled') : badge('busy', 'failing');
}

const errors: Readonly<Record<string, string>> = {
  address: 'URL no longer allowed',
  unknown_host: 'host name cannot be resolved',
  not_public: 'host address is not public',
  unreachable: 'no connection',
  timeout: 'response timeout',
  redirect: 'redirect (not followed)',
  secret: 'the gateway could not decrypt the secret',
  disabled: 'webhook disabled',
};

export function resultOf({ status, last_status: code, last_error: error }: DeliveryAnswer): Html {
  const kind = status === 'delivered' ? 'good' : status === 'failed' ? 'bad' : 'busy';
  const why = error === null || error === 'status' ? null : (errors[error] ?? error);
  const said = [code === null ? null : `HTTP ${code}`, why].filter((part) => part !== null).join(', ');
  return html`${badge(kind, status)}${said === '' ? null : html`<br /><span class="quiet">${said}</span>`}`;
}
