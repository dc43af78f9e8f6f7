import { z } from 'zod';
import { dockerFields, swarmFields } from './container-file-schema.ts';
import { allowableFields, taskTypes } from './engine-definition.ts';
import { loraFields } from './lora-fields.ts';
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
import { environmentFields, replicasField, seconds, variableName } from './run-fields.ts';

/**
 * Schema of a file of the engines folder. It validates files and generates the JSON Schema for editors, so operators
 * read its descriptions while they write.
 */

const hostPattern = /^(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$/;
const organizationPattern = /^org_[0-9a-f]{32}$/;

const bound = (max: number, fallback: number, what: string) => z.int().min(1).max(max).default(fallback).describe(what);

const structuredOutputs = z
  .strictObject({
    max_choices: bound(1_000_000, 1000, 'Choices of a request, and values of the enums of a schema together.'),
    max_depth: bound(1000, 16, 'Schemas within schemas.'),
    max_properties: bound(100_000, 500, 'Properties of a schema, those of the schemas in it included.'),
    max_bytes: bound(33_554_432, 65_536, 'Length of a schema or of a list of choices.'),
    max_repetitions: bound(
      1_000_000,
      250,
      'What minLength, maxLength, minProperties, maxProperties, formats and patterns with their counts may add up to.',
    ),
  })
  .prefault({})
  .describe('How large the grammars may be that requests make the engine build; of all tools together four times so.');

const repositoryText = 'Repository on Hugging Face; requests may use it as well where one engine has it.';

const common = {
  version: z.literal(1).describe('Version of this file format.'),
  id: modelId.describe('Name of the model in the API. The answer of a request calls the model so.'),
  name: printable(128).describe('Display name; requests may use it as well, without regard to case.'),
  aliases: aliasesField,
  hugging_face_id: printable(128).describe(repositoryText),
  task_type: z.enum(taskTypes).describe('What the model is for; decides which routes serve it.'),
  context_length: z
    .int()
    .min(1)
    .max(1_000_000_000)
    .describe(
      'Longest prompt and answer together, in tokens. vLLM gets it as --max-model-len where its arguments give none.',
    ),
  enabled: z.boolean().default(true).describe('false takes the model out of the list and refuses its requests.'),
  owned_by: printable(128).optional().describe('Shown in the model list; the owner of the repository if absent.'),
  pricing: pricingField.optional().describe(pricingText),
  fallbacks: fallbacksField,
  ...loraFields,
  kind: z
    .enum(['vllm', 'openai'])
    .optional()
    .describe('vllm: gets its arguments and its abort route. A program or image called vllm… counts as vllm.'),
  allow: z
    .array(z.enum(allowableFields))
    .max(allowableFields.length)
    .default([])
    .describe('What of a request is refused elsewhere.'),
  media_domains: z
    .array(z.string().regex(hostPattern, 'expected a host name'))
    .max(1000)
    .default([])
    .describe('Hosts from which the engine may fetch media that a request names by URL.'),
  max_concurrent: z
    .int()
    .min(1)
    .max(1_000_000)
    .optional()
    .describe('With so many requests running it counts as full: those of service_tier "flex" then wait.'),
  max_n: z.int().min(1).max(1024).optional().describe('Largest n of a request.'),
  max_media: bound(10_000, 32, 'Pictures, sounds and films of a request.'),
  structured_outputs: structuredOutputs,
  share_cache: z
    .boolean()
    .default(false)
    .describe('true: organizations share what vLLM has cached of prompts, and can tell what others have sent.'),
  hardware_profile: printable(100)
    .optional()
    .describe('By which rate cards its GPU-hours are priced; the name of its GPU if absent.'),
  organization: z
    .string()
    .regex(organizationPattern, 'expected the id of an organization, as org_019ab1c2d3e47f008a1b2c3d4e5f6071')
    .optional()
    .describe('In whose costs its GPU-hours stand; the first organization if absent.'),
};

const processFields = {
  driver: z.literal('process').describe('A child process of the gateway.'),
  command: z
    .array(
      z
        .string()
        .max(32_768)
        .regex(/^[^\0]*$/, 'a NUL is not allowed here'),
    )
    .min(1)
    .max(1000)
    .describe(
      'Program and arguments. {socket} and {port} are filled in. Runs in the folder that holds the engines folder; ' +
        'paths that begin with ./ or ../, as an item or after the = of an option, are relative to this file.',
    ),
  ...environmentFields,
  idle_seconds: seconds(31_536_000).default(300).describe('Stopped after this time without requests.'),
  start_timeout_seconds: seconds(86_400).default(600).describe('Must be ready within this time.'),
  drain_seconds: seconds(86_400).default(30).describe('Requests may run on for this long when it is stopped.'),
  min_up_seconds: z
    .int()
    .min(0)
    .max(86_400)
    .default(0)
    .describe('Once ready, it makes room for no other model before this time.'),
  replicas: replicasField,
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

const externalFields = {
  driver: z.literal('external').describe('Somebody else runs it.'),
  hugging_face_id: printable(128).optional().describe(repositoryText),
  pricing: externalPricingField
    .optional()
    .describe(`${pricingText} Cached prompt tokens cost what others do where no price for them stands here.`),
  url: address.optional().describe('Address of its API without /v1; http or https.'),
  urls: z
    .array(address)
    .min(1)
    .max(addressesMax)
    .optional()
    .describe('In place of url: addresses of several servers that serve the same model in the same way.'),
  upstream_model: printable(256).optional().describe('What the engine calls the model; the id if absent.'),
  api_key_env: variableName
    .optional()
    .describe("Name of the gateway's environment variable that holds the engine's API key."),
};

/** Returns the problem of an external engine's address, or null. */
function urlProblem(text: string): string | null {
  const url = URL.parse(text);
  if (url === null || !['http:', 'https:'].includes(url.protocol)) return 'expected an http or https address';
  if (url.username !== '' || url.password !== '') return 'credentials do not belong here; use api_key_env';
  if (/[?#]/.test(text)) return 'a query or fragment does not belong here';
  if (/\/v1\/?$/.test(url.pathname)) return 'leave out /v1';
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
