import { and, asc, count, desc, eq, gt, inArray, isNotNull, isNull, lte, or, type SQL, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Scope } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { keyAuditView, type KeyLimits, type KeyRow, type KeyStatus, type KeyToggles } from './api-key.ts';
import { apiKeys, formerSecrets } from './schema.ts';
import { hashSecret, type SecretParts } from './secret.ts';

/** Expiry of a key: at a time, or a number of milliseconds after creation. */
export type KeyExpiry = { readonly atMs: number } | { readonly afterMs: number };

/** User or service account that a key acts for, by UUID. */
export type KeyOwner =
  | { readonly userId: string; readonly serviceAccountId?: null }
  | { readonly userId: null; readonly serviceAccountId: string };

export type NewKey = KeyOwner & NewKeyFields;

/** A key that acts for a user. */
export type NewUserKey = Extract<KeyOwner, { readonly userId: string }> & NewKeyFields;

export interface NewKeyFields {
  readonly organizationId: string;
  /** An unarchived project of the organization; the caller has checked. A service account's key is in its project. */
  readonly projectId: string;
  readonly name: string;
  readonly scope: Scope;
  readonly expires: KeyExpiry | null;
  /** Absent and undefined fields get the organization's defaults. */
  readonly limits: { readonly [Field in keyof KeyLimits]?: KeyLimits[Field] | undefined };
  readonly toggles: KeyToggles;
  /** Ids of allowed models; null allows all models of the organization. */
  readonly models: readonly string[] | null;
}

/** Fields of a key that can be changed; scope and expiry cannot. Absent and undefined fields stay unchanged. */
export type KeyPatch = {
  readonly [Field in keyof Changeable]?: Changeable[Field] | undefined;
};

type Changeable = KeyLimits & KeyToggles & { name: string; models: readonly string[] | null };

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

/** A key as a caller names it: a key of another organization is not found. */
export interface KeyRef {
  readonly organizationId: string;
  readonly keyId: string;
}

/** Context of a change: the transaction, the audit log, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

export const keyOf = ({ organizationId, keyId }: KeyRef): SQL | undefined =>
  and(eq(apiKeys.id, keyId), eq(apiKeys.organizationId, organizationId));

export function withStatus(status: KeyStatus, now: Date): SQL | undefined {
  if (status === 'revoked') return isNotNull(apiKeys.revokedAt);
  if (status === 'expired') return and(isNull(apiKeys.revokedAt), lte(apiKeys.expiresAt, now));
  return and(isNull(apiKeys.revokedAt), or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, now)));
}

/** Matches keys that count for the quota: active, and not used by the gateway itself. */
export const counts = (now: Date): SQL | undefined => and(eq(apiKeys.held, false), withStatus('active', now));

/** A new key with all its limits. */
export type LimitedKey = NewKey & { readonly limits: KeyLimits };

/** Fills absent limits with the defaults; null is a given value and means unlimited. */
export function withLimits(key: NewKey, defaults: KeyLimits): LimitedKey {
  const { limits: given } = key;
  const chosen = <Field extends keyof KeyLimits>(field: Field): KeyLimits[Field] => {
    const value = given[field];
    return value === undefined ? defaults[field] : value;
  };
  const limits = {
    requestsPerMinute: chosen('requestsPerMinute'),
    maxConcurrency: chosen('maxConcurrency'),
    tokensPerMinute: chosen('tokensPerMinute'),
    monthlyTokenLimit: chosen('monthlyTokenLimit'),
  };
  return { ...key, limits };
}

function momentOf(expiry: KeyExpiry, madeAt: Date): Date {
  return new Date('atMs' in expiry ? expiry.atMs : madeAt.getTime() + expiry.afterMs);
}

export async function insertKey(
  context: ChangeContext,
  input: LimitedKey,
  secret: SecretParts & { readonly imported: boolean; readonly held?: boolean; readonly action?: 'api_key.recovered' },
  author: Author,
): Promise<KeyRow> {
  const { tx, now } = context;
  const row: KeyRow = {
    id: uuidv7(now.getTime()),
    organizationId: input.organizationId,
    projectId: input.projectId,
    userId: input.userId,
    serviceAccountId: input.serviceAccountId ?? null,
    name: input.name,
    prefix: secret.prefix,
    last4: secret.last4,
    secretHash: secret.secretHash,
    rotatedAt: null,
    formerSecretsEndAt: null,
    expiryToldAt: null,
    imported: secret.imported,
    held: secret.held ?? false,
    scope: input.scope,
    createdAt: now,
    expiresAt: input.expires === null ? null : momentOf(input.expires, now),
    lastUsedAt: null,
    revokedAt: null,
    models: input.models,
    ...input.limits,
    ...input.toggles,
  };
  await tx.insert(apiKeys).values(row);
  await recordKeyChange(context, secret.action ?? 'api_key.created', { before: null, after: row }, author);
  return row;
}

export async function recordKeyChange(
  { tx, audit }: ChangeContext,
  action: string,
  change: { readonly before: KeyRow | null; readonly after: KeyRow },
  author: Author,
): Promise<void> {
  await audit.record(tx, {
    organizationId: change.after.organizationId,
    author,
    action,
    targetType: 'api_key',
    targetId: formatId('key', change.after.id),
    before: change.before === null ? null : keyAuditView(change.before),
    after: keyAuditView(change.after),
  });
}

/** Returns null if there is no such key. A revoked or expired key can still be changed. */
export async function updateKey(
  context: ChangeContext,
  ref: KeyRef,
  patch: KeyPatch,
  author: Author,
): Promise<KeyRow | null> {
  const { tx } = context;
  const [before] = await tx.select().from(apiKeys).where(keyOf(ref)).for('update');
  if (before === undefined) return null;
  if (Object.values(patch).every((value) => value === undefined)) return before;
  const [after] = await tx.update(apiKeys).set(patch).where(keyOf(ref)).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, 'api_key.changed', { before, after }, author);
  return after;
}

export interface Revocation {
  readonly row: KeyRow;
  /** False if the key was revoked before. */
  readonly changed: boolean;
}

/** @param which selects at most one key; the result is null if there is none */
export async function revokeKey(
  context: ChangeContext,
  which: SQL | undefined,
  action: 'api_key.revoked' | 'api_key.reported',
  author: Author,
): Promise<Revocation | null> {
  const { tx, now } = context;
  const [before] = await tx.select().from(apiKeys).where(which).for('update');
  if (before === undefined) return null;
  if (before.revokedAt !== null) return { row: before, changed: false };
  const [after] = await tx.update(apiKeys).set({ revokedAt: now }).where(which).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, action, { before, after }, author);
  return { row: after, changed: true };
}

/** Keys of an organization, of a user, of a user in an organization, or of service accounts. */
export type KeyHolder =
  | { readonly organizationId: string; readonly userId: string | null }
  | { readonly organizationId: null; readonly userId: string }
  | { readonly organizationId: string; readonly userId: undefined; readonly serviceAccountIds: readonly string[] };

function heldBy(holder: KeyHolder): SQL | undefined {
  const { organizationId } = holder;
  const inside = organizationId === null ? undefined : eq(apiKeys.organizationId, organizationId);
  if (holder.userId === undefined) {
    return and(inside, inArray(apiKeys.serviceAccountId, [...holder.serviceAccountIds]));
  }
  return and(inside, holder.userId === null ? undefined : eq(apiKeys.userId, holder.userId));
}

/** Revokes all keys of a holder that are not revoked yet. */
export async function revokeAllKeys(
  context: ChangeContext,
  holder: KeyHolder,
  author: Author,
): Promise<readonly KeyRow[]> {
  const { tx, now } = context;
  const those = and(heldBy(holder), isNull(apiKeys.revokedAt));
  const rows = await tx.select().from(apiKeys).where(those).orderBy(apiKeys.id).for('update');
  if (rows.length > 0) await tx.update(apiKeys).set({ revokedAt: now }).where(those);
  const revoked = rows.map((before) => ({ before, after: { ...before, revokedAt: now } }));
  for (const change of revoked) await recordKeyChange(context, 'api_key.revoked', change, author);
  return revoked.map(({ after }) => after);
}

export const keyWithHash = (secretHash: Buffer): SQL => eq(apiKeys.secretHash, secretHash);

/** Orders by creation time: an id derived from an Idempotency-Key does not contain its time. */
const newestFirst = [desc(apiKeys.createdAt), desc(apiKeys.id)];
const oldestFirst = [asc(apiKeys.createdAt), asc(apiKeys.id)];

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

/** True if a secret belongs to a key that is neither revoked nor expired, by the database's clock. */
export async function isActiveSecret(db: Db, secret: string): Promise<boolean> {
  const hash = hashSecret(secret);
  const works = and(eq(formerSecrets.secretHash, hash), gt(formerSecrets.endsAt, sql`now()`));
  const former = db.orm.select({ id: formerSecrets.keyId }).from(formerSecrets).where(works);
  const rows = await db.orm
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(
      and(
        or(keyWithHash(hash), inArray(apiKeys.id, former)),
        isNull(apiKeys.revokedAt),
        or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, sql`now()`)),
      ),
    );
  return rows.length > 0;
}

/** Returns active keys of these users with a scope, oldest first. */
export async function selectActiveKeysOf(
  { tx, now }: Pick<ChangeContext, 'tx' | 'now'>,
  userIds: readonly string[],
  scope: Scope,
): Promise<KeyRow[]> {
  return tx
    .select()
    .from(apiKeys)
    .where(and(inArray(apiKeys.userId, [...userIds]), eq(apiKeys.scope, scope), withStatus('active', now)))
    .orderBy(...oldestFirst);
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

/** Returns the user of each key of an organization, active or not, by key id; keys of service accounts are left out. */
export async function selectKeyUsers(db: Db, organizationId: string): Promise<ReadonlyMap<string, string>> {
  const rows = await db.orm
    .select({ id: apiKeys.id, userId: apiKeys.userId })
    .from(apiKeys)
    .where(eq(apiKeys.organizationId, organizationId));
  return new Map(rows.flatMap(({ id, userId }) => (userId === null ? [] : [[id, userId] as const])));
}

export async function selectKey(db: Db, ref: KeyRef): Promise<KeyRow | null> {
  const [row] = await db.orm.select().from(apiKeys).where(keyOf(ref));
  return row ?? null;
}

/** Ids per statement; a statement may have 65,535 parameters. */
const idsAtOnceMax = 10_000;

/** Returns the keys that exist among these ids. */
export async function selectKeysById(db: Db, keyIds: readonly string[]): Promise<KeyRow[]> {
  const rows: KeyRow[] = [];
  for (let from = 0; from < keyIds.length; from += idsAtOnceMax) {
    const ids = keyIds.slice(from, from + idsAtOnceMax);
    rows.push(...(await db.orm.select().from(apiKeys).where(inArray(apiKeys.id, ids))));
  }
  return rows;
}
