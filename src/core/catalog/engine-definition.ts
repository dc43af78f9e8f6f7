/** What an engine's model is for; it decides which routes serve it. */
export const taskTypes = ['chat', 'completion', 'embedding', 'rerank', 'vision', 'code'] as const;
export type TaskType = (typeof taskTypes)[number];

/**
 * What of a request is refused unless the engine's file names it under `allow`: fields by their names, and `regex` and
 * `grammar` wherever they come in.
 */
export const allowableFields = [
  'priority',
  'request_id',
  'session_id',
  'kv_transfer_params',
  'ec_transfer_params',
  'prompt_embeds',
  'media_embeds',
  'uuid',
  'chat_template',
  'mm_processor_kwargs',
  'media_io_kwargs',
  'vllm_xargs',
  'logits_processors',
  'best_of',
  'use_beam_search',
  'prompt_logprobs',
  'regex',
  'grammar',
  'encoding_format',
  'store',
  'previous_response_id',
  'background',
  'builtin_tools',
] as const;
export type AllowableField = (typeof allowableFields)[number];

/** How large a grammar may be that a request makes its engine build. */
export interface StructuredOutputBounds {
  /** Choices, and values of the enums of a schema together. */
  readonly choicesMax: number;
  /** Schemas within schemas. */
  readonly depthMax: number;
  readonly propertiesMax: number;
  /** Of a schema or a list of choices, as it stands in the request. */
  readonly bytesMax: number;
  /** What lengths, counts of properties and counts within patterns may add up to; see schema-bounds.ts. */
  readonly repetitionsMax: number;
}

/** `vllm` gets vLLM's own arguments and its abort route; `openai` is anything else that speaks the OpenAI API. */
export type EngineKind = 'vllm' | 'openai';

/** How soon a request must run, and at which price. `flex` waits while its engine is full. */
export const serviceTiers = ['default', 'flex'] as const;
export type ServiceTier = (typeof serviceTiers)[number];

/** Prices in micro-dollars per million tokens: tokens × price is a whole number of pico-dollars. */
export interface EnginePricing {
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
}

/** Engines of one machine that are not to run together; named by the file of each of them. */
export interface EngineGroup {
  readonly name: string;
  /** One of its engines runs at a time. */
  readonly swap: boolean;
  /** When one of its engines starts, all others of the machine are stopped that are not persistent, pinned or kept. */
  readonly exclusive: boolean;
  /** Engines outside of the group do not stop those in it. */
  readonly persistent: boolean;
}

/** A child process of the gateway on this machine. */
export interface ProcessDriverSettings {
  readonly type: 'process';
  /** Program and arguments; `{socket}` and `{port}` are filled in at the start. */
  readonly command: readonly string[];
  /** Added to the child's environment; `${NAME}` in a value stands for the gateway's own variable of that name. */
  readonly env: Readonly<Record<string, string>>;
  /** What a replica takes of the memory that engines may have together here; null: the file does not say. */
  readonly memoryBytes: number | null;
  /** null: it is given no GPU of its own. */
  readonly gpus: GpuNeed | null;
  readonly group: EngineGroup | null;
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  /** A replica that is ready makes room for no other before this time. */
  readonly upMinMs: number;
  readonly replicas: { readonly min: number; readonly max: number };
  /** Never stopped to make room for another. */
  readonly pinned: boolean;
}

/** An engine that somebody else runs; only its addresses are known. */
export interface ExternalDriverSettings {
  readonly type: 'external';
  /** One replica each: http or https, without /v1, credentials, query and a slash at the end; one at least. */
  readonly urls: readonly string[];
  /** What the engine calls the model; null when it goes by the catalog id. */
  readonly upstreamModel: string | null;
  /** Name of the gateway's environment variable that holds the engine's key; the key itself is never kept here. */
  readonly apiKeyEnv: string | null;
}

/** A directory or named volume of the host, as `docker run --volume` has it. */
export interface VolumeMount {
  /** Name of a volume, or an absolute path on the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** What a replica needs of a host's GPUs. */
export interface GpuNeed {
  readonly count: number;
  /** Memory that each must have at least; null when any will do. */
  readonly memoryBytesMin: number | null;
  /** A part of the product name, without regard to case; null when any will do. */
  readonly profile: string | null;
}

/** Routes under /v1. */
export const canaryRoutes = [
  'chat/completions',
  'completions',
  'responses',
  'messages',
  'embeddings',
  'rerank',
  'score',
] as const;

/** A request that a new replica must answer well before users' requests reach it; never billed. */
export interface Canary {
  readonly route: (typeof canaryRoutes)[number];
  /** The body, JSON, without `model`. */
  readonly body: Readonly<Record<string, unknown>>;
  /** What the answer's text must contain; null when a well-formed answer is enough. */
  readonly contains: string | null;
}

/** A container: `docker` on hosts of the configuration, `swarm` as services of a Docker Swarm. */
export interface ContainerDriverSettings {
  readonly type: 'docker' | 'swarm';
  /** With a tag or digest. */
  readonly image: string;
  /** After the image's entrypoint: for vLLM's image the model and its options. */
  readonly args: readonly string[];
  /** Replaces the image's entrypoint; null leaves it. */
  readonly entrypoint: readonly string[] | null;
  /** `${NAME}` in a value stands for the gateway's own variable of that name. Holds no secret itself. */
  readonly env: Readonly<Record<string, string>>;
  /** null: no GPU. */
  readonly gpus: GpuNeed | null;
  /** Size of /dev/shm; null leaves the engine's default. */
  readonly shmBytes: number | null;
  /** Limit of the container's memory; null: none. */
  readonly memoryBytesMax: number | null;
  readonly volumes: readonly VolumeMount[];
  /** Where the engine listens inside of the container. */
  readonly port: number;
  /** Hosts or pools that may run it; empty: any. */
  readonly hosts: readonly string[];
  /** How replicas are laid on hosts: `pack` fills one before the next, `spread` evens out. */
  readonly placement: 'pack' | 'spread';
  /** Swarm's placement constraints, as `node.labels.gpu==h100`. */
  readonly constraints: readonly string[];
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  /** A replica that is ready stays so at least this long: models that share a GPU do not take turns too fast. */
  readonly upMinMs: number;
  readonly replicas: { readonly min: number; readonly max: number };
  /** Never stopped to make room for another. */
  readonly pinned: boolean;
  /** 1 or 2: put to sleep instead of stopped when idle; 0: stopped. */
  readonly sleepLevel: 0 | 1 | 2;
  readonly canaries: readonly Canary[];
}

/** An adapter that an engine's replicas serve beside its own model, as a model of its own. */
export interface LoraAdapter {
  readonly id: string;
  readonly name: string;
  readonly aliases: readonly string[];
  /** Its repository, where it comes from one. */
  readonly huggingFaceId: string | null;
  readonly ownedBy: string;
  /** A folder where the engine runs, or a repository; null where somebody else runs the engine. */
  readonly path: string | null;
  /** What an engine that somebody else runs calls it; null when it goes by the id. */
  readonly upstreamModel: string | null;
  /** Its own, or its base's; null as the engine's. */
  readonly pricing: EnginePricing | null;
  readonly flexPricing: EnginePricing | null;
  /** As of an engine; its own and not its base's. */
  readonly fallbacks: readonly string[];
}

/** One file of the engines folder, checked. Holds no secret: references to the environment stay references. */
export interface EngineDefinition {
  /** `engines/name.yaml`, for messages to operators. */
  readonly file: string;
  readonly id: string;
  readonly name: string;
  /** Further names that requests may use. */
  readonly aliases: readonly string[];
  /** null where nobody says; only for engines that somebody else runs. */
  readonly huggingFaceId: string | null;
  readonly taskType: TaskType;
  /** Tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  readonly ownedBy: string;
  /** null when the file has no prices: the model is listed, and requests to it are refused. */
  readonly pricing: EnginePricing | null;
  /** What requests of the tier `flex` pay; null when the file does not offer it. */
  readonly flexPricing: EnginePricing | null;
  /** Ids of models of other engines that may answer where this one cannot, in this order; see fallback-checks.ts. */
  readonly fallbacks: readonly string[];
  /** Requests at once from which on the engine counts as full; null leaves that to what the engine reports. */
  readonly concurrencyMax: number | null;
  readonly kind: EngineKind;
  readonly allow: readonly AllowableField[];
  /** Hosts from which images and other media may be fetched by the engine; none when empty. */
  readonly mediaDomains: readonly string[];
  /** Largest `n` of a request; null leaves the gateway's own setting. */
  readonly nMax: number | null;
  /** Pictures, sounds and films of a request. */
  readonly mediaMax: number;
  readonly structuredOutputs: StructuredOutputBounds;
  /** All organizations share what the engine has cached of prompts; only for `kind: vllm` is there another way. */
  readonly shareCache: boolean;
  /** By which rate cards its GPU-hours are priced; null leaves that to the name of its GPU. */
  readonly hardwareProfile: string | null;
  /** UUID of the one in whose costs its GPU-hours stand; null for the first. */
  readonly organizationId: string | null;
  readonly lora: readonly LoraAdapter[];
  /** Adapters that may be at work at once, and their largest rank; null leaves that to vLLM. */
  readonly lorasMax: number | null;
  readonly loraRankMax: number | null;
  readonly driver: ProcessDriverSettings | ContainerDriverSettings | ExternalDriverSettings;
}
