import { and, asc, eq, lte, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { type KeyRecord, toKeyRecord } from './api-key.ts';
import { counts } from './key-rows.ts';
import { apiKeys } from './schema.ts';

export type ExpiringKey = KeyRecord & { readonly expiresAtMs: number };

/** Notifies about one key, in the transaction that records the notification. */
export type NotifyExpiring = (tx: Transaction, key: ExpiringKey) => Promise<void>;

const atOnceMax = 100;

/**
 * Notifies once per key and expiry time, the next to expire first: active keys that the gateway does not use itself,
 * expire within `withinMs`, and were created to live longer than that. Keys that were notified are not read again.
 */
export async function notifyExpiring(db: Db, now: Date, withinMs: number, notify: NotifyExpiring): Promise<void> {
  while (await notifySome(db, now, withinMs, notify));
}

/** @returns true if there may be more */
function notifySome(db: Db, now: Date, withinMs: number, notify: NotifyExpiring): Promise<boolean> {
  const soon = new Date(now.getTime() + withinMs);
  const isLongLived = sql`${apiKeys.expiresAt} - ${apiKeys.createdAt} > make_interval(secs => ${withinMs / 1000})`;
  const isUnnotified = sql`${apiKeys.expiresAt} is distinct from ${apiKeys.expiryToldAt}`;
  return db.orm.transaction(async (tx) => {
    const rows = await tx
      .select()
      .from(apiKeys)
      .where(and(counts(now), lte(apiKeys.expiresAt, soon), isUnnotified, isLongLived))
      .orderBy(asc(apiKeys.expiresAt), asc(apiKeys.id))
      .limit(atOnceMax)
      .for('update', { skipLocked: true });
    for (const row of rows) {
      const key = toKeyRecord(row);
      if (key.expiresAtMs !== null) await notify(tx, { ...key, expiresAtMs: key.expiresAtMs });
      // Copied inside the database: its timestamps have more digits than a Date.
      await tx
        .update(apiKeys)
        .set({ expiryToldAt: sql`${apiKeys.expiresAt}` })
        .where(eq(apiKeys.id, row.id));
    }
    return rows.length === atOnceMax;
  });
}
