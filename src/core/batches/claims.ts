import { and, eq, type SQL, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Batch, BatchStatus } from './batch.ts';
import { type BatchRow, toBatch } from './batch-row.ts';
import { batches } from './schema.ts';

/** The right to work on a batch, until another gateway takes it. */
export interface Claim {
  readonly batch: Batch;
  /** Grows each time a gateway takes the batch. */
  readonly fence: number;
}

/** Another gateway has the batch, or the batch was deleted: this gateway writes nothing more about it. */
export class LostClaimError extends Error {
  constructor(batchId: string) {
    super(`the batch ${batchId} is another gateway's`);
    this.name = 'LostClaimError';
  }
}

/** Gives each open batch to one gateway at a time, in turns. */
export interface Claims {
  /** Takes the next due batch; null if none is due. */
  take(): Promise<Claim | null>;
  /**
   * Renews this gateway's claims.
   * @returns the statuses of the batches by id; lost batches are absent
   */
  renew(claims: readonly Claim[]): Promise<ReadonlyMap<string, BatchStatus>>;
  /** Runs `work` in a transaction in which no other gateway can take the batch. @throws LostClaimError */
  during<T>(claim: Claim, work: (tx: Transaction, now: BatchRow) => Promise<T>): Promise<T>;
  /** Selects the id of the batch's row and locks it, or no row if the batch is lost; for use in a single statement. */
  held(claim: Claim): SQL;
  /** Releases a batch until its next turn; does nothing if the batch is lost. */
  release(claim: Claim, next: NextAttempt): Promise<void>;
}

export interface NextAttempt {
  /** Time of the turn, in milliseconds since the Unix epoch. */
  readonly atMs: number;
  /** Code of what the batch waits for; null if it can continue. */
  readonly waitingFor: string | null;
}

export interface ClaimsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly gatewayId: string;
  readonly leaseMs: number;
}

export function createClaims({ db, clock, gatewayId, leaseMs }: ClaimsOptions): Claims {
  const leaseUntil = (): string => new Date(clock.now() + leaseMs).toISOString();
  return {
    async take() {
      const now = new Date(clock.now()).toISOString();
      // Canceled batches first: they hold a file and only need an end. Then the organization with the fewest running.
      const rows = await db.sql<{ id: string }[]>`
        update batches set gateway_id = ${gatewayId}, lease_until = ${leaseUntil()}::timestamptz, fence = fence + 1
        where id = (
          select b.id from batches b
          where b.status in ('validating', 'in_progress', 'finalizing', 'cancelling')
            and b.lease_until <= ${now}::timestamptz and (b.turn_at <= ${now}::timestamptz or b.status = 'cancelling')
          order by (b.status = 'cancelling') desc, (
            select count(*) from batches o
            where o.organization_id = b.organization_id and o.lease_until > ${now}::timestamptz
              and o.status in ('validating', 'in_progress', 'finalizing', 'cancelling')
          ), b.turn_at, b.id
          limit 1 for update skip locked
        )
        returning id`;
      const id = rows[0]?.id;
      if (id === undefined) return null;
      const [row] = await db.orm.select().from(batches).where(eq(batches.id, id));
      return row === undefined ? null : { batch: toBatch(row), fence: row.fence };
    },
    async renew(claims) {
      if (claims.length === 0) return new Map();
      const held = JSON.stringify(claims.map(({ batch, fence }) => ({ id: batch.id, fence })));
      const rows = await db.sql<{ id: string; status: BatchStatus }[]>`
        update batches b set lease_until = ${leaseUntil()}::timestamptz
        from json_to_recordset(${held}::text::json) as t(id uuid, fence bigint)
        where b.id = t.id and b.fence = t.fence and b.gateway_id = ${gatewayId}
        returning b.id::text as id, b.status`;
      return new Map(rows.map(({ id, status }) => [id, status]));
    },
    during: ({ batch, fence }, work) =>
      db.orm.transaction(async (tx) => {
        const [row] = await tx
          .select()
          .from(batches)
          .where(and(eq(batches.id, batch.id), eq(batches.fence, fence)))
          .for('update');
        if (row === undefined || row.gatewayId !== gatewayId) throw new LostClaimError(batch.id);
        return work(tx, row);
      }),
    held: ({ batch, fence }) => sql`
      select id from batches where id = ${batch.id}::uuid and fence = ${fence}::bigint and gateway_id = ${gatewayId}::uuid
      for update`,
    async release({ batch, fence }, { atMs, waitingFor }) {
      const now = new Date(clock.now());
      const waits = and(eq(batches.status, 'in_progress'), sql`${waitingFor}::text is not null`);
      const since = sql`case when ${batches.waitingFor} = ${waitingFor}::text
        then coalesce(${batches.waitingSince}, ${now.toISOString()}::timestamptz)
        else ${now.toISOString()}::timestamptz end`;
      await db.orm
        .update(batches)
        .set({
          gatewayId: null,
          leaseUntil: now,
          turnAt: new Date(atMs),
          // A batch that was canceled in the meantime does not wait.
          waitingFor: sql`case when ${waits} then ${waitingFor}::text end`,
          waitingSince: sql`case when ${waits} then ${since} end`,
        })
        .where(and(eq(batches.id, batch.id), eq(batches.fence, fence), eq(batches.gatewayId, gatewayId)));
    },
  };
}
