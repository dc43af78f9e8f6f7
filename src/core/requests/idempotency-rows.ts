import { and, eq, gt, inArray, isNotNull, isNull, or, sql, type SQL } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
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
  /** Compressed. */
  readonly answer: Buffer | null;
}

/** For requests that are booked late, as from a spool: they are not charged where another one of their time was. */
const doneDays = 7;
const batch = 500;

/**
 * The table of idempotency keys; a row belongs to one request until it expires or its gateway is taken for dead. All
 * moments are the database's: gateways' clocks differ.
 */
export class IdempotencyRows {
  readonly #db: Db;
  readonly #gatewayId: string;
  readonly #leaseUntil: SQL;
  /** Rows that expired before this moment neither run nor have an answer. */
  #sweptUntil = '-infinity';

  constructor(db: Db, gatewayId: string, leaseMs: number) {
    this.#db = db;
    this.#gatewayId = gatewayId;
    this.#leaseUntil = sql`now() + make_interval(secs => ${leaseMs / 1000})`;
  }

  /**
   * Takes the row for a request: there was none, one that has expired, or one of the same request that nobody runs, with
   * the answer that it has: whoever ran it may have been charged for that.
   * @param mayTakeOver also one whose lease is over; without it only one of a gateway that is known to be gone
   * @returns when it expires, as the database has it; null when the row is another request's
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

  /** Null where there is none, or one that has expired. */
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

  /** The request that was answered, and its answer, for as long as that is there: also of what has expired. */
  async answer({ keyId, idempotencyKey }: RowName): Promise<Pick<KeptRow, 'requestId' | 'answer'> | null> {
    const { requestId, state, answer } = idempotencyKeys;
    const [row] = await this.#db.orm
      .select({ requestId, answer })
      .from(idempotencyKeys)
      .where(and(isOf(keyId, [idempotencyKey]), eq(state, 'done'), isNotNull(answer)));
    return row ?? null;
  }

  /** Drops answers; what was answered stays done. */
  async forget(keyId: string, names: readonly string[]): Promise<void> {
    if (names.length === 0) return;
    const { state, answer } = idempotencyKeys;
    await this.#db.orm
      .update(idempotencyKeys)
      .set({ answer: null })
      .where(and(isOf(keyId, names), eq(state, 'done'), isNotNull(answer)));
  }

  /**
   * Keeps the answer of a request that runs, ahead of its settlement, which then needs not carry it.
   * @returns false where the row is not the request's any more
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

  /** Never what is done; what has an answer is free for the next one. */
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
   * Makes those that run done, as if another request with their key had been answered: what is settled later is not
   * charged.
   * @returns those that are done, and have an answer, which may have expired
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

  /** Of what has expired, requests that run and answers; the rest of it a week later. */
  async deleteOld(): Promise<void> {
    for (let rows = batch; rows === batch;) rows = await this.#sweep();
    for (let rows = batch; rows === batch;) rows = await this.#deleteDone();
  }

  /**
   * The next rows in the order of their expiry. A row may have been taken by a new request since it was found, whence
   * the condition on the row itself; what was about to be written is found by the next call.
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
