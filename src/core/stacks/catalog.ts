import { and, asc, count, eq, isNull, or, sql, type SQL } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { parseId } from '#base/id.ts';
import { stackNamePattern } from './names.ts';
import { stackPackages, stacks, stackVersions } from './schema.ts';
import { type Stack, type StackVersion, type StackViewer, type StackVisibility, toStack, toVersion } from './stack.ts';

/** Reads of the catalog, limited to the stacks that a viewer sees. */

export interface StackList {
  readonly viewer: StackViewer;
  /** Text to find in name, title or description, ignoring case; null matches all. */
  readonly search: string | null;
  readonly category: string | null;
  /** Page number from 1. */
  readonly page: number;
  readonly limit: number;
}

export interface StackPage {
  readonly stacks: readonly Stack[];
  readonly total: number;
}

type Reader = Pick<Transaction, 'select'>;

const isOwn = ({ userId }: StackViewer): SQL =>
  userId === null
    ? sql`(1 = 0)`
    : sql`(coalesce(${stacks.ownerUserId} = ${userId}, false) and ${stacks.visibility} = 'private')`;

const visibleTo = (viewer: StackViewer): SQL | undefined =>
  and(isNull(stacks.deletedAt), viewer.isAdmin ? undefined : or(eq(stacks.visibility, 'global'), isOwn(viewer)));

/** Returns an ilike pattern in which `%` and `_` of the search text are literal. */
const containing = (text: string): string => `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;

/** Lists stacks by name; among stacks of one name, by id. */
export async function listStacks(db: Db, { viewer, search, category, page, limit }: StackList): Promise<StackPage> {
  const pattern = search === null ? null : containing(search);
  const chosen = and(
    visibleTo(viewer),
    pattern === null
      ? undefined
      : sql`(${stacks.name} ilike ${pattern} or ${stacks.title} ilike ${pattern} or ${stacks.description} ilike ${pattern})`,
    category === null ? undefined : sql`lower(${stacks.category}) = lower(${category})`,
  );
  return db.orm.transaction(
    async (tx) => {
      const [counted] = await tx.select({ total: count() }).from(stacks).where(chosen);
      const rows = await tx
        .select({ stack: stacks, version: stackVersions })
        .from(stacks)
        .innerJoin(stackVersions, eq(stackVersions.id, stacks.currentVersionId))
        .where(chosen)
        .orderBy(asc(stacks.name), asc(stacks.id))
        .limit(limit)
        .offset((page - 1) * limit);
      return { stacks: rows.map(({ stack, version }) => toStack(stack, version)), total: counted?.total ?? 0 };
    },
    { isolationLevel: 'repeatable read', accessMode: 'read only' },
  );
}

/**
 * Finds the stack that a viewer means by a name or an id. If several have the name: the viewer's own, then the global
 * one, then the oldest of another user, which only administrators see.
 */
export async function findStack(reader: Reader, viewer: StackViewer, nameOrId: string): Promise<Stack | null> {
  const id = parseId('stack', nameOrId);
  if (id === null && !stackNamePattern.test(nameOrId)) return null;
  const named = id === null ? eq(stacks.name, nameOrId) : eq(stacks.id, id);
  const [row] = await reader
    .select({ stack: stacks, version: stackVersions })
    .from(stacks)
    .innerJoin(stackVersions, eq(stackVersions.id, stacks.currentVersionId))
    .where(and(visibleTo(viewer), named))
    .orderBy(sql`${isOwn(viewer)} desc, (${stacks.visibility} = 'global') desc, ${stacks.createdAt}, ${stacks.id}`)
    .limit(1);
  return row === undefined ? null : toStack(row.stack, row.version);
}

/** Reads a version and its zip, also of a deleted stack; null if it no longer exists. */
export async function readVersion(
  db: Db,
  versionId: string,
): Promise<{ readonly version: StackVersion; readonly visibility: StackVisibility; readonly zip: Buffer } | null> {
  const [row] = await db.orm
    .select({ version: stackVersions, visibility: stacks.visibility, zip: stackPackages.bytes })
    .from(stackVersions)
    .innerJoin(stacks, eq(stacks.id, stackVersions.stackId))
    .innerJoin(stackPackages, eq(stackPackages.sha256, stackVersions.sha256))
    .where(eq(stackVersions.id, versionId));
  return row === undefined ? null : { ...row, version: toVersion(row.version) };
}
