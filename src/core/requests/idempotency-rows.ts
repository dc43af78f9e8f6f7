import { and, eq, inArray, lt, sql, type SQL } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { compress } from './compress.ts';
import { idempotencyKeys } from './schema.ts';

export interface RowName {
  readonly keyId: string;
  readonly idempotencyKey: string;
}

export interface KeptRow {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly state: 'running' | 'done';
  /** Compressed. */
  readonly answer: Buffer | null;
  /** The gateway that runs it has not renewed its lease in time. */
  readonly lapsed: boolean;
}

const keptHours = 24;
const deleteBatch = 500;
/** All moments are the database's: gateways' clocks differ. */
const expiresAt = sql`now() + make_interval(hours => ${keptHours})`;

/** The table of idempotency keys; a row belongs to one request until it expires or its gateway is taken for dead. */
export class IdempotencyRows {
  readonly #db: Db;
  readonly #gatewayId: string;
  readonly #leaseUntil: SQL;

  constructor(db: Db, gatewayId: string, leaseMs: number) {
    this.#db = db;
    this.#gatewayId = gatewayId;
    this.#leaseUntil = sql`now() + make_interval(secs => ${leaseMs / 1000})`;
  }

  /** Whether the row is this request's now: there was none, or one that is over. */
  async take(
    { keyId, idempotencyKey, requestId }: RowName & { requestId: string },
    bodyHash: Buffer,
  ): Promise<boolean> {
    const lease = { gatewayId: this.#gatewayId, leaseUntil: this.#leaseUntil };
    const row = { ...lease, bodyHash, requestId, state: 'running' as const, expiresAt };
    const table = idempotencyKeys;
    const taken = await this.#db.orm
      .insert(table)
      .values({ keyId, idempotencyKey, ...row })
      .onConflictDoUpdate({
        target: [table.keyId, table.idempotencyKey],
        set: { ...row, answer: null },
        setWhere: sql`${table.expiresAt} <= now() or (${table.state} = 'running' and ${table.leaseUntil} <= now() and ${table.answer} is null)`,
      })
      .returning({ requestId: table.requestId });
    return taken.length === 1;
  }

  async read({ keyId, idempotencyKey }: RowName): Promise<KeptRow | null> {
    const { requestId, bodyHash, state, answer } = idempotencyKeys;
    const lapsed = sql<boolean>`${idempotencyKeys.state} = 'running' and ${idempotencyKeys.leaseUntil} <= now()`;
    const [row] = await this.#db.orm
      .select({ requestId, bodyHash, state, answer, lapsed })
      .from(idempotencyKeys)
      .where(and(eq(idempotencyKeys.keyId, keyId), eq(idempotencyKeys.idempotencyKey, idempotencyKey)));
    return row ?? null;
  }

  /** @returns false when the row is no longer this request's */
  async keep(requestId: string, answer: Buffer): Promise<boolean> {
    const kept = await this.#db.orm
      .update(idempotencyKeys)
      .set({ answer: await compress(answer), leaseUntil: this.#leaseUntil })
      .where(eq(idempotencyKeys.requestId, requestId))
      .returning({ requestId: idempotencyKeys.requestId });
    return kept.length === 1;
  }

  async finish(requestId: string): Promise<void> {
    await this.#db.orm.update(idempotencyKeys).set({ state: 'done' }).where(eq(idempotencyKeys.requestId, requestId));
  }

  async remove(requestId: string): Promise<void> {
    await this.#db.orm.delete(idempotencyKeys).where(eq(idempotencyKeys.requestId, requestId));
  }

  async renew(requestIds: readonly string[]): Promise<void> {
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: this.#leaseUntil })
      .where(inArray(idempotencyKeys.requestId, [...requestIds]));
  }

  async lapse(gatewayIds: readonly string[]): Promise<void> {
    const { gatewayId, state } = idempotencyKeys;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: sql`now()` })
      .where(and(inArray(gatewayId, [...gatewayIds]), eq(state, 'running')));
  }

  async deleteOld(): Promise<void> {
    const { keyId, idempotencyKey } = idempotencyKeys;
    for (let deleted = deleteBatch; deleted === deleteBatch;) {
      const old = this.#db.orm
        .select({ keyId, idempotencyKey })
        .from(idempotencyKeys)
        .where(lt(idempotencyKeys.expiresAt, sql`now()`))
        .limit(deleteBatch);
      const rows = await this.#db.orm
        .delete(idempotencyKeys)
        .where(sql`(${keyId}, ${idempotencyKey}) in ${old}`)
        .returning({ keyId });
      deleted = rows.length;
    }
  }
}
