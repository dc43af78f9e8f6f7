import { findFlag, type EngineDefinition, type Model } from '#core/catalog/catalog.ts';

/**
 * Supported parameters, which tools read before they offer a model:
 * https://openrouter.ai/docs/api/api-reference/models/get-models.
 */

/** True if the model generates text. */
export function generates({ taskType }: Pick<Model, 'taskType'>): boolean {
  return taskType !== 'embedding' && taskType !== 'rerank';
}

const sampling = ['max_tokens', 'temperature', 'top_p', 'stop', 'seed', 'presence_penalty', 'frequency_penalty'];
const openai = [...sampling, 'logprobs', 'logit_bias', 'response_format'];
const vllm = [...openai, 'structured_outputs', 'top_k', 'min_p', 'repetition_penalty'];
const conversation = ['max_completion_tokens', 'top_logprobs'];
const calls = ['tools', 'tool_choice', 'parallel_tool_calls'];
const reasons = ['reasoning_effort', 'include_reasoning'];

/**
 * Returns the fields that requests to a model may use, in no particular order. Tool calls and reasoning are listed if
 * the engine was started for them. An external engine's start is unknown, so that both are listed.
 */
export function supportedParameters(model: Pick<Model, 'taskType' | 'engine'>): readonly string[] {
  const { taskType, engine } = model;
  if (taskType === 'rerank') return ['top_n'];
  if (taskType === 'embedding') return ['dimensions', 'encoding_format'];
  const known = engine.kind === 'vllm' ? vllm : openai;
  if (taskType === 'completion') return known;
  const args = argumentsOf(engine);
  const has = (flag: string): boolean => args === null || findFlag(args, flag) !== null;
  return [
    ...known,
    ...conversation,
    ...(engine.kind === 'openai' || has('--enable-auto-tool-choice') ? calls : []),
    ...(has('--reasoning-parser') ? reasons : []),
  ];
}

/** Returns the arguments that an engine is started with; null for an external engine. */
function argumentsOf({ driver }: EngineDefinition): readonly string[] | null {
  if (driver.type === 'external') return null;
  return driver.type === 'process' ? driver.command : driver.args;
}
