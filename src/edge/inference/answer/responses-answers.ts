import { errorEnvelope } from '#base/errors.ts';
import { makeResponseFrames, mergeResponseFrames } from '#core/cache/cache.ts';
import {
  brokenResponse,
  createPiecesMeter,
  createResponsesMeter,
  meterJson,
  responsesUsage,
} from '#core/metering/metering.ts';
import { type AnswerFormat, openaiAnswers } from './openai-answers.ts';

const read = { form: responsesUsage, brokenSign: brokenResponse, made: 'output' } as const;

/**
 * Format of answers of `/v1/responses`: named events, the last of which has the whole answer and its count. There is no
 * `[DONE]`.
 */
export const responsesAnswers: AnswerFormat = {
  ...openaiAnswers,
  streamEnd: '',
  // SDKs look for one of two things: an event of type `error`, or a member `error`.
  errorFrames(error) {
    const { error: told } = errorEnvelope(error);
    const { message, code, param } = told;
    const event = { type: 'error', sequence_number: 0, code, message, param, error: told };
    return `event: error\ndata: ${Buffer.from(JSON.stringify(event), 'utf8').toString('latin1')}\n\n`;
  },
  meterStream: createResponsesMeter,
  meterJson: (text, options) => meterJson(text, { ...options, ...read }),
  meterPieces: (options) => createPiecesMeter({ ...options, ...read }),
  makeFrames: makeResponseFrames,
  mergeFrames: (_text, { last }) => mergeResponseFrames(last),
};
