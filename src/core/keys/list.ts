import { and, asc, count, desc, eq, isNull, type SQL, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import type { Scope } from '#core/accounts/accounts.ts';
import type { KeyRow, KeyStatus } from './api-key.ts';
import type { NewUserKey } from './create.ts';
import { counts, type KeyRef, withStatus } from './key-rows.ts';
import { apiKeys } from './schema.ts';

export interface KeyListing {
  readonly organizationId: string;
  readonly limit: number;
  /** UUID of the last key of the previous page; null starts at the first key. */
  readonly before: string | null;
  /** True for oldest first; the default is newest first. */
  readonly isAscending?: boolean;
  readonly status: KeyStatus | null;
  /** Absent: any scope. */
  readonly scope?: Scope;
  /** Only keys of this project, and only keys that act for this user (UUIDs); null: all. */
  readonly projectId: string | null;
  readonly userId: string | null;
  /** Only keys that act for this service account; absent or null: all. */
  readonly serviceAccountId?: string | null;
}

/** Orders by creation time: an id derived from an Idempotency-Key does not contain its time. */
const newestFirst = [desc(apiKeys.createdAt), desc(apiKeys.id)];

export const oldestFirst = [asc(apiKeys.createdAt), asc(apiKeys.id)];

/** Matches the keys after a key; none if the key does not exist in the organization. */
function behind({ organizationId, keyId }: KeyRef, isAscending: boolean): SQL {
  const isPlace = sql`k.id = ${keyId}::uuid and k.organization_id = ${organizationId}::uuid`;
  const place = sql`(select k.created_at, k.id from ${apiKeys} k where ${isPlace})`;
  return sql`(${apiKeys.createdAt}, ${apiKeys.id}) ${sql.raw(isAscending ? '>' : '<')} ${place}`;
}

const actsFor = (serviceAccountId: string | null): SQL | undefined =>
  serviceAccountId === null ? undefined : eq(apiKeys.serviceAccountId, serviceAccountId);

/** Returns one more row than `limit` if there are more. */
export async function selectKeys(db: Db, listing: KeyListing, now: Date): Promise<KeyRow[]> {
  const { organizationId, before } = listing;
  return db.orm
    .select()
    .from(apiKeys)
    .where(
      and(
        eq(apiKeys.organizationId, organizationId),
        before === null ? undefined : behind({ organizationId, keyId: before }, listing.isAscending === true),
        listing.status === null ? undefined : withStatus(listing.status, now),
        listing.scope === undefined ? undefined : eq(apiKeys.scope, listing.scope),
        listing.projectId === null ? undefined : eq(apiKeys.projectId, listing.projectId),
        listing.userId === null ? undefined : eq(apiKeys.userId, listing.userId),
        actsFor(listing.serviceAccountId ?? null),
      ),
    )
    .orderBy(...(listing.isAscending === true ? oldestFirst : newestFirst))
    .limit(listing.limit + 1);
}

/** Counts active keys of users for each organization, by UUID; organizations without keys are absent. */
export async function countActiveKeys(db: Db, now: Date): Promise<ReadonlyMap<string, number>> {
  const rows = await db.orm
    .select({ organizationId: apiKeys.organizationId, active: count() })
    .from(apiKeys)
    .where(and(counts(now), isNull(apiKeys.serviceAccountId)))
    .groupBy(apiKeys.organizationId);
  return new Map(rows.map(({ organizationId, active }) => [organizationId, active]));
}

/** Returns the ids of all keys that a user ever had in an organization, active or not. */
export async function selectKeyIdsOf(
  db: Db,
  { organizationId, userId }: Pick<NewUserKey, 'organizationId' | 'userId'>,
): Promise<string[]> {
  const rows = await db.orm
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(and(eq(apiKeys.organizationId, organizationId), eq(apiKeys.userId, userId)));
  return rows.map(({ id }) => id);
}

/** Returns the name of each key of an organization, active or not, by key id. */
export async function selectKeyNames(db: Db, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const rows = await db.orm
    .select({ id: apiKeys.id, name: apiKeys.name })
    .from(apiKeys)
    .where(eq(apiKeys.organizationId, organizationId));
  return new Map(rows.map(({ id, name }) => [id, name]));
}

/** Returns the user of each key of an organization, active or not, by key id; keys of service accounts are left out. */
export async function selectKeyUsers(db: Db, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const rows = await db.orm
    .select({ id: apiKeys.id, userId: apiKeys.userId })
    .from(apiKeys)
    .where(eq(apiKeys.organizationId, organizationId));
  return new Map(rows.flatMap(({ id, userId }) => (userId === null ? [] : [[id, userId] as const])));
}
