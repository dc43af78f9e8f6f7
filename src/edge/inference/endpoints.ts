import { formFields } from '#core/cache/cache.ts';
import type { TaskType } from '#core/catalog/catalog.ts';
import { comparedKeys } from './media.ts';
import { freeAnswers, freeMessagesAnswers, messagesAnswers } from './messages-answers.ts';
import { openaiAnswers, type AnswerFormat } from './openai-answers.ts';
import type { RequestForm } from './request-form.ts';
import { responsesAnswers } from './responses-answers.ts';
import { type FieldDecisions, requestFields } from './vllm-fields.ts';

/**
 * All that one inference endpoint has otherwise than another. The steps of a request ask its row and never for its
 * path, so that a new endpoint is a new row.
 */
export interface Endpoint extends RequestForm {
  readonly path: `/v1/${string}`;
  /** Where engines have it, where that is elsewhere. */
  readonly enginePath?: string;
  /** It is counted as a request and costs nothing: no model runs. */
  readonly isFree?: boolean;
  /** It is asked in ids of tokens, or answers in them. */
  readonly isOfTokenIds?: boolean;
  /** Members that its protocol has and vLLM passes over, though the answer would be another one. */
  readonly lackingFields?: readonly string[];
  /** `gen_ai.operation.name` of its traces. */
  readonly operation: string;
  /** The models that serve it. */
  readonly taskTypes: readonly TaskType[];
  /** What becomes of each field that vLLM has in its requests. */
  readonly fields: FieldDecisions;
  /** The member with the prompt, whose beginning engines keep for the next request; null where they keep nothing. */
  readonly promptKey: string | null;
  /** Output tokens per choice of vLLM where the body has no member that limits them; null for what the context holds. */
  readonly outputTokensDefault: number | null;
  /**
   * The id by which vLLM aborts a request that came with an X-Request-Id, `{id}` here; one for each prompt where it has
   * `{prompt}`, one for each turn where it has `{turn}`. Null where an engine's work is not worth being ended.
   */
  readonly engineRequestId: string | null;
  /** The member by which vLLM takes its id from the body, with the value; null where it takes X-Request-Id. */
  readonly idMember: { readonly key: string; readonly value: string } | null;
  /** The member by which an engine is told to keep the answer, which it does unless told otherwise; null without one. */
  readonly storeKey: string | null;
  /** Members whose null an engine takes and then fails at when it has made the answer, with what stands for it. */
  readonly nullMembers: Readonly<Record<string, string>>;
  /** Engines that are otherwise well do not have it. */
  readonly mayBeUnserved: boolean;
  /** Members that say nothing of what is answered: requests that differ in them alone have one answer in the cache. */
  readonly formFields: readonly string[];
  /** An engine without continuous counts may say its final one on the chunk that ends the only choice. */
  readonly mayCountOnFinish: boolean;
  /** When the echo of a prompt has the log probabilities of all its tokens, which take megabytes. */
  readonly echoHasLogprobs: 'always' | 'when_asked';
  /** Whether a function among the tools is an object of its own in its tool, or the tool itself, or one of Anthropic's. */
  readonly toolForm: 'wrapped' | 'flat' | 'anthropic';
  readonly answers: AnswerFormat;
}

/** Servers and sandboxes that Anthropic would use for the answer. */
const messagesLack = ['mcp_servers', 'container'] as const;

/** What OpenAI would read before the input. */
const responsesLack = ['conversation'] as const;

/** Chat templates belong to the model: one for plain completion has none, the others answer both routes. */
const chatTasks = ['chat', 'vision', 'code'] as const;

const generating = {
  generates: true,
  choicesKey: 'n',
  streamOptionsKey: 'stream_options',
  itemsKey: null,
  idMember: null,
  storeKey: null,
  nullMembers: {},
  mayBeUnserved: false,
  formFields,
  toolForm: 'wrapped',
  answers: openaiAnswers,
} as const;

/** What an input is read for: vectors and scores. Nothing of it is kept, and nothing is ended. */
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
  nullMembers: {},
  mayBeUnserved: false,
  formFields,
  toolForm: 'wrapped',
  mayCountOnFinish: false,
  echoHasLogprobs: 'always',
  answers: openaiAnswers,
} as const;

/** What the tokenizer of a model answers. Models that read no prompt token by token have one as well. */
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
    nullMembers: { background: 'false', truncation: '"disabled"' },
    mayBeUnserved: true,
    // An answer repeats the metadata and the user of its request.
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
  // The conventions of OpenTelemetry have no names for the operations of these yet, and allow others.
  { ...comparing, path: '/v1/rerank', operation: 'rerank', fields: requestFields.rerank },
  { ...comparing, path: '/v1/score', operation: 'score', fields: requestFields.score },
] as const satisfies readonly Endpoint[];

export type EndpointPath = (typeof endpoints)[number]['path'];
