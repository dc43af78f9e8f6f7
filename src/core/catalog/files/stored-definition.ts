import { z } from 'zod';
import {
  allowableFields,
  type Canary,
  type ContainerDriverSettings,
  type EngineDefinition,
  type EngineGroup,
  type EnginePricing,
  type ExternalDriverSettings,
  type LoraAdapter,
  type ProcessDriverSettings,
  canaryRoutes,
  taskTypes,
  unservedTools,
} from './engine-definition.ts';
import { handsOverMachine } from './host-access-checks.ts';

/**
 * JSON form of definitions, for rooms that keep them longer than the file exists unchanged. Keys keep their order,
 * because hashes of specs depend on it; bigints are decimal strings.
 */

const price = z
  .string()
  .regex(/^\d{1,30}$/)
  .transform((digits) => BigInt(digits));
const pricing: z.ZodType<EnginePricing, unknown> = z.object({
  inputPerMTokMicroUsd: price,
  cachedInputPerMTokMicroUsd: price,
  outputPerMTokMicroUsd: price,
});

const texts = z.array(z.string());
const environment = z.record(z.string(), z.string());
const replicas = z.object({ min: z.number(), max: z.number() });
const schedule = z
  .array(z.object({ cron: z.string(), timezone: z.string(), min: z.number(), max: z.number() }))
  .default([]);
const times = { idleMs: z.number(), startTimeoutMs: z.number(), drainMs: z.number(), upMinMs: z.number() };

const gpuNeed = z.object({
  count: z.number(),
  memoryBytesMin: z.number().nullable(),
  profile: z.string().nullable(),
});

const group: z.ZodType<EngineGroup, unknown> = z.object({
  name: z.string(),
  swap: z.boolean(),
  exclusive: z.boolean(),
  persistent: z.boolean(),
});

/** Fields with a default are absent in definitions stored by versions before these fields. */
const processDriver: z.ZodType<ProcessDriverSettings, unknown> = z.object({
  type: z.literal('process'),
  command: texts,
  env: environment,
  memoryBytes: z.number().nullable().default(null),
  gpus: gpuNeed.nullable().default(null),
  group: group.nullable().default(null),
  ...times,
  replicas,
  schedule,
  pinned: z.boolean().default(false),
});

const externalDriver: z.ZodType<ExternalDriverSettings, unknown> = z.object({
  type: z.literal('external'),
  deployments: z.array(
    z.object({
      name: z.string().nullable(),
      url: z.string(),
      upstreamModel: z.string().nullable(),
      apiKeyEnv: z.string().nullable(),
      weight: z.number(),
    }),
  ),
  findsKind: z.boolean().default(false),
});

const canary: z.ZodType<Canary, unknown> = z.object({
  route: z.enum(canaryRoutes),
  body: z.record(z.string(), z.unknown()),
  contains: z.string().nullable(),
});

const containerDriver: z.ZodType<ContainerDriverSettings, unknown> = z.object({
  type: z.enum(['docker', 'swarm']),
  image: z.string(),
  args: texts,
  entrypoint: texts.nullable(),
  env: environment,
  gpus: gpuNeed.nullable(),
  shmBytes: z.number().nullable(),
  memoryBytesMax: z.number().nullable(),
  ulimits: z.object({ memlock: z.number().optional(), stack: z.number().optional() }).default({}),
  cpuset: z.object({ cpus: z.string().optional(), mems: z.string().optional() }).default({}),
  volumes: z.array(z.object({ source: z.string(), target: z.string(), readOnly: z.boolean() })),
  port: z.number(),
  hosts: texts,
  placement: z.enum(['pack', 'spread']),
  constraints: texts,
  ...times,
  replicas,
  schedule,
  pinned: z.boolean(),
  sleepLevel: z.union([z.literal(0), z.literal(1), z.literal(2)]),
  canaries: z.array(canary),
});

const loraAdapter: z.ZodType<LoraAdapter, unknown> = z.object({
  id: z.string(),
  name: z.string(),
  aliases: texts,
  huggingFaceId: z.string().nullable(),
  ownedBy: z.string(),
  path: z.string().nullable(),
  upstreamModel: z.string().nullable(),
  pricing: pricing.nullable(),
  flexPricing: pricing.nullable(),
  fallbacks: texts.default([]),
});

const definition: z.ZodType<EngineDefinition, unknown> = z.object({
  file: z.string(),
  id: z.string(),
  name: z.string(),
  aliases: texts.default([]),
  listsAliases: z.boolean().default(false),
  huggingFaceId: z.string().nullable(),
  taskType: z.enum(taskTypes),
  contextLength: z.number(),
  enabled: z.boolean(),
  ownedBy: z.string(),
  pricing: pricing.nullable(),
  flexPricing: pricing.nullable(),
  fallbacks: texts.default([]),
  concurrencyMax: z.number().nullable(),
  queuedRequestsMax: z.number().nullable().default(null),
  queuedTokensMax: z.number().nullable().default(null),
  wedgedMs: z.number().nullable().default(60_000),
  stalledMs: z.number().nullable().default(600_000),
  kind: z.enum(['vllm', 'openai']),
  allow: z.array(z.enum(allowableFields)),
  unservedTools: z.enum(unservedTools).default('reject'),
  requestChanges: z
    .object({ defaults: z.record(z.string(), z.unknown()), overrides: z.record(z.string(), z.unknown()) })
    .default({ defaults: {}, overrides: {} }),
  mediaDomains: texts,
  nMax: z.number().nullable(),
  // Absent in definitions stored by versions before these fields.
  mediaMax: z.number().default(32),
  structuredOutputs: z
    .object({
      choicesMax: z.number(),
      depthMax: z.number(),
      propertiesMax: z.number(),
      bytesMax: z.number(),
      repetitionsMax: z.number(),
    })
    .default({ choicesMax: 1000, depthMax: 16, propertiesMax: 500, bytesMax: 65_536, repetitionsMax: 250 }),
  shareCache: z.boolean().default(false),
  hardwareProfile: z.string().nullable().default(null),
  organizationId: z.string().nullable().default(null),
  lora: z.array(loraAdapter).default([]),
  lorasMax: z.number().nullable().default(null),
  loraRankMax: z.number().nullable().default(null),
  driver: z.union([processDriver, containerDriver, externalDriver]),
});

/** Encodes a definition as one JSON object; references to the environment stay references. */
export function encodeDefinition(engine: EngineDefinition): string {
  return JSON.stringify(engine, (_, value: unknown) => (typeof value === 'bigint' ? String(value) : value));
}

/** @returns null if the text is not a definition that this version knows and allows to run */
export function decodeDefinition(text: string): EngineDefinition | null {
  try {
    const decoded = definition.safeParse(JSON.parse(text)).data ?? null;
    return decoded === null || handsOverMachine(decoded) ? null : decoded;
  } catch {
    return null;
  }
}
