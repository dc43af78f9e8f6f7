import { z } from 'zod';
import { aliasesField, externalPricingField, fallbacksField, modelId, printable } from './model-fields.ts';

/** Fields of LoRA adapters in an engine file: models of their own, served by the engine's replicas beside its model. */

const adaptersMax = 1000;
/** Values that vLLM accepts for `--max-lora-rank`. */
const ranks = [1, 8, 16, 32, 64, 128, 256, 320, 512] as const;

const adapter = z.strictObject({
  id: modelId.describe('Name of the adapter in the API, and what the engine is told to call it.'),
  path: printable(1024)
    .optional()
    .describe(
      'Where the engine finds it: a folder with adapter_config.json, absolute, for processes also ./ or ../ from this ' +
        'file, or a repository on Hugging Face. Absent where somebody else runs the engine.',
    ),
  upstream_model: printable(256)
    .optional()
    .describe('What an engine that somebody else runs calls it; the id if absent.'),
  name: printable(128).optional().describe('Display name; requests may use it as well. The id if absent.'),
  aliases: aliasesField,
  owned_by: printable(128).optional().describe('Shown in the model list; as of its repository or its base if absent.'),
  pricing: externalPricingField.optional().describe('As of the engine if absent, and cached tokens as other ones.'),
  fallbacks: fallbacksField,
});

export const loraFields = {
  lora: z
    .array(adapter)
    .max(adaptersMax)
    .default([])
    .describe('LoRA adapters of the model: each is a model of its own, served by the same replicas.'),
  max_loras: z
    .int()
    .min(1)
    .max(adaptersMax)
    .optional()
    .describe('Adapters that may be at work at once; requests of further ones wait. 1 if absent.'),
  max_lora_rank: z.literal(ranks).optional().describe('Largest rank of an adapter; 16 if absent.'),
};
