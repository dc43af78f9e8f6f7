import { and, count, eq, isNull, sql, sum } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { ReadPackage } from '#core/stacks/package/package.ts';
import { findStack } from './catalog.ts';
import { dbNow, forbidden, mustFind, nameTaken, note, type StackChange } from './change.ts';
import { stacks, stackVersions } from './schema.ts';
import { isSameStack, type Stack, type StackViewer } from './stack.ts';
import { dropVersions, insertVersion, lockStacks, versionsKept } from './versions.ts';

/** Adds packages to the catalog. */

/** Metadata given beside the package; null for what is not given. */
export interface StackFields {
  readonly name: string | null;
  readonly title: string | null;
  readonly description: string | null;
  readonly category: string | null;
  readonly icon: string | null;
}

/** A package that was read, with its metadata. */
export interface StackContent {
  readonly zip: Buffer;
  readonly found: ReadPackage;
  readonly fields: Omit<StackFields, 'name'>;
}

export interface PushedStack {
  readonly stack: Stack;
  readonly outcome: PushOutcome;
}

/** `created`: the name was free. `changed`: the bytes are those of the current version, but fields differ. */
export const pushOutcomes = ['created', 'new_version', 'changed', 'unchanged'] as const;
export type PushOutcome = (typeof pushOutcomes)[number];

/** Most stacks of one user, so that nobody fills the database. */
const stacksPerUserMax = 50;
/** Most versions of all private stacks of one user, including versions of deleted stacks that runs still pin. */
const versionsPerUserMax = 250;
/** Most versions of one private stack: the latest ones that are kept, and those that runs pin. */
const versionsPerStackMax = 50;

const adminViewer: StackViewer = { userId: null, isAdmin: true };

export async function pushStack(change: StackChange, name: string, content: StackContent): Promise<PushedStack> {
  const { tx, by } = change;
  await lockStacks(tx);
  const { userId, isAdmin } = by.viewer;
  const before = await findOfName(tx, by.viewer, name);
  if (before !== null) {
    const stack = await addVersion(tx, before, content, userId);
    const outcome = outcomeOf(before, stack);
    // The audit log records only changes.
    const action = outcome === 'new_version' ? 'pushed' : 'changed';
    if (outcome !== 'unchanged') await note(change, { action, stackId: stack.id, before, after: stack });
    await by.author.created?.(tx, formatId('stack', stack.id));
    return { stack, outcome };
  }
  await requireRoom(tx, by.viewer);
  const visibility = isAdmin ? 'global' : 'private';
  const stack = await insertStack(tx, { name, visibility, isBuiltin: false, ownerUserId: userId }, content);
  await note(change, { action: 'created', stackId: stack.id, before: null, after: stack });
  return { stack, outcome: 'created' };
}

/** Content of an earlier version, and its number. */
export interface EarlierContent {
  readonly number: number;
  readonly content: StackContent;
}

/** Adds the content of an earlier version as the newest version, so that the history stays as it was. */
export async function revertStack(
  change: StackChange,
  stackId: string,
  { number, content }: EarlierContent,
): Promise<PushedStack> {
  const { tx, by } = change;
  await lockStacks(tx);
  const before = await mustFind(tx, by.viewer, formatId('stack', stackId));
  requireMayRevert(before, by.viewer);
  const stack = await addVersion(tx, before, content, by.viewer.userId);
  const outcome = outcomeOf(before, stack);
  const noted = { action: 'reverted', stackId, before, after: stack, revertedTo: number } as const;
  if (outcome !== 'unchanged') await note(change, noted);
  await by.author.created?.(tx, formatId('stack', stackId));
  return { stack, outcome };
}

/** Allows those whose push would add a version to the stack. @throws AppError insufficient_scope */
export function requireMayRevert({ isBuiltin, visibility, ownerUserId }: Stack, viewer: StackViewer): void {
  if (isBuiltin) throw forbidden('Built-in stacks cannot be reverted. Apply an earlier version instead.');
  if (visibility === 'private' ? ownerUserId === viewer.userId : viewer.isAdmin) return;
  throw forbidden(
    visibility === 'private'
      ? 'Only its owner can revert a private stack.'
      : 'Only platform administrators can revert a global stack.',
  );
}

function outcomeOf(before: Stack, after: Stack): PushOutcome {
  if (after.version.id !== before.version.id) return 'new_version';
  return isSameStack(before, after) ? 'unchanged' : 'changed';
}

/** Finds the stack that an upload of this name updates; null if the name is free. @throws AppError conflict */
async function findOfName(tx: Transaction, viewer: StackViewer, name: string): Promise<Stack | null> {
  // Other users' private stacks, which only administrators see, do not occupy a name.
  const visible = await findStack(tx, { ...viewer, isAdmin: false }, name);
  if (visible === null) return null;
  // Only administrators change global stacks; only a new version of the product changes built-in ones.
  const isTheirs = visible.visibility === 'private' || viewer.isAdmin;
  if (visible.isBuiltin || !isTheirs) throw nameTaken(name);
  return visible;
}

async function requireRoom(tx: Transaction, { userId, isAdmin }: StackViewer): Promise<void> {
  if (isAdmin || userId === null) return;
  const [counted] = await tx
    .select({ total: count() })
    .from(stacks)
    .where(and(eq(stacks.ownerUserId, userId), isNull(stacks.deletedAt)));
  if ((counted?.total ?? 0) < stacksPerUserMax) return;
  throw new AppError('conflict', { message: `A user can have at most ${stacksPerUserMax} stacks. Delete one first.` });
}

/** @throws AppError conflict if runs pin so many versions that there is no room for another */
async function requireVersionRoom(tx: Transaction, { id, visibility, ownerUserId }: Stack): Promise<void> {
  if (visibility !== 'private' || ownerUserId === null) return;
  await dropVersions(tx, id, versionsKept);
  const isOwn = eq(stacks.id, stackVersions.stackId);
  const ofUser = and(eq(stacks.ownerUserId, ownerUserId), eq(stacks.visibility, 'private'));
  const [counted] = await tx
    .select({ total: count(), here: sum(sql`(${stacks.id} = ${id})::int`).mapWith(Number) })
    .from(stackVersions)
    .innerJoin(stacks, isOwn)
    .where(ofUser);
  const fix = 'destroy or forget runs of old versions before you upload another version.';
  if ((counted?.here ?? 0) >= versionsPerStackMax)
    throw new AppError('conflict', {
      message: `The stack has reached the limit of ${versionsPerStackMax} versions in use by runs: ${fix}`,
    });
  if ((counted?.total ?? 0) < versionsPerUserMax) return;
  throw new AppError('conflict', {
    message: `A user can have at most ${versionsPerUserMax} versions of private stacks: ${fix}`,
  });
}

type NewStack = Pick<typeof stacks.$inferInsert, 'name' | 'visibility' | 'isBuiltin' | 'ownerUserId'>;

/** Inserts a stack with its first version. */
export async function insertStack(tx: Transaction, made: NewStack, content: StackContent): Promise<Stack> {
  const { zip, found, fields } = content;
  const now = await dbNow(tx);
  const [stackId, versionId] = [uuidv7(now.getTime()), uuidv7(now.getTime())];
  await tx.insert(stacks).values({
    ...made,
    id: stackId,
    title: fields.title ?? found.derived.title ?? made.name,
    description: fields.description ?? found.derived.description,
    category: fields.category,
    icon: fields.icon,
    currentVersionId: versionId,
    createdAt: now,
    updatedAt: now,
  });
  const createdByUserId = made.ownerUserId ?? null;
  await insertVersion(tx, { id: versionId, stackId, zip, ...found, createdByUserId, now });
  return mustFind(tx, adminViewer, formatId('stack', stackId));
}

/** Updates a stack. Unchanged bytes make no new version, but given fields are applied. */
export async function addVersion(
  tx: Transaction,
  stack: Stack,
  { zip, found, fields }: StackContent,
  createdByUserId: string | null,
): Promise<Stack> {
  const now = await dbNow(tx);
  let currentVersionId = stack.version.id;
  if (stack.version.sha256 !== found.sha256) {
    await requireVersionRoom(tx, stack);
    currentVersionId = uuidv7(now.getTime());
    await insertVersion(tx, { id: currentVersionId, stackId: stack.id, zip, ...found, createdByUserId, now });
  } else {
    // A newer Headgate may read more from the same bytes.
    await tx.update(stackVersions).set({ metadata: found.metadata }).where(eq(stackVersions.id, currentVersionId));
  }
  // Fields that are not given stay unchanged.
  const { title, description, category, icon } = fields;
  const givenFields = {
    ...(title !== null && { title }),
    ...(description !== null && { description }),
    ...(category !== null && { category }),
    ...(icon !== null && { icon }),
  };
  const isNewVersion = currentVersionId !== stack.version.id;
  if (isNewVersion || !isSameStack(stack, { ...stack, ...givenFields })) {
    await tx
      .update(stacks)
      .set({ ...givenFields, currentVersionId, updatedAt: now })
      .where(eq(stacks.id, stack.id));
  }
  await dropVersions(tx, stack.id, versionsKept);
  return mustFind(tx, adminViewer, formatId('stack', stack.id));
}
