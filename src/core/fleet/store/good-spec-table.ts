import type { Db } from '#base/database/database.ts';
import { BoundedStore } from '#base/queues/queues.ts';
import type { GoodSpec } from './coordination-store.ts';

/** The row of fleet_leases that allows a write. */
export interface LeaseKey {
  readonly gatewayId: string;
  readonly epoch: bigint;
}

/**
 * The good specs of one scope in Postgres. A write names the revision that it follows, so that a write that timed out
 * and arrives late undoes nothing. Rejects if Postgres does not answer in time.
 */
export interface GoodSpecTable {
  read(): Promise<readonly GoodSpec[]>;
  /** @param lease allows the write; null if no other gateway can lead. @returns as the store does */
  keep(spec: GoodSpec, lease: LeaseKey | null): Promise<bigint | null>;
  drop(spec: Pick<GoodSpec, 'engineId' | 'revision'>, lease: LeaseKey | null): Promise<boolean>;
}

export interface GoodSpecTableOptions {
  readonly db: Db;
  readonly scope: string;
  /** Limit for an answer of Postgres, milliseconds. */
  readonly answerMs?: number;
}

export function createGoodSpecTable({ db, scope, answerMs = 3000 }: GoodSpecTableOptions): GoodSpecTable {
  const store = new BoundedStore();
  const { sql } = db;
  /** Selects one row while the lease is held, or if no other gateway can take it. */
  const heldBy = (lease: LeaseKey | null) =>
    lease === null
      ? sql`select 1`
      : sql`select 1 from fleet_leases where scope = ${scope} and gateway_id = ${lease.gatewayId}
          and epoch = ${String(lease.epoch)}::bigint and expires_at > now() for share`;
  return {
    async read() {
      const rows = await store.ask('reading the last good definitions', answerMs, () => {
        return sql<{ engineId: string; specHash: string; definition: string; revision: string }[]>`
          select engine_id as "engineId", spec_hash as "specHash", definition::text, revision::text
          from fleet_good_specs where scope = ${scope}`;
      });
      return rows.map((row) => ({ ...row, revision: BigInt(row.revision) }));
    },
    async keep({ engineId, specHash, definition, revision }, lease) {
      const [row] = await store.ask('storing a last good definition', answerMs, () => {
        return sql<{ revision: string }[]>`
          with held as (${heldBy(lease)})
          insert into fleet_good_specs as good (scope, engine_id, spec_hash, definition, revision, updated_at)
          select ${scope}::text, ${engineId}::text, ${specHash}::text, ${definition}::text::json,
            ${String(revision)}::bigint + 1, now() from held
          on conflict (scope, engine_id) do update set spec_hash = excluded.spec_hash,
            definition = excluded.definition, revision = excluded.revision, updated_at = excluded.updated_at
            where good.revision = ${String(revision)}::bigint
          returning revision::text`;
      });
      return row === undefined ? null : BigInt(row.revision);
    },
    async drop({ engineId, revision }, lease) {
      const rows = await store.ask('deleting the last good definition of a removed engine', answerMs, () => {
        return sql`
          with held as (${heldBy(lease)})
          delete from fleet_good_specs where scope = ${scope} and engine_id = ${engineId}
            and revision = ${String(revision)}::bigint and exists (select 1 from held)
          returning 1`;
      });
      return rows.length === 1;
    },
  };
}

/** Returns the encoded definitions of all good specs, also of those of other machines. */
export async function readGoodDefinitions({ sql }: Pick<Db, 'sql'>): Promise<readonly string[]> {
  const rows = await sql<{ definition: string }[]>`select definition::text from fleet_good_specs`;
  return rows.map(({ definition }) => definition);
}
