import { anthropicEnvelope, type AppError } from '#base/errors.ts';
import { makeMessageFrames, mergeMessageFrames } from '#core/cache/cache.ts';
import {
  brokenMessage,
  createMessagesMeter,
  createPiecesMeter,
  meterJson,
  parseMessageUsage,
} from '#core/metering/metering.ts';
import { type AnswerFormat, openaiAnswers, type OverContext } from './openai-answers.ts';

/** latin1 */
const errorBody = (error: AppError): string =>
  Buffer.from(JSON.stringify(anthropicEnvelope(error)), 'utf8').toString('latin1');

/** Anthropic's own sentences: Claude Code asks for less output, or makes its conversation shorter, when it reads them. */
function overContext({ limit, input, output }: OverContext): string {
  if (input > limit) return `prompt is too long: ${input} tokens > ${limit} maximum.`;
  return (
    `input length and \`max_tokens\` exceed context limit: ${input} + ${output} > ${limit}, decrease input length or ` +
    '`max_tokens` and try again. The input is estimated.'
  );
}

const read = { readUsage: parseMessageUsage, brokenSign: brokenMessage, made: 'content' } as const;

/** Answers of `/v1/messages`: events with names, the last of which is `message_stop`. There is no `[DONE]`. */
export const messagesAnswers: AnswerFormat = {
  ...openaiAnswers,
  streamEnd: '',
  errorBody,
  overContext,
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
export const freeMessagesAnswers: AnswerFormat = { ...freeAnswers, errorBody, overContext };
