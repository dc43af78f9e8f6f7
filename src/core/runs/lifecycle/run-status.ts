/**
 * The statuses of a run, by their names in the API. Only this file defines the transitions. Every change is one
 * statement that names the statuses it comes from, so that one of two simultaneous changes finds nothing to change.
 */
export const runStatuses = [
  /** The run waits for its cluster. */
  'PENDING',
  /** `init` and `plan` run. */
  'PLANNING',
  /** The plan waits for somebody to confirm or discard it; the cluster waits with it. */
  'PLANNED',
  /** `apply` runs the saved plan. */
  'APPLYING',
  /** The resources exist. */
  'APPLIED',
  /** A later run of the same installation is APPLIED. */
  'SUPERSEDED',
  /** `apply` runs a plan that removes everything. */
  'DESTROYING',
  'DESTROYED',
  /** The run was canceled and has not stopped yet. */
  'CANCELING',
  'CANCELED',
  /** Somebody discarded the plan. */
  'DISCARDED',
  /** The run was to make a plan only. */
  'PLANNED_AND_FINISHED',
  'FAILED',
] as const;

export type RunStatus = (typeof runStatuses)[number];

export const runOperations = ['apply', 'destroy'] as const;
export type RunOperation = (typeof runOperations)[number];

/** Users of a web address: everybody, or those who may see the run. */
export const runAccess = ['public', 'members'] as const;
export type RunAccess = (typeof runAccess)[number];

/** Steps after the plan of a run: `apply` at once, `apply` when somebody confirms it, or nothing. */
export const runModes = ['auto', 'confirm', 'plan'] as const;
export type RunMode = (typeof runModes)[number];

/**
 * Programs from which runs are requested; `expiry`: Headgate itself, at the end of what was applied; `drift`: Headgate
 * itself, to check what is applied.
 */
export const runOrigins = ['api', 'portal', 'cli', 'expiry', 'drift'] as const;
export type RunOrigin = (typeof runOrigins)[number];

/** Reasons why a run is FAILED. */
export const failureCodes = [
  'INIT_FAILED',
  'PLAN_FAILED',
  /** The state or the cluster changed after the plan that was confirmed. */
  'PLAN_STALE',
  'APPLY_FAILED',
  'DESTROY_FAILED',
  /** A phase took longer than its limit, or the run waited too long. */
  'TIMEOUT',
  /** The run's process ended without a result, or its machine is lost. */
  'INTERRUPTED',
  /** The resources exist, and Terraform's state of them could not be stored. */
  'STATE_SAVE_FAILED',
  /**
   * An earlier run of the installation has left a state that is not stored: this run would have created everything
   * again.
   */
  'STATE_NOT_SAVED',
  /** The run used more disk than allowed. */
  'LIMIT_EXCEEDED',
  /** Nothing here can run Terraform. */
  'RUNNER_UNAVAILABLE',
  /** The cluster was archived, or belongs to another organization now. */
  'CLUSTER_GONE',
  /** The organization of the cluster was suspended or closed before the run started. */
  'ORGANIZATION_INACTIVE',
] as const;
export type FailureCode = (typeof failureCodes)[number];

/** Message of runs that fail with CLUSTER_GONE. */
export const clusterArchived = 'the cluster was archived';

/** Message of runs that fail with ORGANIZATION_INACTIVE. */
export const organizationInactive = (status: 'suspended' | 'closed'): string =>
  `the organization was ${status} before the run started`;

/** Message that nothing can be done over the state that another run has left. `runId` is that run's public id. */
export const stateNotSaved = (runId: string): string =>
  `${runId} has left a Terraform state in its work folder that is not stored yet, and only this state lists the resources that it created. The gateway retries every minute (its log names the folder and the reason; raise HEADGATE_RUNS_STATE_MIB for larger states); forgetting ${runId} abandons these resources`;

/** Message of a run that was pending, or resumed, when its cluster had moved to another organization. */
export const clusterMoved = 'the cluster was moved to another organization';

const next: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  PENDING: ['PLANNING', 'CANCELED', 'FAILED'],
  PLANNING: ['PLANNED', 'PLANNED_AND_FINISHED', 'APPLYING', 'DESTROYING', 'CANCELING', 'FAILED', 'DESTROYED'],
  PLANNED: ['PENDING', 'DISCARDED', 'CANCELED', 'FAILED'],
  APPLYING: ['APPLIED', 'CANCELING', 'FAILED'],
  DESTROYING: ['DESTROYED', 'CANCELING', 'FAILED'],
  CANCELING: ['CANCELED', 'APPLIED', 'DESTROYED', 'FAILED'],
  APPLIED: ['SUPERSEDED'],
  SUPERSEDED: [],
  DESTROYED: [],
  CANCELED: [],
  DISCARDED: [],
  PLANNED_AND_FINISHED: [],
  FAILED: [],
};

/** Statuses in which a gateway works on the run. */
export const activeStatuses: readonly RunStatus[] = ['PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING'];

/** Statuses in which the run waits, and no gateway works on it. */
export const idleStatuses: readonly RunStatus[] = ['PENDING', 'PLANNED'];

export const unfinishedStatuses: readonly RunStatus[] = [...idleStatuses, ...activeStatuses];

/** Statuses that occupy the cluster: no other run of the cluster starts meanwhile. */
export const occupyingStatuses: readonly RunStatus[] = ['PLANNED', ...activeStatuses];

/** Hours that a run waits for its cluster, and again for its confirmation. */
export const waitHoursMax = 24;

/** Returns the statuses from which a run may change to this one. */
export function statusesBefore(status: RunStatus): readonly RunStatus[] {
  return runStatuses.filter((before) => next[before].includes(status));
}

/** True if the run itself no longer changes. */
export function isFinal(status: RunStatus): boolean {
  return !unfinishedStatuses.includes(status);
}
