/** Fields of the platform API's answers that pages read. Times are ISO texts. */

export interface PageAnswer<T> {
  readonly data: readonly T[];
  readonly pagination: {
    readonly page: number;
    readonly limit: number;
    readonly total: number;
    readonly pages: number;
  };
}

export interface InputAnswer {
  readonly name: string;
  readonly type: 'string' | 'number' | 'bool' | 'list' | 'map';
  readonly type_expression: string | null;
  readonly description: string;
  readonly required: boolean;
  /** Any JSON value; null if there is no default. */
  readonly default: unknown;
  readonly sensitive: boolean;
}

export interface StackAnswer {
  readonly id: string;
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly category: string | null;
  readonly icon: string | null;
  readonly visibility: 'global' | 'private';
  readonly builtin: boolean;
  readonly owner_id: string | null;
  readonly inputs: readonly InputAnswer[];
  readonly applicable_profiles: readonly string[] | null;
  readonly web: { readonly port: number | null; readonly node: string | null; readonly path: string | null } | null;
  readonly required_versions: readonly string[];
  readonly providers: readonly {
    readonly source: string;
    readonly version: string | null;
    readonly in_mirror: boolean | null;
  }[];
  readonly warnings: readonly string[];
  readonly version: {
    readonly number: number;
    readonly sha256: string;
    readonly size: number;
    readonly files: number;
    readonly created_at: string;
  };
  readonly updated_at: string;
}

export interface RunnerAnswer {
  readonly available: boolean;
  readonly problem: string | null;
}

export const runStatuses = [
  'PENDING',
  'PLANNING',
  'APPLYING',
  'APPLIED',
  'SUPERSEDED',
  'DESTROYING',
  'DESTROYED',
  'CANCELING',
  'CANCELED',
  'FAILED',
] as const;
export type RunStatusAnswer = (typeof runStatuses)[number];

export interface RunAnswer {
  readonly id: string;
  readonly cluster_id: string;
  readonly organization_id: string;
  readonly stack: string;
  readonly stack_id: string;
  readonly node: string | null;
  readonly operation: 'apply' | 'destroy';
  readonly status: RunStatusAnswer;
  readonly phase: 'init' | 'plan' | 'apply' | null;
  readonly failure_code: string | null;
  readonly failure_message: string | null;
  readonly overtaken: boolean;
  readonly retry_of: string | null;
  readonly created_by: string | null;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly changes: {
    readonly operation: 'plan' | 'apply' | 'destroy';
    readonly add: number;
    readonly change: number;
    readonly remove: number;
  } | null;
  readonly outputs: Readonly<Record<string, { readonly sensitive: boolean; readonly value?: unknown }>> | null;
  readonly access: 'public' | 'members';
  readonly url: string | null;
  readonly url_status: 'pending' | 'ready' | 'unreachable' | null;
  readonly url_problem: string | null;
  readonly log_lines: number;
}

export interface LogLineAnswer {
  readonly seq: number;
  readonly at: string;
  readonly phase: string;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
}

export interface RunLogAnswer {
  readonly data: readonly LogLineAnswer[];
  readonly next_after: number;
  readonly expired: boolean;
  readonly complete: boolean;
}

export interface NodeAnswer {
  readonly id: string;
  readonly name: string;
  readonly address: string;
  readonly private_address: string | null;
  readonly ssh_port: number;
  readonly ssh_user: string;
  readonly host_key: string | null;
  readonly hardware_profile: string;
  readonly gpus: number;
  readonly status: 'registered' | 'allocated' | 'released';
  readonly allocation: {
    readonly generation: number;
    readonly allocated_at: string | null;
    readonly released_at: string | null;
    readonly estimated: boolean;
  } | null;
  readonly last_seen_at: string | null;
}

export interface ClusterSummaryAnswer {
  readonly id: string;
  readonly name: string;
  readonly organization_id: string;
  readonly public_domain: string | null;
  readonly access: 'public' | 'members';
  readonly status: 'active' | 'archived';
  readonly access_identity: {
    readonly public_key: string;
    readonly fingerprint: string;
    readonly origin: 'generated' | 'given';
    readonly encrypted_with: string | null;
    readonly changed_at: string;
  };
  readonly nodes_total: number;
  readonly nodes_allocated: number;
  readonly created_at: string;
  readonly archived_at: string | null;
}

export interface ClusterAnswer extends ClusterSummaryAnswer {
  readonly nodes: readonly NodeAnswer[];
}

export interface HostAnswer {
  readonly name: string;
  readonly reachable: boolean;
  readonly trouble: string | null;
  readonly gpus: readonly {
    readonly id: string;
    readonly profile: string | null;
    readonly used_by: { readonly engine: string | null; readonly stranger: string | null } | null;
  }[];
  readonly replicas: readonly { readonly engine: string }[];
}
