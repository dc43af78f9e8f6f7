/**
 * Sends bytes to the engines and back, without interpreting them. The client is custom, because every sold byte passes
 * it: per frame of a stream, undici's Pool.dispatch needs at least a quarter more CPU, and fetch twice as much (`npm
 * run bench:proxy`).
 */
export { createAborter, type AbortOutcome, type Aborter } from './abort.ts';
export type {
  AnswerHeaders,
  AnswerSink,
  EngineBody,
  EngineCall,
  EngineClient,
  EngineClientOptions,
  EngineFault,
  EngineFaultKind,
  EngineRequest,
} from './engine-call.ts';
export { createEngineClient } from './create-engine-client.ts';
