import { type Clock, systemClock } from '#base/clock.ts';
import { type Endpoint, endpointKey } from '#base/net/net.ts';
import type { EngineClient } from './engine-call.ts';

export type AbortOutcome = 'sent' | 'unsupported' | 'failed';

export interface Aborter {
  /**
   * Asks an engine to abort requests by id; their answers then end by themselves, with the final usage. The endpoint is
   * the engine's, without /v1; header lines (authorization) each end in \r\n. 'sent' means that the engine accepted the
   * ids, not that it knew any of them: vLLM does not report that.
   */
  abort(endpoint: Endpoint, headerLines: string, requestIds: readonly string[]): Promise<AbortOutcome>;
}

const unsupportedForMs = 10 * 60_000;
const answerTimeoutMs = 5_000;
const answerBytesMax = 64 * 1024;

/** Aborts engine requests by id through vLLM's development route, and remembers engines without this route. */
export function createAborter(options: { client: EngineClient; clock?: Clock }): Aborter {
  const { client, clock = systemClock } = options;
  const unsupportedUntilMs = new Map<string, number>();

  function remember(key: string): void {
    const now = clock.monotonicMs();
    for (const [other, untilMs] of unsupportedUntilMs) if (untilMs <= now) unsupportedUntilMs.delete(other);
    unsupportedUntilMs.set(key, now + unsupportedForMs);
  }

  return {
    async abort(endpoint, headerLines, requestIds) {
      if (requestIds.length === 0) return 'failed';
      const key = endpointKey(endpoint) + endpoint.basePath;
      if ((unsupportedUntilMs.get(key) ?? 0) > clock.monotonicMs()) return 'unsupported';
      const status = await postAbort(client, endpoint, headerLines, requestIds);
      if (status === 404 || status === 405) {
        remember(key);
        return 'unsupported';
      }
      return status >= 200 && status < 300 ? 'sent' : 'failed';
    },
  };
}

/** Returns the status of the answer, 0 if there was none. */
function postAbort(
  client: EngineClient,
  endpoint: Endpoint,
  headerLines: string,
  requestIds: readonly string[],
): Promise<number> {
  return new Promise((resolve) => {
    let answered = 0;
    const request = {
      method: 'POST',
      path: '/abort_requests',
      headerLines: `Content-Type: application/json\r\n${headerLines}`,
      body: Buffer.from(JSON.stringify({ request_ids: requestIds })),
      firstByteTimeoutMs: answerTimeoutMs,
      answerBytesMax,
    } as const;
    client.call(endpoint, request, {
      onHead: (status) => {
        answered = status;
      },
      onData: () => undefined,
      onEnd: () => resolve(answered),
      onFault: () => resolve(answered),
    });
  });
}
