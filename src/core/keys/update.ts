import type { Author } from '#core/audit/audit.ts';
import type { KeyLimits, KeyRow, KeyToggles } from './api-key.ts';
import { type ChangeContext, keyOf, type KeyRef, recordKeyChange } from './key-rows.ts';
import { apiKeys } from './schema.ts';

/** Fields of a key that can be changed; scope and expiry cannot. Absent and undefined fields stay unchanged. */
export type KeyPatch = {
  readonly [Field in keyof Changeable]?: Changeable[Field] | undefined;
};

type Changeable = KeyLimits & KeyToggles & { name: string; models: readonly string[] | null };

/** Returns null if there is no such key. A revoked or expired key can still be changed. */
export async function updateKey(
  context: ChangeContext,
  ref: KeyRef,
  patch: KeyPatch,
  author: Author,
): Promise<KeyRow | null> {
  const { tx } = context;
  const [before] = await tx.select().from(apiKeys).where(keyOf(ref)).for('update');
  if (before === undefined) return null;
  if (Object.values(patch).every((value) => value === undefined)) return before;
  const [after] = await tx.update(apiKeys).set(patch).where(keyOf(ref)).returning();
  if (after === undefined) throw new Error('a locked row was not updated');
  await recordKeyChange(context, 'api_key.changed', { before, after }, author);
  return after;
}
