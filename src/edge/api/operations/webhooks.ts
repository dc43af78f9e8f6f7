import { alertKinds, alertTypes } from '#core/alerts/alerts.ts';
import { created, cursorList, exampleId } from './examples.ts';
import type { Tag } from './operation.ts';

const webhook = {
  id: exampleId('wh'),
  object: 'webhook',
  url: 'https://example.com/headgate',
  description: 'On-call',
  events: ['budget.exceeded'],
  enabled: true,
  disabled_reason: null,
  failing_since: null,
  created_at: created,
  secret_rotated_at: null,
  former_secret_ends_at: null,
};
const secret = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const delivery = {
  id: exampleId('dlv'),
  object: 'webhook.delivery',
  event_id: exampleId('evt'),
  type: 'budget.exceeded',
  data: { budget_id: exampleId('budget') },
  status: 'delivered',
  attempts: 1,
  last_status: 200,
  last_error: null,
  last_attempt_at: created,
  next_attempt_at: null,
  created_at: created,
};
const due = {
  ...delivery,
  status: 'pending',
  attempts: 0,
  last_status: null,
  last_attempt_at: null,
  next_attempt_at: created,
};

const who = 'Requires a management key of the organization.';

const kinds = alertTypes.map((type) => `- \`${type}\`: ${alertKinds[type].about}`).join('\n');

const description = `Events of an organization, sent to a URL. Each event is a POST of
\`{"type", "timestamp", "organization_id", "data"}\`, signed as [Standard Webhooks](https://www.standardwebhooks.com)
defines: \`webhook-id\` is the same for every attempt of an event, \`webhook-timestamp\` is the time of the attempt, and
\`webhook-signature\` has one or two \`v1,…\` signatures. A status from 200 to 299 within 15 seconds accepts the event;
otherwise the gateway retries for about one day. Events may arrive more than once and in any order.

${kinds}`;

export const webhooks: Tag = {
  name: 'Webhooks',
  description,
  operations: {
    'GET /v1/webhooks': {
      operationId: 'listWebhooks',
      summary: 'List webhooks',
      description: `Returns the webhooks of the organization, newest first, without their secrets. ${who}`,
      answer: cursorList(webhook),
    },
    'POST /v1/webhooks': {
      operationId: 'createWebhook',
      summary: 'Create a webhook',
      description: `Sends the chosen events to a URL. Only this response contains the signing \`secret\`. ${who}`,
      request: { url: webhook.url, description: webhook.description, events: webhook.events },
      answer: { ...webhook, secret },
    },
    'GET /v1/webhooks/{id}': {
      operationId: 'retrieveWebhook',
      summary: 'Retrieve a webhook',
      description: `Returns one webhook without its secret. ${who}`,
      answer: webhook,
    },
    'PATCH /v1/webhooks/{id}': {
      operationId: 'updateWebhook',
      summary: 'Update a webhook',
      description: `Changes URL, description or events, or enables and disables the webhook. ${who}`,
      request: { enabled: false },
      answer: { ...webhook, enabled: false },
    },
    'DELETE /v1/webhooks/{id}': {
      operationId: 'deleteWebhook',
      summary: 'Delete a webhook',
      description: `Deletes a webhook and the record of its deliveries permanently. ${who}`,
      answer: { id: webhook.id, object: 'webhook', deleted: true },
    },
    'POST /v1/webhooks/{id}/rotate': {
      operationId: 'rotateWebhookSecret',
      summary: 'Rotate the secret of a webhook',
      description:
        'Creates a new signing secret, which only this response contains. The current secret also signs for another ' +
        `\`grace_seconds\` (default one day, at most one week); an older one ends now. ${who}`,
      request: { grace_seconds: 86_400 },
      answer: { ...webhook, secret_rotated_at: created, former_secret_ends_at: created + 86_400, secret },
    },
    'GET /v1/webhooks/{id}/deliveries': {
      operationId: 'listWebhookDeliveries',
      summary: 'List deliveries of a webhook',
      description: `Returns what was sent to a webhook in the last 30 days, newest first. ${who}`,
      answer: cursorList(delivery),
    },
    'POST /v1/webhooks/{id}/test': {
      operationId: 'testWebhook',
      summary: 'Send a test event to a webhook',
      description: `Sends \`webhook.test\` once, within seconds. The list of deliveries shows the result. ${who}`,
      answer: { ...due, type: 'webhook.test', data: { webhook_id: webhook.id } },
    },
    'POST /v1/webhooks/{id}/deliveries/{delivery}/replay': {
      operationId: 'replayWebhookDelivery',
      summary: 'Send a delivery again',
      description: `Sends an event again under the same event id, whether or not it was delivered. ${who}`,
      answer: due,
    },
  },
};
