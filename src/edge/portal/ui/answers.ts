/** Fields of the JSON API's answers that pages read. The document at /openapi.json describes all fields. */

export interface ListAnswer<T> {
  readonly data: readonly T[];
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

export interface LimitsAnswer {
  readonly requests_per_minute: number | null;
  readonly max_concurrency: number | null;
  readonly tokens_per_minute: number | null;
  readonly monthly_token_limit: number | null;
}

export interface KeyAnswer extends LimitsAnswer {
  readonly id: string;
  readonly name: string;
  readonly prefix: string;
  readonly last4: string;
  readonly scope: 'inference' | 'management';
  readonly held: boolean;
  readonly project_id: string;
  readonly service_account_id: string | null;
  readonly status: 'active' | 'revoked' | 'expired';
  readonly created_at: number;
  readonly expires_at: number | null;
  readonly last_used_at: number | null;
  readonly revoked_at: number | null;
  readonly rotated_at: number | null;
  readonly former_secrets_end_at: number | null;
  readonly store_requests: boolean;
  readonly cache_responses: boolean;
  readonly confined: boolean | null;
  readonly models: readonly string[] | null;
}

export interface CreatedKeyAnswer extends KeyAnswer {
  readonly secret: string;
}

export interface OrganizationAnswer {
  readonly id: string;
  readonly name: string;
  readonly default_limits: LimitsAnswer;
  readonly max_active_keys: number | null;
}

export interface ProjectAnswer {
  readonly id: string;
  readonly name: string;
  readonly archived: boolean;
}

export interface WalletAnswer {
  readonly balance: string;
  readonly held: string;
  readonly available: string;
}

export interface LedgerEntryAnswer {
  readonly id: string;
  readonly type: 'credit' | 'usage' | 'adjustment';
  readonly amount: string;
  readonly balance_after: string;
  readonly request_id: string | null;
  readonly requests: number | null;
  readonly reference: string | null;
  readonly note: string | null;
  readonly created_at: number;
}

export interface SumsAnswer {
  readonly num_model_requests: number;
  readonly outcomes: Readonly<Record<'completed' | 'aborted' | 'ended' | 'failed', number>>;
  readonly refusals: Readonly<Record<string, number>>;
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
  readonly output_reasoning_tokens: number;
  readonly cost: string;
}

export interface SummaryGroupAnswer extends SumsAnswer {
  readonly key_id?: string;
  readonly model?: string | null;
  readonly project_id?: string;
  readonly day?: string;
  readonly hour?: number;
}

export interface SummaryAnswer {
  readonly from: number;
  readonly to: number;
  readonly data: readonly SummaryGroupAnswer[];
  readonly totals: SumsAnswer;
}

export type Outcome = 'completed' | 'aborted' | 'ended' | 'failed';

export interface RequestAnswer {
  readonly id: string;
  readonly created_at: number;
  readonly key_id: string;
  readonly project_id: string;
  readonly model: string;
  /** The model that the client requested, if `model` answered in its place. */
  readonly fallback_for: string | null;
  readonly endpoint: string;
  readonly stream: boolean;
  readonly service_tier: 'default' | 'flex';
  readonly status: number;
  readonly outcome: Outcome;
  readonly reason: string | null;
  readonly cache_hit: boolean;
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly output_tokens: number;
  readonly output_reasoning_tokens: number;
  readonly usage_source: 'engine' | 'last_seen' | 'none' | 'counted';
  readonly cost: string;
  readonly written_off: string;
  readonly timings_ms: { readonly queued: number; readonly first_byte: number | null; readonly total: number };
  readonly client_request_id: string | null;
}

export interface RequestDetailAnswer extends RequestAnswer {
  readonly timeline: {
    readonly admitted: number;
    readonly queued: number;
    readonly engine_cold_start: number;
    readonly first_byte: number | null;
    readonly last_byte: number;
    readonly committed: number;
  } | null;
  readonly limits_remaining: LimitsAnswer | null;
  readonly price_version: string;
  readonly price: TokenPrices | null;
  readonly replica: { readonly id: string; readonly age_seconds: number | null } | null;
}

/** Stored prompt and answer of a request: JSON as it was sent, or text; null if there is none. */
export interface ContentAnswer {
  readonly request: unknown;
  readonly response: unknown;
  readonly truncated: boolean;
}

/** Decimal USD per million tokens. */
export interface TokenPrices {
  readonly input_per_million: string;
  readonly output_per_million: string;
  readonly cached_input_per_million: string;
}

export interface PriceAnswer extends TokenPrices {
  readonly model: string;
  readonly flex?: TokenPrices;
}

export type TaskType = 'chat' | 'vision' | 'code' | 'completion' | 'embedding' | 'rerank';

export interface ModelAnswer {
  readonly id: string;
  readonly name: string;
  readonly hugging_face_id: string | null;
  readonly task_type: TaskType;
  readonly context_length: number;
  /** Ids of the usable models that may answer in place of this model. */
  readonly fallbacks: readonly string[];
  readonly status: 'ready' | 'cold' | 'starting' | 'failed';
  /** Null while the engine of the model runs. */
  readonly expected_cold_start_seconds: number | null;
}
