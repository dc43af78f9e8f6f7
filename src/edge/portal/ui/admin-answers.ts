/** Fields of the JSON API's answers that the pages of administrators read. */

export interface PageAnswer<T> {
  readonly data: readonly T[];
  readonly pagination: {
    readonly page: number;
    readonly limit: number;
    readonly total: number;
    readonly pages: number;
  };
}

export type EngineState = 'disabled' | 'stopped' | 'starting' | 'ready' | 'draining' | 'retrying' | 'failed' | 'held';

export interface ReplicaAnswer {
  readonly id: string;
  readonly state: string;
  readonly since: number;
  readonly host: string;
  readonly gpus: readonly string[];
  readonly progress: string | null;
  readonly running: number;
  readonly healthy: boolean | null;
}

export interface EngineAnswer {
  readonly id: string;
  readonly name: string;
  readonly driver: 'process' | 'docker' | 'swarm' | 'external';
  readonly file: string;
  readonly state: EngineState;
  readonly since: number | null;
  readonly last_failure: {
    readonly message: string;
    readonly detail: string | null;
    readonly retry_at: number | null;
    readonly failures: number;
  } | null;
  readonly rollout: { readonly state: 'checking' | 'refused'; readonly message: string } | null;
  readonly replicas: readonly ReplicaAnswer[];
  readonly replicas_min: number;
  readonly replicas_max: number;
  readonly pinned: boolean;
  readonly gpus_needed: {
    readonly count: number;
    readonly memory_bytes: number | null;
    readonly profile: string | null;
  } | null;
  readonly memory_needed_bytes: number | null;
  readonly queue: { readonly running: number; readonly waiting: number };
  readonly start_times_ms: readonly number[];
}

/** The time of the engine files in effect, and the problems of the files that the gateway rejected. */
export interface EngineFilesAnswer {
  readonly read_at: number;
  readonly refused: { readonly at: number; readonly problems: readonly string[] } | null;
}

export interface HostAnswer {
  readonly name: string;
  readonly reachable: boolean;
  readonly trouble: string | null;
  readonly gpus: readonly {
    readonly id: string;
    readonly memory_bytes: number | null;
    readonly profile: string | null;
    readonly used_by: { readonly engine: string | null; readonly stranger: string | null } | null;
  }[];
  readonly memory_bytes: number | null;
  readonly replicas: readonly { readonly engine: string }[];
  readonly strangers: readonly { readonly name: string; readonly ended_by: string }[];
}

export interface MarginAnswer {
  readonly model: string;
  readonly requests: number;
  readonly revenue: string;
  readonly cost: string;
  readonly complete: boolean;
  readonly margin: string | null;
  readonly margin_ratio: number | null;
  readonly gpu_hours: { readonly held: number; readonly busy: number | null; readonly idle: number | null };
  readonly cost_per_million_tokens: string | null;
}

export interface AuditAnswer {
  readonly id: string;
  readonly organization_id: string;
  readonly created_at: number;
  readonly action: string;
  readonly target_type: string;
  readonly target_id: string;
  readonly actor: {
    readonly type: 'key' | 'user' | 'system';
    readonly id: string | null;
    readonly user_id: string | null;
    readonly service_account_id: string | null;
  };
  readonly before: Readonly<Record<string, unknown>> | null;
  readonly after: Readonly<Record<string, unknown>> | null;
  readonly request_id: string | null;
}

export type OrganizationRole = 'owner' | 'admin' | 'member';

export interface UserAnswer {
  readonly id: string;
  readonly name: string;
  readonly email: string;
  readonly platform_role: 'admin' | 'user';
  readonly memberships: readonly { readonly organization_id: string; readonly role: OrganizationRole }[];
  readonly created_at: string;
}
