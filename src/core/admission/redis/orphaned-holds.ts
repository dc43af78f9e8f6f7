import type { AdmissionStore } from './admission-store.ts';
import { heldScript } from './hold-scripts.ts';
import { nothingUsed, type Settlements } from './settlements.ts';
import type { HoldLeasesOptions } from './hold-leases.ts';

/** Hold of a request whose gateway is not alive. */
export interface OrphanedHold {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** Id of the gateway that admitted the request. */
  readonly gatewayId: string;
  readonly heldMicroUsd: bigint;
  /** True if the request's usage was on that gateway's disk, and not in the database, at the last report. */
  readonly isSpooled: boolean;
}

/**
 * Result of a release. `running`: the gateway is alive. `booked`: the database has the request, so its hold ends by
 * itself.
 */
export type ReleaseResult = 'released' | 'running' | 'booked' | 'not_found';

export interface OrphanedHoldsOptions extends Pick<HoldLeasesOptions, 'findSettled' | 'liveGateways'> {
  readonly store: AdmissionStore;
  readonly settlements: Settlements;
}

/**
 * Orphaned holds of stopped gateways. The sweep releases the holds of requests that were never durable. The hold of a
 * spooled request stays until a gateway reads that spool, which never happens if its folder is lost.
 */
export class OrphanedHolds {
  readonly #options: OrphanedHoldsOptions;

  constructor(options: OrphanedHoldsOptions) {
    this.#options = options;
  }

  /** Returns all orphaned holds, newest request first. @throws RedisAwayError */
  async list(): Promise<readonly OrphanedHold[]> {
    const live = await this.#options.liveGateways();
    const all = await this.#readAll();
    const orphaned = all.filter(({ gatewayId }) => !live.has(gatewayId));
    return orphaned.toSorted((a, b) => (a.requestId < b.requestId ? 1 : -1));
  }

  /** Finds the hold of a request. @throws RedisAwayError, and errors of the database: nothing is known then */
  async find(
    requestId: string,
  ): Promise<{ readonly hold: OrphanedHold; readonly is: 'left' | 'running' | 'booked' } | null> {
    const { liveGateways, findSettled } = this.#options;
    const hold = (await this.#readAll()).find((one) => one.requestId === requestId);
    if (hold === undefined) return null;
    if ((await liveGateways()).has(hold.gatewayId)) return { hold, is: 'running' };
    const settled = await findSettled(hold.organizationId, [requestId]);
    return { hold, is: settled.has(requestId) ? 'booked' : 'left' };
  }

  /** Releases a hold. If its request is recorded after all, it is charged what its wallet has at that time. */
  release({ requestId, organizationId, keyId }: OrphanedHold): Promise<void> {
    return this.#options.settlements.send([{ requestId, organizationId, keyId, used: nothingUsed, how: 'sweep' }]);
  }

  async #readAll(): Promise<readonly OrphanedHold[]> {
    const { store } = this.#options;
    const organizationIds = (await store.redis.command('ZRANGE', store.index, '0', '-1')) as string[];
    const found: OrphanedHold[] = [];
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
