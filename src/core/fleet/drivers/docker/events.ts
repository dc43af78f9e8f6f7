import { finished } from 'node:stream/promises';
import { setTimeout as pause } from 'node:timers/promises';
import type { DockerApi } from '#base/docker/docker.ts';
import { labels } from './labels.ts';

export interface EventsOptions {
  readonly api: DockerApi;
  readonly fleetId: string;
  readonly signal: AbortSignal;
  /** Called for every event, and whenever the stream begins or ends: changes without a stream are unknown. */
  readonly onEvent: () => void;
}

const retryMsMin = 200;
const retryMsMax = 5000;

/** Watches a Docker engine's events until the signal aborts, and reconnects whenever the stream breaks. */
export async function watchEvents({ api, fleetId, signal, onEvent }: EventsOptions): Promise<void> {
  let retryMs = retryMsMin;
  while (!signal.aborted) {
    try {
      const stream = await api.events([`${labels.fleet}=${fleetId}`], signal);
      retryMs = retryMsMin;
      onEvent();
      stream.on('data', onEvent);
      await finished(stream, { writable: false });
    } catch {
      // The Docker engine is unreachable, or the signal ended the stream; the next observation tells which.
    }
    if (signal.aborted) return;
    onEvent();
    await pause(retryMs, undefined, { signal }).catch(() => undefined);
    retryMs = Math.min(retryMs * 2, retryMsMax);
  }
}
