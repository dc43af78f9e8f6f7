import type { EngineRequest } from '#core/fleet/runs/runs.ts';
import type { EngineAnswer, NoAnswer } from '#core/fleet/serving/serving.ts';

type Counted = Pick<EngineRequest, 'promptTokens' | 'completionTokens' | 'uncounted'>;

/** Matches usage objects. The last match applies: with continuous usage every frame of a stream has one. */
const usages = /"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})/g;

/**
 * Returns the tokens that an engine counted for one of the gateway's own requests, by its answer, streamed or not.
 * @returns null if the engine counted nothing: it was unreachable or rejected the request
 */
export function countedIn(answer: EngineAnswer | NoAnswer, body: unknown): Counted | null {
  if (answer === 'refused' || (typeof answer !== 'string' && answer.status >= 400 && answer.status < 500)) return null;
  const unknown = { promptTokens: 0, completionTokens: 0, uncounted: true };
  if (typeof answer === 'string') return unknown;
  const last = [...answer.text.matchAll(usages)].at(-1)?.[1];
  if (last === undefined) return unknown;
  try {
    const usage = JSON.parse(last) as Record<string, unknown>;
    // `input_tokens` is the field name of /v1/responses and /v1/messages.
    const promptTokens =
      countOf(usage['prompt_tokens']) || countOf(usage['input_tokens']) || countOf(usage['total_tokens']);
    // An engine counts the prompt for each of its choices.
    return {
      promptTokens: promptTokens * choicesOf(body),
      completionTokens: countOf(usage['completion_tokens']) || countOf(usage['output_tokens']),
      uncounted: answer.status !== 200,
    };
  } catch {
    return unknown;
  }
}

function countOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

function choicesOf(body: unknown): number {
  const n: unknown = typeof body === 'object' && body !== null && 'n' in body ? body.n : 1;
  return typeof n === 'number' && Number.isInteger(n) && n > 1 ? n : 1;
}
