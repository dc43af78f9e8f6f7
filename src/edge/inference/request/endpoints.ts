import { formFields } from '#core/cache/cache.ts';
import type { Model, TaskType } from '#core/catalog/catalog.ts';
import {
  type AnswerFormat,
  freeAnswers,
  freeMessagesAnswers,
  inputTokensAnswers,
  messagesAnswers,
  openaiAnswers,
  responsesAnswers,
} from '#edge/inference/answer/answer.ts';
import { comparedKeys } from './media.ts';
import type { RequestForm } from './request-form.ts';
import { type FieldDecisions, requestFields } from './vllm-fields.ts';

/** Most turns assumed for one request with tools that the engine runs. vLLM has no limit of its own. */
export const turnsMax = 128;

/** True if an engine may run tools itself on this endpoint: where its operator allows built-in tools. */
export const mayRunTools = ({ toolForm }: Pick<Endpoint, 'toolForm'>, { allow }: Model['engine']): boolean =>
  toolForm === 'flat' && allow.includes('builtin_tools');

/**
 * Everything in which one inference endpoint differs from others. The steps of a request read this row and never its
 * path, so that a new endpoint is a new row.
 */
export interface Endpoint extends RequestForm {
  readonly path: `/v1/${string}`;
  /** Path on engines, if it is a different one. */
  readonly enginePath?: string;
  /** Counted as a request, and free: no model runs. */
  readonly isFree?: boolean;
  /** The request or its answer consists of token ids. */
  readonly isOfTokenIds?: boolean;
  /** Fields of the protocol that vLLM ignores, although they would change the answer. */
  readonly lackingFields?: readonly string[];
  /** `gen_ai.operation.name` of its traces. */
  readonly operation: string;
  /** Tasks of the models that serve the endpoint. */
  readonly taskTypes: readonly TaskType[];
  /** Decision for each field of vLLM's requests. */
  readonly fields: FieldDecisions;
  /** Member with the prompt, whose beginning engines cache for the next request; null if nothing is cached. */
  readonly promptKey: string | null;
  /** vLLM's output tokens per choice if the body has no limit; null for the rest of the context. */
  readonly outputTokensDefault: number | null;
  /**
   * Id by which vLLM aborts a request with the X-Request-Id `{id}`: one id per prompt with `{prompt}`, one per turn
   * with `{turn}`. Null if the engine's work is not worth aborting.
   */
  readonly engineRequestId: string | null;
  /** Member from which vLLM takes the id, with its value; null if vLLM takes X-Request-Id. */
  readonly idMember: { readonly key: string; readonly value: string } | null;
  /** Member that decides if the engine stores the answer, which it does by default; null without one. */
  readonly storeKey: string | null;
  /**
   * Members whose null an engine accepts and then fails at after it made the answer, with the value that replaces null.
   */
  readonly nullMembers: readonly (readonly [key: string, json: string])[];
  /** Healthy engines may lack this endpoint. */
  readonly mayBeUnserved: boolean;
  /** Members that do not change the answer: requests that differ only in these share one answer in the cache. */
  readonly formFields: readonly string[];
  /** An engine without continuous counts may put its final count on the chunk that ends the only choice. */
  readonly mayCountOnFinish: boolean;
  /** When the echo of a prompt includes the log probabilities of all its tokens, which take megabytes. */
  readonly echoHasLogprobs: 'always' | 'when_asked';
  /** Form of a function among the tools: an object inside its tool, the tool itself, or Anthropic's form. */
  readonly toolForm: 'wrapped' | 'flat' | 'anthropic';
  readonly answers: AnswerFormat;
}

/** Servers and sandboxes that Anthropic would use for the answer. */
const messagesLack = ['mcp_servers', 'container'] as const;

/** Conversation that OpenAI would read before the input. */
const responsesLack = ['conversation'] as const;

/**
 * Tasks with a chat template, which belongs to the model: models for plain completion have none, all others answer both
 * routes.
 */
const chatTasks = ['chat', 'vision', 'code'] as const;

const generating = {
  generates: true,
  choicesKey: 'n',
  streamOptionsKey: 'stream_options',
  itemsKey: null,
  idMember: null,
  storeKey: null,
  nullMembers: [],
  mayBeUnserved: false,
  formFields,
  toolForm: 'wrapped',
  answers: openaiAnswers,
} as const;

/** Endpoints that only read an input, for vectors and scores. Nothing is cached, and nothing is aborted. */
const reading = {
  generates: false,
  choicesKey: null,
  limitKeys: [],
  streamOptionsKey: null,
  itemsKey: null,
  outputTokensDefault: null,
  promptKey: null,
  engineRequestId: null,
  idMember: null,
  storeKey: null,
  nullMembers: [],
  mayBeUnserved: false,
  formFields,
  toolForm: 'wrapped',
  mayCountOnFinish: false,
  echoHasLogprobs: 'always',
  answers: openaiAnswers,
} as const;

/** Endpoints that a model's tokenizer answers. Models that read no prompt token by token have a tokenizer as well. */
const tokenizing = {
  ...reading,
  isFree: true,
  mayBeUnserved: true,
  operation: 'tokenize',
  taskTypes: [...chatTasks, 'completion', 'embedding', 'rerank'],
  answers: freeAnswers,
} as const;

const comparing = { ...reading, taskTypes: ['rerank'], inputs: { kind: 'pairs', keys: comparedKeys } } as const;

export const endpoints = [
  {
    ...generating,
    path: '/v1/chat/completions',
    operation: 'chat',
    taskTypes: chatTasks,
    fields: requestFields.chat,
    inputs: { kind: 'prompts', key: null },
    limitKeys: ['max_tokens', 'max_completion_tokens'],
    outputTokensDefault: null,
    promptKey: 'messages',
    engineRequestId: 'chatcmpl-{id}',
    mayCountOnFinish: true,
    echoHasLogprobs: 'always',
  },
  {
    ...generating,
    path: '/v1/completions',
    operation: 'text_completion',
    taskTypes: [...chatTasks, 'completion'],
    fields: requestFields.completion,
    inputs: { kind: 'prompts', key: 'prompt' },
    limitKeys: ['max_tokens'],
    outputTokensDefault: 16,
    promptKey: 'prompt',
    engineRequestId: 'cmpl-{id}-{prompt}',
    mayCountOnFinish: false,
    echoHasLogprobs: 'when_asked',
  },
  {
    ...generating,
    path: '/v1/responses',
    operation: 'chat',
    taskTypes: chatTasks,
    fields: requestFields.responses,
    lackingFields: responsesLack,
    inputs: { kind: 'prompts', key: null },
    choicesKey: null,
    limitKeys: ['max_output_tokens'],
    streamOptionsKey: null,
    outputTokensDefault: null,
    promptKey: 'input',
    itemsKey: 'input',
    engineRequestId: 'resp_{id}_{turn}',
    idMember: { key: 'request_id', value: 'resp_{id}' },
    storeKey: 'store',
    nullMembers: [
      ['background', 'false'],
      ['truncation', '"disabled"'],
    ],
    mayBeUnserved: true,
    // The answer repeats the metadata and the user of its request.
    formFields: ['model', 'stream', 'stream_options', 'usage'],
    mayCountOnFinish: false,
    echoHasLogprobs: 'always',
    toolForm: 'flat',
    answers: responsesAnswers,
  },
  {
    ...generating,
    path: '/v1/messages',
    operation: 'chat',
    taskTypes: chatTasks,
    fields: requestFields.messages,
    lackingFields: messagesLack,
    inputs: { kind: 'prompts', key: null },
    choicesKey: null,
    limitKeys: ['max_tokens'],
    streamOptionsKey: null,
    outputTokensDefault: null,
    promptKey: 'messages',
    engineRequestId: 'chatcmpl-{id}',
    mayBeUnserved: true,
    mayCountOnFinish: false,
    echoHasLogprobs: 'always',
    toolForm: 'anthropic',
    answers: messagesAnswers,
  },
  {
    ...tokenizing,
    path: '/v1/messages/count_tokens',
    taskTypes: chatTasks,
    fields: requestFields.countTokens,
    lackingFields: messagesLack,
    inputs: { kind: 'prompts', key: null },
    promptKey: 'messages',
    toolForm: 'anthropic',
    answers: freeMessagesAnswers,
  },
  {
    ...tokenizing,
    path: '/v1/responses/input_tokens',
    enginePath: '/v1/responses/render',
    taskTypes: chatTasks,
    fields: requestFields.inputTokens,
    lackingFields: responsesLack,
    inputs: { kind: 'prompts', key: null },
    promptKey: 'input',
    itemsKey: 'input',
    toolForm: 'flat',
    answers: inputTokensAnswers,
  },
  {
    ...tokenizing,
    path: '/v1/tokenize',
    enginePath: '/tokenize',
    isOfTokenIds: true,
    fields: requestFields.tokenize,
    inputs: { kind: 'prompts', key: null },
    promptKey: 'prompt',
  },
  {
    ...tokenizing,
    path: '/v1/detokenize',
    enginePath: '/detokenize',
    isOfTokenIds: true,
    fields: requestFields.detokenize,
    inputs: { kind: 'prompts', key: null },
    promptKey: 'tokens',
  },
  {
    ...reading,
    path: '/v1/embeddings',
    operation: 'embeddings',
    taskTypes: ['embedding'],
    fields: requestFields.embedding,
    inputs: {
      kind: 'texts',
      key: 'input',
      chatsKey: 'messages',
      formatKey: 'encoding_format',
      joinedFormats: ['float', 'base64'],
    },
  },
  // OpenTelemetry's conventions have no names for these operations yet, and allow other names.
  { ...comparing, path: '/v1/rerank', operation: 'rerank', fields: requestFields.rerank },
  { ...comparing, path: '/v1/score', operation: 'score', fields: requestFields.score },
] as const satisfies readonly Endpoint[];

export type EndpointPath = (typeof endpoints)[number]['path'];
