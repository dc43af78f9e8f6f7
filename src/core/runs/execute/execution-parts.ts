import type { Log } from '#base/log.ts';
import type { RunSources, Sealer } from '#core/runs/lifecycle/lifecycle.ts';
import type { PhaseParts } from './phase.ts';
import type { Plans } from './plans.ts';
import type { States } from './states.ts';

export interface ExecutionLimits {
  readonly initMs: number;
  /** Limit of plan, and of apply. */
  readonly phaseMs: number;
}

export interface ExecutionParts extends PhaseParts {
  readonly sources: RunSources;
  readonly sealer: Sealer;
  readonly states: States;
  readonly plans: Plans;
  readonly limits: ExecutionLimits;
  readonly log: Log;
}
