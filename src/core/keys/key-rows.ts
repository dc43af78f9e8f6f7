import { and, eq, gt, inArray, isNotNull, isNull, lte, or, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { keyAuditView, type KeyRow, type KeyStatus } from './api-key.ts';
import { apiKeys } from './schema.ts';

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

export const keyWithHash = (secretHash: Buffer): SQL => eq(apiKeys.secretHash, secretHash);

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
