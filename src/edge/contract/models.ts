import { z } from 'zod';
import { unixSeconds } from './fields.ts';

/** Answers of `/v1/models` and `/v1/pricing`. */

/** A model that a key may use. */
export const modelSchema = z
  .object({
    id: z.string().meta({ description: 'Catalog id or listed alias, as requests send it in `model`' }),
    object: z.literal('model'),
    created: unixSeconds,
    owned_by: z.string(),
    parent: z.string().nullable().meta({ description: 'Base model of a LoRA adapter; else null' }),
    name: z.string().meta({ description: 'Display name' }),
    aliases: z.array(z.string()).meta({ description: 'Other names that requests may use' }),
    fallbacks: z.array(z.string()).meta({
      description: 'Fallback models by id, in order, among those that the key may use',
    }),
    hugging_face_id: z.string().nullable(),
    task_type: z.enum(['chat', 'completion', 'embedding', 'rerank', 'vision', 'code']),
    context_length: z.int().meta({ description: 'Maximum number of tokens, input and output together' }),
    max_model_len: z.int().meta({ description: 'The same as `context_length`, under the name that vLLM gives it' }),
    max_output_length: z
      .int()
      .nullable()
      .meta({ description: 'Maximum number of output tokens; null for models that generate no text' }),
    input_modalities: z.array(z.enum(['text', 'image'])),
    supported_parameters: z
      .array(z.string())
      .meta({ description: 'Supported request fields, in the format of OpenRouter' }),
    pricing: z
      .object({ prompt: z.string(), completion: z.string(), input_cache_read: z.string() })
      .nullable()
      .meta({ description: 'Prices in USD per token, exact decimals; null if there is no price' }),
    status: z
      .enum(['ready', 'cold', 'starting', 'failed'])
      .meta({ description: '`cold`: the next request starts the engine. `failed`: the engine does not start' }),
    expected_cold_start_seconds: z.number().nullable().meta({
      description:
        'Expected start time of the engine: the last one, or the configured maximum; null while the engine runs',
    }),
  })
  .meta({ id: 'Model' });

/** All models that a key may use. */
export const modelListSchema = z
  .object({ object: z.literal('list'), data: z.array(modelSchema) })
  .meta({ id: 'ModelList' });

const neverSet = z.null().meta({ description: 'Always null: the gateway does not know it' });

/** A model as Anthropic's clients read it. */
export const anthropicModelSchema = z
  .object({
    type: z.literal('model'),
    id: z.string().meta({ description: 'Catalog id or listed alias, as requests send it in `model`' }),
    display_name: z.string(),
    created_at: z.iso.datetime(),
    max_input_tokens: z.int().meta({ description: 'The same as `context_length`' }),
    max_tokens: z.int().nullable().meta({ description: 'The same as `max_output_length`' }),
    lifecycle: z.literal('active'),
    capabilities: neverSet,
    deprecated_at: neverSet,
    retires_at: neverSet,
    line: neverSet,
  })
  .meta({ id: 'AnthropicModel' });

/** A page of models as Anthropic's clients read it. */
export const anthropicModelListSchema = z
  .object({
    data: z.array(anthropicModelSchema),
    has_more: z.boolean().meta({ description: 'True if models follow; with `before_id`, if models come before' }),
    first_id: z.string().nullable().meta({ description: '`before_id` for the page before' }),
    last_id: z.string().nullable().meta({ description: '`after_id` for the next page' }),
  })
  .meta({ id: 'AnthropicModelList' });

const usdPerMillion = z.string().meta({ description: 'USD per million tokens, exact decimal' });
const perMillion = {
  input_per_million: usdPerMillion,
  output_per_million: usdPerMillion,
  cached_input_per_million: usdPerMillion,
};

const priceSchema = z
  .object({
    model: z.string(),
    ...perMillion,
    flex: z.object(perMillion).optional().meta({ description: 'Prices of `service_tier: "flex"`, if offered' }),
    currency: z.literal('USD'),
    effective_from: unixSeconds,
  })
  .meta({ id: 'Price' });

/** The prices of all models. */
export const priceListSchema = z
  .object({ object: z.literal('list'), data: z.array(priceSchema) })
  .meta({ id: 'PriceList' });

export type ModelAnswer = z.infer<typeof modelSchema>;
export type ModelListAnswer = z.infer<typeof modelListSchema>;
export type AnthropicModelAnswer = z.infer<typeof anthropicModelSchema>;
export type AnthropicModelListAnswer = z.infer<typeof anthropicModelListSchema>;
export type PriceListAnswer = z.infer<typeof priceListSchema>;
export type PriceAnswer = PriceListAnswer['data'][number];
