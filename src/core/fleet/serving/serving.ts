/** Sends this gateway's requests to engines: leases on replicas, waiting for a start, probes, load. */
export { askEngine, type EngineAnswer, type NoAnswer, noAnswerText } from './engine-http.ts';
export {
  type EngineCounters,
  type EngineLoad,
  type EngineReading,
  type LoadReport,
  readEngine,
  readLoad,
  sumLoads,
} from './engine-load.ts';
export { type EngineIdentity, identifyEngine, kindOf } from './engine-identity.ts';
export { type PlacedReplica, readReplicaMetrics, type ReplicaMetrics } from './engine-metrics.ts';
export { type AcquireOptions, Engine, type EngineStatus } from './engine.ts';
export { type AcquireRefusal, type AcquireResult, type Lease, takenAway } from './lease.ts';
export { createProber, type Prober } from './prober.ts';
export { createRecognizer, type Recognizer } from './recognizer.ts';
export type { EngineRefusal, ReplicaSlot } from './replica-set.ts';
