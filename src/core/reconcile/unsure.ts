import type { EndedLater } from '#core/metering/metering.ts';

/** Requests whose final count by the engine is unknown, and bounds for their tokens. */
export type Unsure = Omit<EndedLater, 'model' | 'hourMs'>;

export const noneUnsure: Unsure = {
  unsure: 0,
  unsureSequences: 0,
  unsureTexts: 0,
  unsurePromptTokens: 0,
  unsureCompletionTokens: 0,
};

export function addUnsure(a: Unsure, b: Unsure): Unsure {
  return {
    unsure: a.unsure + b.unsure,
    unsureSequences: a.unsureSequences + b.unsureSequences,
    unsureTexts: a.unsureTexts + b.unsureTexts,
    unsurePromptTokens: a.unsurePromptTokens + b.unsurePromptTokens,
    unsureCompletionTokens: a.unsureCompletionTokens + b.unsureCompletionTokens,
  };
}
