export {
  type DockerHostSettings,
  type DockerHostsOptions,
  type DockerHostsResult,
  type GpuAccess,
  loadDockerHosts,
  type SwarmSettings,
} from './docker-hosts-file.ts';
export { type DockerRun, onlyDockerRunWords, parseDockerRun } from './docker-run.ts';
export {
  type AllowableField,
  allowableFields,
  type Canary,
  type ContainerDriverSettings,
  type EngineDefinition,
  type EngineGroup,
  type EngineKind,
  type EnginePricing,
  type ExternalDriverSettings,
  type GpuNeed,
  type LoraAdapter,
  type ProcessDriverSettings,
  type RequestChanges,
  type ScheduleEntry,
  type ServiceTier,
  serviceTiers,
  type StructuredOutputBounds,
  type TaskType,
  taskTypes,
  type UnservedTools,
  type VolumeMount,
} from './engine-definition.ts';
export { type EngineFileProblem, formatEngineFileProblem } from './engine-file-problem.ts';
export { clusterEngineText } from './cluster-engine.ts';
export { givesParallelSize } from './container-checks.ts';
export { engineJsonSchema } from './engine-file-schema.ts';
export {
  addEngineTexts,
  checkEngineFile,
  checkEngineText,
  engineFileBytesMax,
  type EngineFilesOptions,
  type EngineFilesResult,
  type EngineText,
  loadEngineFileList,
  loadEngineFiles,
  type ReadFile,
} from './engine-files.ts';
export { answersFor } from './fallback-checks.ts';
export { findFlag } from './find-flag.ts';
export { volumeProblem } from './host-access-checks.ts';
export { fillReferences } from './process-command-checks.ts';
export { isRequestOverride } from './request-changes.ts';
export { type ScheduleState, scheduleStateAt } from './replica-schedule.ts';
export { looksSecret, namesSecret } from './secrets.ts';
export { decodeDefinition, encodeDefinition } from './stored-definition.ts';
export { parseLength } from './vllm-flag-checks.ts';
export { readYaml, type YamlOptions } from './yaml-source.ts';
