export { clearRun } from './clear-run.ts';
export { executeRun } from './execution.ts';
export type { ExecutionParts } from './execution-parts.ts';
export { DetachedError } from './phase.ts';
export { createPlans } from './plans.ts';
export { createStates } from './states.ts';
