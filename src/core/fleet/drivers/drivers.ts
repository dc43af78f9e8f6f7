/** Runs engines somewhere: the interface of a driver, the four drivers, and what they share. */
export { createDockerDriver, type ImageStore } from '#core/fleet/drivers/docker/docker.ts';
export {
  createProcessDriver,
  endProcesses,
  type Environment,
  type SharingMode,
} from '#core/fleet/drivers/process/process.ts';
export { createSwarmDriver } from '#core/fleet/drivers/swarm/swarm.ts';
export {
  type DriverType,
  type EngineDriver,
  type EngineSpec,
  type Gpu,
  type GpuUse,
  type Holding,
  type HostReport,
  type LogOptions,
  type ObservedReplica,
  type Orphan,
  type Placement,
  type StartActivity,
} from './driver.ts';
export { createExternalDriver } from './external.ts';
export { type FailureCause, failureCause, type FailureKind, isLasting, needsOperator } from './failure-cause.ts';
export { type Fence, FenceLostError, requireFence } from './fence.ts';
export { lastLogLines } from './log-without-probes.ts';
export { failedStart, startErrors } from './replica-exit.ts';
export { cardShare, isSlice } from './nvidia-smi.ts';
export { newReplicaId, type Replica, type ReplicaDeployment } from './replica.ts';
export { explainExit } from './start-failure.ts';
export { cachedBytes, cacheFolders, repositoryOfFolder, wordsOf } from './weights-cache.ts';
