import { created, cursorList, exampleId, model, requestId } from './examples.ts';
import type { Tag } from './operation.ts';

const tokens = { input_tokens: 12, input_cached_tokens: 0, output_tokens: 4, output_reasoning_tokens: 0 };

const request = {
  id: requestId,
  object: 'usage.request',
  created_at: created,
  key_id: exampleId('key'),
  project_id: exampleId('proj'),
  model,
  fallback_for: null,
  endpoint: '/v1/chat/completions',
  stream: false,
  service_tier: 'default',
  status: 200,
  outcome: 'completed',
  reason: null,
  cache_hit: false,
  ...tokens,
  input_cache_write_tokens: 0,
  usage_source: 'engine',
  cost: '0.0000042',
  written_off: '0',
  currency: 'USD',
  timings_ms: { queued: 0, first_byte: 180, total: 420 },
  client_request_id: null,
  end_user: null,
};

const rejected = {
  id: requestId,
  object: 'usage.rejected_request',
  created_at: created,
  key_id: exampleId('key'),
  project_id: exampleId('proj'),
  model,
  endpoint: '/v1/chat/completions',
  status: 429,
  code: 'rate_limit_exceeded',
  param: null,
  message: 'This key has reached its limit of requests per minute. Try again later.',
  client_request_id: null,
  end_user: null,
};

const sums = {
  num_model_requests: 100,
  outcomes: { completed: 97, aborted: 2, ended: 0, failed: 1 },
  refusals: { rate_limit_exceeded: 3 },
  input_tokens: 12_000,
  input_cached_tokens: 1000,
  output_tokens: 4000,
  output_reasoning_tokens: 0,
  cost: '0.0042',
};

const who = 'An inference key sees only its own requests, a management key those of its organization.';

export const usage: Tag = {
  name: 'Usage',
  description: 'Records of requests, their sums, and stored requests and responses. Money is a decimal string in USD.',
  operations: {
    'GET /v1/usage/requests': {
      operationId: 'listUsageRequests',
      summary: 'List or export requests',
      description:
        'Returns the records of admitted requests, newest first. With `Accept: application/x-ndjson` or `text/csv` it ' +
        `exports all matching records, without \`limit\` and \`cursor\`. ${who}`,
      answer: cursorList(request),
    },
    'GET /v1/usage/requests/{id}': {
      operationId: 'retrieveUsageRequest',
      summary: 'Retrieve a request with its timeline',
      description:
        'Returns the record of one request, by its `x-request-id`: timeline in milliseconds, remaining limits, price and ' +
        `replica. ${who}`,
      answer: {
        ...request,
        timeline: { admitted: 2, queued: 0, engine_cold_start: 0, first_byte: 178, last_byte: 236, committed: 4 },
        limits_remaining: {
          requests_per_minute: 59,
          tokens_per_minute: null,
          monthly_token_limit: null,
          max_concurrency: 9,
        },
        price_version: requestId,
        price: { input_per_million: '0.15', cached_input_per_million: '0.075', output_per_million: '0.6' },
        replica: { id: 'r1', age_seconds: 3600 },
      },
    },
    'GET /v1/usage/rejected': {
      operationId: 'listRejectedRequests',
      summary: 'List rejected requests',
      description:
        'Returns requests that were rejected before they were admitted, newest first, each with the error that its client ' +
        'got. Each gateway keeps the first 30 of an organization in each minute, for 7 days; `refusals` of ' +
        `\`/v1/usage/summary\` counts all. ${who}`,
      answer: cursorList(rejected),
    },
    'GET /v1/usage/summary': {
      operationId: 'summarizeUsage',
      summary: 'Sum usage by key, model or day',
      description:
        'Returns requests, tokens and cost in USD, in one group or for each combination of `group_by`. The default span ' +
        `is the current UTC month; grouped by hour it is at most 400 days. ${who}`,
      answer: {
        object: 'usage.summary',
        from: created,
        to: created + 86_400,
        data: [{ model, ...sums }],
        totals: sums,
      },
    },
    'GET /v1/usage/requests/{id}/content': {
      operationId: 'retrieveUsageContent',
      summary: 'Retrieve a stored request and response',
      description:
        'Returns the bodies of a request whose key has `store_requests`. The key that made the request and management ' +
        'keys of its organization may call it.',
      answer: {
        object: 'usage.content',
        request: { model, messages: [{ role: 'user', content: 'What is the capital of France?' }] },
        response: { object: 'chat.completion', choices: [{ message: { role: 'assistant', content: 'Paris.' } }] },
        truncated: false,
      },
    },
    'DELETE /v1/usage/requests/{id}/content': {
      operationId: 'deleteUsageContent',
      summary: 'Delete a stored request and response',
      description:
        'Deletes the bodies of a request permanently; its usage record stays. The key that made the request and ' +
        'management keys of its organization may call it.',
      answer: { id: requestId, object: 'usage.content', deleted: true },
    },
  },
};
