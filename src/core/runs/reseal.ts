import type { ISql, Sql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import {
  inputsContext,
  markOf,
  planContext,
  type Sealer,
  sealMarkBytes,
  stateContext,
} from '#core/runs/lifecycle/lifecycle.ts';

/** Re-encryption of runs' inputs, states and plans with the platform key in use, before an older key is removed. */

interface Parts {
  readonly db: Db;
  readonly sealer: Sealer;
  readonly log: Log;
}

/** The position of an encrypted value: the id of a run, or of an installation with the serial of a state. */
interface Place {
  readonly id: string;
  /** 0 for inputs: each run has one value. */
  readonly serial: string;
}

interface Kind {
  /** The name in the log. */
  readonly what: string;
  context(id: string): string;
  /** Sorted by place. */
  list(sql: Sql, mark: Buffer, after: Place): Promise<readonly Place[]>;
  read(sql: Sql, place: Place): Promise<readonly { readonly sealed: Buffer }[]>;
  /** Returns no row if another gateway was faster. */
  replace(sql: Sql, place: Place, sealed: Buffer, before: Buffer): Promise<readonly unknown[]>;
}

const pageRows = 500;
const beginning: Place = { id: '00000000-0000-0000-0000-000000000000', serial: '-1' };

/** Uses two comparisons, because no index serves `<>`. */
const isOther = (sql: ISql, column: string, mark: Buffer) => {
  const found = sql.unsafe(`substr(${column}, 1, ${sealMarkBytes})`);
  return sql`(${found} < ${mark} or ${found} > ${mark})`;
};

const inputs: Kind = {
  what: 'the inputs of a run',
  context: inputsContext,
  list: (sql, mark, { id }) => sql<Place[]>`
    select id, '0' as serial from runs where ${isOther(sql, 'inputs', mark)} and id > ${id}
    order by id limit ${pageRows}`,
  read: (sql, { id }) => sql<{ sealed: Buffer }[]>`select inputs as sealed from runs where id = ${id}`,
  replace: (sql, { id }, sealed, before) => sql`
    update runs set inputs = ${sealed} where id = ${id} and inputs = ${before} returning id`,
};

const states: Kind = {
  what: 'the Terraform state of an installation',
  context: stateContext,
  list: (sql, mark, { id, serial }) => sql<Place[]>`
    select installation_id as id, serial::text as serial from stack_states
    where ${isOther(sql, 'state', mark)} and (installation_id, serial) > (${id}::uuid, ${serial}::bigint)
    order by installation_id, stack_states.serial limit ${pageRows}`,
  read: (sql, { id, serial }) => sql<{ sealed: Buffer }[]>`
    select state as sealed from stack_states where installation_id = ${id} and serial = ${serial}::bigint`,
  replace: (sql, { id, serial }, sealed, before) => sql`
    update stack_states set state = ${sealed}
    where installation_id = ${id} and serial = ${serial}::bigint and state = ${before} returning serial`,
};

const plans: Kind = {
  what: 'the plan of a run',
  context: planContext,
  list: (sql, mark, { id }) => sql<Place[]>`
    select run_id as id, '0' as serial from run_plans
    where plan is not null and ${isOther(sql, 'plan', mark)} and run_id > ${id} order by run_id limit ${pageRows}`,
  read: (sql, { id }) => sql<{ sealed: Buffer }[]>`
    select plan as sealed from run_plans where run_id = ${id} and plan is not null`,
  replace: (sql, { id }, sealed, before) => sql`
    update run_plans set plan = ${sealed} where run_id = ${id} and plan = ${before} returning run_id`,
};

/** @returns the number of values encrypted again; a value that cannot be decrypted stays, and the log names it */
export async function resealRuns(parts: Parts): Promise<number> {
  const mark = await markInUse(parts.sealer);
  if (mark === null) return 0;
  let resealed = 0;
  for (const kind of [inputs, states, plans]) resealed += await resealAll(parts, kind, mark);
  if (resealed > 0) parts.log.info({ resealed }, 'encrypted inputs and states of runs with the current platform key');
  return resealed;
}

/** Counts inputs and states of runs that a platform key other than this one encrypted. */
export async function countOtherKeysSeals(sql: ISql, keyId: string): Promise<number> {
  const mark = markOf(keyId);
  const [row] = await sql<{ count: number }[]>`
    select ((select count(*) from runs where ${isOther(sql, 'inputs', mark)})
      + (select count(*) from stack_states where ${isOther(sql, 'state', mark)})
      + (select count(*) from run_plans where plan is not null and ${isOther(sql, 'plan', mark)}))::int as count`;
  return row?.count ?? 0;
}

async function resealAll(parts: Parts, kind: Kind, mark: Buffer): Promise<number> {
  let resealed = 0;
  for (let after = beginning; ;) {
    const page = await kind.list(parts.db.sql, mark, after);
    for (const place of page) if (await resealOne(parts, kind, place)) resealed += 1;
    after = page.at(-1) ?? after;
    if (page.length < pageRows) return resealed;
  }
}

async function resealOne({ db, sealer, log }: Parts, kind: Kind, place: Place): Promise<boolean> {
  const [row] = await kind.read(db.sql, place);
  if (row === undefined) return false;
  const context = kind.context(place.id);
  try {
    const fresh = await sealer.seal(await sealer.open(row.sealed, context), context);
    return (await kind.replace(db.sql, place, fresh, row.sealed)).length > 0;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.error(
      { of: place.id, trouble: error.message },
      `could not encrypt ${kind.what} with the current platform key; keep the older platform key`,
    );
    return false;
  }
}

/**
 * Returns null if nothing was ever encrypted, or if the key is not here; the secrets report a missing key themselves.
 */
async function markInUse(sealer: Sealer): Promise<Buffer | null> {
  try {
    return await sealer.mark();
  } catch (error) {
    if (error instanceof AppError && error.code === 'secrets_unavailable') return null;
    throw error;
  }
}
