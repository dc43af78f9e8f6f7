import { and, eq, gt, inArray, isNotNull, isNull, or, sql, type SQL } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { idempotencyKeys } from './schema.ts';
import { keptHoursOf, nobody } from './settled-claims.ts';

export interface RowName {
  readonly keyId: string;
  readonly idempotencyKey: string;
}

export interface KeptRow {
  readonly requestId: string;
  readonly bodyHash: Buffer;
  readonly state: 'running' | 'done';
  /** Compressed with Zstandard. */
  readonly answer: Buffer | null;
}

/**
 * Days that done rows are kept after they expire. A request recorded late, as from a spool, is not charged if another
 * request was charged for its key in the same period.
 */
const doneDays = 7;
const batch = 500;

/**
 * The table of idempotency keys. A row belongs to one request until the row expires or its gateway counts as dead. All
 * times are the database's, because gateways' clocks differ.
 */
export class IdempotencyRows {
  readonly #db: Db;
  readonly #gatewayId: string;
  readonly #leaseUntil: SQL;
  /** No row that expired before this time is running or has an answer. */
  #sweptUntil = '-infinity';

  constructor(db: Db, gatewayId: string, leaseMs: number) {
    this.#db = db;
    this.#gatewayId = gatewayId;
    this.#leaseUntil = sql`now() + make_interval(secs => ${leaseMs / 1000})`;
  }

  /**
   * Takes the row for a request if there is no row, the row has expired, or it has the same body and no gateway runs
   * it. In the last case its answer stays: the earlier request may have been charged for this answer.
   * @param mayTakeOver true also takes a row whose lease has expired; false only one whose gateway is known to be dead
   * @returns when the row expires, as formatted by the database; null if the row belongs to another request
   */
  async take(
    { keyId, idempotencyKey, requestId }: RowName & { requestId: string },
    bodyHash: Buffer,
    mayTakeOver: boolean,
  ): Promise<string | null> {
    const lease = { gatewayId: this.#gatewayId, leaseUntil: this.#leaseUntil };
    const expiresAt = sql`now() + make_interval(hours => ${keptHoursOf(idempotencyKey)})`;
    const row = { ...lease, bodyHash, requestId, state: 'running' as const, expiresAt };
    const table = idempotencyKeys;
    const until = sql`case when ${mayTakeOver}::boolean then now() else '-infinity' end`;
    const [taken] = await this.#db.orm
      .insert(table)
      .values({ keyId, idempotencyKey, ...row })
      .onConflictDoUpdate({
        target: [table.keyId, table.idempotencyKey],
        set: { ...row, answer: sql`case when ${table.expiresAt} > now() then ${table.answer} end` },
        setWhere: sql`${table.expiresAt} <= now() or (${table.state} = 'running' and ${table.leaseUntil} <= ${until} and ${table.bodyHash} = excluded.body_hash)`,
      })
      .returning({ expiresAt: sql<string>`to_json(${table.expiresAt}) #>> '{}'` });
    return taken?.expiresAt ?? null;
  }

  /** Returns null if there is no row, or it has expired. */
  async read({ keyId, idempotencyKey }: RowName): Promise<KeptRow | null> {
    const { requestId, bodyHash, state, answer } = idempotencyKeys;
    const [row] = await this.#db.orm
      .select({ requestId, bodyHash, state, answer })
      .from(idempotencyKeys)
      .where(
        and(
          eq(idempotencyKeys.keyId, keyId),
          eq(idempotencyKeys.idempotencyKey, idempotencyKey),
          gt(idempotencyKeys.expiresAt, sql`now()`),
        ),
      );
    return row ?? null;
  }

  /** Returns the request that was answered and its answer, even if expired, until the answer is deleted. */
  async answer({ keyId, idempotencyKey }: RowName): Promise<Pick<KeptRow, 'requestId' | 'answer'> | null> {
    const { requestId, state, answer } = idempotencyKeys;
    const [row] = await this.#db.orm
      .select({ requestId, answer })
      .from(idempotencyKeys)
      .where(and(isOf(keyId, [idempotencyKey]), eq(state, 'done'), isNotNull(answer)));
    return row ?? null;
  }

  /** Deletes answers; the rows stay done. */
  async forget(keyId: string, names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    const { state, answer } = idempotencyKeys;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ answer: null })
      .where(and(isOf(keyId, names), eq(state, 'done'), isNotNull(answer)));
  }

  /**
   * Stores the answer of a running request before its settlement, which then need not carry the answer.
   * @returns false if the row no longer belongs to the request
   */
  async keep(request: string, bytes: Buffer): Promise<boolean> {
    const { requestId, state } = idempotencyKeys;
    const kept = await this.#db.orm
      .update(idempotencyKeys)
      .set({ answer: bytes })
      .where(and(eq(requestId, request), eq(state, 'running')))
      .returning({ requestId });
    return kept.length > 0;
  }

  /** Removes rows of running requests, never done rows. A row with an answer stays, and its lease ends. */
  async remove(requestIds: readonly string[]): Promise<void> {
    const { requestId, state, answer } = idempotencyKeys;
    const those = and(inArray(requestId, [...requestIds]), eq(state, 'running'));
    const removed = await this.#db.orm
      .delete(idempotencyKeys)
      .where(and(those, isNull(answer)))
      .returning({ requestId });
    if (removed.length === requestIds.length) return;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: sql`'-infinity'` })
      .where(and(those, isNotNull(answer)));
  }

  /**
   * Marks running rows as done, as if another request with their key had been answered: requests that settle later are
   * not charged.
   * @returns Idempotency-Keys whose row is done and has an answer, even if expired
   */
  async conclude(keyId: string, names: readonly string[]): Promise<readonly string[]> {
    if (names.length === 0) return [];
    const { idempotencyKey, state, answer } = idempotencyKeys;
    const those = isOf(keyId, names);
    await this.#db.orm
      .update(idempotencyKeys)
      .set({
        state: 'done',
        requestId: sql`gen_random_uuid()`,
        gatewayId: nobody,
        leaseUntil: sql`now()`,
        answer: null,
      })
      .where(and(those, eq(state, 'running')));
    const done = await this.#db.orm
      .select({ idempotencyKey })
      .from(idempotencyKeys)
      .where(and(those, eq(state, 'done'), isNotNull(answer)));
    return done.map((row) => row.idempotencyKey);
  }

  /** Renews leases. With nothing to renew, only checks that the database answers. */
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

  /** Ends the leases of gateways that are known to be dead, so that nobody waits for them. */
  async lapse(gatewayIds: readonly string[]): Promise<void> {
    const { gatewayId, state } = idempotencyKeys;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ leaseUntil: sql`'-infinity'` })
      .where(and(inArray(gatewayId, [...gatewayIds]), eq(state, 'running')));
  }

  /** Deletes expired rows of running requests, and expired answers; deletes done rows a week later. */
  async deleteOld(): Promise<void> {
    for (let rows = batch; rows === batch;) rows = await this.#sweep();
    for (let rows = batch; rows === batch;) rows = await this.#deleteDone();
  }

  /**
   * Deletes the next rows in the order of their expiry. A new request may take a row after it was found, so the
   * condition is checked on the row again. Rows that are being written are found by the next call.
   */
  async #sweep(): Promise<number> {
    const [found] = await this.#db.sql<{ rows: number; until: string }[]>`
      with old as (
        select key_id, idempotency_key, expires_at from idempotency_keys
        where expires_at >= ${this.#sweptUntil}::timestamptz and expires_at < now()
          and (state = 'running' or answer is not null)
        order by expires_at limit ${batch}
      ), deleted as (
        delete from idempotency_keys k using old o where k.key_id = o.key_id and k.idempotency_key = o.idempotency_key
          and k.state = 'running' and k.expires_at < now()
      ), emptied as (
        update idempotency_keys k set answer = null from old o where k.key_id = o.key_id
          and k.idempotency_key = o.idempotency_key and k.state = 'done' and k.expires_at < now()
      )
      select count(*)::integer as rows, to_json(case when count(*) = ${batch} then max(expires_at)
        else now() - interval '5 minutes' end) #>> '{}' as until from old`;
    this.#sweptUntil = found?.until ?? this.#sweptUntil;
    return found?.rows ?? 0;
  }

  async #deleteDone(): Promise<number> {
    const rows = await this.#db.sql`
      with old as (
        select key_id, idempotency_key from idempotency_keys
        where expires_at < now() - make_interval(days => ${doneDays}) limit ${batch}
      )
      delete from idempotency_keys k using old o where k.key_id = o.key_id and k.idempotency_key = o.idempotency_key
        and k.expires_at < now() - make_interval(days => ${doneDays})`;
    return rows.count;
  }
}

function isOf(keyId: string, names: readonly string[]): SQL | undefined {
  return and(eq(idempotencyKeys.keyId, keyId), inArray(idempotencyKeys.idempotencyKey, [...names]));
}
