import type { Author } from '#core/audit/audit.ts';
import type { Run } from './run-rows.ts';
import type { RunAccess, RunMode, RunOrigin, RunStatus } from './run-status.ts';
import type { DeclaredInput } from './shown-inputs.ts';

/** Requests for runs, and their results. */

export interface ApplyRequest {
  readonly clusterId: string;
  readonly organizationId: string;
  readonly stackId: string;
  readonly stackName: string;
  readonly stackVersionId: string;
  /** Number of the version. */
  readonly stackVersion: number;
  /** Inputs that the version declares. */
  readonly declared: readonly DeclaredInput[];
  readonly origin: RunOrigin;
  /** Step after the plan; `auto` if absent. */
  readonly mode?: RunMode;
  /** Seconds from the end of the apply after which Headgate destroys the resources; null or absent: never. */
  readonly expiresAfter?: number | null;
  /** True if Headgate checks what is applied for drift by itself; true if absent. */
  readonly checkDrift?: boolean;
  /** Empty for the whole cluster. */
  readonly node: string;
  /** Already checked against the variables that the version declares. */
  readonly inputs: Readonly<Record<string, unknown>>;
  /** Users of the web address, if the run gets one. */
  readonly access: RunAccess;
  /** True if a platform administrator requests the apply: an engine that it declares then serves every organization. */
  readonly mayServe?: boolean;
  readonly author: Author;
}

export type StartResult =
  | { readonly kind: 'created'; readonly run: Run }
  | { readonly kind: 'queue_full' }
  /** An earlier run of the installation has left a state that is not stored. */
  | { readonly kind: 'state_not_saved'; readonly runId: string }
  /** The version of the stack was deleted. */
  | { readonly kind: 'stack_gone' }
  | { readonly kind: 'cluster_gone' }
  /** The cluster belongs to another organization than the given run, or moved at this moment. */
  | { readonly kind: 'cluster_moved' }
  /** The node of the installation was removed from the cluster. */
  | { readonly kind: 'node_gone' }
  /** Nothing is applied for the cluster's organization; its resources can be destroyed. */
  | { readonly kind: 'organization_inactive'; readonly status: 'suspended' | 'closed' }
  /** The run is pending or active, or there is nothing to repeat. */
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  /** A destroy of the installation is pending or active. */
  | { readonly kind: 'being_destroyed' }
  /** The run only checks another run for drift. */
  | { readonly kind: 'drift_check' }
  | { readonly kind: 'not_found' };

export type ChangeResult =
  | { readonly kind: 'changed'; readonly run: Run }
  | { readonly kind: 'being_destroyed' }
  | { readonly kind: 'wrong_status'; readonly status: RunStatus }
  | { readonly kind: 'drift_check' }
  | { readonly kind: 'not_found' };
