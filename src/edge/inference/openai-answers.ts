import { errorEnvelope, type AppError } from '#base/errors.ts';
import { type FrameOptions, makeFrames, mergeFrames, plainAnswer } from '#core/cache/cache.ts';
import {
  createPiecesMeter,
  createStreamMeter,
  meterJson,
  type JsonMeterOptions,
  type JsonMeterResult,
  type PiecesMeter,
  type StreamMeter,
  type StreamMeterOptions,
  type Usage,
} from '#core/metering/metering.ts';

/** How the answers of an endpoint are written: how they are read, converted, and refused. All texts are latin1. */
export interface AnswerFormat {
  /** The end mark of every stream, behind the meter's last frames; no meter returns it. */
  readonly streamEnd: string;
  /** The JSON body of a refusal. */
  errorBody(error: AppError): string;
  /** The error frame of a stream that has begun, and its end. */
  errorFrames(error: AppError): string;
  /** What its own protocol says of a request that is too long, where clients read that; absent: our own sentence. */
  overContext?(over: OverContext): string;
  meterStream(options: StreamMeterOptions): StreamMeter;
  meterJson(text: string, options: JsonMeterOptions): JsonMeterResult;
  /** For a JSON answer that is metered while it comes. */
  meterPieces(options: JsonMeterOptions): PiecesMeter;
  /** A whole JSON answer as the frames of a stream, without its end. */
  makeFrames(text: string, options: FrameOptions): string;
  /** Frames as one JSON answer; null when they are not the whole of one. */
  mergeFrames(text: string, end: StreamEnd): string | null;
  /** A JSON answer without what it cost the one who asked; null when it is no JSON object. */
  plainAnswer(text: string, hasCost: boolean): string | null;
}

/** A request that does not fit into the context of its model, in tokens. */
export interface OverContext {
  readonly limit: number;
  /** What the engine has counted before it gave up, or what the body's bytes come to, whichever is more. */
  readonly input: number;
  /** 0 where none was asked for. */
  readonly output: number;
}

/** What is known of a stream that is complete. */
export interface StreamEnd {
  /** The last frames, which left once the books had them. */
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
  mergeFrames: (text, { last, usage, choices }) => mergeFrames(text + last, usageBody(usage), choices),
  plainAnswer,
};

function usageBody({ inputTokens, cachedTokens, outputTokens, reasoningTokens }: Usage): object {
  return {
    prompt_tokens: inputTokens,
    total_tokens: inputTokens + outputTokens,
    completion_tokens: outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: reasoningTokens === 0 ? null : { reasoning_tokens: reasoningTokens },
  };
}
