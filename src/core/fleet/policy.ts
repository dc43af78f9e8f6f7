import { type EngineDefinition, type ScheduleState, scheduleStateAt } from '#core/catalog/catalog.ts';

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
  readonly pinned: boolean;
  readonly sleepLevel: 0 | 1 | 2;
}

export function settingsOf({ driver }: EngineDefinition): EngineSettings {
  if (driver.type === 'external') {
    // The gateway never starts or stops an external engine.
    const never = { idleMs: Infinity, startTimeoutMs: 600_000, drainMs: 30_000, upMinMs: 0 };
    return { ...never, pinned: true, sleepLevel: 0 };
  }
  const { idleMs, startTimeoutMs, drainMs, upMinMs, pinned } = driver;
  const sleepLevel = driver.type === 'process' ? 0 : driver.sleepLevel;
  return { idleMs, startTimeoutMs, drainMs, upMinMs, pinned, sleepLevel };
}

/** Fewest and most replicas of an engine at a time. */
export interface ReplicaBounds {
  readonly min: number;
  /** 0: the engine is off by its schedule. */
  readonly max: number;
  /** null for an engine without a schedule. */
  readonly schedule: ScheduleState | null;
}

/** Returns the bounds without the schedule. */
export function fileBounds({ driver }: EngineDefinition): ReplicaBounds {
  if (driver.type === 'external') {
    const { length } = driver.deployments;
    return { min: length, max: length, schedule: null };
  }
  return { ...driver.replicas, schedule: null };
}

/** @param atMs milliseconds since the Unix epoch */
export function replicaBoundsAt(definition: EngineDefinition, atMs: number): ReplicaBounds {
  const { driver } = definition;
  if (driver.type === 'external' || driver.schedule.length === 0) return fileBounds(definition);
  const schedule = scheduleStateAt(driver.schedule, atMs);
  const { min, max } = schedule.entry ?? driver.replicas;
  return { min, max, schedule };
}
