import type { RequestSize } from '#core/admission/contract/contract.ts';

/**
 * Tokens that models add to each prompt beyond the bytes of the request: chat templates with a preamble, system prompts
 * of the engine. Each route has its own value, since text completions have no template. Each count of an engine updates
 * it, and the maximum is kept until the process ends. So it only raises the wanted hold of a request, and rejects
 * nothing.
 */
export interface PromptOverheads {
  /** Returns the tokens per prompt; 0 while no count was higher than its request's bytes. */
  of(asked: AskedRoute): number;
  /** @param promptTokens the engine's count of a request of that size */
  learn(asked: AskedRoute, size: RequestSize, promptTokens: number): void;
}

export interface AskedRoute {
  /** Catalog id. */
  readonly model: string;
  /** Path of the endpoint. */
  readonly route: string;
}

export function createPromptOverheads(): PromptOverheads {
  const known = new Map<string, number>();
  const keyOf = ({ model, route }: AskedRoute): string => `${route} ${model}`;
  const of = (asked: AskedRoute): number => known.get(keyOf(asked)) ?? 0;
  return {
    of,
    learn(asked, { bodyBytes, isBoundByBytes, inputs, contexts, contextLength }, promptTokens) {
      // A token is at least one byte of text, so no text can raise this value, however dense its tokens are.
      const bytes = inputs === 'pairs' ? bodyBytes * contexts : bodyBytes;
      const overhead = Math.ceil((promptTokens - bytes) / contexts);
      const isPossible = isBoundByBytes && promptTokens <= contexts * contextLength;
      if (isPossible && overhead > of(asked)) known.set(keyOf(asked), overhead);
    },
  };
}
