import { z } from 'zod';
import { aliasesField, externalPricingField, fallbacksField, modelId, printable } from './model-fields.ts';

/** Fields of LoRA adapters in an engine file: models of their own, served by the engine's replicas beside its model. */

const adaptersMax = 1000;
/** Values that vLLM accepts for `--max-lora-rank`. */
const ranks = [1, 8, 16, 32, 64, 128, 256, 320, 512] as const;

const adapter = z.strictObject({
  id: modelId.describe('Name of the adapter in the API and in the engine.'),
  path: printable(1024)
    .optional()
    .describe(
      'Location of the adapter: a folder with adapter_config.json (absolute, for processes also ./ or ../ from this ' +
        'file), or a repository on Hugging Face. Not allowed for external engines.',
    ),
  upstream_model: printable(256).optional().describe('Name of the adapter in an external engine. Default: the id.'),
  name: printable(128).optional().describe('Display name. Requests may use it too. Default: the id.'),
  aliases: aliasesField,
  owned_by: printable(128)
    .optional()
    .describe('Owner in the model list. Default: the owner of the repository, or of the base model.'),
  pricing: externalPricingField
    .optional()
    .describe('Default: the prices of the engine. Default price of cached tokens: the price of other prompt tokens.'),
  fallbacks: fallbacksField,
});

export const loraFields = {
  lora: z
    .array(adapter)
    .max(adaptersMax)
    .default([])
    .describe('LoRA adapters of the model. Each is a separate model in the API, served by the same replicas.'),
  max_loras: z
    .int()
    .min(1)
    .max(adaptersMax)
    .optional()
    .describe('Maximum number of adapters in use at once. Requests for other adapters wait. Default: 1.'),
  max_lora_rank: z.literal(ranks).optional().describe('Maximum rank of an adapter. Default: 16.'),
};
