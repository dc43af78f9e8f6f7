import type { Db } from '#base/database/database.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { OrphanedHold, OrphanedHolds, ReleaseResult } from './orphaned-holds.ts';

export interface HoldRelease {
  readonly requestId: string;
  readonly reason: string;
  readonly author: Author;
}

export type ReleasedHold =
  | { readonly kind: 'released'; readonly hold: OrphanedHold }
  | { readonly kind: Exclude<ReleaseResult, 'released'> };

/** Lists and releases holds that no gateway will give back, for operators. */
export interface HoldReview {
  /** Returns the holds whose gateway is not alive; newest request first. */
  list(): Promise<readonly OrphanedHold[]>;
  /** Releases a hold, and records that in the audit log of its organization. */
  release(release: HoldRelease): Promise<ReleasedHold>;
}

export interface HoldReviewOptions {
  readonly db: Db;
  readonly audit: Audit;
  /** Null without Redis: the holds of a single gateway end with its process. */
  readonly orphanedHolds: OrphanedHolds | null;
}

export function createHoldReview({ db, audit, orphanedHolds }: HoldReviewOptions): HoldReview {
  if (orphanedHolds === null) return { list: async () => [], release: async () => ({ kind: 'not_found' }) };
  return {
    list: () => orphanedHolds.list(),
    async release({ requestId, reason, author }) {
      const found = await orphanedHolds.find(requestId);
      if (found === null) return { kind: 'not_found' };
      const { hold, is } = found;
      if (is !== 'left') return { kind: is };
      const { organizationId, gatewayId, heldMicroUsd, isSpooled } = hold;
      // Inside the transaction: if Redis did not get the release, the audit log does not record it.
      await db.orm.transaction(async (tx) => {
        await audit.record(tx, {
          organizationId,
          author,
          action: 'hold.released',
          targetType: 'hold',
          targetId: requestId,
          before: { gateway_id: gatewayId, held_micro_usd: heldMicroUsd.toString(), spooled: isSpooled },
          after: { reason },
        });
        await orphanedHolds.release(hold);
      });
      return { kind: 'released', hold };
    },
  };
}
