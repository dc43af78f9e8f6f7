import type { TaskType } from '#core/catalog/catalog.ts';
import { comparedKeys } from './media.ts';
import { openaiAnswers, type AnswerFormat } from './openai-answers.ts';
import type { RequestForm } from './request-form.ts';
import { type FieldDecisions, requestFields } from './vllm-fields.ts';

/**
 * All that one inference endpoint has otherwise than another. The steps of a request ask its row and never for its
 * path, so that a new endpoint is a new row.
 */
export interface Endpoint extends RequestForm {
  readonly path: `/v1/${string}`;
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
   * `{prompt}`. Null where an engine's work is not worth being ended.
   */
  readonly engineRequestId: string | null;
  /** An engine without continuous counts may say its final one on the chunk that ends the only choice. */
  readonly mayCountOnFinish: boolean;
  /** When the echo of a prompt has the log probabilities of all its tokens, which take megabytes. */
  readonly echoHasLogprobs: 'always' | 'when_asked';
  readonly answers: AnswerFormat;
}

/** Chat templates belong to the model: one for plain completion has none, the others answer both routes. */
const chatTasks = ['chat', 'vision', 'code'] as const;

const generating = {
  generates: true,
  choicesKey: 'n',
  streamOptionsKey: 'stream_options',
  answers: openaiAnswers,
} as const;

/** What an input is read for: vectors and scores. Nothing of it is kept, and nothing is ended. */
const reading = {
  generates: false,
  choicesKey: null,
  limitKeys: [],
  streamOptionsKey: null,
  outputTokensDefault: null,
  promptKey: null,
  engineRequestId: null,
  mayCountOnFinish: false,
  echoHasLogprobs: 'always',
  answers: openaiAnswers,
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
    ...reading,
    path: '/v1/embeddings',
    operation: 'embeddings',
    taskTypes: ['embedding'],
    fields: requestFields.embedding,
    inputs: { kind: 'texts', keys: ['input'], chatsKey: 'messages' },
  },
  // The conventions of OpenTelemetry have no names for the operations of these yet, and allow others.
  { ...comparing, path: '/v1/rerank', operation: 'rerank', fields: requestFields.rerank },
  { ...comparing, path: '/v1/score', operation: 'score', fields: requestFields.score },
] as const satisfies readonly Endpoint[];

export type EndpointPath = (typeof endpoints)[number]['path'];
