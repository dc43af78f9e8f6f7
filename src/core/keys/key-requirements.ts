import { and, count, eq, isNull, sql } from 'drizzle-orm';
import { AppError } from '#base/errors.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import { type Author, keyIdOf } from '#core/audit/audit.ts';
import type { KeyRow } from './api-key.ts';
import { type ChangeContext, counts, withStatus } from './key-rows.ts';
import { apiKeys } from './schema.ts';

/** What is asked before a key is made, or gets another secret. */

export interface LimitCheck {
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isMember' | 'serviceAccounts'>;
  readonly maxActiveKeys: number;
}

/** Whose key it is, and where. */
export type OwnedKey = Pick<KeyRow, 'organizationId' | 'projectId' | 'userId' | 'serviceAccountId'>;

/** @throws AppError conflict for who is not there any more, where the transaction holds the organization's row */
async function requireOwner(
  { tx }: ChangeContext,
  { organizationId, projectId, userId, serviceAccountId }: OwnedKey,
  { accounts }: Pick<LimitCheck, 'accounts'>,
): Promise<void> {
  if (serviceAccountId !== null) {
    const ref = { organizationId, projectId, id: serviceAccountId };
    if ((await accounts.serviceAccounts.findIn(tx, ref)) !== null) return;
    throw new AppError('conflict', { message: 'The service account of this key was deleted.' });
  }
  if (userId !== null && (await accounts.isMember(tx, organizationId, userId))) return;
  throw new AppError('conflict', { message: 'The user whom this key would act for has left the organization.' });
}

/**
 * Refuses any key of a closed organization, and one for who is not in it. The organization's row is held until the
 * transaction ends.
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
    throw new AppError('conflict', { message: 'This organization is closed and gets no new keys.' });
  }
  await requireOwner(context, key, check);
  return organization;
}

/**
 * As `requireOpen`, and refuses a key beyond the limit: of keys made at once none is counted too late. Those that the
 * gateway holds do not count. Keys of users count for their organization, those of a service account for that one.
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
  const message = `The ${who} has ${counted?.active} active API keys and may have ${most}: revoke one first.`;
  throw new AppError('key_limit_reached', { message });
}

/** Held by all that make keys, shared among them, and by what must know of each that there is. */
const keysMadeLock = sql`hashtext('headgate keys made')`;

/** From now on until the transaction ends nobody makes a key; those that were begun are waited for. */
export async function holdNewKeys({ tx }: Pick<ChangeContext, 'tx'>): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(${keysMadeLock})`);
}

/** Lets nobody begin who must know of each key that there is, until the transaction ends. */
export async function shareNewKeys({ tx }: Pick<ChangeContext, 'tx'>): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock_shared(${keysMadeLock})`);
}

/**
 * Refuses a key that a key makes which is not active any more. The row of that one is held until the transaction ends:
 * whoever revokes it finds what it made before, and it makes nothing after. To be called where the organization's row
 * is locked already, as who closes one locks them.
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
    throw new AppError('unauthorized', { message: 'This API key was revoked or has expired: it makes no other keys.' });
  }
}
