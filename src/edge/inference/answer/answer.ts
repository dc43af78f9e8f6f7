export { type AnswerPlace, type AnswerMemoryBudget, createAnswerMemoryBudget } from './answer-memory-budget.ts';
export { budgetError } from './budget-error.ts';
export { type Answer, createAnswer } from './client-answer.ts';
export { nameDropped } from './dropped-tools.ts';
export { allowFallbackHeader, nameFallback, nameNoFallback, readAllowsFallback } from './fallback-header.ts';
export {
  answerBytesMax,
  type AnswerCollector,
  type AnswerText,
  beginningOf,
  LargeAnswer,
  type LargeAnswerResult,
  TextBlocks,
  textOf,
  type WriteAnswer,
} from './large-answer.ts';
export { limitError } from './limit-error.ts';
export { freeAnswers, freeMessagesAnswers, inputTokensAnswers, messagesAnswers } from './messages-answers.ts';
export { type AnswerFormat, openaiAnswers, type OverContext } from './openai-answers.ts';
export {
  chargedBefore,
  completedBy,
  failedBy,
  type Outcome,
  outcomeOf,
  stoppedBy,
  thrownBy,
  toInferenceError,
  unrecordedCharge,
} from './outcome.ts';
export { responsesAnswers } from './responses-answers.ts';
export { keyRefOf, setEachLimit, setLimitHeaders, showLimits, spenderOf } from './show-limits.ts';
export { SlowReader } from './slow-reader.ts';
export { clientLeft, outOfFunds, type Stop, StopControl } from './stop.ts';
export { Transcript } from './transcript.ts';
export { joinAnswers } from './whole-answer.ts';
