import { anthropicEnvelope, type AppError } from '#base/errors.ts';
import { makeMessageFrames, mergeMessageFrames } from '#core/cache/cache.ts';
import {
  brokenMessage,
  createMessagesMeter,
  createPiecesMeter,
  meterJson,
  parseMessageUsage,
} from '#core/metering/metering.ts';
import { type AnswerFormat, openaiAnswers } from './openai-answers.ts';

/** latin1 */
const errorBody = (error: AppError): string =>
  Buffer.from(JSON.stringify(anthropicEnvelope(error)), 'utf8').toString('latin1');

const read = { readUsage: parseMessageUsage, brokenSign: brokenMessage };

/** Answers of `/v1/messages`: events with names, the last of which is `message_stop`. There is no `[DONE]`. */
export const messagesAnswers: AnswerFormat = {
  ...openaiAnswers,
  streamEnd: '',
  errorBody,
  errorFrames: (error) => `event: error\ndata: ${errorBody(error)}\n\n`,
  meterStream: createMessagesMeter,
  meterJson: (text, options) => meterJson(text, { ...options, ...read }),
  meterPieces: (options) => createPiecesMeter({ ...options, ...read }),
  makeFrames: makeMessageFrames,
  mergeFrames: (text, { last }) => mergeMessageFrames(text + last),
};

const uncounted = { readUsage: () => null };

/** What is free, whatever count its engine may tell. */
export const freeAnswers: AnswerFormat = {
  ...openaiAnswers,
  meterJson: (text, options) => meterJson(text, { ...options, ...uncounted }),
  meterPieces: (options) => createPiecesMeter({ ...options, ...uncounted }),
};

/** The same with errors as Anthropic writes them. */
export const freeMessagesAnswers: AnswerFormat = { ...freeAnswers, errorBody };
