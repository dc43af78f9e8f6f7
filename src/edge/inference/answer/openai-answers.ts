import { errorEnvelope, type AppError } from '#base/errors.ts';
import { type FrameOptions, makeFrames, mergeFrames, plainAnswer } from '#core/cache/cache.ts';
import {
  createPiecesMeter,
  createStreamMeter,
  meterJson,
  openaiUsage,
  type JsonMeterOptions,
  type JsonMeterResult,
  type PiecesMeter,
  type StreamMeter,
  type StreamMeterOptions,
  type Usage,
} from '#core/metering/metering.ts';

/** Format of an endpoint's answers: reading them, converting them, and writing errors. All texts are latin1. */
export interface AnswerFormat {
  /** End mark of every stream, after the meter's last frames; no meter returns it. */
  readonly streamEnd: string;
  /** Returns the JSON body of an error. */
  errorBody(error: AppError): string;
  /** Returns the error frame of a stream that has begun, and the stream's end. */
  errorFrames(error: AppError): string;
  /**
   * Returns the protocol's own message for a request that is too long, if clients read it; absent: Headgate's message.
   */
  overContext?(over: OverContext): string;
  meterStream(options: StreamMeterOptions): StreamMeter;
  meterJson(text: string, options: JsonMeterOptions): JsonMeterResult;
  /** Creates a meter for a JSON answer that is metered as it arrives. */
  meterPieces(options: JsonMeterOptions): PiecesMeter;
  /** Converts a whole JSON answer to the frames of a stream, without its end. */
  makeFrames(text: string, options: FrameOptions): string;
  /** Converts frames to one JSON answer; null if they are not a whole answer. */
  mergeFrames(text: string, end: StreamEnd): string | null;
  /** Returns a JSON answer without its cost to the caller; null if it is no JSON object. */
  plainAnswer(text: string, hasCost: boolean): string | null;
}

/** A request that does not fit into the context of its model, in tokens. */
export interface OverContext {
  readonly limit: number;
  /** Tokens that the engine counted before it gave up, or the estimate by the body's bytes, whichever is more. */
  readonly input: number;
  /** 0 if no output was requested. */
  readonly output: number;
}

/** Facts about a complete stream. */
export interface StreamEnd {
  /** The last frames, which are sent after the record is written. */
  readonly last: string;
  readonly usage: Usage;
  /** Choices over all prompts. */
  readonly choices: number;
}

const streamEnd = 'data: [DONE]\n\n';
const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');
const errorBody = (error: AppError): string => latin1(JSON.stringify(errorEnvelope(error)));

/** Chat and text completions, embeddings, and the rerankers that vLLM writes like them. */
export const openaiAnswers: AnswerFormat = {
  streamEnd,
  errorBody,
  errorFrames: (error) => `data: ${errorBody(error)}\n\n${streamEnd}`,
  meterStream: createStreamMeter,
  meterJson,
  meterPieces: createPiecesMeter,
  makeFrames,
  mergeFrames: (text, { last, usage, choices }) => mergeFrames(text + last, openaiUsage.whole(usage), choices),
  plainAnswer,
};
