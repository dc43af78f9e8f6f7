import type { Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, Fleet, Lease } from '#core/fleet/fleet.ts';
import { FlexQueue, type FlexRequest, type FlexResult } from './flex-queue.ts';

export type { FlexRefusal, FlexSeat } from './flex-queue.ts';

/** From a model to a replica that takes the request now, or the reason why there is none. */
export interface Routing {
  /** The warm path: at once, or null when the model has to be waited for. */
  now(model: Model, exclude?: ReadonlySet<string>): Lease | null;
  /** Waits while the engine starts; one start serves all who wait. Throws when the signal aborts. */
  wait(model: Model, signal: AbortSignal): Promise<RouteResult>;
  /** Waits for a seat that no default traffic wants; see flex-queue.ts. Throws when the signal aborts. */
  flex(model: Model, request: FlexRequest): Promise<FlexResult>;
  /** How long a request would wait for the model to start, an estimate in milliseconds; null when it is warm. */
  coldStartMs(model: Model): number | null;
  /** A connection to the replica was refused. */
  unreachable(lease: Lease): void;
}

export type RouteResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };

export interface RoutingOptions {
  readonly fleet: Fleet;
  /** Flex requests that may wait for one model. */
  readonly flexQueueMax: number;
}

export function createRouting({ fleet, flexQueueMax }: RoutingOptions): Routing {
  const flexQueues = new Map<string, FlexQueue>();
  const flexQueueOf = (model: Model): FlexQueue => {
    const queue = flexQueues.get(model.id) ?? new FlexQueue(fleet, model, flexQueueMax);
    flexQueues.set(model.id, queue);
    return queue;
  };
  return {
    now: (model, exclude) => fleet.tryAcquire(model.engine.id, exclude),
    wait: (model, signal) => fleet.acquire(model.engine.id, { signal }),
    flex: (model, request) => flexQueueOf(model).join(request),
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
