import type { RequestSize } from '#core/admission/contract/contract.ts';

/**
 * Tokens that models add to each prompt beyond the bytes of the request: chat templates with a preamble, system prompts
 * of the engine. Each route has its own value, since text completions have no template, and each organization, since
 * templates may expand what a request has. Each count of an engine updates it, and the maximum is kept until the process
 * ends. It raises the wanted hold of later requests.
 */
export interface PromptOverheads {
  /** Returns the tokens per prompt; 0 while no count was higher than its request's bytes. */
  of(asked: AskedRoute): number;
  /** @param promptTokens the engine's count of a request of that size */
  learn(asked: AskedRoute, size: RequestSize, promptTokens: number): void;
}

export interface AskedRoute {
  readonly organizationId: string;
  /** Catalog id. */
  readonly model: string;
  /** Path of the endpoint. */
  readonly route: string;
}

/** Values kept; the oldest is forgotten first. */
const knownMax = 100_000;

export function createPromptOverheads(): PromptOverheads {
  const known = new Map<string, number>();
  const keyOf = ({ organizationId, model, route }: AskedRoute): string => `${organizationId} ${route} ${model}`;
  const of = (asked: AskedRoute): number => known.get(keyOf(asked)) ?? 0;
  return {
    of,
    learn(asked, { bodyBytes, isBoundByBytes, inputs, contexts, contextLength }, promptTokens) {
      // A token is at least one byte of text, so no text can raise this value, however dense its tokens are.
      const bytes = inputs === 'pairs' ? bodyBytes * contexts : bodyBytes;
      const overhead = Math.ceil((promptTokens - bytes) / contexts);
      const isPossible = isBoundByBytes && promptTokens <= contexts * contextLength;
      if (!isPossible || overhead <= of(asked)) return;
      known.set(keyOf(asked), overhead);
      const [oldest] = known.keys();
      if (known.size > knownMax && oldest !== undefined) known.delete(oldest);
    },
  };
}
