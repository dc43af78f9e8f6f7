import { eq, inArray, or } from 'drizzle-orm';
import type { Author } from '#core/audit/audit.ts';
import type { KeyChangesOptions } from './after-commit.ts';
import { type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import { insertKey, type NewKey, withLimits } from './create.ts';
import { requireActiveAuthor, requireOpen } from './key-requirements.ts';
import { type ChangeContext, keyWithHash } from './key-rows.ts';
import { apiKeys, formerSecrets } from './schema.ts';

/** Creates keys whose secrets another program made, from the hashes of the secrets. */

/** A secret that this gateway never sees. */
export interface ForeignSecret {
  /** SHA-256 of the secret. */
  readonly secretHash: Buffer;
  /** Shown start and last characters of the secret. */
  readonly prefix: string;
  readonly last4: string;
}

export interface ImportedKey {
  readonly key: KeyRecord;
  /** False for a key that existed before; nothing of it was changed. */
  readonly isNew: boolean;
  /** Makes all gateways accept the secret, before the promise resolves on those that can be reached. */
  readonly notify: () => Promise<void>;
}

/** Limits of a key that names none: none, whatever the organization's defaults are. */
const noLimits = { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null };

/** Returns the row of the key that has or had a secret. */
async function findByHash({ tx }: ChangeContext, hash: Buffer): Promise<KeyRow | null> {
  const former = tx.select({ id: formerSecrets.keyId }).from(formerSecrets).where(eq(formerSecrets.secretHash, hash));
  // The hash of an import stays with its key: former secrets are deleted some time after their end.
  const [row] = await tx
    .select()
    .from(apiKeys)
    .where(or(keyWithHash(hash), eq(apiKeys.importedHash, hash), inArray(apiKeys.id, former)));
  return row ?? null;
}

/**
 * Creates a key, in the transaction of the caller. Locks the organization's row.
 * @returns the row, and whether it is new
 * @throws AppError conflict
 */
export async function importKey(
  context: ChangeContext,
  { secretHash, prefix, last4 }: ForeignSecret,
  input: NewKey,
  { author, ...options }: Pick<KeyChangesOptions, 'accounts'> & { readonly author: Author },
): Promise<{ readonly row: KeyRow; readonly isNew: boolean }> {
  await requireOpen(context, { ...input, serviceAccountId: input.serviceAccountId ?? null }, options);
  await requireActiveAuthor(context, author);
  const found = await findByHash(context, secretHash);
  if (found !== null) return { row: found, isNew: false };
  const secret = { secretHash, prefix, last4, imported: false, importedHash: secretHash };
  const made = { ...secret, action: 'api_key.imported' as const };
  return { row: await insertKey(context, withLimits(input, noLimits), made, author), isNew: true };
}

/** Returns an imported key; `notify` is called after the commit, and only does something for a new key. */
export function importedKey(
  { row, isNew }: { readonly row: KeyRow; readonly isNew: boolean },
  notify: (row: KeyRow) => Promise<void>,
): ImportedKey {
  return { key: toKeyRecord(row), isNew, notify: isNew ? () => notify(row) : () => Promise.resolve() };
}
