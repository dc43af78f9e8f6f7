import type { Endpoint } from '#edge/inference/request/request.ts';

/** Ids per abort: a request may have thousands of prompts. */
const abortIdsMax = 256;

/** Facts from which the ids follow. */
export interface EngineRequestName {
  readonly endpoint: Pick<Endpoint, 'engineRequestId'>;
  readonly requestId: string;
  readonly prompts: number;
  /** Turns that the engine may be in. It knows only the id of the running one. */
  readonly turns: number;
}

/** Yields the ids by which vLLM knows a request of the gateway, in groups. */
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
