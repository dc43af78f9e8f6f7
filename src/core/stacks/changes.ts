import { and, count, eq, isNull, sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { ReadPackage } from '#core/stacks/package/package.ts';
import { findStack } from './catalog.ts';
import { stacks } from './schema.ts';
import type { Stack, StackViewer, StackVisibility } from './stack.ts';
import { dropDeleted, dropVersions, insertVersion, lockStacks } from './versions.ts';

/** Changes of the catalog: each is one transaction with its note in the audit log. */

/** Who makes a change. */
export interface StackAuthor {
  readonly viewer: StackViewer;
  readonly organizationId: string;
  readonly author: Author;
}

/** What is said of a stack beside its package; null where that is nothing. */
export interface StackFields {
  readonly name: string | null;
  readonly title: string | null;
  readonly description: string | null;
  readonly category: string | null;
  readonly icon: string | null;
}

/** Absent is left as it is. */
export interface StackPatch {
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  readonly category?: string | null | undefined;
  readonly icon?: string | null | undefined;
  readonly visibility?: StackVisibility | undefined;
}

export interface PushedStack {
  readonly stack: Stack;
  /** Its name was free before. */
  readonly isNew: boolean;
}

/** Of one user, so that nobody fills the database. */
const stacksPerUserMax = 50;
/** Beside those that are held. */
const versionsKept = 5;

const auditView = ({ name, title, category, visibility, version }: Stack): AuditView => ({
  name,
  title,
  category,
  visibility,
  version: version.number,
  sha256: version.sha256,
});

const noSuchStack = (): AppError => new AppError('not_found', { message: 'There is no such stack.' });
const forbidden = (message: string): AppError => new AppError('insufficient_scope', { message });
const nameTaken = (name: string): AppError =>
  new AppError('conflict', { message: `The name ${name} is taken by another stack.`, param: 'name' });

export interface ChangesOptions {
  readonly db: Db;
  readonly audit: Audit;
}

export function createChanges({ db, audit }: ChangesOptions) {
  async function record(
    tx: Transaction,
    by: StackAuthor,
    change: { action: string; before: Stack | null; after: Stack | null },
  ) {
    const { action, before, after } = change;
    await audit.record(tx, {
      organizationId: by.organizationId,
      author: by.author,
      action: `stack.${action}`,
      targetType: 'stack',
      targetId: formatId('stack', (after ?? before)?.id ?? ''),
      before: before === null ? null : auditView(before),
      after: after === null ? null : auditView(after),
    });
  }

  async function mustFind(tx: Transaction, viewer: StackViewer, nameOrId: string): Promise<Stack> {
    const stack = await findStack(tx, viewer, nameOrId);
    if (stack === null) throw noSuchStack();
    return stack;
  }

  async function pushIn(tx: Transaction, input: PushInput, by: StackAuthor): Promise<PushedStack> {
    await lockStacks(tx);
    const { fields, found, zip } = input;
    const known = await findOfName(tx, by.viewer, input.name);
    const now = await dbNow(tx);
    const userId = by.viewer.userId;
    if (known === null) {
      await requireRoom(tx, by.viewer);
      const [stackId, versionId] = [uuidv7(now.getTime()), uuidv7(now.getTime())];
      await tx.insert(stacks).values({
        id: stackId,
        name: input.name,
        visibility: by.viewer.isAdmin ? 'global' : 'private',
        ownerUserId: userId,
        title: fields.title ?? found.derived.title ?? input.name,
        description: fields.description ?? found.derived.description,
        category: fields.category,
        icon: fields.icon,
        currentVersionId: versionId,
        createdAt: now,
        updatedAt: now,
      });
      await insertVersion(tx, { id: versionId, stackId, zip, ...found, createdByUserId: userId, now });
      const stack = await mustFind(tx, by.viewer, formatId('stack', stackId));
      await record(tx, by, { action: 'created', before: null, after: stack });
      return { stack, isNew: true };
    }
    const stack = await addVersion(tx, known, { ...input, userId, now });
    await record(tx, by, { action: 'pushed', before: known, after: stack });
    return { stack, isNew: false };
  }

  async function patchIn(tx: Transaction, nameOrId: string, patch: StackPatch, by: StackAuthor): Promise<Stack> {
    await lockStacks(tx);
    const stack = await mustFind(tx, by.viewer, nameOrId);
    requireMayChange(stack, by.viewer);
    const { visibility = stack.visibility } = patch;
    if (visibility !== stack.visibility) {
      if (!by.viewer.isAdmin) throw forbidden('Who sees a stack is changed by administrators of the platform alone.');
      if (await isTaken(tx, stack, visibility)) throw nameTaken(stack.name);
    }
    const changed = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
    await tx
      .update(stacks)
      .set({ ...changed, updatedAt: await dbNow(tx) })
      .where(eq(stacks.id, stack.id));
    const after = await mustFind(tx, by.viewer, formatId('stack', stack.id));
    await record(tx, by, { action: 'changed', before: stack, after });
    return after;
  }

  async function removeIn(tx: Transaction, nameOrId: string, by: StackAuthor): Promise<void> {
    await lockStacks(tx);
    const stack = await mustFind(tx, by.viewer, nameOrId);
    if (stack.isBuiltin) throw forbidden('This stack comes with the product and cannot be deleted.');
    requireMayChange(stack, by.viewer);
    await tx
      .update(stacks)
      .set({ deletedAt: await dbNow(tx) })
      .where(eq(stacks.id, stack.id));
    await dropDeleted(tx, stack.id);
    await record(tx, by, { action: 'deleted', before: stack, after: null });
  }

  return {
    push: (input: PushInput, by: StackAuthor) => db.orm.transaction((tx) => pushIn(tx, input, by)),
    patch: (nameOrId: string, patch: StackPatch, by: StackAuthor) =>
      db.orm.transaction((tx) => patchIn(tx, nameOrId, patch, by)),
    remove: (nameOrId: string, by: StackAuthor) => db.orm.transaction((tx) => removeIn(tx, nameOrId, by)),
  };
}

export interface PushInput {
  readonly name: string;
  readonly fields: Omit<StackFields, 'name'>;
  readonly zip: Buffer;
  readonly found: ReadPackage;
}

/** The stack that an upload of a name is a new version of; null where the name is free. @throws AppError conflict */
async function findOfName(tx: Transaction, viewer: StackViewer, name: string): Promise<Stack | null> {
  const visible = await findStack(tx, { ...viewer, isAdmin: false }, name);
  if (visible === null) return null;
  // What everybody runs is changed by administrators; what comes with the product by the next version of that.
  const isTheirs = visible.visibility === 'private' ? visible.ownerUserId === viewer.userId : viewer.isAdmin;
  if (visible.isBuiltin || !isTheirs) throw nameTaken(name);
  return visible;
}

export async function addVersion(
  tx: Transaction,
  stack: Stack,
  { fields, found, zip, userId, now }: Omit<PushInput, 'name'> & { readonly userId: string | null; readonly now: Date },
): Promise<Stack> {
  const isSame = stack.version.sha256 === found.sha256;
  const version = isSame
    ? { ...stack.version, createdAt: new Date(stack.version.createdAtMs) }
    : await insertVersion(tx, {
        id: uuidv7(now.getTime()),
        stackId: stack.id,
        zip,
        ...found,
        createdByUserId: userId,
        now,
      });
  const told = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
  await tx
    .update(stacks)
    .set({ ...told, currentVersionId: version.id, updatedAt: now })
    .where(eq(stacks.id, stack.id));
  await dropVersions(tx, stack.id, versionsKept);
  const after = await findStack(tx, { userId: null, isAdmin: true }, formatId('stack', stack.id));
  if (after === null) throw new Error('a stack was lost while it was locked');
  return after;
}

function requireMayChange(stack: Stack, viewer: StackViewer): void {
  const isOwn = stack.visibility === 'private' && stack.ownerUserId === viewer.userId;
  if (viewer.isAdmin || isOwn) return;
  throw forbidden('A stack that everybody sees is changed by administrators of the platform alone.');
}

async function requireRoom(tx: Transaction, { userId, isAdmin }: StackViewer): Promise<void> {
  if (isAdmin || userId === null) return;
  const [counted] = await tx
    .select({ total: count() })
    .from(stacks)
    .where(and(eq(stacks.ownerUserId, userId), isNull(stacks.deletedAt)));
  if ((counted?.total ?? 0) < stacksPerUserMax) return;
  throw new AppError('conflict', { message: `A user may have ${stacksPerUserMax} stacks: delete one first.` });
}

async function isTaken(tx: Transaction, { name, ownerUserId }: Stack, visibility: StackVisibility): Promise<boolean> {
  const same =
    visibility === 'global'
      ? eq(stacks.visibility, 'global')
      : and(eq(stacks.visibility, 'private'), ownerUserId === null ? sql`false` : eq(stacks.ownerUserId, ownerUserId));
  const [other] = await tx
    .select({ id: stacks.id })
    .from(stacks)
    .where(and(eq(stacks.name, name), isNull(stacks.deletedAt), same));
  return other !== undefined;
}

/** The database's clock: several gateways write here. */
export async function dbNow(tx: Transaction): Promise<Date> {
  const [row] = await tx.execute<{ ms: string }>(
    sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms`,
  );
  return new Date(Number(row?.['ms']));
}
