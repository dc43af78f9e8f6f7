import type { Clock } from '#base/clock.ts';

/** A live gateway has not yet reported its holds, so the available amount is unknown. */
export class GatewaysSilentError extends Error {
  constructor(missing: readonly string[]) {
    super(`gateways have not reported their holds yet: ${missing.join(', ')}`);
    this.name = 'GatewaysSilentError';
  }
}

/** Times on the monotonic clock at which a gateway did not answer. */
interface Silence {
  readonly firstMs: number;
  lastMs: number;
}

export interface GatheringOptions {
  /** Registers this gateway's holds for an organization in a Redis that lost them. */
  readonly register: (organizationId: string) => Promise<void>;
  /** Has the other gateways register their holds; returns the live gateways that did not answer. */
  readonly collect: (organizationId: string) => Promise<readonly string[]>;
  /** Time for which a gateway's holds stay valid without a message from it. */
  readonly leaseMs: number;
  readonly clock: Clock;
}

/**
 * Has every gateway report its holds. Waits for a live gateway that does not answer, since it may have holds that
 * nobody else knows of, but only as long as its leases would last.
 */
export class Gathering {
  readonly #options: GatheringOptions;
  readonly #silent = new Map<string, Silence>();

  constructor(options: GatheringOptions) {
    this.#options = options;
  }

  /** @throws GatewaysSilentError */
  async gather(organizationId: string): Promise<void> {
    const { register, collect, leaseMs, clock } = this.#options;
    const askedMs = clock.monotonicMs();
    const [missing] = await Promise.all([collect(organizationId), register(organizationId)]);
    for (const gatewayId of this.#silent.keys()) {
      if (!missing.includes(gatewayId)) this.#silent.delete(gatewayId);
    }
    const awaited = missing.filter((gatewayId) => !this.#isOver(gatewayId, askedMs, leaseMs));
    if (awaited.length > 0) throw new GatewaysSilentError(awaited);
  }

  /** True if a gateway that did not answer, now and before, has been silent for the time of a lease. */
  #isOver(gatewayId: string, askedMs: number, leaseMs: number): boolean {
    const known = this.#silent.get(gatewayId);
    // The gateway may have answered between two moments that are so far apart.
    if (known === undefined || askedMs - known.lastMs > leaseMs) {
      this.#silent.set(gatewayId, { firstMs: askedMs, lastMs: askedMs });
      return false;
    }
    known.lastMs = askedMs;
    return askedMs - known.firstMs >= leaseMs;
  }
}
