/**
 * A run's life. Names are those that the API shows; what a status may turn into stands here alone, and every change is
 * one statement that names the statuses it comes from, so that of two changes at once one finds nothing to change.
 */
export const runStatuses = [
  /** Waits for its cluster. */
  'PENDING',
  /** `init` and `plan`. */
  'PLANNING',
  /** `apply` of the saved plan. */
  'APPLYING',
  /** Done; what it made is there. */
  'APPLIED',
  /** A later run of the same installation is APPLIED. */
  'SUPERSEDED',
  /** `apply` of a plan that removes everything. */
  'DESTROYING',
  'DESTROYED',
  /** It was asked to end, and has not ended. */
  'CANCELING',
  'CANCELED',
  'FAILED',
] as const;

export type RunStatus = (typeof runStatuses)[number];

export const runOperations = ['apply', 'destroy'] as const;
export type RunOperation = (typeof runOperations)[number];

/** Who may use a web address: everybody, or who may see the run. */
export const runAccess = ['public', 'members'] as const;
export type RunAccess = (typeof runAccess)[number];

/** Why a run is FAILED. */
export const failureCodes = [
  'INIT_FAILED',
  'PLAN_FAILED',
  'APPLY_FAILED',
  'DESTROY_FAILED',
  /** A phase took longer than its limit, or the run waited too long. */
  'TIMEOUT',
  /** Its process ended without saying how, or its machine is gone. */
  'INTERRUPTED',
  /** What was made is there, and Terraform's state of it could not be kept. */
  'STATE_SAVE_FAILED',
  /** An earlier run of its installation has left a state that is not on record: it would have made everything anew. */
  'STATE_NOT_SAVED',
  /** It took more of the disk than a run has. */
  'LIMIT_EXCEEDED',
  /** Nothing here can run Terraform. */
  'RUNNER_UNAVAILABLE',
  /** Its cluster was deleted, or is another organization's. */
  'CLUSTER_GONE',
  /** The organization of its cluster was suspended or closed before it began. */
  'ORGANIZATION_INACTIVE',
] as const;
export type FailureCode = (typeof failureCodes)[number];

/** What a run says that ends with CLUSTER_GONE. */
export const clusterGone = 'the cluster was deleted';

/** What a run says that ends with ORGANIZATION_INACTIVE. */
export const organizationInactive = (status: 'suspended' | 'closed'): string =>
  `the organization was ${status} before the run began`;

/** Why nothing is done over what another run has left; that one's id as outsiders know it. */
export const stateNotSaved = (runId: string): string =>
  `${runId} has left a state of Terraform in its work folder that is not on record: what it made is known nowhere else. The gateway takes it when it can, once a minute: its log names the folder and the reason, and HEADGATE_RUNS_STATE_MIB takes larger states; forgetting ${runId} gives up what it made`;

/** What a run says that waited, or was left, when its cluster became another organization's. */
export const clusterMoved = 'the cluster was moved to another organization';

const next: Readonly<Record<RunStatus, readonly RunStatus[]>> = {
  PENDING: ['PLANNING', 'CANCELED', 'FAILED'],
  PLANNING: ['APPLYING', 'DESTROYING', 'CANCELING', 'FAILED', 'DESTROYED'],
  APPLYING: ['APPLIED', 'CANCELING', 'FAILED'],
  DESTROYING: ['DESTROYED', 'CANCELING', 'FAILED'],
  CANCELING: ['CANCELED', 'APPLIED', 'DESTROYED', 'FAILED'],
  APPLIED: ['SUPERSEDED'],
  SUPERSEDED: [],
  DESTROYED: [],
  CANCELED: [],
  FAILED: [],
};

/** Holds its cluster: no other run of the cluster begins meanwhile. */
export const activeStatuses: readonly RunStatus[] = ['PLANNING', 'APPLYING', 'DESTROYING', 'CANCELING'];

/** From which statuses a run may become this one. */
export function statusesBefore(status: RunStatus): readonly RunStatus[] {
  return runStatuses.filter((before) => next[before].includes(status));
}

/** Nothing more happens to the run itself. */
export function isFinal(status: RunStatus): boolean {
  return status !== 'PENDING' && !activeStatuses.includes(status);
}
