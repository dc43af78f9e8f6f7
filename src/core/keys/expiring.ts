import { and, asc, lte, sql } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { type KeyRecord, toKeyRecord } from './api-key.ts';
import { counts } from './key-rows.ts';
import { apiKeys } from './schema.ts';

export type ExpiringKey = KeyRecord & { readonly expiresAtMs: number };

/** Active ones that are not held, expire so soon, and were made to live for longer than that. The next one first. */
export async function readExpiring(db: Db, now: Date, withinMs: number): Promise<readonly ExpiringKey[]> {
  const soon = new Date(now.getTime() + withinMs);
  const isLongLived = sql`${apiKeys.expiresAt} - ${apiKeys.createdAt} > make_interval(secs => ${withinMs / 1000})`;
  const rows = await db.orm
    .select()
    .from(apiKeys)
    .where(and(counts(now), lte(apiKeys.expiresAt, soon), isLongLived))
    .orderBy(asc(apiKeys.expiresAt), asc(apiKeys.id));
  return rows.flatMap((row) => {
    const key = toKeyRecord(row);
    return key.expiresAtMs === null ? [] : [{ ...key, expiresAtMs: key.expiresAtMs }];
  });
}
