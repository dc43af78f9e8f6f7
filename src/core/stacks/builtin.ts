import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { and, eq, isNull } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { packZip } from '#base/zip.ts';
import { type ReadPackage, readPackage } from '#core/stacks/package/package.ts';
import { mustFind } from './change.ts';
import { addVersion, insertStack } from './push.ts';
import { stacks, stackVersions } from './schema.ts';
import { lockStacks } from './versions.ts';

/** Built-in stacks: the folders in `builtin/`. */

const folder = fileURLToPath(new URL('./builtin', import.meta.url));

/** Returns the names of the built-in stacks. */
const builtinNames = (): readonly string[] => readdirSync(folder).toSorted();

/** Packs a built-in stack; one folder gives the same bytes on every machine. */
function packBuiltin(name: string): Promise<Buffer> {
  const root = join(folder, name);
  const paths = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((path) =>
    statSync(join(root, path)).isFile(),
  );
  const files = paths.map((path) => ({ path, bytes: readFileSync(join(root, path)), isExecutable: false }));
  return packZip(files, { compress: false });
}

/** Adds new and changed built-in stacks to the catalog. Several gateways may do so at once. */
export async function syncBuiltins(db: Db, log: Log): Promise<void> {
  for (const name of builtinNames()) {
    const zip = await packBuiltin(name);
    if (await hasVersion(db, name, createHash('sha256').update(zip).digest('hex'))) continue;
    const found = await readPackage(zip, null, null);
    const isTaken = await db.orm.transaction((tx) => syncIn(tx, name, zip, found));
    if (isTaken) log.warn({ stack: name }, 'skipped a built-in stack, because another stack has its name');
  }
}

async function hasVersion(db: Db, name: string, sha256: string): Promise<boolean> {
  const [row] = await db.orm
    .select({ sha256: stackVersions.sha256 })
    .from(stacks)
    .innerJoin(stackVersions, eq(stackVersions.id, stacks.currentVersionId))
    .where(and(eq(stacks.name, name), stacks.isBuiltin, isNull(stacks.deletedAt)));
  return row?.sha256 === sha256;
}

/** @returns true if another stack has the name; that stack is left unchanged */
async function syncIn(tx: Transaction, name: string, zip: Buffer, found: ReadPackage): Promise<boolean> {
  await lockStacks(tx);
  const viewer = { userId: null, isAdmin: true };
  const [row] = await tx
    .select({ id: stacks.id })
    .from(stacks)
    .where(and(eq(stacks.name, name), stacks.isBuiltin, isNull(stacks.deletedAt)));
  const content = { zip, found, fields: found.stated };
  if (row !== undefined) {
    const stack = await mustFind(tx, viewer, formatId('stack', row.id));
    if (stack.version.sha256 !== found.sha256) await addVersion(tx, stack, content, null);
    return false;
  }
  const global = and(eq(stacks.name, name), eq(stacks.visibility, 'global'), isNull(stacks.deletedAt));
  if ((await tx.select({ id: stacks.id }).from(stacks).where(global)).length > 0) return true;
  await insertStack(tx, { name, visibility: 'global', isBuiltin: true, ownerUserId: null }, content);
  return false;
}
