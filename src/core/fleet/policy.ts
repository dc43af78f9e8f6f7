import type { EngineDefinition } from '#core/catalog/catalog.ts';

/** How a fleet treats crashes, devices and load, the same for all engines; milliseconds. */
export interface FleetPolicy {
  /** With so many ends or failed starts in a row an engine stays failed. */
  readonly crashesMax: number;
  /** Pause after the first crash in a row; doubles up to `backoffMaxMs`. */
  readonly backoffFirstMs: number;
  readonly backoffMaxMs: number;
  /** How long it then stays so; Infinity: until an operator's command or a changed file. */
  readonly failedMs: number;
  /** Ready for this long, a replica's earlier crashes are forgotten. */
  readonly stableMs: number;
  /** How long a replica that stopped answering gets to answer again or to end. */
  readonly unreachableMs: number;
  /** How long an image may be pulled and a container made. */
  readonly createTimeoutMs: number;
  /** How long the memory of a device may take to become free after its last user ended. */
  readonly gpuFreeTimeoutMs: number;
  /** Load must be high this long before another replica is started, and low this long before one is stopped. */
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

/** What the leader needs of an engine's file; always the newest. */
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
    // Nobody here starts or stops it.
    const never = { idleMs: Infinity, startTimeoutMs: 600_000, drainMs: 30_000, upMinMs: 0 };
    return { ...never, min: driver.urls.length, max: driver.urls.length, pinned: true, sleepLevel: 0 };
  }
  const { idleMs, startTimeoutMs, drainMs, upMinMs, replicas } = driver;
  const times = { idleMs, startTimeoutMs, drainMs, upMinMs, min: replicas.min, max: Math.max(1, replicas.max) };
  if (driver.type === 'process') return { ...times, pinned: driver.pinned, sleepLevel: 0 };
  return { ...times, pinned: driver.pinned, sleepLevel: driver.sleepLevel };
}
