import { and, eq, isNull, sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import { dbNow, forbidden, mustFind, nameTaken, note, type StackChange } from './change.ts';
import { stacks } from './schema.ts';
import { isSameStack, type Stack, type StackViewer, type StackVisibility } from './stack.ts';
import { dropDeleted, lockStacks } from './versions.ts';

/** Changes the fields of a stack, and deletes stacks. */

/** Fields to change; absent fields stay unchanged. */
export interface StackPatch {
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  readonly category?: string | null | undefined;
  readonly icon?: string | null | undefined;
  readonly visibility?: StackVisibility | undefined;
}

export async function patchStack(change: StackChange, nameOrId: string, patch: StackPatch): Promise<Stack> {
  const { tx, by } = change;
  await lockStacks(tx);
  const before = await mustFind(tx, by.viewer, nameOrId);
  requireMayChange(before, by.viewer);
  const { visibility = before.visibility } = patch;
  if (visibility !== before.visibility) {
    if (!by.viewer.isAdmin) throw forbidden('Only platform administrators can change the visibility of a stack.');
    if (await isTaken(tx, before, visibility)) throw nameTaken(before.name);
  }
  const given = Object.fromEntries(Object.entries(patch).filter(([, value]) => value !== undefined));
  if (isSameStack(before, { ...before, ...given })) return before;
  // Drizzle skips undefined fields.
  await tx
    .update(stacks)
    .set({ ...patch, updatedAt: await dbNow(tx) })
    .where(eq(stacks.id, before.id));
  const after = await mustFind(tx, by.viewer, formatId('stack', before.id));
  await note(change, { action: 'changed', stackId: before.id, before, after });
  return after;
}

/** Deletes a stack; its pinned versions stay until they are unpinned. */
export async function removeStack(change: StackChange, nameOrId: string): Promise<void> {
  const { tx, by } = change;
  await lockStacks(tx);
  const before = await mustFind(tx, by.viewer, nameOrId);
  if (before.isBuiltin) throw forbidden('Built-in stacks cannot be deleted.');
  requireMayChange(before, by.viewer);
  await tx
    .update(stacks)
    .set({ deletedAt: await dbNow(tx) })
    .where(eq(stacks.id, before.id));
  await dropDeleted(tx, before.id);
  await note(change, { action: 'deleted', stackId: before.id, before, after: null });
}

function requireMayChange(stack: Stack, viewer: StackViewer): void {
  const isOwn = stack.visibility === 'private' && stack.ownerUserId === viewer.userId;
  if (viewer.isAdmin || isOwn) return;
  throw forbidden('Only platform administrators can change a global stack.');
}

async function isTaken(tx: Transaction, { name, ownerUserId }: Stack, visibility: StackVisibility): Promise<boolean> {
  const isOwners = ownerUserId === null ? sql`false` : eq(stacks.ownerUserId, ownerUserId);
  const [other] = await tx
    .select({ id: stacks.id })
    .from(stacks)
    .where(
      and(
        eq(stacks.name, name),
        eq(stacks.visibility, visibility),
        isNull(stacks.deletedAt),
        visibility === 'global' ? undefined : isOwners,
      ),
    );
  return other !== undefined;
}
