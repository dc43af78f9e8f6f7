import { and, count, eq, isNull, sql } from 'drizzle-orm';
import { AppError } from '#base/errors.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import { type Author, keyIdOf } from '#core/audit/audit.ts';
import type { KeyRow } from './api-key.ts';
import { type ChangeContext, counts, withStatus } from './key-rows.ts';
import { apiKeys } from './schema.ts';

/** Checks before a key is created or rotated. */

export interface LimitCheck {
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isMember' | 'serviceAccounts'>;
  readonly maxActiveKeys: number;
}

/** Owner and place of a key. */
export type OwnedKey = Pick<KeyRow, 'organizationId' | 'projectId' | 'userId' | 'serviceAccountId'>;

/**
 * @throws AppError conflict if the owner no longer exists; the caller's transaction has locked the organization's row
 */
async function requireOwner(
  { tx }: ChangeContext,
  { organizationId, projectId, userId, serviceAccountId }: OwnedKey,
  { accounts }: Pick<LimitCheck, 'accounts'>,
): Promise<void> {
  if (serviceAccountId !== null) {
    const ref = { organizationId, projectId, id: serviceAccountId };
    if ((await accounts.serviceAccounts.findIn(tx, ref)) !== null) return;
    throw new AppError('conflict', {
      message: 'The service account of this key was deleted. Create a key for another service account.',
    });
  }
  if (userId !== null && (await accounts.isMember(tx, organizationId, userId))) return;
  throw new AppError('conflict', {
    message: 'The user that this key acts for has left the organization. Create a key for a current member.',
  });
}

/**
 * Rejects keys of a closed organization, and keys whose owner is not in the organization. Locks the organization's row
 * until the transaction ends.
 * @returns the organization
 * @throws AppError conflict
 */
export async function requireOpen(
  context: ChangeContext,
  key: OwnedKey,
  check: Pick<LimitCheck, 'accounts'>,
): Promise<Organization> {
  const organization = await check.accounts.lockOrganization(context.tx, key.organizationId);
  if (organization === null) throw new AppError('not_found', { message: 'There is no such organization.' });
  if (organization.status === 'closed') {
    throw new AppError('conflict', { message: 'This organization is closed and accepts no new keys.' });
  }
  await requireOwner(context, key, check);
  return organization;
}

/**
 * Like `requireOpen`, and also rejects a key beyond the quota; the lock keeps simultaneous calls from exceeding it.
 * Keys that the gateway itself uses do not count. Keys of users count for the organization, keys of a service account
 * for the service account.
 * @throws AppError key_limit_reached, conflict
 */
export async function requireKeyQuota(context: ChangeContext, key: OwnedKey, check: LimitCheck): Promise<Organization> {
  const { tx, now } = context;
  const organization = await requireOpen(context, key, check);
  const { serviceAccountId } = key;
  const ofOwner =
    serviceAccountId === null ? isNull(apiKeys.serviceAccountId) : eq(apiKeys.serviceAccountId, serviceAccountId);
  const [counted] = await tx
    .select({ active: count() })
    .from(apiKeys)
    .where(and(eq(apiKeys.organizationId, key.organizationId), ofOwner, counts(now)));
  const most = organization.maxActiveKeys ?? check.maxActiveKeys;
  if ((counted?.active ?? 0) < most) return organization;
  const who = serviceAccountId === null ? 'organization' : 'service account';
  const message = `The ${who} has ${counted?.active} active API keys; the limit is ${most}. Revoke one first, or let a platform administrator raise the limit.`;
  throw new AppError('key_limit_reached', { message });
}

/** Advisory lock: shared by transactions that create keys, exclusive for one that must see every key. */
const keysMadeLock = sql`hashtext('headgate keys made')`;

/** Blocks the creation of keys until the transaction ends, and waits for creations under way. */
export async function holdNewKeys({ tx }: Pick<ChangeContext, 'tx'>): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(${keysMadeLock})`);
}

/** Takes the lock shared, as all transactions that create keys do: `holdNewKeys` waits until this transaction ends. */
export async function shareNewKeys({ tx }: Pick<ChangeContext, 'tx'>): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock_shared(${keysMadeLock})`);
}

/**
 * Rejects the creation of a key by a key that is no longer active. Locks the creating key's row until the transaction
 * ends: a revocation then finds the keys created before it, and none are created after it. Call this only with the
 * organization's row locked: closing an organization locks in the same order.
 * @throws AppError unauthorized
 */
export async function requireActiveAuthor(context: ChangeContext, { actor }: Author): Promise<void> {
  const { tx, now } = context;
  await shareNewKeys(context);
  const keyId = keyIdOf(actor);
  if (keyId === null) return;
  const isActive = and(eq(apiKeys.id, keyId), withStatus('active', now));
  const [held] = await tx.select({ id: apiKeys.id }).from(apiKeys).where(isActive).for('share');
  if (held === undefined) {
    throw new AppError('unauthorized', { message: 'This API key was revoked or has expired and cannot create keys.' });
  }
}
