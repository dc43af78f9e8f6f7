import type { LogLine } from './log-line.ts';
import type { FailureCode, RunMode, RunOperation, RunStatus } from './run-status.ts';
import type { WebPort } from './sources.ts';

/** Another gateway has adopted the run: this gateway may not write or start anything more for it. */
export class RunLostError extends Error {
  constructor() {
    super('another gateway has the lease of the run');
    this.name = 'RunLostError';
  }
}

/** A run that this gateway has claimed. */
export interface ClaimedRun {
  readonly id: string;
  readonly fence: number;
  readonly installationId: string;
  readonly clusterId: string;
  /** The organization of the cluster when the run was requested. */
  readonly organizationId: string;
  readonly stackVersionId: string;
  readonly node: string;
  readonly operation: RunOperation;
  readonly status: RunStatus;
  readonly cancelReason: CancelReason | null;
  readonly inputs: Buffer;
  readonly mode: RunMode;
  /** The run that this run checks for drift; null for all other runs. */
  readonly driftOf: string | null;
  /** True if somebody confirmed the plan, which is stored. */
  readonly isConfirmed: boolean;
  readonly prepared: boolean;
  readonly phase: string | null;
  readonly logOffset: number;
  readonly logLines: number;
  readonly logBytes: number;
}

export type CancelReason = 'asked' | 'timeout' | 'cluster_gone';

export interface RunEnd {
  readonly status: RunStatus;
  readonly failureCode?: FailureCode;
  readonly failureMessage?: string;
  readonly outputs?: object;
  readonly web?: WebPort | null;
  readonly webProblem?: string | null;
}

export interface PhaseLines {
  readonly phase: string;
  readonly lines: readonly LogLine[];
  /** Bytes of the phase's output that are read once these lines are stored. */
  readonly offset: number;
}

/** Seconds that a run stays with a gateway that does not renew its lease. */
export const leaseSeconds = 60;
