import type { Clock } from '#base/clock.ts';
import type { Canary, EngineDefinition } from '#core/catalog/catalog.ts';
import type { Replica } from '#core/fleet/drivers/drivers.ts';
import type { EngineRequest, EngineRequestKind, EngineRequests } from '#core/fleet/runs/runs.ts';
import { askEngine, type EngineAnswer, type NoAnswer, noAnswerText } from '#core/fleet/serving/serving.ts';

/** Requests of the gateway itself to a replica, noted with the tokens that the engine counted for them. */

export interface CheckedReplica {
  readonly replica: Replica;
  readonly definition: EngineDefinition;
  /** Limit for each request. */
  readonly timeoutMs: number;
  readonly engineRequests: EngineRequests | null;
  readonly clock: Clock;
}

export type Counted = Pick<EngineRequest, 'promptTokens' | 'completionTokens' | 'uncounted'>;

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

export const hello = [{ role: 'user', content: 'Hi' }];

export type ProbeRoute = 'chat/completions' | 'completions' | 'embeddings' | 'rerank';

export function usageBody(route: ProbeRoute): Record<string, unknown> {
  switch (route) {
    case 'chat/completions':
      return { messages: hello, max_tokens: 1, stream: true };
    case 'completions':
      return { prompt: 'Hi', max_tokens: 1, stream: true };
    case 'embeddings':
      return { input: 'Hi' };
    case 'rerank':
      return { query: 'Hi', documents: ['Hello'] };
  }
}

interface OwnRequest {
  readonly kind: EngineRequestKind;
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  readonly counted: Counted;
}

export function noteRequest(checked: CheckedReplica, { kind, startedMs, counted }: OwnRequest): void {
  const { replica, definition, engineRequests } = checked;
  const about = { kind, model: definition.id, replicaId: replica.id, startedMs };
  engineRequests?.note({ ...about, ...counted, uncountedMax: null });
}

/** @returns the answer, or a message that says why there is none */
export async function send(
  checked: CheckedReplica,
  kind: EngineRequestKind,
  route: Canary['route'],
  body: unknown,
): Promise<EngineAnswer | string> {
  const { replica, definition, timeoutMs } = checked;
  const model = replica.upstreamModel ?? definition.id;
  const named = { model, ...(typeof body === 'object' ? body : {}) };
  const startedMs = checked.clock.now();
  const answer = await askEngine(replica, { method: 'POST', path: `/v1/${route}`, body: named, timeoutMs });
  const counted = countedIn(answer, body);
  if (counted !== null) noteRequest(checked, { kind, startedMs, counted });
  return typeof answer === 'string' ? noAnswerText[answer] : answer;
}
