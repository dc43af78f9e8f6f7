import type { AdmissionStore } from './admission-store.ts';
import { heldScript } from './redis-hold-scripts.ts';
import { nothingUsed, type Settlements } from './settlements.ts';
import type { HoldLeasesOptions } from './hold-leases.ts';

/** What a request holds whose gateway does not live. */
export interface LeftHold {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Which admitted it. */
  readonly gatewayId: string;
  readonly heldMicroUsd: bigint;
  /** Its usage was on that gateway's disk, and not in the books, when it was last heard of. */
  readonly isSpooled: boolean;
}

/** `running` is one whose gateway lives, `booked` one that the books have: it comes back by itself. */
export type ReleaseResult = 'released' | 'running' | 'booked' | 'not_found';

export interface LeftHoldsOptions extends Pick<HoldLeasesOptions, 'findSettled' | 'liveGateways'> {
  readonly store: AdmissionStore;
  readonly settlements: Settlements;
}

/**
 * Holds of gateways that are gone. The sweep gives those back whose requests were never durable; of a spooled one the
 * money stays held until a gateway reads that spool, which is never where its folder is lost.
 */
export class LeftHolds {
  readonly #options: LeftHoldsOptions;

  constructor(options: LeftHoldsOptions) {
    this.#options = options;
  }

  /** Newest request first. @throws RedisAwayError */
  async list(): Promise<readonly LeftHold[]> {
    const live = await this.#options.liveGateways();
    const all = await this.#readAll();
    const left = all.filter(({ gatewayId }) => !live.has(gatewayId));
    return left.toSorted((a, b) => (a.requestId < b.requestId ? 1 : -1));
  }

  /** @throws RedisAwayError, and what the books throw: nothing is known then */
  async find(
    requestId: string,
  ): Promise<{ readonly hold: LeftHold; readonly is: 'left' | 'running' | 'booked' } | null> {
    const { liveGateways, findSettled } = this.#options;
    const hold = (await this.#readAll()).find((one) => one.requestId === requestId);
    if (hold === undefined) return null;
    if ((await liveGateways()).has(hold.gatewayId)) return { hold, is: 'running' };
    const booked = await findSettled(hold.organizationId, [requestId]);
    return { hold, is: booked.has(requestId) ? 'booked' : 'left' };
  }

  /** Gives back what it holds. A request that is booked all the same is charged what its wallet has then. */
  release({ requestId, organizationId, keyId }: LeftHold): Promise<void> {
    return this.#options.settlements.send([{ requestId, organizationId, keyId, used: nothingUsed, how: 'sweep' }]);
  }

  async #readAll(): Promise<readonly LeftHold[]> {
    const { store } = this.#options;
    const organizationIds = (await store.redis.command('ZRANGE', store.index, '0', '-1')) as string[];
    const found: LeftHold[] = [];
    for (const organizationId of organizationIds) {
      const { holds, money } = store.organization(organizationId);
      const { rest } = await store.run(heldScript, [holds, money], ['-']);
      for (let index = 0; index + 3 < rest.length; index += 4) {
        const [requestId = '', note = '', micro = '0', spooled] = rest.slice(index, index + 4);
        const [keyId = '', gatewayId = ''] = note.split(' ');
        const heldMicroUsd = BigInt(micro);
        found.push({ requestId, organizationId, keyId, gatewayId, heldMicroUsd, isSpooled: spooled === '1' });
      }
    }
    return found;
  }
}
