import { z } from 'zod';
import { idText, textOrNull, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/webhooks`. */

const fields = {
  id: idText('wh'),
  object: z.literal('webhook'),
  url: z.string(),
  description: z.string(),
  events: z
    .array(z.string())
    .nullable()
    .meta({ type: ['array', 'null'], description: 'Event types; null is all' }),
  enabled: z.boolean(),
  disabled_reason: textOrNull(z.enum(['failing', 'gone'])).meta({
    description:
      'Why the gateway disabled the webhook; null if it did not. `failing`: no delivery succeeded for three days. ' +
      '`gone`: the receiver returned 410',
  }),
  failing_since: unixSecondsOrNull.meta({ description: 'Unix seconds; null if the last delivery succeeded' }),
  created_at: unixSeconds,
  secret_rotated_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if it was never rotated' }),
  former_secret_ends_at: unixSecondsOrNull.meta({
    description: 'When the former secret stops signing, in Unix seconds; null if none signs',
  }),
};

/** A webhook, without its secret. */
export const webhookSchema = z.object(fields).meta({ id: 'Webhook' });

/** A webhook with its new signing secret. */
export const createdWebhookSchema = z
  .object({
    ...fields,
    secret: z.string().meta({ description: 'Signing secret, shown only once', example: 'whsec_…' }),
  })
  .meta({ id: 'WebhookWithSecret' });

/** Confirms a deletion. */
export const deletedWebhookSchema = z
  .object({ id: idText('wh'), object: z.literal('webhook'), deleted: z.literal(true) })
  .meta({ id: 'WebhookDeleted' });

/** A delivery of a webhook and its result. */
export const deliverySchema = z
  .object({
    id: idText('dlv'),
    object: z.literal('webhook.delivery'),
    event_id: idText('evt').meta({ description: '`webhook-id` of every attempt' }),
    type: z.string().meta({ example: 'wallet.low_balance', description: 'Event type' }),
    data: z.record(z.string(), z.unknown()).meta({ description: 'Data of the event' }),
    status: z.enum(['pending', 'delivered', 'failed']).meta({ description: '`failed`: there is no further attempt' }),
    attempts: z.int().meta({ description: 'Number of attempts so far' }),
    last_status: z
      .int()
      .nullable()
      .meta({ description: 'HTTP status of the last attempt; null if there was no response', example: 200 }),
    last_error: textOrNull(z.string()).meta({
      description:
        'Why the last attempt failed: `status`, `redirect`, `timeout`, `unreachable`, `unknown_host`, `not_public`, ' +
        '`address`, `secret` or `disabled`; null after a success',
    }),
    last_attempt_at: unixSecondsOrNull,
    next_attempt_at: unixSecondsOrNull.meta({ description: 'Unix seconds; null if there is no further attempt' }),
    created_at: unixSeconds,
  })
  .meta({ id: 'WebhookDelivery' });

/** A page of webhooks. */
export const webhookListSchema = listOf(webhookSchema, 'WebhookList');

/** A page of deliveries. */
export const deliveryListSchema = listOf(deliverySchema, 'WebhookDeliveryList');

export type WebhookAnswer = z.infer<typeof webhookSchema>;
export type CreatedWebhookAnswer = z.infer<typeof createdWebhookSchema>;
export type DeliveryAnswer = z.infer<typeof deliverySchema>;
