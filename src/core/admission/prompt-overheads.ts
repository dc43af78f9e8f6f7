import type { RequestSize } from './request-cost.ts';

/**
 * Tokens that models add to each prompt beyond the bytes of the request: chat templates with a preamble, system prompts
 * of the engine. Each count of an engine teaches it; the most that was seen stands until the process ends.
 */
export interface PromptOverheads {
  /** Tokens per prompt; 0 while no count was higher than its request's bytes. @param model catalog id */
  of(model: string): number;
  /** @param promptTokens the engine's count of a request of that size */
  learn(model: string, size: RequestSize, promptTokens: number): void;
}

export function createPromptOverheads(): PromptOverheads {
  const known = new Map<string, number>();
  const of = (model: string): number => known.get(model) ?? 0;
  return {
    of,
    learn(model, { bodyBytes, isBoundByBytes, inputs, contexts, contextLength }, promptTokens) {
      // A token is at least a byte of text, so that no text can raise this, however dense its tokens are.
      const bytes = inputs === 'pairs' ? bodyBytes * contexts : bodyBytes;
      const overhead = Math.ceil((promptTokens - bytes) / contexts);
      const isPossible = isBoundByBytes && promptTokens <= contexts * contextLength;
      if (isPossible && overhead > of(model)) known.set(model, overhead);
    },
  };
}
