import { z } from 'zod';
import { dockerFields, swarmFields } from './container-file-schema.ts';
import { allowableFields, taskTypes, unservedTools } from './engine-definition.ts';
import {
  aliasesField,
  externalPricingField,
  fallbacksField,
  modelId,
  pricingField,
  pricingText,
  printable,
} from './model-fields.ts';
import { resourceFields } from './process-resource-fields.ts';
import { requestChangeFields } from './request-changes.ts';
import { environmentFields, queueFields, replicasField, seconds, variableName } from './run-fields.ts';
import { scheduleField } from './schedule-fields.ts';

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

const loraFields = {
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

/**
 * Schema of a file of the engines folder. It validates files and generates the JSON Schema for editors, so operators
 * read its descriptions while they write.
 */

const hostPattern = /^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$/;
const organizationPattern = /^org_[0-9a-f]{32}$/;

const bound = (max: number, fallback: number, what: string) => z.int().min(1).max(max).default(fallback).describe(what);

const structuredOutputs = z
  .strictObject({
    max_choices: bound(
      1_000_000,
      1000,
      'Maximum number of choices in a request, and of enum values in a schema in total.',
    ),
    max_depth: bound(1000, 16, 'Maximum number of nested schema levels.'),
    max_properties: bound(100_000, 500, 'Maximum number of properties in a schema, including nested schemas.'),
    max_bytes: bound(33_554_432, 65_536, 'Maximum size of a schema or a list of choices, in bytes.'),
    max_repetitions: bound(
      1_000_000,
      250,
      'Maximum sum of minLength, maxLength, minProperties, maxProperties, and the counts in formats and patterns.',
    ),
  })
  .prefault({})
  .describe(
    'Size limits of grammars that requests make the engine build. All tools of a request together: four times these limits.',
  );

const repositoryText = 'Repository on Hugging Face. Requests may use it as the model name if only one engine has it.';

const common = {
  version: z.literal(1).describe('Version of this file format.'),
  id: modelId.describe('Name of the model in the API and in responses.'),
  name: printable(128).describe('Display name. Requests may use it too; case does not matter.'),
  aliases: aliasesField,
  list_aliases: z
    .boolean()
    .default(false)
    .describe('true: the model list has a model of its own for each alias of the model and of its adapters.'),
  hugging_face_id: printable(128).describe(repositoryText),
  task_type: z.enum(taskTypes).describe('Purpose of the model. Decides which routes serve it.'),
  context_length: z
    .int()
    .min(1)
    .max(1_000_000_000)
    .describe(
      'Maximum number of tokens of prompt and output together. Passed to vLLM as --max-model-len unless its arguments set it.',
    ),
  enabled: z.boolean().default(true).describe('false hides the model from the model list and rejects its requests.'),
  owned_by: printable(128).optional().describe('Owner in the model list. Default: the owner of the repository.'),
  pricing: pricingField.optional().describe(pricingText),
  fallbacks: fallbacksField,
  ...loraFields,
  kind: z
    .enum(['vllm', 'openai'])
    .optional()
    .describe(
      'vllm: Headgate passes vLLM arguments and uses its abort route. Default: vllm if the program or image is named vllm…; external engines are asked.',
    ),
  allow: z
    .array(z.enum(allowableFields))
    .max(allowableFields.length)
    .default([])
    .describe('Request fields that Headgate rejects unless they are listed here.'),
  tools: z
    .strictObject({
      unserved: z
        .enum(unservedTools)
        .default('reject')
        .describe(
          'Tools in requests that the engine does not serve, such as web_search. reject: Headgate rejects the request. ' +
            'drop: it leaves them out and names them in x-headgate-dropped-tools. A key can have a setting of its own.',
        ),
    })
    .prefault({}),
  ...requestChangeFields,
  media_domains: z
    .array(z.string().regex(hostPattern, 'expected a host name'))
    .max(1000)
    .default([])
    .describe('Hosts from which the engine may fetch media URLs in requests.'),
  max_concurrent: z
    .int()
    .min(1)
    .max(1_000_000)
    .optional()
    .describe('Number of running requests at which the engine is full. Requests with service_tier "flex" then wait.'),
  wedged_seconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(60)
    .describe(
      'Time without a token, while requests run, after which Headgate sends a canary and replaces a replica that does not ' +
        'answer. Longer while a long prompt is read. For engines with the metrics of vLLM. 0: never.',
    ),
  stalled_seconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(600)
    .describe(
      'Time without a log line and without a byte of a download after which Headgate ends a start once and repeats it. ' +
        'Not for external and Swarm engines. 0: never.',
    ),
  max_n: z.int().min(1).max(1024).optional().describe('Maximum n in a request.'),
  max_media: bound(10_000, 32, 'Maximum number of images, audio clips and videos in a request.'),
  structured_outputs: structuredOutputs,
  share_cache: z
    .boolean()
    .default(false)
    .describe('true: organizations share the prompt cache of vLLM, and can infer what others have sent.'),
  hardware_profile: printable(100)
    .optional()
    .describe('Hardware profile whose rate cards price the GPU-hours. Default: the name of the GPU.'),
  organization: z
    .string()
    .regex(organizationPattern, 'expected the id of an organization, such as org_019ab1c2d3e47f008a1b2c3d4e5f6071')
    .optional()
    .describe('Organization whose costs include the GPU-hours. Default: the first organization.'),
};

const processFields = {
  driver: z.literal('process').describe('A child process of the gateway.'),
  command: z
    .array(
      z
        .string()
        .max(32_768)
        .regex(/^[^\0]*$/, 'must not contain a NUL character'),
    )
    .min(1)
    .max(1000)
    .describe(
      'Program and arguments. Headgate fills in {socket} and {port}. Runs in the parent folder of the engines folder; ' +
        'paths that start with ./ or ../, as an item or after the = of an option, are relative to this file.',
    ),
  ...environmentFields,
  idle_seconds: seconds(31_536_000).default(300).describe('Idle time after which a replica is stopped.'),
  start_timeout_seconds: seconds(86_400).default(600).describe('Time limit for a start.'),
  drain_seconds: seconds(86_400)
    .default(30)
    .describe('Time that running requests get to finish when a replica is stopped.'),
  min_up_seconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(0)
    .describe('Time after a replica is ready during which it is not stopped to make room for another model.'),
  replicas: replicasField,
  schedule: scheduleField,
  ...queueFields,
  ...resourceFields,
};

const addressesMax = 256;

const address = z
  .string()
  .max(2048)
  .superRefine((text, context) => {
    const message = urlProblem(text);
    if (message !== null) context.addIssue({ code: 'custom', message });
  });

const upstreamModel = printable(256).optional();
const weightMax = 1000;

const deployment = z.strictObject({
  name: printable(128).optional().describe('Name for operators, unique in this file. Default: the host of url.'),
  url: address.describe('Address of the API of the server, without /v1. http or https.'),
  upstream_model: upstreamModel.describe('Name of the model in this server. Default: upstream_model of the file.'),
  api_key_env: variableName
    .optional()
    .describe(
      "Name of the gateway's environment variable with the key of this server. Default: api_key_env of the file.",
    ),
  weight: z
    .number()
    .gt(0, 'must be more than 0')
    .max(weightMax)
    .default(1)
    .describe('Share of the requests, relative to the other deployments.'),
});

const externalFields = {
  driver: z.literal('external').describe('An engine that Headgate does not start or stop.'),
  hugging_face_id: printable(128).optional().describe(repositoryText),
  pricing: externalPricingField
    .optional()
    .describe(`${pricingText} Default price of cached prompt tokens: the price of other prompt tokens.`),
  url: address.optional().describe('Address of the API of the engine, without /v1. http or https.'),
  urls: z
    .array(address)
    .min(1)
    .max(addressesMax)
    .optional()
    .describe('Instead of url: addresses of several servers that serve the same model in the same way.'),
  deployments: z
    .array(deployment)
    .min(1)
    .max(addressesMax)
    .optional()
    .describe('Instead of url: servers of the same model with their own names of the model, keys and weights.'),
  upstream_model: upstreamModel.describe('Name of the model in the engine. Default: the id.'),
  api_key_env: variableName
    .optional()
    .describe("Name of the gateway's environment variable with the engine's API key."),
};

/** Returns the problem of an external engine's address, or null. */
function urlProblem(text: string): string | null {
  const url = URL.parse(text);
  if (url === null || !['http:', 'https:'].includes(url.protocol)) return 'expected an http or https address';
  if (url.username !== '' || url.password !== '') return 'credentials are not allowed here; use api_key_env';
  if (/[?#]/.test(text)) return 'a query or a fragment is not allowed here';
  if (/\/v1\/?$/.test(url.pathname)) return 'remove /v1';
  return null;
}

export const engineFileSchema = z.discriminatedUnion('driver', [
  z.strictObject({ ...common, ...processFields }),
  z.strictObject({ ...common, ...dockerFields }),
  z.strictObject({ ...common, ...swarmFields }),
  z.strictObject({ ...common, ...externalFields }),
]);

export type EngineFile = z.output<typeof engineFileSchema>;

/** Returns the JSON Schema with which editors complete and check engine files, as text that ends in a line break. */
export function engineJsonSchema(): string {
  const schema = z.toJSONSchema(engineFileSchema, { io: 'input' });
  return `${JSON.stringify({ title: 'Headgate engine', ...schema }, null, 2)}\n`;
}
