import { type RouteConfig, z } from '@hono/zod-openapi';
import { taskTypes } from '#core/catalog/catalog.ts';
import { type ApiApp, bearerSecurity, errorDescription, jsonAnswer, jsonRequest } from '#edge/api/shared/shared.ts';
import {
  anthropicModelListSchema,
  anthropicModelSchema,
  modelListSchema,
  modelSchema,
  priceListSchema,
} from '#edge/contract/models.ts';
import {
  errorAnswerHeaders,
  inferenceAnswerHeaders,
  inferenceRequestHeaders,
  listingAnswerHeaders,
} from './inference-headers.ts';

/** The inference routes, for the OpenAPI document only: they forward unknown fields, so no schema checks requests. */

const unserved = [
  '/v1/audio/transcriptions',
  '/v1/audio/translations',
  '/v1/audio/speech',
  '/v1/images/generations',
  '/v1/images/edits',
  '/v1/images/variations',
  '/v1/moderations',
];

const model = z
  .string()
  .openapi({ description: 'Catalog id, display name, Hugging Face id or alias (case-insensitive)' });
const stream = z.boolean().default(false).openapi({ description: '`true` returns server-sent events' });
const outputMax = z.int().optional().openapi({ description: 'Maximum number of output tokens per choice' });
const tier = z.string().optional().openapi({
  example: 'flex',
  description: '`flex` is cheaper and waits while the engine is full. All other values are forwarded to the engine',
});

const usage = z.looseObject({
  prompt_tokens: z.int(),
  completion_tokens: z.int().optional(),
  total_tokens: z.int(),
  cost: z.number().optional().openapi({ description: 'USD; only with `usage: {"include": true}`' }),
});

const chatRequest = z
  .looseObject({
    model,
    messages: z.array(z.looseObject({ role: z.string() })),
    stream,
    stream_options: z.looseObject({ include_usage: z.boolean().optional() }).optional(),
    usage: z
      .looseObject({ include: z.boolean().optional() })
      .optional()
      .openapi({ description: '`{"include": true}` adds `usage` with `usage.cost` to the response, streamed or not' }),
    max_completion_tokens: outputMax,
    service_tier: tier,
  })
  .openapi('ChatCompletionRequest', {
    description:
      'All other fields are forwarded to the engine unchanged, or rejected with 400 and the field in `param`',
  });

const completionRequest = z
  .looseObject({
    model,
    prompt: z.union([z.string(), z.array(z.unknown())]),
    stream,
    max_tokens: outputMax,
    service_tier: tier,
  })
  .openapi('CompletionRequest');

const responseRequest = z
  .looseObject({
    model,
    input: z.union([z.string(), z.array(z.looseObject({}))]),
    instructions: z.string().optional(),
    stream,
    max_output_tokens: outputMax,
    store: z.boolean().default(true).openapi({
      description: '`false` does not store the response. In a batch, a response is stored only with `true`',
    }),
    previous_response_id: z.string().optional().openapi({ description: 'A stored response to continue' }),
    service_tier: tier,
  })
  .openapi('ResponseRequest', {
    description: '`background` is rejected, and so are built-in tools unless the engine file allows them',
  });

const responseAnswer = z
  .looseObject({
    id: z.string(),
    object: z.literal('response'),
    model: z.string(),
    status: z.string(),
    output: z.array(z.looseObject({})),
    store: z.boolean().optional(),
    previous_response_id: z.string().nullable().optional(),
    usage: z.looseObject({ input_tokens: z.int(), output_tokens: z.int(), total_tokens: z.int() }),
  })
  .openapi('Response');

const inputTokensRequest = z
  .looseObject({
    model,
    input: z.union([z.string(), z.array(z.looseObject({}))]),
    instructions: z.string().optional(),
    previous_response_id: z.string().optional().openapi({ description: 'A stored response to continue' }),
  })
  .openapi('InputTokensRequest', { description: 'The request of `POST /v1/responses` to count' });
const inputTokensAnswer = z
  .object({ object: z.literal('response.input_tokens'), input_tokens: z.int() })
  .openapi('InputTokens');

const responseId = z.object({ id: z.string().openapi({ example: 'resp_019ab1c2-5d3e-7000-8000-3f2a1b4c5d6e' }) });
const deletedResponse = z
  .object({ id: z.string(), object: z.literal('response'), deleted: z.literal(true) })
  .openapi('DeletedResponse');
const inputItemList = z
  .object({
    object: z.literal('list'),
    data: z.array(z.looseObject({ id: z.string(), type: z.string() })),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
    has_more: z.boolean(),
  })
  .openapi('InputItemList');
const inputItemQuery = z.object({
  after: z.string().optional().openapi({ description: '`last_id` of the previous page' }),
  before: z.string().optional().openapi({ description: '`first_id` of the next page' }),
  limit: z.int().min(1).max(100).default(20).openapi({ description: 'Items per page' }),
  order: z.enum(['asc', 'desc']).default('desc').openapi({ description: 'By the place in the input' }),
});

const messageFields = {
  model,
  messages: z.array(z.looseObject({ role: z.string() })),
  system: z.union([z.string(), z.array(z.looseObject({}))]).optional(),
  tools: z.array(z.looseObject({ name: z.string() })).optional(),
};
const messageRequest = z
  .looseObject({
    ...messageFields,
    max_tokens: z.int().openapi({ description: 'Maximum number of output tokens' }),
    stream,
    service_tier: tier,
  })
  .openapi('MessageRequest', { description: "Request of Anthropic's Messages API, as far as vLLM supports it" });
const countTokensRequest = z.looseObject(messageFields).openapi('CountTokensRequest');

const messageAnswer = z
  .looseObject({
    id: z.string(),
    type: z.literal('message'),
    role: z.literal('assistant'),
    model: z.string(),
    content: z.array(z.looseObject({ type: z.string() })),
    stop_reason: z.string(),
    usage: z.looseObject({ input_tokens: z.int(), output_tokens: z.int() }),
  })
  .openapi('Message');
const countTokensAnswer = z.looseObject({ input_tokens: z.int() }).openapi('CountTokens');

const tokenizeRequest = z
  .looseObject({ model, prompt: z.string().optional(), messages: z.array(z.looseObject({})).optional() })
  .openapi('TokenizeRequest', { description: 'Either `prompt`, or the `messages` of a chat' });
const tokenizeAnswer = z
  .looseObject({
    count: z.int().openapi({ description: 'Number of tokens' }),
    max_model_len: z.int().openapi({ description: 'Context length in tokens' }),
    tokens: z.array(z.int()).openapi({ description: 'Token ids' }),
  })
  .openapi('Tokens');
const detokenizeRequest = z
  .looseObject({ model, tokens: z.array(z.int()).openapi({ description: 'Token ids' }) })
  .openapi('DetokenizeRequest');
const detokenizeAnswer = z.looseObject({ prompt: z.string() }).openapi('Detokenized');

const embeddingRequest = z
  .looseObject({ model, input: z.union([z.string(), z.array(z.unknown())]), service_tier: tier })
  .openapi('EmbeddingRequest');

const rerankRequest = z
  .looseObject({
    model,
    query: z.union([z.string(), z.looseObject({})]),
    documents: z.array(z.union([z.string(), z.looseObject({})])),
    top_n: z.int().optional().openapi({ description: 'Maximum number of results' }),
  })
  .openapi('RerankRequest');

const rerankAnswer = z
  .looseObject({
    model: z.string(),
    results: z.array(
      z.looseObject({
        index: z.int().openapi({ description: 'Position in `documents`, counted from 0' }),
        relevance_score: z.number(),
      }),
    ),
    usage,
  })
  .openapi('Rerank');

const scoreRequest = z.looseObject({ model }).openapi('ScoreRequest', {
  description: '`queries` and `documents`, or `text_1` and `text_2`; each is a text or a list',
});

const answer = (object: string, list: 'choices' | 'data', name: string) =>
  z
    .looseObject({ object: z.literal(object), model: z.string(), [list]: z.array(z.looseObject({})), usage })
    .openapi(name);

const chatAnswer = answer('chat.completion', 'choices', 'ChatCompletion');
const completionAnswer = answer('text_completion', 'choices', 'Completion');
const embeddingAnswer = answer('list', 'data', 'EmbeddingList');
const scoreAnswer = answer('list', 'data', 'ScoreList');

/** Returns an answer of one JSON document, or of server-sent events if `stream` is true. */
function streamable(
  schema: z.ZodType,
  description = 'Response; with `stream: true` frames of `data:` up to `data: [DONE]`',
) {
  const described = jsonAnswer(schema, description);
  const events = { 'text/event-stream': { schema: z.string() } };
  return { ...described, headers: inferenceAnswerHeaders, content: { ...described.content, ...events } };
}

const errors = { default: { description: errorDescription, headers: errorAnswerHeaders } };

const anthropicVersion = z.object({
  'anthropic-version': z.string().optional().openapi({
    description: "Clients of Anthropic's API send it, and get models and errors in that API's shape",
    example: '2023-06-01',
  }),
});

const anthropicPaging = {
  limit: z.int().min(1).max(1000).default(1000).openapi({
    description: 'Models per page. The paging parameters apply with `anthropic-version` only',
  }),
  after_id: z.string().optional().openapi({ description: '`last_id` of the current page: returns the next page' }),
  before_id: z.string().optional().openapi({ description: '`first_id` of the current page: returns the page before' }),
};

const inference: readonly RouteConfig[] = [
  {
    method: 'post',
    path: '/v1/chat/completions',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(chatRequest) },
    responses: { 200: streamable(chatAnswer), ...errors },
  },
  {
    method: 'post',
    path: '/v1/completions',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(completionRequest) },
    responses: { 200: streamable(completionAnswer), ...errors },
  },
  {
    method: 'post',
    path: '/v1/responses',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(responseRequest) },
    responses: {
      200: streamable(responseAnswer, 'Response; with `stream: true` events up to `response.completed`'),
      ...errors,
    },
  },
  {
    method: 'post',
    path: '/v1/responses/input_tokens',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(inputTokensRequest) },
    responses: { 200: { ...jsonAnswer(inputTokensAnswer, 'The count'), headers: inferenceAnswerHeaders }, ...errors },
  },
  {
    method: 'get',
    path: '/v1/responses/{id}',
    request: { params: responseId },
    responses: { 200: { ...jsonAnswer(responseAnswer, 'The response'), headers: listingAnswerHeaders }, ...errors },
  },
  {
    method: 'delete',
    path: '/v1/responses/{id}',
    request: { params: responseId },
    responses: { 200: { ...jsonAnswer(deletedResponse, 'Confirmation'), headers: listingAnswerHeaders }, ...errors },
  },
  {
    method: 'get',
    path: '/v1/responses/{id}/input_items',
    request: { params: responseId, query: inputItemQuery },
    responses: {
      200: { ...jsonAnswer(inputItemList, 'A page of input items'), headers: listingAnswerHeaders },
      ...errors,
    },
  },
  { method: 'post', path: '/v1/responses/{id}/cancel', request: { params: responseId }, responses: errors },
  {
    method: 'post',
    path: '/v1/messages',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(messageRequest) },
    responses: {
      200: streamable(messageAnswer, 'Message; with `stream: true` events up to `message_stop`'),
      ...errors,
    },
  },
  {
    method: 'post',
    path: '/v1/messages/count_tokens',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(countTokensRequest) },
    responses: { 200: { ...jsonAnswer(countTokensAnswer, 'The count'), headers: inferenceAnswerHeaders }, ...errors },
  },
  {
    method: 'post',
    path: '/v1/tokenize',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(tokenizeRequest) },
    responses: { 200: { ...jsonAnswer(tokenizeAnswer, 'The tokens'), headers: inferenceAnswerHeaders }, ...errors },
  },
  {
    method: 'post',
    path: '/v1/detokenize',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(detokenizeRequest) },
    responses: { 200: { ...jsonAnswer(detokenizeAnswer, 'The text'), headers: inferenceAnswerHeaders }, ...errors },
  },
  {
    method: 'post',
    path: '/v1/embeddings',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(embeddingRequest) },
    responses: { 200: { ...jsonAnswer(embeddingAnswer, 'The vectors'), headers: inferenceAnswerHeaders }, ...errors },
  },
  {
    method: 'post',
    path: '/v1/rerank',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(rerankRequest) },
    responses: {
      200: { ...jsonAnswer(rerankAnswer, 'The documents, best first'), headers: inferenceAnswerHeaders },
      ...errors,
    },
  },
  {
    method: 'post',
    path: '/v1/score',
    request: { headers: inferenceRequestHeaders, body: jsonRequest(scoreRequest) },
    responses: {
      200: { ...jsonAnswer(scoreAnswer, 'The scores, in the order of the pairs'), headers: inferenceAnswerHeaders },
      ...errors,
    },
  },
  ...unserved.map((path) => ({
    method: 'post' as const,
    path,
    responses: errors,
  })),
  {
    method: 'get',
    path: '/v1/models',
    request: {
      headers: anthropicVersion,
      query: z.object({
        task_type: z.enum(taskTypes).optional().openapi({ description: 'Only models with this task' }),
        ...anthropicPaging,
      }),
    },
    responses: {
      200: {
        ...jsonAnswer(z.union([modelListSchema, anthropicModelListSchema]), 'The enabled models'),
        headers: listingAnswerHeaders,
      },
      ...errors,
    },
  },
  {
    method: 'get',
    path: '/v1/models/{id}',
    request: { headers: anthropicVersion, params: z.object({ id: model }) },
    responses: {
      200: { ...jsonAnswer(z.union([modelSchema, anthropicModelSchema]), 'The model'), headers: listingAnswerHeaders },
      ...errors,
    },
  },
];

export function registerInferenceDocs(app: ApiApp): void {
  for (const route of inference) app.openAPIRegistry.registerPath({ ...route, security: bearerSecurity });
  app.openAPIRegistry.registerPath({
    method: 'get',
    path: '/v1/pricing',
    responses: { 200: jsonAnswer(priceListSchema, 'Prices in USD per million tokens') },
  });
}
