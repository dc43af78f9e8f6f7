import type { Clock } from '#base/clock.ts';

/** A gateway that lives has not said yet what it holds: nobody knows what is available. */
export class GatewaysSilentError extends Error {
  constructor(missing: readonly string[]) {
    super(`gateways have not said yet what they hold: ${missing.join(', ')}`);
    this.name = 'GatewaysSilentError';
  }
}

/** Moments of the monotonic clock at which a gateway was asked in vain. */
interface Silence {
  readonly firstMs: number;
  lastMs: number;
}

export interface GatheringOptions {
  /** Puts what this gateway holds for an organization into a memory that lost it. */
  readonly register: (organizationId: string) => Promise<void>;
  /** Has the other gateways do the same; returns those that live and did not answer. */
  readonly collect: (organizationId: string) => Promise<readonly string[]>;
  /** How long what a gateway holds is good without a word of it. */
  readonly leaseMs: number;
  readonly clock: Clock;
}

/**
 * Has every gateway say what it holds. One that lives and does not answer is waited for, since it may hold what nobody
 * else knows of, but only as long as its leases would last.
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

  /** Whether a gateway that was asked in vain, now as before, has been silent for as long as a lease lasts. */
  #isOver(gatewayId: string, askedMs: number, leaseMs: number): boolean {
    const known = this.#silent.get(gatewayId);
    // It may have spoken between two moments that lie so far apart.
    if (known === undefined || askedMs - known.lastMs > leaseMs) {
      this.#silent.set(gatewayId, { firstMs: askedMs, lastMs: askedMs });
      return false;
    }
    known.lastMs = askedMs;
    return askedMs - known.firstMs >= leaseMs;
  }
}
