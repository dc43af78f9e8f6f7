import { and, desc, eq, inArray, isNotNull, isNull, notExists, notInArray, sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import type { VersionMetadata } from '#core/stacks/package/package.ts';
import { stackPackages, stacks, stackVersions } from './schema.ts';
import type { VersionRow } from './stack.ts';

/** Versions of stacks; a pinned version outlives its stack. */

/** Latest versions of a stack that stay without a pin. */
export const versionsKept = 5;

/**
 * Allows one change of the catalog at a time, until the transaction ends: names, versions and packages depend on each
 * other.
 */
export async function lockStacks(tx: Transaction): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate stacks'))`);
}

export interface NewVersion {
  readonly id: string;
  readonly stackId: string;
  readonly zip: Buffer;
  readonly sha256: string;
  readonly metadata: VersionMetadata;
  readonly createdByUserId: string | null;
  readonly now: Date;
}

export async function insertVersion(tx: Transaction, input: NewVersion): Promise<VersionRow> {
  const { id, stackId, zip, sha256, metadata, createdByUserId, now } = input;
  const [last] = await tx
    .select({ number: stackVersions.number })
    .from(stackVersions)
    .where(eq(stackVersions.stackId, stackId))
    .orderBy(desc(stackVersions.number))
    .limit(1);
  await tx.insert(stackPackages).values({ sha256, bytes: zip, createdAt: now }).onConflictDoNothing();
  const row = {
    id,
    stackId,
    number: (last?.number ?? 0) + 1,
    sha256,
    sizeBytes: zip.length,
    metadata,
    createdByUserId,
    createdAt: now,
  };
  await tx.insert(stackVersions).values(row);
  return row;
}

/** Deletes unpinned versions of a stack except its latest `keep`, and packages that no version uses any more. */
export async function dropVersions(tx: Transaction, stackId: string, keep: number): Promise<void> {
  const latest = tx
    .select({ id: stackVersions.id })
    .from(stackVersions)
    .where(eq(stackVersions.stackId, stackId))
    .orderBy(desc(stackVersions.number))
    .limit(keep);
  const kept = keep === 0 ? [] : (await latest).map(({ id }) => id);
  const dropped = await tx
    .delete(stackVersions)
    .where(
      and(
        eq(stackVersions.stackId, stackId),
        eq(stackVersions.pins, 0),
        kept.length === 0 ? undefined : notInArray(stackVersions.id, kept),
      ),
    )
    .returning({ sha256: stackVersions.sha256 });
  const freed = dropped.map(({ sha256 }) => sha256);
  if (freed.length === 0) return;
  const inUse = tx
    .select({ one: sql`1` })
    .from(stackVersions)
    .where(eq(stackVersions.sha256, stackPackages.sha256));
  await tx.delete(stackPackages).where(and(inArray(stackPackages.sha256, freed), notExists(inUse)));
}

/** Deletes unpinned versions of a deleted stack, and its row once no version is left. */
export async function dropDeleted(tx: Transaction, stackId: string): Promise<void> {
  await dropVersions(tx, stackId, 0);
  const left = tx
    .select({ one: sql`1` })
    .from(stackVersions)
    .where(eq(stackVersions.stackId, stacks.id));
  await tx.delete(stacks).where(and(eq(stacks.id, stackId), isNotNull(stacks.deletedAt), notExists(left)));
}

/** Pins a version. @returns false if it does not exist */
export async function pinVersion(tx: Transaction, versionId: string): Promise<boolean> {
  await lockStacks(tx);
  const held = await tx
    .update(stackVersions)
    .set({ pins: sql`${stackVersions.pins} + 1` })
    .where(eq(stackVersions.id, versionId))
    .returning({ id: stackVersions.id });
  return held.length > 0;
}

/**
 * Removes one pin of a version, and deletes the version if nothing else keeps it, and with its last version a deleted
 * stack.
 */
export async function unpinVersion(tx: Transaction, versionId: string): Promise<void> {
  await lockStacks(tx);
  const [held] = await tx
    .update(stackVersions)
    .set({ pins: sql`${stackVersions.pins} - 1` })
    .where(eq(stackVersions.id, versionId))
    .returning({ stackId: stackVersions.stackId });
  if (held === undefined) return;
  const [living] = await tx
    .select({ id: stacks.id })
    .from(stacks)
    .where(and(eq(stacks.id, held.stackId), isNull(stacks.deletedAt)));
  if (living === undefined) await dropDeleted(tx, held.stackId);
  else await dropVersions(tx, held.stackId, versionsKept);
}
