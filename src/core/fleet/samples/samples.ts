/** Samples of the last hour: load of engines, and memory and use of their GPUs. Each gateway takes its own. */
export type { EngineSamples, RunningReplica } from './sampled-engine.ts';
export { createSampler, type Sampler } from './sampler.ts';
