/**
 * Places where Terraform's commands run. A phase outlives the gateway that started it: its output goes to a file, and
 * its exit code is recorded beside it, so that any gateway that reaches the place finds the result.
 */

export { hasRunFolders } from './local-runner.ts';
export type { ReachedNode } from './keeper-plan.ts';
export { readMirror } from './mirror.ts';
export { readUnreached, type Unreached } from './unreached.ts';
export {
  askRunner,
  type AskedRunner,
  findRunner,
  type FoundRunner,
  type Hold,
  type RunnerSearch,
  type Terraform,
} from './find-runner.ts';
export {
  type ContainerSettings,
  createContainerRunners,
  gateAddresses,
  type RunHost,
  type SwarmGates,
} from '#core/runs/runner/docker/docker.ts';
export {
  type ContainerRunners,
  FileTooLargeError,
  logChunkBytes,
  type Phase,
  type PhaseState,
  type Runner,
  RunnerRefusedError,
  type WorkFile,
  type WorkPaths,
  type WrittenBy,
} from './types.ts';
