import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { KeyRecord } from './api-key.ts';

export interface LastUse {
  readonly touch: (keyId: string) => void;
  readonly flush: () => Promise<void>;
  /** Returns a key with its last use as known here, written or not. */
  readonly applyTo: (key: KeyRecord) => KeyRecord;
}

/** Records when keys were last used, in memory, so that a request costs no write. */
export function createLastUse({ db, clock }: { readonly db: Db; readonly clock: Clock }): LastUse {
  let unwritten = new Map<string, number>();
  return {
    touch(keyId) {
      unwritten.set(keyId, clock.now());
    },
    async flush() {
      if (unwritten.size === 0) return;
      const taken = unwritten;
      unwritten = new Map();
      // Passed as JSON text: drizzle overrides the driver's encoding of arrays of timestamps.
      const rows = JSON.stringify(
        [...taken].map(([id, usedAtMs]) => ({ id, used_at: new Date(usedAtMs).toISOString() })),
      );
      try {
        // Rows are locked in id order, as everywhere that locks several keys, to prevent deadlocks: a plain update
        // locks rows in physical order.
        await db.sql`
          update api_keys set last_used_at = greatest(last_used_at, uses.used_at)
          from (
            select id, used_at
            from json_to_recordset(${rows}::text::json) as u (id uuid, used_at timestamptz)
            join api_keys using (id)
            order by id for no key update of api_keys
          ) as uses
          where api_keys.id = uses.id`;
      } catch (error) {
        for (const [id, usedAtMs] of taken) unwritten.set(id, Math.max(usedAtMs, unwritten.get(id) ?? 0));
        throw error;
      }
    },
    applyTo(key) {
      const usedAtMs = unwritten.get(key.id);
      if (usedAtMs === undefined) return key;
      return { ...key, lastUsedAtMs: Math.max(usedAtMs, key.lastUsedAtMs ?? 0) };
    },
  };
}
