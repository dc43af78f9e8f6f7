import { z } from 'zod';

/** The parts of litellm's config.yaml that are imported: https://docs.litellm.ai/docs/proxy/configs. */

const decimal = z.union([z.string(), z.number()]).nullish();
const costs = {
  input_cost_per_token: decimal,
  output_cost_per_token: decimal,
  cache_read_input_token_cost: decimal,
};
const entry = z.looseObject({
  model_name: z.string(),
  litellm_params: z.looseObject({
    model: z.string(),
    api_base: z.string().nullish(),
    base_url: z.string().nullish(),
    api_key: z.string().nullish(),
    custom_llm_provider: z.string().nullish(),
    weight: decimal,
    ...costs,
  }),
  model_info: z
    .looseObject({
      mode: z.string().nullish(),
      max_input_tokens: z.number().nullish(),
      max_tokens: z.number().nullish(),
      supports_vision: z.boolean().nullish(),
      ...costs,
    })
    .nullish(),
});
/** A price, as litellm names it. */
export type Cost = keyof typeof costs;
export type Entry = z.output<typeof entry>;

/** `hidden` keeps an alias out of litellm's list of models. */
const groupAlias = z.union([z.string(), z.looseObject({ model: z.string() })]);
export const litellmConfig = z.looseObject({
  model_list: z.array(entry).nullish(),
  litellm_settings: z.unknown().optional(),
  router_settings: z.looseObject({ model_group_alias: z.record(z.string(), groupAlias).nullish() }).nullish(),
});
export type LitellmConfig = z.output<typeof litellmConfig>;
