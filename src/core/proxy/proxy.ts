/**
 * The way to the engines: bytes there and back, without knowing what they mean. The client is its own, since
 * every byte that is sold passes it: for a frame of a stream undici's Pool.dispatch takes a quarter more CPU at least,
 * and fetch twice as much (`npm run bench:proxy`).
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
export { createEngineClient } from './engine-client.ts';
