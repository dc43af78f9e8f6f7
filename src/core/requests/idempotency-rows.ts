import { and, eq, gt, inArray, isNotNull, or, sql, type SQL } from 'drizzle-orm';
import type { Db } from '#base/db.ts';
import { idempotencyKeys } from './schema.ts';
import { keptHours, nobody } from './settled-claims.ts';

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
/** All moments are the database's: gateways' clocks differ. */
const expiresAt = sql`now() + make_interval(hours => ${keptHours})`;

/** The table of idempotency keys; a row belongs to one request until it expires or its gateway is taken for dead. */
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

  /** Never what is done. */
  async remove(requestIds: readonly string[]): Promise<void> {
    const { requestId, state } = idempotencyKeys;
    await this.#db.orm.delete(idempotencyKeys).where(and(inArray(requestId, [...requestIds]), eq(state, 'running')));
  }

  /**
   * Makes those that run done, as if another request with their key had been answered: what is settled later is not
   * charged.
   * @returns those that are done, and have an answer
   */
  async conclude(keyId: string, names: readonly string[]): Promise<readonly string[]> {
    if (names.length === 0) return [];
    const { idempotencyKey, state, answer } = idempotencyKeys;
    const those = and(eq(idempotencyKeys.keyId, keyId), inArray(idempotencyKey, [...names]));
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
      .where(and(those, eq(state, 'done'), isNotNull(answer), gt(idempotencyKeys.expiresAt, sql`now()`)));
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
