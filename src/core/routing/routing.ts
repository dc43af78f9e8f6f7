import type { Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, Fleet, Lease } from '#core/fleet/fleet.ts';

/** From a model to a replica that takes the request now, or the reason why there is none. */
export interface Routing {
  /** The warm path: at once, or null when the model has to be waited for. */
  now(model: Model, exclude?: ReadonlySet<string>): Lease | null;
  /** Waits while the engine starts; one start serves all who wait. Throws when the signal aborts. */
  wait(model: Model, signal: AbortSignal): Promise<RouteResult>;
  /** How long a request would wait for the model to start, an estimate in milliseconds; null when it is warm. */
  coldStartMs(model: Model): number | null;
  /** A connection to the replica was refused. */
  unreachable(lease: Lease): void;
}

export type RouteResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };

export function createRouting({ fleet }: { fleet: Fleet }): Routing {
  return {
    now: (model, exclude) => fleet.tryAcquire(model.engine.id, exclude),
    wait: (model, signal) => fleet.acquire(model.engine.id, { signal }),
    coldStartMs: (model) => coldStartMs(fleet, model),
    unreachable: (lease) => fleet.reportUnreachable(lease.replica.id),
  };
}

/** As long as its last start took; before that was ever measured, the longest that a start may take. */
function coldStartMs(fleet: Fleet, { engine }: Model): number | null {
  const found = fleet.list().find(({ engineId }) => engineId === engine.id);
  if (found === undefined || found.status === 'ready') return null;
  return found.lastStartMs ?? (engine.driver.type === 'process' ? engine.driver.startTimeoutMs : 0);
}
