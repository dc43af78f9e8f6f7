import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import { uuidv7 } from '#base/id.ts';
import { type Alert, checkedData } from './kinds.ts';
import { alertEvents } from './schema.ts';

/** How the rooms tell that something happened. */
export interface Raising {
  /** Writes the event with what it tells of: either both are there or neither. Nobody is asked and nothing is sent yet. */
  raiseIn(tx: Transaction, alert: Alert): Promise<void>;
  /** The same by itself. */
  raise(alert: Alert): Promise<void>;
}

export interface RaisingOptions {
  readonly db: Db;
  readonly clock: Clock;
}

export function createRaising({ db, clock }: RaisingOptions): Raising {
  async function raiseIn(tx: Pick<Transaction, 'insert'>, alert: Alert): Promise<void> {
    const nowMs = clock.now();
    await tx
      .insert(alertEvents)
      .values({
        id: uuidv7(nowMs),
        organizationId: alert.organizationId,
        type: alert.type,
        data: checkedData(alert),
        once: alert.once ?? null,
        createdAt: new Date(nowMs),
      })
      .onConflictDoNothing();
  }
  return { raiseIn, raise: (alert) => raiseIn(db.orm, alert) };
}
