import { z } from '@hono/zod-openapi';

/** The headers of the OpenAI routes, for the document only: what asks for something, and what answers say beside the body. */

/** A header that may be missing. */
const header = (description: string, example?: string) =>
  z
    .string()
    .optional()
    .openapi({ description, ...(example === undefined ? {} : { example }) });

export const inferenceRequestHeaders = z.object({
  'X-Project-ID': header("Another project of the organization that the request counts for; the key's by default"),
  'X-Client-Request-Id': header("The caller's own id, kept on the usage record; X-Request-Id is one too"),
  'Idempotency-Key': z
    .string()
    .min(1)
    .max(255)
    .optional()
    .openapi({
      description:
        'Printable ASCII, for 24 hours and per API key: the same body again joins the running request or gets its answer, ' +
        'and is billed once; another body is 422; one that runs on another gateway is 409 ' +
        'with Retry-After, and 503 with Retry-After while that cannot be said',
    }),
  'x-headgate-max-cost': header(
    'USD: no request is charged more, and the output is limited to what this pays for beside the estimated prompt',
    '0.01',
  ),
  'x-headgate-allow-fallback': z
    .enum(['true', 'false'])
    .optional()
    .openapi({
      description:
        '`true`: where the model cannot answer, one of its `fallbacks` may, at its own price, as long as nothing of an ' +
        'answer has been sent',
    }),
  'x-headgate-dry-run': z
    .enum(['true', 'false'])
    .optional()
    .openapi({
      description:
        '`true`: no engine is asked, nothing is counted or charged, and the answer is {"object":"dry_run","model",' +
        '"estimated_cost","worst_cost","admitted","refusal","cold_start_seconds"}; where fallbacks are allowed also ' +
        '"fallbacks", a list of {"model","estimated_cost","worst_cost","admitted","refusal"} of those that could ' +
        'answer, and "worst_cost_with_fallbacks", the most of all',
    }),
});

const requestId = { 'x-request-id': z.string().openapi({ description: 'The id of the usage record' }) };

/** Of a key without the limit they are missing. */
const limits = {
  'X-RateLimit-Limit': header('Of the limit that refused on a 429, of requests per minute otherwise', '60'),
  'X-RateLimit-Remaining': header('What is left of it', '59'),
  'X-RateLimit-Reset': header('When it is whole again, in Unix seconds', '1790000000'),
  'x-ratelimit-limit-requests': header('Requests per minute', '60'),
  'x-ratelimit-remaining-requests': header('Requests left in this minute', '59'),
  'x-ratelimit-reset-requests': header('Until requests are whole again', '59s'),
  'x-ratelimit-limit-tokens': header('Tokens per minute', '100000'),
  'x-ratelimit-remaining-tokens': header('Tokens left in this minute', '99000'),
  'x-ratelimit-reset-tokens': header('Until tokens are whole again', '59s'),
};

/** Of listings, which ask for nothing that is limited. */
export const listingAnswerHeaders = z.object({ ...requestId, ...limits });

export const inferenceAnswerHeaders = z.object({
  ...requestId,
  'x-headgate-cache': z.enum(['hit', 'miss']).optional().openapi({
    description: 'Where the key has cache_responses; missing on a stream whose head went before it was known',
  }),
  'idempotent-replayed': z
    .enum(['true'])
    .optional()
    .openapi({ description: 'The answer is that of an earlier request with the same Idempotency-Key' }),
  'x-headgate-original-request-id': header(
    'With idempotent-replayed: x-request-id of the request that ran, which is the one on record and charged',
  ),
  'x-headgate-start': z
    .enum(['warm', 'cold'])
    .optional()
    .openapi({ description: 'cold: the model had to be started; missing where no engine was asked' }),
  'x-headgate-fallback': header(
    'Id of the model that answered, where it is not the one that was asked for; in a stream whose head went before, a ' +
      'comment of this name and value stands before the first frame',
    'small-chat',
  ),
  'x-headgate-max-tokens': header(
    'Output tokens per choice, where money allows less than the request asked for',
    '512',
  ),
  ...limits,
});

export const errorAnswerHeaders = z.object({
  ...requestId,
  'Retry-After': header(
    'On 429 and 503 where waiting may help, and on 409 where another gateway runs the request: whole seconds',
    '1',
  ),
  'x-should-retry': header(
    'false where no SDK should try again: monthly_quota_exceeded, 501, and 503 that only an operator can mend',
  ),
  ...limits,
});
