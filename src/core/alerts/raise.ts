import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { uuidv7 } from '#base/id.ts';
import { type Alert, checkedData } from './kinds.ts';
import { alertEvents } from './schema.ts';

/** Raises alerts, for use by other rooms. */
export interface Raising {
  /** Writes an event in the transaction of its cause, so that both exist or neither. Nothing is sent yet. */
  raiseIn(tx: Transaction, alert: Alert): Promise<void>;
  /** Writes an event in its own statement. */
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
