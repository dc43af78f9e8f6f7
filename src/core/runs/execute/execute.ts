export { clearRun } from './clear-run.ts';
export { executeRun, type ExecutionParts } from './execution.ts';
export { DetachedError } from './phase.ts';
export { createStates } from './states.ts';
