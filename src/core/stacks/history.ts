import { and, count, desc, eq, lt } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { stackVersions } from './schema.ts';
import { type Stack, type StackVersion, toVersion } from './stack.ts';

/** Reads of the versions that a stack still has. */

type Reader = Pick<Transaction, 'select'>;

export interface KeptVersion {
  readonly version: StackVersion;
  /** User who uploaded the version; null for built-in stacks. */
  readonly createdByUserId: string | null;
  /** True if runs pin the version. */
  readonly isPinned: boolean;
}

export interface VersionPage {
  readonly versions: readonly KeptVersion[];
  readonly total: number;
}

/** Lists the versions of a stack, newest first. `page` counts from 1. */
export async function listVersions(
  db: Db,
  { id }: Stack,
  { page, limit }: { readonly page: number; readonly limit: number },
): Promise<VersionPage> {
  const ofStack = eq(stackVersions.stackId, id);
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(stackVersions).where(ofStack);
      const rows = await tx
        .select()
        .from(stackVersions)
        .where(ofStack)
        .orderBy(desc(stackVersions.number))
        .limit(limit)
        .offset((page - 1) * limit);
      const versions = rows.map(({ pins, ...row }) => ({
        version: toVersion(row),
        createdByUserId: row.createdByUserId,
        isPinned: pins > 0,
      }));
      return { versions, total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

/** @throws AppError not_found if the stack never had the version, or no longer has it */
export async function mustFindVersion(reader: Reader, stack: Stack, number: number): Promise<StackVersion> {
  const [row] = await reader
    .select()
    .from(stackVersions)
    .where(and(eq(stackVersions.stackId, stack.id), eq(stackVersions.number, number)));
  if (row !== undefined) return toVersion(row);
  throw new AppError('not_found', {
    message: `The stack ${stack.name} has no version ${number}. List the versions that it has.`,
  });
}

/** Returns the version before a version. @throws AppError conflict if the stack has none */
export async function mustFindEarlier(reader: Reader, stack: Stack, number: number): Promise<StackVersion> {
  const [row] = await reader
    .select()
    .from(stackVersions)
    .where(and(eq(stackVersions.stackId, stack.id), lt(stackVersions.number, number)))
    .orderBy(desc(stackVersions.number))
    .limit(1);
  if (row !== undefined) return toVersion(row);
  throw new AppError('conflict', { message: `The stack ${stack.name} has no version before version ${number}.` });
}
