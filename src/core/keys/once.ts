import { createHash } from 'node:crypto';
import { eq } from 'drizzle-orm';
import type { Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { apiKeys } from './schema.ts';

/** Keys that are made once, however often that is asked for. */

/** The id of what an organization makes once under a name: a UUID of version 8 (RFC 9562, section 5.8). */
export function idOnce(organizationId: string, name: string): string {
  const hex = createHash('sha256').update(`${organizationId}\n${name}`).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** @throws AppError conflict where a key was made under the same name. The organization's row is locked by then. */
export async function requireFirst(tx: Transaction, organizationId: string, name: string): Promise<void> {
  const id = idOnce(organizationId, name);
  const [made] = await tx.select({ id: apiKeys.id }).from(apiKeys).where(eq(apiKeys.id, id));
  if (made === undefined) return;
  throw new AppError('conflict', {
    message:
      `The key ${formatId('key', id)} was made with this Idempotency-Key before, and nothing was done now. Its secret was ` +
      'in that answer alone: "POST /v1/keys/{id}/rotate" gives it another one.',
    param: 'Idempotency-Key',
  });
}
