import { and, eq, inArray, lt, or, sql, type SQL } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
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

  /**
   * Takes the row for a request: there was none, one that has expired, or one of the same request that nobody runs.
   * @param mayTakeOver also one whose lease is over; without it only one of a gateway that is known to be gone
   * @returns when it expires, as the database has it; null when the row is another request's
   */
  async take(
    { keyId, idempotencyKey, requestId }: RowName & { requestId: string },
    bodyHash: Buffer,
    mayTakeOver: boolean,
  ): Promise<string | null> {
    const lease = { gatewayId: this.#gatewayId, leaseUntil: this.#leaseUntil };
    const row = { ...lease, bodyHash, requestId, state: 'running' as const, expiresAt };
    const table = idempotencyKeys;
    const until = sql`case when ${mayTakeOver}::boolean then now() else '-infinity' end`;
    const [taken] = await this.#db.orm
      .insert(table)
      .values({ keyId, idempotencyKey, ...row })
      .onConflictDoUpdate({
        target: [table.keyId, table.idempotencyKey],
        set: { ...row, answer: null },
        setWhere: sql`${table.expiresAt} <= now() or (${table.state} = 'running' and ${table.leaseUntil} <= ${until} and ${table.bodyHash} = excluded.body_hash)`,
      })
      .returning({ expiresAt: sql<string>`to_json(${table.expiresAt}) #>> '{}'` });
    return taken?.expiresAt ?? null;
  }

  async read({ keyId, idempotencyKey }: RowName): Promise<KeptRow | null> {
    const { requestId, bodyHash, state, answer } = idempotencyKeys;
    const [row] = await this.#db.orm
      .select({ requestId, bodyHash, state, answer })
      .from(idempotencyKeys)
      .where(and(eq(idempotencyKeys.keyId, keyId), eq(idempotencyKeys.idempotencyKey, idempotencyKey)));
    return row ?? null;
  }

  /** Never what is done. */
  async remove(requestIds: readonly string[]): Promise<void> {
    const { requestId, state } = idempotencyKeys;
    await this.#db.orm.delete(idempotencyKeys).where(and(inArray(requestId, [...requestIds]), eq(state, 'running')));
  }

  /** Also asked with nothing to renew: whether there is an answer. */
  async renew(requestIds: readonly string[], gatewayIds: readonly string[]): Promise<void> {
    const { requestId, gatewayId, state } = idempotencyKeys;
    if (requestIds.length === 0 && gatewayIds.length === 0) {
      await this.#db.sql`select 1`;
      return;
    }
    const own = inArray(requestId, [...requestIds]);
    const left = inArray(gatewayId, [...gatewayIds]);
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: this.#leaseUntil })
      .where(and(or(own, left), eq(state, 'running')));
  }

  /** Ends leases of gateways that are known to be gone, so that nobody waits for them. */
  async lapse(gatewayIds: readonly string[]): Promise<void> {
    const { gatewayId, state } = idempotencyKeys;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: sql`'-infinity'` })
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
