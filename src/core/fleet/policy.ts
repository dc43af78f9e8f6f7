import type { EngineDefinition } from '#core/catalog/catalog.ts';

/** Rules for crashes, devices and load, shared by all engines; milliseconds. */
export interface FleetPolicy {
  /** Consecutive crashes or failed starts after which an engine stays failed. */
  readonly crashesMax: number;
  /** Pause after the first crash in a row; doubles up to `backoffMaxMs`. */
  readonly backoffFirstMs: number;
  readonly backoffMaxMs: number;
  /** How long an engine then stays failed; Infinity: until an operator's command or a changed file. */
  readonly failedMs: number;
  /** Once a replica has been ready this long, its engine's earlier crashes are forgotten. */
  readonly stableMs: number;
  /** How long a replica that stopped answering may take to answer again or to end. */
  readonly unreachableMs: number;
  /** Limit for pulling an image and creating a container. */
  readonly createTimeoutMs: number;
  /** How long a device's memory may take to become free after its last user ended. */
  readonly gpuFreeTimeoutMs: number;
  /** How long load must be high before another replica is started, and low before one is stopped. */
  readonly scaleUpAfterMs: number;
  readonly scaleDownAfterMs: number;
}

export const defaultPolicy: FleetPolicy = {
  crashesMax: 5,
  backoffFirstMs: 1000,
  backoffMaxMs: 30_000,
  failedMs: Infinity,
  stableMs: 60_000,
  unreachableMs: 15_000,
  createTimeoutMs: 3_600_000,
  gpuFreeTimeoutMs: 60_000,
  scaleUpAfterMs: 10_000,
  scaleDownAfterMs: 120_000,
};

/** The settings of an engine's current file that the leader needs. */
export interface EngineSettings {
  readonly idleMs: number;
  readonly startTimeoutMs: number;
  readonly drainMs: number;
  readonly upMinMs: number;
  readonly min: number;
  readonly max: number;
  readonly pinned: boolean;
  readonly sleepLevel: 0 | 1 | 2;
}

export function settingsOf({ driver }: EngineDefinition): EngineSettings {
  if (driver.type === 'external') {
    // The gateway never starts or stops an external engine.
    const never = { idleMs: Infinity, startTimeoutMs: 600_000, drainMs: 30_000, upMinMs: 0 };
    const { length } = driver.deployments;
    return { ...never, min: length, max: length, pinned: true, sleepLevel: 0 };
  }
  const { idleMs, startTimeoutMs, drainMs, upMinMs, replicas } = driver;
  const times = { idleMs, startTimeoutMs, drainMs, upMinMs, min: replicas.min, max: Math.max(1, replicas.max) };
  if (driver.type === 'process') return { ...times, pinned: driver.pinned, sleepLevel: 0 };
  return { ...times, pinned: driver.pinned, sleepLevel: driver.sleepLevel };
}
