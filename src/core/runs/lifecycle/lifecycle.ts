export { countTries, type Tries, watchAnswers } from './abandon.ts';
export { type CancelReason, type ClaimedRun, leaseSeconds, RunLostError } from './claimed-run.ts';
export { type Claims, createClaims } from './claims.ts';
export { type ChangeSummary, type LogLine, readLogLine } from './log-line.ts';
export { createMask, createPieceMask, type Mask, type PieceMask, secretCharsMin } from './mask.ts';
export { dropOldLogs } from './old-logs.ts';
export { type DeclaredEngine, type DeclaredWebPort, listEngines, listWebPorts } from './declared.ts';
export { outputsOf, readOutputs, type RunOutput } from './outputs.ts';
export { type PlanChanges, type PlannedResource, readPlanChanges, readPlanDrift } from './plan-changes.ts';
export { releaseVersions } from './release-versions.ts';
export { countExpiringRuns, countUnfinishedRuns, endDriftChecks, endExpiries, endUnfinishedRuns } from './restored.ts';
export { type Changes, createChanges } from './run-changes.ts';
export {
  changeExpiry,
  destroyExpired,
  type ExpiryChange,
  lifeSecondsMax,
  lifeSecondsMin,
  notifyExpiring,
} from './run-expiry.ts';
export { changeDriftCheck, checkDriftOfDue, type DriftCheckChange, notifyDrift } from './run-drift.ts';
export { notifyRuns, type RunNotice } from './run-notices.ts';
export type { ApplyRequest, ChangeResult, StartResult } from './run-requests.ts';
export {
  type DriftFound,
  findRun,
  listRuns,
  lockRuns,
  type LoggedLine,
  readLog,
  readPlan,
  type Run,
  type RunList,
} from './run-rows.ts';
export { type DeclaredInput, type ShownInput, textsIn } from './shown-inputs.ts';
export { createStarts, type Starts } from './run-starts.ts';
export {
  activeStatuses,
  clusterArchived,
  clusterMoved,
  type FailureCode,
  failureCodes,
  isFinal,
  organizationInactive,
  runAccess,
  type RunMode,
  type RunOrigin,
  runModes,
  runOperations,
  runOrigins,
  type RunStatus,
  runStatuses,
  stateNotSaved,
  unfinishedStatuses,
  waitHoursMax,
} from './run-status.ts';
export {
  type ClusterContext,
  type ClusterNode,
  inputsContext,
  markOf,
  planContext,
  type RunSources,
  type Sealer,
  sealMarkBytes,
  type StackInput,
  type StackPackage,
  stateContext,
  type WebPort,
} from './sources.ts';
