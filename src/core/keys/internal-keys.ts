import { and, desc, eq, isNull, lt, or, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Author } from '#core/audit/audit.ts';
import type { HoldingOptions } from './after-commit.ts';
import type { KeyRow } from './api-key.ts';
import { makeKey, type NewUserKey } from './create.ts';
import { type KeyRef, withStatus } from './key-rows.ts';
import { apiKeys } from './schema.ts';

export const heldUnusedMs = 30 * 86_400_000;

export async function holdKey(input: NewUserKey, author: Author, options: HoldingOptions): Promise<KeyRow> {
  const { db, clock, accounts, inside } = options;
  const known = await selectHeldKey(db.orm, input, new Date(clock.now()));
  if (known !== null) return known;
  return db.orm.transaction(async (tx) => {
    // The organization's row is locked: of two simultaneous calls, the second finds the key that the first created.
    await accounts.lockOrganization(tx, input.organizationId);
    const made = await selectHeldKey(tx, input, new Date(clock.now()));
    // The secret is thrown away: nobody calls with it.
    return made ?? (await makeKey(inside(tx), input, author, { ...options, held: true })).row;
  });
}

/** Identifies a key that the gateway itself uses for a user. */
export type HeldBy = Pick<NewUserKey, 'organizationId' | 'projectId' | 'userId' | 'name'>;

/** Returns the newest such key that is active and has scope inference; null if there is none. */
export async function selectHeldKey(
  db: Pick<Db['orm'], 'select'> | Transaction,
  { organizationId, projectId, userId, name }: HeldBy,
  now: Date,
): Promise<KeyRow | null> {
  const [row] = await db
    .select()
    .from(apiKeys)
    .where(
      and(
        eq(apiKeys.organizationId, organizationId),
        eq(apiKeys.projectId, projectId),
        eq(apiKeys.userId, userId),
        eq(apiKeys.name, name),
        eq(apiKeys.held, true),
        eq(apiKeys.scope, 'inference'),
        withStatus('active', now),
      ),
    )
    .orderBy(desc(apiKeys.id))
    .limit(1);
  return row ?? null;
}

/** Returns the hash with which the gateway itself calls with any active key; null if the key is not active. */
export async function selectActiveHash(
  db: Db,
  { organizationId, keyId }: KeyRef,
  now: Date,
): Promise<Pick<KeyRow, 'id' | 'secretHash'> | null> {
  const [row] = await db.orm
    .select({ id: apiKeys.id, secretHash: apiKeys.secretHash })
    .from(apiKeys)
    .where(and(eq(apiKeys.id, keyId), eq(apiKeys.organizationId, organizationId), withStatus('active', now)));
  return row ?? null;
}

/** Matches active keys of the gateway that were created, and last used if ever, before a time. */
export const unusedHeld = (before: Date, now: Date): SQL | undefined =>
  and(
    eq(apiKeys.held, true),
    withStatus('active', now),
    lt(apiKeys.createdAt, before),
    or(isNull(apiKeys.lastUsedAt), lt(apiKeys.lastUsedAt, before)),
  );

/** Returns the ids of at most 1,000 keys. */
export async function selectKeyIds(db: Db, which: SQL | undefined): Promise<string[]> {
  const rows = await db.orm.select({ id: apiKeys.id }).from(apiKeys).where(which).limit(1000);
  return rows.map(({ id }) => id);
}

export const keyWithId = (id: string): SQL => eq(apiKeys.id, id);
