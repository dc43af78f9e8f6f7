import { and, asc, eq, gt, ne, sql } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { type Asking, lineKey } from './dependencies.ts';
import type { Batch } from './batch.ts';
import type { Claim, Claims } from './claims.ts';
import { batches, batchLines } from './schema.ts';

export interface ConcludeParts {
  readonly db: Db;
  readonly claims: Claims;
  readonly asking: Asking;
}

const readAtOnce = 500;
const forgottenAtOnce = 500;

/**
 * Makes charges final: a charged answer is in the output, even if a gateway was killed before recording it, and nothing
 * else is charged afterwards, even if a gateway presumed dead still sends requests. Call this when the batch is about
 * to end, before its files are written; it can be repeated.
 * @throws LostClaimError
 */
export async function concludeLines({ db, claims, asking }: ConcludeParts, claim: Claim): Promise<void> {
  const { batch } = claim;
  for (let after = -1, more = true; more;) {
    const rows = await db.orm
      .select({ number: batchLines.number })
      .from(batchLines)
      .where(and(eq(batchLines.batchId, batch.id), ne(batchLines.state, 'completed'), gt(batchLines.number, after)))
      .orderBy(asc(batchLines.number))
      .limit(readAtOnce);
    const numbers = new Map(rows.map(({ number }) => [lineKey(batch, number), number]));
    for (const key of await asking.conclude(batch.keyId, [...numbers.keys()])) {
      await noteKept({ claims, asking }, claim, { key, number: numbers.get(key) ?? -1 });
    }
    more = rows.length === readAtOnce;
    after = rows.at(-1)?.number ?? after;
  }
}

/** Stores one answer at a time: answers can have megabytes, and few were under way when a gateway was killed. */
async function noteKept(
  { claims, asking }: Pick<ConcludeParts, 'claims' | 'asking'>,
  claim: Claim,
  { key, number }: { readonly key: string; readonly number: number },
): Promise<void> {
  const { id, keyId } = claim.batch;
  const kept = await asking.kept(keyId, key);
  if (kept === null) return;
  const { requestId, answer } = kept;
  await claims.during(claim, async (tx) => {
    const isOpen = and(eq(batchLines.batchId, id), eq(batchLines.number, number), ne(batchLines.state, 'completed'));
    const [before] = await tx.select({ state: batchLines.state }).from(batchLines).where(isOpen);
    if (before === undefined) return;
    const failed = before.state === 'failed' ? 1 : 0;
    await tx.update(batchLines).set({ state: 'completed', requestId, statusCode: 200, answer }).where(isOpen);
    await tx
      .update(batches)
      .set({ completed: sql`${batches.completed} + 1`, failed: sql`${batches.failed} - ${failed}` })
      .where(eq(batches.id, id));
  });
}

/**
 * Deletes the stored answers of a batch's lines once its files, which contain all of them, exist. Answers that are not
 * deleted here, for example because the gateway is killed, expire some days later.
 */
export async function forgetAnswers({ asking }: Pick<ConcludeParts, 'asking'>, batch: Batch): Promise<void> {
  const { total } = batch.counts;
  for (let from = 0; from < total; from += forgottenAtOnce) {
    const numbers = Array.from({ length: Math.min(forgottenAtOnce, total - from) }, (_, n) => from + n);
    await asking.forget(
      batch.keyId,
      numbers.map((number) => lineKey(batch, number)),
    );
  }
}
