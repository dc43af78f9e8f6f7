/** What an engine's model is for; it decides which routes serve it. */
export const taskTypes = ['chat', 'completion', 'embedding', 'vision', 'code'] as const;
export type TaskType = (typeof taskTypes)[number];

/** Request fields that are refused unless the engine's file names them under `allow`. */
export const allowableFields = [
  'priority',
  'request_id',
  'session_id',
  'kv_transfer_params',
  'ec_transfer_params',
  'prompt_embeds',
  'chat_template',
  'best_of',
  'encoding_format',
] as const;
export type AllowableField = (typeof allowableFields)[number];

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

/** A child process of the gateway on this machine. */
export interface ProcessDriverSettings {
  readonly type: 'process';
  /** Program and arguments; `{socket}` and `{port}` are filled in at the start. */
  readonly command: readonly string[];
  /** Added to the child's environment; `${NAME}` in a value stands for the gateway's own variable of that name. */
  readonly env: Readonly<Record<string, string>>;
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  readonly replicas: { readonly min: number; readonly max: number };
}

/** An engine that somebody else runs; only its address is known. */
export interface ExternalDriverSettings {
  readonly type: 'external';
  /** http or https, without /v1, credentials, query and a slash at its end. */
  readonly url: string;
  /** What the engine calls the model; null when it goes by the catalog id. */
  readonly upstreamModel: string | null;
  /** Name of the gateway's environment variable that holds the engine's key; the key itself is never kept here. */
  readonly apiKeyEnv: string | null;
}

/** One file of the engines folder, checked. Holds no secret: references to the environment stay references. */
export interface EngineDefinition {
  /** `engines/name.yaml`, for messages to operators. */
  readonly file: string;
  readonly id: string;
  readonly name: string;
  readonly huggingFaceId: string;
  readonly taskType: TaskType;
  /** Tokens. */
  readonly contextLength: number;
  readonly enabled: boolean;
  readonly ownedBy: string;
  /** null when the file has no prices: the model is listed, and requests to it are refused. */
  readonly pricing: EnginePricing | null;
  /** What requests of the tier `flex` pay; null when the file does not offer it. */
  readonly flexPricing: EnginePricing | null;
  /** Requests at once from which on the engine counts as full; null leaves that to what the engine reports. */
  readonly concurrencyMax: number | null;
  readonly kind: EngineKind;
  readonly allow: readonly AllowableField[];
  /** Hosts from which images and other media may be fetched by the engine; none when empty. */
  readonly mediaDomains: readonly string[];
  /** Largest `n` of a request; null leaves the gateway's own setting. */
  readonly nMax: number | null;
  readonly driver: ProcessDriverSettings | ExternalDriverSettings;
}
