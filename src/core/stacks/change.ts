import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import { findStack } from './catalog.ts';
import type { Stack, StackViewer } from './stack.ts';

/** Shared parts of the catalog's changes. */

/** Actor of a change. */
export interface StackAuthor {
  readonly viewer: StackViewer;
  readonly organizationId: string;
  readonly author: Author;
}

/** Context of a change under way. */
export interface StackChange {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly by: StackAuthor;
}

/** Returns the time of the database's clock, because several gateways write here. */
export async function dbNow(tx: Transaction): Promise<Date> {
  const [row] = await tx.execute<{ ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms`,
  );
  return new Date(Number(row?.ms));
}

const auditView = ({ name, title, description, category, icon, visibility, version }: Stack): AuditView => ({
  name,
  title,
  description,
  category,
  icon,
  visibility,
  version: version.number,
  sha256: version.sha256,
});

export interface StackNote {
  readonly action: 'created' | 'pushed' | 'reverted' | 'changed' | 'deleted';
  readonly stackId: string;
  readonly before: Stack | null;
  readonly after: Stack | null;
  /** Number of the earlier version whose content the new version has. */
  readonly revertedTo?: number;
}

export async function note(
  { tx, audit, by }: StackChange,
  { action, stackId, before, after, revertedTo }: StackNote,
): Promise<void> {
  await audit.record(tx, {
    organizationId: by.organizationId,
    author: by.author,
    action: `stack.${action}`,
    targetType: 'stack',
    targetId: formatId('stack', stackId),
    before: before === null ? null : auditView(before),
    after:
      after === null ? null : { ...auditView(after), ...(revertedTo !== undefined && { reverted_to: revertedTo }) },
  });
}

/** @throws AppError not_found */
export async function mustFind(tx: Transaction, viewer: StackViewer, nameOrId: string): Promise<Stack> {
  const stack = await findStack(tx, viewer, nameOrId);
  if (stack === null) throw noSuchStack();
  return stack;
}

export const noSuchStack = (): AppError => new AppError('not_found', { message: 'There is no such stack.' });
export const forbidden = (message: string): AppError => new AppError('insufficient_scope', { message });
export const nameTaken = (name: string): AppError =>
  new AppError('conflict', { message: `The name ${name} is already used by another stack.`, param: 'name' });
