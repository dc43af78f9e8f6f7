import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { chosenTypes, type Delivery, type Endpoint } from '#core/alerts/alerts.ts';
import { longText, toUnixSeconds, toUnixSecondsOrNull } from '#edge/api/shared/shared.ts';
import type { DeliveryAnswer, WebhookAnswer } from '#edge/contract/webhooks.ts';

/** Schemas of webhooks and their deliveries. */

const urlText = z
  .string()
  .max(2048, 'must have at most 2048 characters')
  // `URL` would ignore these characters; a list of webhooks, also in a terminal, shows the URL as it was sent.
  .refine((text) => !/[\s\p{C}]/u.test(text), 'must not contain spaces or control characters')
  .openapi({
    example: 'https://example.com/headgate',
    description: 'https URL on port 443 or 8443 with a public address, or a host of `HEADGATE_WEBHOOK_HOSTS`',
  });

const eventsText = z
  .array(z.enum(chosenTypes))
  .min(1, 'must contain an event type; null is all')
  .max(100, 'must have at most 100 event types')
  .nullable()
  .openapi({
    description: 'Event types; null is all, including types of later versions',
    example: ['budget.exceeded'],
  });

const graceMax = 604_800;

export const rotateSchema = z
  .strictObject({
    grace_seconds: z
      .int()
      .min(0, 'must be 0 or more')
      .max(graceMax, `must be at most ${graceMax}: one week`)
      .default(86_400)
      .openapi({ description: 'Seconds for which the current secret also signs; 0 ends it immediately' }),
    secret_rotated_at: z
      .int()
      .nullable()
      .optional()
      .openapi({
        description:
          '`secret_rotated_at` of the webhook in Unix seconds. If it was rotated since, the API returns 409 and ' +
          'changes nothing, so that a repeated request rotates once',
      }),
  })
  .openapi('RotateWebhookSecret');

export const createSchema = z
  .strictObject({
    url: urlText,
    description: longText(500).default(''),
    events: eventsText.default(null),
    enabled: z.boolean().default(true).openapi({ description: 'false: no events are sent' }),
  })
  .openapi('CreateWebhook');

export const patchSchema = z
  .strictObject({
    url: urlText.optional(),
    description: longText(500).optional(),
    events: eventsText.optional(),
    enabled: z.boolean().optional().openapi({ description: 'false: no events are sent, pending ones included' }),
  })
  .openapi('PatchWebhook');

export function toWebhook(endpoint: Endpoint): WebhookAnswer {
  return {
    id: formatId('wh', endpoint.id),
    object: 'webhook',
    url: endpoint.url,
    description: endpoint.description,
    events: endpoint.events === null ? null : [...endpoint.events],
    enabled: endpoint.enabled,
    disabled_reason: endpoint.disabledReason,
    failing_since: toUnixSecondsOrNull(endpoint.failingSinceMs),
    created_at: toUnixSeconds(endpoint.createdAtMs),
    secret_rotated_at: toUnixSecondsOrNull(endpoint.rotatedAtMs),
    former_secret_ends_at: toUnixSecondsOrNull(endpoint.formerSecretEndsAtMs),
  };
}

export function toDelivery(delivery: Delivery): DeliveryAnswer {
  return {
    id: formatId('dlv', delivery.id),
    object: 'webhook.delivery',
    event_id: formatId('evt', delivery.eventId),
    type: delivery.type,
    data: delivery.data,
    status: delivery.status,
    attempts: delivery.attempts,
    last_status: delivery.lastStatus,
    last_error: delivery.lastError,
    last_attempt_at: toUnixSecondsOrNull(delivery.lastAttemptAtMs),
    next_attempt_at: toUnixSecondsOrNull(delivery.nextAttemptAtMs),
    created_at: toUnixSeconds(delivery.createdAtMs),
  };
}
