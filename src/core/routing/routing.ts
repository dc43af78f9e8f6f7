import { createHmac } from 'node:crypto';
import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { Model } from '#core/catalog/catalog.ts';
import type { AcquireRefusal, EngineRefusal, Fleet, Lease } from '#core/fleet/fleet.ts';
import { type Affinity, EngineRouter } from './engine-router.ts';
import { FlexQueue, type FlexRequest, type FlexResult, type WaitingRequest } from './flex-queue.ts';
import type { ReplicaOutcome } from './outliers.ts';

export type { Affinity } from './engine-router.ts';
export type { FlexLease, FlexRefusal, FlexRequest, WaitingRequest } from './flex-queue.ts';
export type { ReplicaOutcome } from './outliers.ts';
export type { PromptText, TextSpan } from './prompt-blocks.ts';

/**
 * Salts that separate organizations in the prefix cache of vLLM: a cached block is found only by requests with the same
 * `cache_salt`. Each organization has its own salt, which is mixed with the salt that a request brings. All salts are
 * derived from a secret that the gateways of a database share, so every gateway uses the same ones.
 */
export interface CacheSalts {
  /**
   * @param own the salt that the request brings, null without one
   * @returns 43 characters of base64url, which say nothing about what they are made of
   */
  of(organizationId: string, own: string | null): string;
}

/** Number of organizations whose salts are kept in memory; computing a salt takes some microseconds. */
const rememberedMax = 10_000;

/** @param secret the secret that all gateways share; must not be logged */
export function createCacheSalts(secret: string): CacheSalts {
  const salts = new Map<string, string>();

  function ofOrganization(id: string): string {
    const known = salts.get(id);
    if (known !== undefined) return known;
    if (salts.size >= rememberedMax) salts.clear();
    const made = keyed(secret, id);
    salts.set(id, made);
    return made;
  }

  return {
    of(organizationId, own) {
      const salt = ofOrganization(organizationId);
      // Uses a separate key: a client that knows its organization's salt must not be able to compute another salt.
      return own === null ? salt : keyed(keyed(secret, `own\n${organizationId}`), own);
    },
  };
}

const keyed = (key: string, text: string): string => createHmac('sha256', key).update(text).digest('base64url');

/** Requirements of a request for its replica, besides that the replica is ready. */
export interface RouteOptions {
  readonly affinity?: Affinity;
  /** Ids of replicas that were tried. */
  readonly exclude?: ReadonlySet<string>;
}

/** Finds a replica that accepts a request for a model now, or the reason why there is none. */
export interface Routing {
  /** Returns a lease at once, or null if the model must be waited for. */
  now(model: Model, options?: RouteOptions): Lease | null;
  /** Number of replicas that accept requests now. */
  replicas(model: Model): number;
  /** Waits while the engine starts; one start serves all waiting requests, fairly. Throws when the signal aborts. */
  wait(model: Model, request: WaitingRequest): Promise<RouteResult>;
  /** Waits for a lease that default traffic does not need; see flex-queue.ts. Throws when the signal aborts. */
  flex(model: Model, request: FlexRequest): Promise<FlexResult>;
  /** Estimated milliseconds that a request would wait for the model to start; null if the model is warm. */
  coldStartMs(model: Model): number | null;
  /** Describes the download of weights for which requests of the model wait; null if there is none. */
  downloadText(model: Model): string | null;
  /** Reports the outcome of the request that a replica was leased for; once per lease. */
  report(lease: Lease, outcome: ReplicaOutcome): void;
  /** Reports how an external server rejected a valid request; null if the server answered one. */
  reportRefusal(lease: Lease, refusal: EngineRefusal | null): void;
  /** Stops polling engines. */
  close(): void;
}

export type RouteResult =
  | { readonly ok: true; readonly lease: Lease }
  | { readonly ok: false; readonly refusal: AcquireRefusal };

export interface RoutingOptions {
  readonly fleet: Fleet;
  readonly clock: Clock;
  readonly log: Log;
  /** Maximum number of flex requests that wait for one model. */
  readonly flexQueueMax: number;
}

export function createRouting({ fleet, clock, log, flexQueueMax }: RoutingOptions): Routing {
  const choice = new ReplicaChoice(fleet, clock, log);
  const now = ({ engine }: Model, { affinity, exclude }: RouteOptions = {}): Lease | null =>
    choice.acquire(engine.id, affinity ?? null, exclude);
  const flexQueues = new Map<string, FlexQueue>();
  const flexQueueOf = (model: Model): FlexQueue => {
    const { id: engineId } = model.engine;
    const acquire = (request: FlexRequest): Lease | null => now(model, request);
    const queue = flexQueues.get(engineId) ?? new FlexQueue({ fleet, engineId, queueMax: flexQueueMax, acquire });
    // Adapters run on their base model's replicas, and share its queue.
    flexQueues.set(engineId, queue);
    return queue;
  };
  return {
    now,
    replicas: ({ engine }) => fleet.candidates(engine.id).length,
    wait({ engine }, { signal, exclude, ...fairness }) {
      return fleet.acquire(engine.id, { signal, fairness, ...(exclude !== undefined && { exclude }) });
    },
    flex: (model, request) => flexQueueOf(model).join(request),
    coldStartMs: (model) => coldStartMs(fleet, model),
    downloadText: ({ engine }) => fleet.list().find(({ engineId }) => engineId === engine.id)?.download ?? null,
    report(lease, outcome) {
      choice.report(lease, outcome);
      if (outcome === 'unreachable') fleet.reportUnreachable(lease.replica.id);
    },
    reportRefusal: ({ replica }, refusal) => fleet.reportRefusal(replica.id, refusal),
    close: () => choice.close(),
  };
}

/** Chooses among the replicas of engines that have several; for the others nothing is computed or stored. */
class ReplicaChoice {
  readonly #fleet: Fleet;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #routers = new Map<string, EngineRouter>();

  constructor(fleet: Fleet, clock: Clock, log: Log) {
    this.#fleet = fleet;
    this.#clock = clock;
    this.#log = log;
  }

  acquire(engineId: string, affinity: Affinity | null, exclude: ReadonlySet<string> | undefined): Lease | null {
    const candidates = this.#fleet.candidates(engineId);
    if (candidates.length < 2) return this.#fleet.tryAcquire(engineId, exclude);
    return this.#routerOf(engineId).acquire(candidates, affinity, exclude);
  }

  report(lease: Lease, outcome: ReplicaOutcome): void {
    const { engineId, id } = lease.replica;
    const change = this.#routers.get(engineId)?.report(lease, outcome, this.#fleet.candidates(engineId).length) ?? null;
    const fields = { engine: engineId, replica: id };
    if (change === 'ejected') this.#log.warn(fields, 'a replica keeps failing and gets no requests for a while');
    if (change === 'readmitted') this.#log.info(fields, 'a failed replica works again');
  }

  close(): void {
    for (const router of this.#routers.values()) router.close();
  }

  #routerOf(engineId: string): EngineRouter {
    const known = this.#routers.get(engineId);
    if (known !== undefined) return known;
    const nowMs = (): number => this.#clock.monotonicMs();
    const router = new EngineRouter({ engineId, fleet: this.#fleet, nowMs, random: Math.random });
    this.#routers.set(engineId, router);
    return router;
  }
}

/** Returns the duration of the last start; before the first measured start, the longest time that a start may take. */
function coldStartMs(fleet: Fleet, { engine }: Model): number | null {
  const found = fleet.list().find(({ engineId }) => engineId === engine.id);
  if (found === undefined || found.status === 'ready') return null;
  return found.lastStartMs ?? (engine.driver.type === 'external' ? 0 : engine.driver.startTimeoutMs);
}
