import { uuidv7 } from '#base/id.ts';
import type { Scope } from '#core/accounts/accounts.ts';
import type { Author } from '#core/audit/audit.ts';
import type { KeyChangesOptions } from './after-commit.ts';
import type { KeyLimits, KeyRecord, KeyRow, KeyToggles } from './api-key.ts';
import { defaultKeyLimits } from './defaults.ts';
import { requireActiveAuthor, requireKeyQuota, requireOpen } from './key-requirements.ts';
import { type ChangeContext, recordKeyChange } from './key-rows.ts';
import { apiKeys } from './schema.ts';
import { makeSecret, type SecretParts } from './secret.ts';

export interface CreatedKey {
  readonly key: KeyRecord;
  /** Shown once and not stored. */
  readonly secret: string;
}

interface MadeKey {
  readonly row: KeyRow;
  readonly secret: string;
}

export async function makeKey(
  context: ChangeContext,
  input: NewKey,
  author: Author,
  { held, ...options }: KeyChangesOptions & { readonly held: boolean },
): Promise<MadeKey> {
  const allow = held ? requireOpen : requireKeyQuota;
  const { defaultLimits } = await allow(
    context,
    { ...input, serviceAccountId: input.serviceAccountId ?? null },
    options,
  );
  await requireActiveAuthor(context, author);
  const parts = makeSecret(options.keyPrefix, input.projectId);
  const limited = withLimits(input, { ...defaultKeyLimits, ...defaultLimits });
  const row = await insertKey(context, limited, { ...parts, imported: false, held }, author);
  return { row, secret: parts.secret };
}

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

type InsertedSecret = Omit<SecretParts, 'secret'> & {
  readonly imported: boolean;
  readonly importedHash?: Buffer;
  readonly held?: boolean;
  readonly action?: 'api_key.recovered' | 'api_key.imported';
};

export async function insertKey(
  context: ChangeContext,
  input: LimitedKey,
  secret: InsertedSecret,
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
    importedHash: secret.importedHash ?? null,
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
