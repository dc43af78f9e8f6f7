import type { Author } from '#core/audit/audit.ts';
import type { Run } from './run-rows.ts';
import type { RunAccess, RunStatus } from './run-status.ts';

/** What may be asked of runs, and what comes of it. */

export interface ApplyRequest {
  readonly clusterId: string;
  readonly organizationId: string;
  readonly stackId: string;
  readonly stackName: string;
  readonly stackVersionId: string;
  /** Empty for the whole cluster. */
  readonly node: string;
  /** Checked against what the version declares. */
  readonly inputs: Readonly<Record<string, unknown>>;
  /** Who may use its web address, if it gets one. */
  readonly access: RunAccess;
  readonly author: Author;
}

export type StartResult =
  | { readonly kind: 'created'; readonly run: Run }
  | { readonly kind: 'queue_full' }
  /** An earlier run of the installation has left a state that is not on record. */
  | { readonly kind: 'state_not_saved'; readonly runId: string }
  /** The version of the stack is not there any more. */
  | { readonly kind: 'stack_gone' }
  | { readonly kind: 'cluster_gone' }
  /** It is another organization's than the run that was named, or became so at this moment. */
  | { readonly kind: 'cluster_moved' }
  /** The node of its installation was taken out of the cluster. */
  | { readonly kind: 'node_gone' }
  /** Nothing is applied for the organization of the cluster; what it has can be destroyed. */
  | { readonly kind: 'organization_inactive'; readonly status: 'suspended' | 'closed' }
  /** It runs or waits, or has nothing that could be done again. */
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  | { readonly kind: 'not_found' };

export type ChangeResult =
  | { readonly kind: 'changed'; readonly run: Run }
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  | { readonly kind: 'not_found' };
