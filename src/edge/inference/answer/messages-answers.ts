import { anthropicEnvelope, type AppError } from '#base/errors.ts';
import { makeMessageFrames, mergeMessageFrames } from '#core/cache/cache.ts';
import {
  brokenMessage,
  createMessagesMeter,
  createPiecesMeter,
  createRenderedPromptMeter,
  meterJson,
  messagesUsage,
  meterRenderedPrompt,
} from '#core/metering/metering.ts';
import { type AnswerFormat, openaiAnswers, type OverContext } from './openai-answers.ts';

/** latin1 */
const errorBody = (error: AppError): string =>
  Buffer.from(JSON.stringify(anthropicEnvelope(error)), 'utf8').toString('latin1');

/**
 * Returns Anthropic's own messages: when Claude Code reads them, it asks for less output or shortens its conversation.
 */
function overContext({ limit, input, output }: OverContext): string {
  if (input > limit) return `prompt is too long: ${input} tokens > ${limit} maximum.`;
  return (
    `input length and \`max_tokens\` exceed context limit: ${input} + ${output} > ${limit}, decrease input length or ` +
    '`max_tokens` and try again. The input is estimated.'
  );
}

const read = { form: messagesUsage, brokenSign: brokenMessage, made: 'content' } as const;

/** Format of answers of `/v1/messages`: named events, the last of which is `message_stop`. There is no `[DONE]`. */
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

const uncounted = { form: null };

/** Format of free answers: a count that the engine reports is ignored and kept. */
export const freeAnswers: AnswerFormat = {
  ...openaiAnswers,
  meterJson: (text, options) => meterJson(text, { ...options, ...uncounted }),
  meterPieces: (options) => createPiecesMeter({ ...options, ...uncounted }),
};

/** Format of the number of input tokens of a response. */
export const inputTokensAnswers: AnswerFormat = {
  ...openaiAnswers,
  meterJson: meterRenderedPrompt,
  meterPieces: createRenderedPromptMeter,
};

/** Format of free answers, with errors in Anthropic's form. */
export const freeMessagesAnswers: AnswerFormat = { ...freeAnswers, errorBody, overContext };
