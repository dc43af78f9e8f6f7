import { created, model } from './examples.ts';
import type { Operations, Tag } from './operation.ts';

const chatUsage = { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 };
const messages = [{ role: 'user', content: 'What is the capital of France?' }];

const storedResponse = {
  id: 'resp_019ab1c2-5d3e-7000-8000-3f2a1b4c5d6e',
  object: 'response',
  created_at: created,
  model,
  status: 'completed',
  store: true,
  previous_response_id: null,
  output: [
    {
      type: 'message',
      id: 'msg_019ab1c2',
      role: 'assistant',
      status: 'completed',
      content: [{ type: 'output_text', text: 'Paris.', annotations: [] }],
    },
  ],
  usage: { input_tokens: 12, output_tokens: 4, total_tokens: 16 },
};
const inputItemId = 'msg_019ab1c25d3e700080003f2a1b4c5d6e0';

const generation: Operations = {
  'POST /v1/chat/completions': {
    operationId: 'createChatCompletion',
    summary: 'Create a chat completion',
    description:
      "Returns the model's reply to a conversation, as JSON or, with `stream: true`, as server-sent events. Any API key " +
      "may call it for the models that the key may use. The organization's wallet pays for the tokens at the price of " +
      'the model that answers.',
    request: { model, messages, max_completion_tokens: 100 },
    answer: {
      id: 'chatcmpl-019ab1c2',
      object: 'chat.completion',
      created,
      model,
      choices: [{ index: 0, message: { role: 'assistant', content: 'Paris.' }, finish_reason: 'stop' }],
      usage: chatUsage,
    },
  },
  'POST /v1/completions': {
    operationId: 'createCompletion',
    summary: 'Create a text completion',
    description:
      'Continues a prompt, as JSON or, with `stream: true`, as server-sent events. Any API key may call it for the ' +
      "models that the key may use. The organization's wallet pays for the tokens.",
    request: { model, prompt: 'Once upon a time', max_tokens: 16 },
    answer: {
      id: 'cmpl-019ab1c2',
      object: 'text_completion',
      created,
      model,
      choices: [{ index: 0, text: ', there was a gateway.', finish_reason: 'stop' }],
      usage: chatUsage,
    },
  },
  'POST /v1/responses': {
    operationId: 'createResponse',
    summary: 'Create a model response',
    description:
      "Returns a response in the format of OpenAI's Responses API, as JSON or, with `stream: true`, as server-sent " +
      "events. Any API key may call it for the models that the key may use. The organization's wallet pays for the " +
      'tokens, also for those of a conversation that `previous_response_id` continues. The response is stored unless ' +
      '`store` is `false`.',
    request: { model, input: 'What is the capital of France?', max_output_tokens: 100 },
    answer: storedResponse,
  },
  'POST /v1/responses/input_tokens': {
    operationId: 'countInputTokens',
    summary: 'Count the input tokens of a response',
    description:
      'Returns the number of input tokens that the same request to `POST /v1/responses` would have. It is free, and ' +
      'counts as a request. Engines that do not support it return 501.',
    request: { model, input: 'What is the capital of France?' },
    answer: { object: 'response.input_tokens', input_tokens: 12 },
  },
  'GET /v1/responses/{id}': {
    operationId: 'retrieveResponse',
    summary: 'Retrieve a stored response',
    description:
      "Returns a stored response of the key's organization, or of the key's project if the key works only there. Any " +
      'API key may call it. It is free.',
    answer: storedResponse,
  },
  'DELETE /v1/responses/{id}': {
    operationId: 'deleteResponse',
    summary: 'Delete a stored response',
    description:
      'Deletes a stored response with its input. A conversation with a deleted response cannot be continued. Any API ' +
      'key may call it.',
    answer: { id: storedResponse.id, object: 'response', deleted: true },
  },
  'GET /v1/responses/{id}/input_items': {
    operationId: 'listResponseInputItems',
    summary: 'List the input of a stored response',
    description:
      'Returns the input items of the request itself, without those of earlier responses. Any API key may call it.',
    answer: {
      object: 'list',
      data: [
        {
          id: inputItemId,
          type: 'message',
          status: 'completed',
          role: 'user',
          content: [{ type: 'input_text', text: 'What is the capital of France?' }],
        },
      ],
      first_id: inputItemId,
      last_id: inputItemId,
      has_more: false,
    },
  },
  'POST /v1/responses/{id}/cancel': {
    operationId: 'cancelResponse',
    summary: 'Cancel a response',
    description: 'Returns 400: only background responses can be canceled, and `background` is not supported.',
  },
  'POST /v1/messages': {
    operationId: 'createMessage',
    summary: 'Create a message with the Anthropic API',
    description:
      "Returns a reply in the format of Anthropic's Messages API, as JSON or, with `stream: true`, as server-sent " +
      "events. Errors have Anthropic's shape. Any API key may call it, sent as `Authorization: Bearer`; the " +
      "organization's wallet pays for the tokens.",
    request: { model, max_tokens: 100, messages },
    answer: {
      id: 'msg_019ab1c2',
      type: 'message',
      role: 'assistant',
      model,
      content: [{ type: 'text', text: 'Paris.' }],
      stop_reason: 'end_turn',
      usage: { input_tokens: 12, output_tokens: 4 },
    },
  },
};

const pooling: Operations = {
  'POST /v1/embeddings': {
    operationId: 'createEmbedding',
    summary: 'Create embeddings',
    description:
      'Returns one vector for each input text, in order. Any API key may call it for the models that the key may use. ' +
      "The organization's wallet pays for the input tokens.",
    request: { model: 'bge-m3', input: ['A gateway', 'A portal'] },
    answer: {
      object: 'list',
      model: 'bge-m3',
      data: [
        { object: 'embedding', index: 0, embedding: [0.012, -0.034] },
        { object: 'embedding', index: 1, embedding: [0.021, 0.008] },
      ],
      usage: { prompt_tokens: 6, total_tokens: 6 },
    },
  },
  'POST /v1/rerank': {
    operationId: 'createRerank',
    summary: 'Rank documents by relevance to a query',
    description:
      'Returns the documents by their index, most relevant first. Any API key may call it for the models that the key ' +
      "may use. The organization's wallet pays for the input tokens.",
    request: {
      model: 'bge-reranker-v2-m3',
      query: 'capital of France',
      documents: ['Paris is the capital of France.', 'Berlin is in Germany.'],
      top_n: 1,
    },
    answer: {
      id: 'rerank-019ab1c2',
      model: 'bge-reranker-v2-m3',
      results: [{ index: 0, relevance_score: 0.98 }],
      usage: { prompt_tokens: 20, total_tokens: 20 },
    },
  },
  'POST /v1/score': {
    operationId: 'createScore',
    summary: 'Score pairs of texts',
    description:
      'Returns one similarity score for each pair, in order. Any API key may call it for the models that the key may ' +
      "use. The organization's wallet pays for the input tokens.",
    request: { model: 'bge-reranker-v2-m3', text_1: 'capital of France', text_2: ['Paris', 'Berlin'] },
    answer: {
      id: 'score-019ab1c2',
      object: 'list',
      created,
      model: 'bge-reranker-v2-m3',
      data: [
        { object: 'score', index: 0, score: 0.97 },
        { object: 'score', index: 1, score: 0.11 },
      ],
      usage: { prompt_tokens: 12, total_tokens: 12 },
    },
  },
};

const free = 'Any API key may call it. It is free, and counts against the request limits of the key.';

const tokens: Operations = {
  'POST /v1/messages/count_tokens': {
    operationId: 'countMessageTokens',
    summary: 'Count the tokens of a message',
    description: `Returns the number of input tokens of a request to \`POST /v1/messages\`. ${free}`,
    request: { model, messages },
    answer: { input_tokens: 12 },
  },
  'POST /v1/tokenize': {
    operationId: 'tokenizeText',
    summary: 'Convert text to tokens',
    description: `Returns the token ids of a text or a chat, as the model's tokenizer makes them. ${free}`,
    request: { model, prompt: 'Hello, world' },
    answer: { count: 3, max_model_len: 32_768, tokens: [9707, 11, 1879] },
  },
  'POST /v1/detokenize': {
    operationId: 'detokenizeTokens',
    summary: 'Convert tokens to text',
    description: `Returns the text of token ids, as the model's tokenizer makes it. ${free}`,
    request: { model, tokens: [9707, 11, 1879] },
    answer: { prompt: 'Hello, world' },
  },
};

const modelRecord = {
  id: model,
  object: 'model',
  created,
  owned_by: 'headgate',
  parent: null,
  name: 'Qwen3 32B',
  aliases: ['default-chat'],
  fallbacks: [],
  hugging_face_id: 'Qwen/Qwen3-32B',
  task_type: 'chat',
  context_length: 32_768,
  max_model_len: 32_768,
  max_output_length: 32_768,
  input_modalities: ['text'],
  supported_parameters: ['max_completion_tokens', 'temperature', 'tools'],
  pricing: { prompt: '0.00000015', completion: '0.0000006', input_cache_read: '0.000000075' },
  status: 'ready',
  expected_cold_start_seconds: null,
};

const models: Operations = {
  'GET /v1/models': {
    operationId: 'listModels',
    summary: 'List models',
    description:
      'Returns the enabled models that the API key may use, with prices in USD per token and the state of their ' +
      'engines. Aliases are in the list if the engine file says so. With the header `anthropic-version` the answer has ' +
      "the shape and the paging of Anthropic's API. Any API key may call it. It is free.",
    answer: { object: 'list', data: [modelRecord] },
  },
  'GET /v1/models/{id}': {
    operationId: 'retrieveModel',
    summary: 'Retrieve a model',
    description:
      'Returns one model that the API key may use, by its catalog id, display name, Hugging Face id or alias. The id ' +
      "may contain slashes. With the header `anthropic-version` the answer has the shape of Anthropic's API. Any API " +
      'key may call it.',
    answer: modelRecord,
  },
  'GET /v1/pricing': {
    operationId: 'listPrices',
    summary: 'List prices',
    description: 'Returns the prices of all models in USD per million tokens. No API key is required.',
    answer: {
      object: 'list',
      data: [
        {
          model,
          input_per_million: '0.15',
          output_per_million: '0.6',
          cached_input_per_million: '0.075',
          currency: 'USD',
          effective_from: created,
        },
      ],
    },
  },
};

const notImplemented = {
  error: {
    message: 'This gateway does not serve this endpoint.',
    type: 'not_implemented',
    code: 'not_implemented',
    param: null,
  },
};

function unserved(operationId: string, summary: string, kind: string) {
  const description = `This gateway serves no ${kind} models. With an API key it always returns 501 \`not_implemented\`.`;
  return { operationId, summary: `${summary} (not served)`, description, error: notImplemented };
}

const notServed: Operations = {
  'POST /v1/audio/transcriptions': unserved('createTranscription', 'Transcribe audio', 'audio'),
  'POST /v1/audio/translations': unserved('createTranslation', 'Translate audio', 'audio'),
  'POST /v1/audio/speech': unserved('createSpeech', 'Generate speech', 'audio'),
  'POST /v1/images/generations': unserved('createImage', 'Generate an image', 'image'),
  'POST /v1/images/edits': unserved('createImageEdit', 'Edit an image', 'image'),
  'POST /v1/images/variations': unserved('createImageVariation', 'Create variations of an image', 'image'),
  'POST /v1/moderations': unserved('createModeration', 'Classify content', 'moderation'),
};

export const inference: Tag = {
  name: 'Inference',
  description:
    "Chat, text, embeddings and ranking with OpenAI's API, Anthropic's Messages API, and the list of models.",
  operations: { ...generation, ...pooling, ...tokens, ...models, ...notServed },
};
