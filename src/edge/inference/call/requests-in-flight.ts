import type { Model } from '#core/catalog/catalog.ts';
import type { ApiKey, SecretEnd } from '#core/keys/keys.ts';
import type { Stop, StopControl } from '#edge/inference/answer/answer.ts';

/**
 * The running requests, so that operators see them, and that the requests of a revoked key can be ended, and all of
 * them when the gateway stops. Slots of one array are reused: a long-lived Map or Set that entries pass through at a
 * high rate keeps the garbage collector busy with ended entries, and a search of all slots is needed only when
 * somebody looks or something is revoked.
 */
export interface Running {
  readonly size: number;
  /** Counts the running requests of an organization. The time grows with all running requests. */
  countOf(organizationId: string): number;
  /** @returns a function that removes the request; calls after the first do nothing */
  add(key: ApiKey, call: RunningCall): () => void;
  /** The requests for the models of an engine, oldest first. */
  ofEngine(engineId: string): readonly RunningRequest[];
  /** @returns false if no request with this id runs for a model of the engine */
  stopRequest(engineId: string, requestId: string, reason: Stop): boolean;
  stopKey(keyId: string, reason: Stop): void;
  /** Stops only the requests that came with this secret of the key. */
  stopSecret(end: SecretEnd, reason: Stop): void;
  stopOrganization(organizationId: string, reason: Stop): void;
  stopAll(reason: Stop): void;
}

/** The part of a call that operators see. Its steps write `found`, `held` and `timings`. */
export interface RunningCall {
  readonly requestId: string;
  readonly endpoint: { readonly path: string };
  readonly stop: StopControl;
  readonly found: {
    readonly model: Model | null;
    readonly request: { readonly endUser: { readonly name: string } | null } | null;
  };
  readonly held: { readonly lease: object | null };
  readonly timings: { readonly startedMs: number; readonly firstByteMs: number | null };
}

/** A running request, as operators see it. */
export interface RunningRequest {
  /** UUID without prefix. */
  readonly requestId: string;
  readonly path: string;
  readonly modelId: string;
  readonly key: Pick<ApiKey, 'id' | 'organizationId'>;
  readonly endUser: string | null;
  /** `queued`: waits for a replica. `processing`: the engine has it. `answering`: the answer has begun. */
  readonly state: 'queued' | 'processing' | 'answering';
  /** Start, on the monotonic clock. */
  readonly startedMs: number;
}

interface Entry {
  readonly key: ApiKey;
  readonly call: RunningCall;
}

function stateOf({ held, timings }: RunningCall): RunningRequest['state'] {
  if (timings.firstByteMs !== null) return 'answering';
  return held.lease === null ? 'queued' : 'processing';
}

const isOfEngine = ({ call }: Entry, engineId: string): boolean => call.found.model?.engine.id === engineId;

export function createRunning(): Running {
  const slots: (Entry | null)[] = [];
  const free: number[] = [];

  const entriesOf = (wanted: (entry: Entry) => boolean): Entry[] =>
    slots.filter((entry): entry is Entry => entry !== null && wanted(entry));

  function stopWhere(wanted: (entry: Entry) => boolean, reason: Stop): boolean {
    const entries = entriesOf(wanted);
    for (const { call } of entries) call.stop.stop(reason);
    return entries.length > 0;
  }

  return {
    countOf: (organizationId) =>
      slots.reduce((count, entry) => count + Number(entry?.key.organizationId === organizationId), 0),
    add(key, call) {
      const entry = { key, call };
      const slot = free.pop() ?? slots.length;
      slots[slot] = entry;
      return () => {
        if (slots[slot] !== entry) return;
        slots[slot] = null;
        free.push(slot);
      };
    },
    ofEngine: (engineId) =>
      entriesOf((entry) => isOfEngine(entry, engineId))
        .map(({ key, call }) => ({
          requestId: call.requestId,
          path: call.endpoint.path,
          modelId: call.found.model?.id ?? engineId,
          key,
          endUser: call.found.request?.endUser?.name ?? null,
          state: stateOf(call),
          startedMs: call.timings.startedMs,
        }))
        .toSorted((a, b) => a.startedMs - b.startedMs),
    stopRequest: (engineId, requestId, reason) =>
      stopWhere((entry) => entry.call.requestId === requestId && isOfEngine(entry, engineId), reason),
    stopKey: (keyId, reason) => void stopWhere(({ key }) => key.id === keyId, reason),
    stopSecret: ({ keyId, secretHash }, reason) =>
      void stopWhere(({ key }) => key.id === keyId && key.secretHash?.equals(secretHash) === true, reason),
    stopOrganization: (organizationId, reason) =>
      void stopWhere(({ key }) => key.organizationId === organizationId, reason),
    stopAll: (reason) => void stopWhere(() => true, reason),
    get size() {
      return slots.length - free.length;
    },
  };
}
