import { z } from 'zod';
import { extension, idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/usage/requests`. */

/** Outcomes of admitted requests. */
export const outcomes = ['completed', 'aborted', 'ended', 'failed'] as const;
const tokens = z.int().min(0).meta({ description: 'Number of tokens' });

const clientRequestId = z
  .string()
  .nullable()
  .meta({ description: '`X-Client-Request-Id` of the request; null if it had none' });
const endUser = z
  .string()
  .nullable()
  .meta({ description: 'End user as the request names them; null if it names none' });

/** A recorded request. */
export const usageRequestSchema = z
  .object({
    id: z.string().meta({ description: '`x-request-id` of the response' }),
    object: z.literal('usage.request'),
    created_at: unixSeconds,
    key_id: idText('key'),
    project_id: idText('proj'),
    model: z.string().meta({ description: 'Model that answered; its price applies' }),
    fallback_for: z.string().nullable().meta({
      description: 'Requested model if `model` answered as a fallback; else null',
    }),
    endpoint: z.string().meta({ example: '/v1/chat/completions', description: 'Path of the request' }),
    stream: z.boolean().meta({ description: 'true if the response was streamed' }),
    service_tier: z.enum(['default', 'flex']).meta({ description: 'Service tier whose price applies' }),
    status: z.int().meta({ description: 'HTTP status of the response' }),
    outcome: z.enum(outcomes).meta({
      description:
        '`aborted`: the client disconnected. `ended`: the gateway ended the request, see `reason`. `failed`: the ' +
        'engine failed',
    }),
    reason: z
      .string()
      .nullable()
      .meta({
        description:
          'Error code that ended the request; null if none did. For completed requests: `repeated_idempotency_key` ' +
          'if another request with the same Idempotency-Key was charged, `no_finish_reason` if the engine sent none',
      }),
    cache_hit: z.boolean().meta({ description: 'true if the response cache answered; nothing was charged' }),
    input_tokens: tokens,
    input_cached_tokens: tokens.meta({ description: 'Part of `input_tokens` that the engine had cached' }),
    input_cache_write_tokens: tokens.meta({
      description: 'Part of `input_tokens` that the engine added to its cache; priced as the rest of the input',
    }),
    output_tokens: tokens,
    output_reasoning_tokens: tokens.meta({ description: 'Part of `output_tokens` that was reasoning' }),
    usage_source: z.enum(['engine', 'last_seen', 'none', 'counted']).meta({
      description:
        'Origin of the token counts. `engine`: final count of the engine. `last_seen`: an earlier or partial one. ' +
        '`counted`: estimated from the text. `none`: nothing was counted',
    }),
    cost: z.string().meta({ example: '0.00042', description: 'USD charged, exact decimal' }),
    written_off: z.string().meta({
      description: 'USD not charged, exact decimal: beyond the hold or the balance, or charged with another request',
    }),
    currency: z.string().meta({ example: 'USD' }),
    timings_ms: z
      .object({ queued: z.int(), first_byte: z.int().nullable(), total: z.int() })
      .meta({ description: 'Milliseconds; `first_byte` is null if the engine sent none' }),
    client_request_id: clientRequestId,
    end_user: endUser,
  })
  .meta({ id: 'UsageRequest' });

const ms = z.int().min(0);
const leftOf = (what: string) =>
  z
    .int()
    .min(0)
    .nullable()
    .meta({ description: `${what}; null if there is no such limit` });

const timelineSchema = z
  .object({
    admitted: ms.meta({
      description: 'Reading and checking the request, or waiting for the response of an identical one',
    }),
    queued: ms.meta({ description: 'Waiting for capacity of a running engine' }),
    engine_cold_start: ms.meta({ description: 'Waiting for an engine to start' }),
    first_byte: ms.nullable().meta({ description: 'Until the first byte of the engine; null if none came' }),
    last_byte: ms.meta({ description: 'From the first to the last byte of the engine' }),
    committed: ms.meta({ description: 'Recording the usage, before the last bytes of the response were sent' }),
  })
  .meta({
    id: 'UsageTimeline',
    description: 'Consecutive phases in milliseconds; their sum is the time that the client waited',
  });

/** A recorded request with its phases, limits, prices and replica. */
export const usageRequestDetailSchema = usageRequestSchema
  .extend({
    timeline: timelineSchema
      .nullable()
      .meta({ id: 'UsageTimeline', description: 'Null for requests older than this feature' }),
    limits_remaining: z
      .object({
        requests_per_minute: leftOf('Requests left in this minute'),
        tokens_per_minute: leftOf('Tokens left in this minute'),
        monthly_token_limit: leftOf('Tokens left in this month'),
        max_concurrency: leftOf('Further concurrent requests allowed'),
      })
      .nullable()
      .meta({ description: 'Limits of the key at admission; a rejected request names the limit in its error' }),
    price_version: z.string().meta({ description: 'Version of the price that was charged' }),
    price: z
      .object({
        input_per_million: z.string(),
        cached_input_per_million: z.string(),
        output_per_million: z.string(),
      })
      .nullable()
      .meta({
        description: 'USD per million tokens, exact decimals; tokens times price is `cost` plus `written_off`',
      }),
    replica: z
      .object({
        id: z.string(),
        age_seconds: z.int().nullable().meta({ description: 'Seconds since the replica became ready' }),
      })
      .nullable()
      .meta({ description: 'Engine process or container that answered; null if no engine was called' }),
  })
  .meta(extension('UsageRequestDetail', usageRequestSchema));

export type UsageRequestAnswer = z.infer<typeof usageRequestSchema>;

const body = z.unknown().meta({
  description: 'JSON as it was sent; a string for a stream or a truncated body; null if empty',
});

/** Stored bodies of a request and its response. */
export const usageContentSchema = z
  .object({
    object: z.literal('usage.content'),
    request: body,
    response: body,
    truncated: z.boolean().meta({ description: 'true if a body was longer than the stored part' }),
  })
  .meta({ id: 'UsageContent' });

/** Confirms a deletion. */
export const deletedUsageContentSchema = z
  .object({ id: z.string(), object: z.literal('usage.content'), deleted: z.literal(true) })
  .meta({ id: 'DeletedUsageContent' });

/** A request that was rejected before it was admitted. */
export const rejectedRequestSchema = z
  .object({
    id: z.string().meta({ description: '`x-request-id` of the response' }),
    object: z.literal('usage.rejected_request'),
    created_at: unixSeconds,
    key_id: idText('key'),
    project_id: idText('proj'),
    model: z
      .string()
      .nullable()
      .meta({ description: 'Requested model; null if the request was rejected before its model was known' }),
    endpoint: z.string().meta({ example: '/v1/chat/completions', description: 'Path of the request' }),
    status: z.int().meta({ example: 429, description: 'HTTP status of the response' }),
    code: z.string().meta({ example: 'rate_limit_exceeded', description: '`code` of the error' }),
    param: z.string().nullable().meta({ description: '`param` of the error' }),
    message: z.string().meta({ description: '`message` of the error, at most 500 characters' }),
    client_request_id: clientRequestId,
    end_user: endUser,
  })
  .meta({ id: 'RejectedRequest' });

/** A page of rejected requests. */
export const rejectedRequestListSchema = listOf(rejectedRequestSchema, 'RejectedRequestList');
export type RejectedRequestAnswer = z.infer<typeof rejectedRequestSchema>;

/** A page of recorded requests. */
export const usageRequestListSchema = listOf(usageRequestSchema, 'UsageRequestList');

export type UsageRequestDetailAnswer = z.infer<typeof usageRequestDetailSchema>;
export type UsageContentAnswer = z.infer<typeof usageContentSchema>;
export type Outcome = (typeof outcomes)[number];
