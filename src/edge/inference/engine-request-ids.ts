import type { Endpoint } from './endpoints.ts';

/** Ids in one abort: a request may have thousands of prompts. */
const abortIdsMax = 256;

/** What the ids follow from. */
export interface EngineRequestName {
  readonly endpoint: Pick<Endpoint, 'engineRequestId'>;
  readonly requestId: string;
  readonly prompts: number;
  /** The engine may be in any of them, and knows that one alone. */
  readonly turns: number;
}

/** The ids by which vLLM knows a request of ours, some at a time. */
export function* engineRequestIds({
  endpoint,
  requestId,
  prompts,
  turns,
}: EngineRequestName): Generator<readonly string[]> {
  const id = endpoint.engineRequestId?.replace('{id}', requestId);
  if (id === undefined) return;
  if (id.includes('{turn}')) {
    yield Array.from({ length: turns }, (_, turn) => id.replace('{turn}', String(turn)));
    return;
  }
  if (!id.includes('{prompt}')) {
    yield [id];
    return;
  }
  for (let first = 0; first < prompts; first += abortIdsMax) {
    const length = Math.min(abortIdsMax, prompts - first);
    yield Array.from({ length }, (_, index) => id.replace('{prompt}', String(first + index)));
  }
}
