/** Records what engines did: runs of replicas, their counters, and requests that nobody is billed for. */
export {
  createEngineRequests,
  type EngineRequest,
  type EngineRequestKind,
  type EngineRequests,
} from './engine-requests.ts';
export {
  type CountedHour,
  type EngineHistory,
  type OwnRequests,
  readEngineHistory,
  type ReplicaRun,
} from './engine-history.ts';
export { type GpuRun, type GpuRunsWanted, readGpuRuns, readReplicaGpus, type ReplicaGpus } from './gpu-runs.ts';
export { readRunImages } from './run-images.ts';
export { createReplicaRuns, type FollowedReplica, type ReplicaRuns } from './replica-runs.ts';
