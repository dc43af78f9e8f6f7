import { z } from 'zod';

/**
 * Fields of requests that an engine file may set. None of them chooses the model, the input or the form of the answer;
 * `max_tokens` stands for the output limit by whatever name a route has.
 */

const penalty = z.number().min(-2).max(2);
const integerMax = 2 ** 31 - 1;

const fields = {
  max_tokens: z.int().min(1).max(integerMax),
  temperature: z.number().min(0).max(2),
  top_p: z.number().gt(0).max(1),
  top_k: z.int().min(-1).max(integerMax),
  min_p: z.number().min(0).max(1),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  repetition_penalty: z.number().gt(0).max(2),
  seed: z.int().min(0).max(integerMax),
  stop: z.array(z.string().min(1).max(256)).min(1).max(4),
  reasoning_effort: z.enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max']),
  include_reasoning: z.boolean(),
  skip_special_tokens: z.boolean(),
  parallel_tool_calls: z.boolean(),
  chat_template_kwargs: z.record(z.string().min(1).max(64), z.union([z.string().max(256), z.number(), z.boolean()])),
};

const removable = z.strictObject({
  max_tokens: fields.max_tokens.nullish(),
  temperature: fields.temperature.nullish(),
  top_p: fields.top_p.nullish(),
  top_k: fields.top_k.nullish(),
  min_p: fields.min_p.nullish(),
  presence_penalty: fields.presence_penalty.nullish(),
  frequency_penalty: fields.frequency_penalty.nullish(),
  repetition_penalty: fields.repetition_penalty.nullish(),
  seed: fields.seed.nullish(),
  stop: fields.stop.nullish(),
  reasoning_effort: fields.reasoning_effort.nullish(),
  include_reasoning: fields.include_reasoning.nullish(),
  skip_special_tokens: fields.skip_special_tokens.nullish(),
  parallel_tool_calls: fields.parallel_tool_calls.nullish(),
  chat_template_kwargs: fields.chat_template_kwargs.nullish(),
});

export const requestChangeFields = {
  defaults: z
    .strictObject(fields)
    .partial()
    .default({})
    .describe('Request fields that are added where the client sent none.'),
  overrides: removable
    .default({})
    .describe('Request fields that are set whatever the client sent; null removes the field.'),
};

/** True if `overrides` of an engine file may set a field to a value. */
export function isRequestOverride(field: string, value: unknown): boolean {
  return removable.safeParse({ [field]: value }).success;
}
