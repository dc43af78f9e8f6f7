/** The way to the engines: bytes there and back, without knowing what they mean. */
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
