import { z } from '@hono/zod-openapi';

/** Headers of the inference routes, for the OpenAPI document only: headers of requests, and headers of answers. */

/** Returns the schema of an optional header. */
const header = (description: string, example?: string) =>
  z
    .string()
    .optional()
    .openapi({ description, ...(example === undefined ? {} : { example }) });

export const inferenceRequestHeaders = z.object({
  'X-Project-ID': header('Project that the request counts for; default is the project of the key'),
  'X-Client-Request-Id': header('Your own id, stored on the usage record; `X-Request-Id` works too'),
  'Idempotency-Key': z
    .string()
    .min(1)
    .max(255)
    .optional()
    .openapi({
      description:
        'Random key of your choice, in effect for 24 hours per API key. The same body again joins the ' +
        'running request or gets its response, and is billed once; another body returns 422. While the ' +
        'request runs on another gateway the API returns 409 with Retry-After, or 503 if that is ' +
        'unknown.',
    }),
  'x-headgate-max-cost': header(
    'Maximum charge in USD; the output is limited to what remains after the estimated prompt',
    '0.01',
  ),
  'x-headgate-allow-fallback': z
    .enum(['true', 'false'])
    .optional()
    .openapi({
      description:
        '`true`: if the model cannot answer, one of its `fallbacks` answers at its own price, unless ' +
        'part of a response was already sent',
    }),
  'x-headgate-dry-run': z
    .enum(['true', 'false'])
    .optional()
    .openapi({
      description:
        '`true`: no engine is called, nothing is counted or charged, and the response is {"object":"dry_run","model",' +
        '"estimated_cost","worst_cost","admitted","refusal","cold_start_seconds"}. If the engine may run tools ' +
        'itself, "estimated_cost" covers one turn and "worst_cost" all of them. If fallbacks are ' +
        'allowed, it also has ' +
        '"fallbacks", a list of {"model","estimated_cost","worst_cost","admitted","refusal"} of those ' +
        'that could answer, ' +
        'and "worst_cost_with_fallbacks", the highest cost of all',
    }),
});

const requestId = { 'x-request-id': z.string().openapi({ description: 'Id of the request and its usage record' }) };

/** Headers of a key's limits; each is absent if the key has no limit of this kind. */
const limits = {
  'X-RateLimit-Limit': header('Limit that rejected the request (429), else requests per minute', '60'),
  'X-RateLimit-Remaining': header('Remaining requests or tokens of that limit', '59'),
  'X-RateLimit-Reset': header('When the limit is fully available again, in Unix seconds', '1790000000'),
  'x-ratelimit-limit-requests': header('Requests per minute', '60'),
  'x-ratelimit-remaining-requests': header('Requests left in this minute', '59'),
  'x-ratelimit-reset-requests': header('Time until the full limit is available again', '59s'),
  'x-ratelimit-limit-tokens': header('Tokens per minute', '100000'),
  'x-ratelimit-remaining-tokens': header('Tokens left in this minute', '99000'),
  'x-ratelimit-reset-tokens': header('Time until the full limit is available again', '59s'),
};

/** Headers of lists of models, whose requests no limit counts. */
export const listingAnswerHeaders = z.object({ ...requestId, ...limits });

export const inferenceAnswerHeaders = z.object({
  ...requestId,
  'x-headgate-cache': z.enum(['hit', 'miss']).optional().openapi({
    description: 'Set if the key has `cache_responses`; absent on a stream whose headers were sent earlier',
  }),
  'idempotent-replayed': z
    .enum(['true'])
    .optional()
    .openapi({ description: 'The response is from an earlier request with the same Idempotency-Key' }),
  'x-headgate-original-request-id': header(
    'With `idempotent-replayed`: `x-request-id` of the request that was recorded and charged',
  ),
  'x-headgate-start': z
    .enum(['warm', 'cold'])
    .optional()
    .openapi({ description: '`cold`: the model had to be started. Absent if no engine was called' }),
  'x-headgate-fallback': header(
    'Id of the model that answered, if it is not the requested one. A stream whose headers were sent ' +
      'earlier has a comment with this name and value before the first frame',
    'small-chat',
  ),
  'x-headgate-max-tokens': header(
    'Output tokens per choice, if the balance or a budget allows less than requested',
    '512',
  ),
  ...limits,
});

export const errorAnswerHeaders = z.object({
  ...requestId,
  'Retry-After': header(
    'Whole seconds to wait: on 429 and 503 if waiting may help, and on 409 if another gateway runs the request',
    '1',
  ),
  'x-should-retry': header(
    '`false` if a retry cannot help: monthly_quota_exceeded, 501, and a 503 that only an operator can fix',
  ),
  ...limits,
});
