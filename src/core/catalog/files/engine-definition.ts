/** Purposes of an engine's model; the task type decides which routes serve the model. */
export const taskTypes = ['chat', 'completion', 'embedding', 'rerank', 'vision', 'code'] as const;
export type TaskType = (typeof taskTypes)[number];

/**
 * Parts of requests that are rejected unless the engine's file names them under `allow`: fields by name, and `regex`
 * and `grammar` wherever they occur.
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
  // The next three have no effect: the gateway stores responses itself. Older files and definitions name them.
  'store',
  'previous_response_id',
  'background',
  'builtin_tools',
] as const;
export type AllowableField = (typeof allowableFields)[number];

/** Reactions to tools in a request that the engine of its model does not serve. */
export const unservedTools = ['reject', 'drop'] as const;
export type UnservedTools = (typeof unservedTools)[number];

/** Limits of the grammars that requests make an engine build. */
export interface StructuredOutputBounds {
  /** Most choices, and most enum values of a schema in total. */
  readonly choicesMax: number;
  /** Most levels of schemas within schemas. */
  readonly depthMax: number;
  readonly propertiesMax: number;
  /** Most bytes of a schema or a list of choices, as sent in the request. */
  readonly bytesMax: number;
  /** Largest sum of lengths, property counts and counts within patterns; see schema-bounds.ts. */
  readonly repetitionsMax: number;
}

/**
 * Kind of engine: `vllm` gets vLLM's own arguments and its abort route; `openai` is anything else with the OpenAI API.
 */
export type EngineKind = 'vllm' | 'openai';

/** Urgency of a request, with its own price. `flex` waits while its engine is full. */
export const serviceTiers = ['default', 'flex'] as const;
export type ServiceTier = (typeof serviceTiers)[number];

/** Prices in micro-dollars per million tokens: tokens × price is a whole number of pico-dollars. */
export interface EnginePricing {
  readonly inputPerMTokMicroUsd: bigint;
  readonly cachedInputPerMTokMicroUsd: bigint;
  readonly outputPerMTokMicroUsd: bigint;
}

/** A group of engines of one machine that must not run together; each member's file names the group. */
export interface EngineGroup {
  readonly name: string;
  /** True if only one engine of the group runs at a time. */
  readonly swap: boolean;
  /**
   * True if the start of one of its engines stops every engine outside the group on the machine, except persistent,
   * pinned and kept ones.
   */
  readonly exclusive: boolean;
  /** True if engines outside the group do not stop the engines in it. */
  readonly persistent: boolean;
}

/** Numbers of replicas that apply from each time of a cron expression on, until the time of another entry. */
export interface ScheduleEntry {
  /** Five fields. */
  readonly cron: string;
  /** Name of the IANA database. */
  readonly timezone: string;
  readonly min: number;
  /** 0: the engine is off. */
  readonly max: number;
}

/** Settings of an engine that runs as a child process of the gateway on this machine. */
export interface ProcessDriverSettings {
  readonly type: 'process';
  /** Program and arguments; `{socket}` and `{port}` are filled in at start. */
  readonly command: readonly string[];
  /**
   * Variables added to the child's environment; `${NAME}` in a value stands for the gateway's variable of that name.
   */
  readonly env: Readonly<Record<string, string>>;
  /** Memory of one replica, out of the memory for engines on this machine; null: not specified in the file. */
  readonly memoryBytes: number | null;
  /** null: no GPUs are assigned. */
  readonly gpus: GpuNeed | null;
  readonly group: EngineGroup | null;
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  /** Milliseconds for which a ready replica is not stopped to make room for another. */
  readonly upMinMs: number;
  /** Applies before the first time of `schedule`. */
  readonly replicas: { readonly min: number; readonly max: number };
  readonly schedule: readonly ScheduleEntry[];
  /** True if replicas are never stopped to make room for another. */
  readonly pinned: boolean;
}

/** One server of an external engine, which is one replica. */
export interface Deployment {
  /** Name for operators, unique in its file; null for addresses of `url` and `urls`. */
  readonly name: string | null;
  /** Address: http or https, without /v1, credentials, query and trailing slash. */
  readonly url: string;
  /** Name of the model at the server; null if that is the catalog id. */
  readonly upstreamModel: string | null;
  /** Name of the gateway's environment variable with the server's key; the key itself is never stored here. */
  readonly apiKeyEnv: string | null;
  /** Share of the requests, relative to the other deployments; more than 0. */
  readonly weight: number;
}

/** Settings of an external engine; only its servers are known. */
export interface ExternalDriverSettings {
  readonly type: 'external';
  /** At least one. */
  readonly deployments: readonly Deployment[];
  /** True if the file names no kind: the gateway asks the engine, and `kind` of the definition holds until it answers. */
  readonly findsKind: boolean;
}

/** A directory or named volume of the host, as in `docker run --volume`. */
export interface VolumeMount {
  /** Name of a volume, or an absolute path on the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** GPUs that a replica needs on a host. */
export interface GpuNeed {
  readonly count: number;
  /** Minimum memory of each GPU; null accepts any. */
  readonly memoryBytesMin: number | null;
  /** Part of the product name, ignoring case; null accepts any. */
  readonly profile: string | null;
}

/** Routes under /v1 that canaries can use. */
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
  /** JSON body, without `model`. */
  readonly body: Readonly<Record<string, unknown>>;
  /** Text that the answer must contain; null if a well-formed answer is enough. */
  readonly contains: string | null;
}

/**
 * Settings of an engine that runs in containers: `docker` on configured hosts, `swarm` as services of a Docker Swarm.
 */
export interface ContainerDriverSettings {
  readonly type: 'docker' | 'swarm';
  /** Image name with a tag or digest. */
  readonly image: string;
  /** Arguments after the image's entrypoint: for vLLM's image the model and its options. */
  readonly args: readonly string[];
  /** Replaces the image's entrypoint; null keeps it. */
  readonly entrypoint: readonly string[] | null;
  /** Environment; `${NAME}` in a value stands for the gateway's variable of that name. Contains no secret itself. */
  readonly env: Readonly<Record<string, string>>;
  /** null: no GPU. */
  readonly gpus: GpuNeed | null;
  /** Size of /dev/shm; null keeps the Docker engine's default. */
  readonly shmBytes: number | null;
  /** Memory limit of the container; null: none. */
  readonly memoryBytesMax: number | null;
  /** Bytes; -1 is unlimited. An absent limit is the Docker engine's own. */
  readonly ulimits: { readonly memlock?: number | undefined; readonly stack?: number | undefined };
  /** CPUs and NUMA nodes of the host, as Docker's options `--cpuset-cpus` and `--cpuset-mems`; absent: all. */
  readonly cpuset: { readonly cpus?: string | undefined; readonly mems?: string | undefined };
  readonly volumes: readonly VolumeMount[];
  /** Port on which the engine listens inside the container. */
  readonly port: number;
  /** Hosts or pools that may run the engine; empty: any. */
  readonly hosts: readonly string[];
  /** Distribution of replicas over hosts: `pack` fills one host before the next, `spread` evens out. */
  readonly placement: 'pack' | 'spread';
  /** Placement constraints of the Swarm, such as `node.labels.gpu==h100`. */
  readonly constraints: readonly string[];
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  /**
   * Milliseconds for which a ready replica is not stopped to make room: models that share a GPU must not alternate too
   * fast.
   */
  readonly upMinMs: number;
  /** Applies before the first time of `schedule`. */
  readonly replicas: { readonly min: number; readonly max: number };
  readonly schedule: readonly ScheduleEntry[];
  /** True if replicas are never stopped to make room for another. */
  readonly pinned: boolean;
  /** Sleep level of idle replicas: 1 or 2 puts them to sleep, 0 stops them. */
  readonly sleepLevel: 0 | 1 | 2;
  readonly canaries: readonly Canary[];
}

/** A LoRA adapter that an engine's replicas serve beside the engine's model, as a model of its own. */
export interface LoraAdapter {
  readonly id: string;
  readonly name: string;
  readonly aliases: readonly string[];
  /** Repository of the adapter; null if its path is a folder or unknown. */
  readonly huggingFaceId: string | null;
  readonly ownedBy: string;
  /** A folder where the engine runs, or a repository; null for external engines. */
  readonly path: string | null;
  /** Name of the adapter at an external engine; null if that is the id. */
  readonly upstreamModel: string | null;
  /** The adapter's prices, or else those of its base; null if neither has any. */
  readonly pricing: EnginePricing | null;
  readonly flexPricing: EnginePricing | null;
  /** Fallbacks of the adapter, as for an engine; the fallbacks of its base do not apply. */
  readonly fallbacks: readonly string[];
}

/** Values of request fields that an engine file sets; see request-changes.ts for the fields. */
export interface RequestChanges {
  /** Set where the client sent no value. */
  readonly defaults: Readonly<Record<string, unknown>>;
  /** Set whatever the client sent; null removes the field. */
  readonly overrides: Readonly<Record<string, unknown>>;
}

/** One checked file of the engines folder. Contains no secret: references to the environment stay references. */
export interface EngineDefinition {
  /** File name for messages to operators: `engines/name.yaml`. */
  readonly file: string;
  readonly id: string;
  readonly name: string;
  /** Further names that requests may use. */
  readonly aliases: readonly string[];
  /** True if the model list has a model of its own for each alias of the model and of its adapters. */
  readonly listsAliases: boolean;
  /** null if not specified; only for external engines. */
  readonly huggingFaceId: string | null;
  readonly taskType: TaskType;
  /** Longest prompt and answer together, in tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  readonly ownedBy: string;
  /** null if the file has no prices: the model is listed, and its requests are rejected. */
  readonly pricing: EnginePricing | null;
  /** Prices of the tier `flex`; null if the file does not offer the tier. */
  readonly flexPricing: EnginePricing | null;
  /** Ids of models of other engines that may answer, in this order, if this one cannot; see fallback-checks.ts. */
  readonly fallbacks: readonly string[];
  /** Number of running requests at which the engine is full; null uses what the engine reports. */
  readonly concurrencyMax: number | null;
  /** Most requests that one vLLM runs and queues, and most prompt tokens that wait there; null for no limit. */
  readonly queuedRequestsMax: number | null;
  readonly queuedTokensMax: number | null;
  /** Milliseconds without a token, while requests run, after which a replica is tried with a canary; null for never. */
  readonly wedgedMs: number | null;
  /** Milliseconds without output and without a byte of a download after which a start is repeated; null for never. */
  readonly stalledMs: number | null;
  readonly kind: EngineKind;
  readonly allow: readonly AllowableField[];
  /** Reaction to tools that the engine does not serve; a key's own setting takes precedence. */
  readonly unservedTools: UnservedTools;
  readonly requestChanges: RequestChanges;
  /** Hosts from which the engine may fetch images and other media; none if empty. */
  readonly mediaDomains: readonly string[];
  /** Largest `n` of a request; null uses the gateway's setting. */
  readonly nMax: number | null;
  /** Most images, sounds and videos per request. */
  readonly mediaMax: number;
  readonly structuredOutputs: StructuredOutputBounds;
  /** True if all organizations share the engine's cached prompts; only `kind: vllm` can separate them. */
  readonly shareCache: boolean;
  /** Profile whose rate cards price the engine's GPU-hours; null uses the name of the GPU. */
  readonly hardwareProfile: string | null;
  /** UUID of the organization that the engine's GPU-hours are charged to; null for the first organization. */
  readonly organizationId: string | null;
  readonly lora: readonly LoraAdapter[];
  /** Most adapters in use at once, and their largest rank; null uses vLLM's default. */
  readonly lorasMax: number | null;
  readonly loraRankMax: number | null;
  readonly driver: ProcessDriverSettings | ContainerDriverSettings | ExternalDriverSettings;
}
