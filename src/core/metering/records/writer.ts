import type { ISql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { createCodes, isBetweenPartitions, type KnownIds } from '#core/metering/tables/tables.ts';
import {
  type ClaimOf,
  claimsParameter,
  isLarge,
  isOfAnotherTime,
  putAnswer,
  putClaims,
} from '#core/stored-requests/stored-requests.ts';
import { type ChargedOrganization, isUncovered, type Wallet } from '#core/wallet/wallet.ts';
import { isUncoded, recordsText, toRows } from './record-rows.ts';
import { findDiscarded } from './quarantine.ts';
import type { UsageRecord } from './record.ts';

/** Result of writing a batch. */
export interface Written {
  /**
   * Pico-dollars by record id that were written off instead of charged: the wallet did not have them, or another
   * request with the same Idempotency-Key was charged before.
   */
  readonly writtenOff: ReadonlyMap<string, bigint>;
  /** Ids of records that an operator discarded: they are not in the database. */
  readonly discarded: ReadonlySet<string>;
}

/**
 * Writes records, hourly and daily sums, ledger entries and balances of a batch: all of them or nothing. A record that
 * already exists changes nothing, so a batch may be repeated, whole or in part, and by several writers at once.
 */
export interface Writer {
  /**
   * Writes a batch.
   * @throws UnknownOwnerError, and the driver's error; nothing is written then, unless the answer to a commit was lost.
   *   `isBeforeRetention` recognizes the error of a record that is too old to be recorded.
   */
  write(records: readonly UsageRecord[]): Promise<Written>;
}

export interface WriterOptions {
  /** Its `sql` may differ from statement to statement. */
  readonly db: Pick<Db, 'sql'>;
  readonly clock: Clock;
  readonly wallet: Wallet;
  /** Ids that usage may be stored for; absent: ids are not checked. */
  readonly ids?: KnownIds;
}

/** Records and charges a batch, in a statement that comes last in its transaction. */
type Charge = (sql: ISql, records: readonly UsageRecord[]) => Promise<void>;

const nothing: ReadonlyMap<string, bigint> = new Map();
/** Maximum number of tries of a batch whose codes the database has lost: by the second they exist again. */
const uncodedTriesMax = 3;

export function createWriter(options: WriterOptions): Writer {
  return new RecordWriter(options);
}

class RecordWriter implements Writer {
  readonly #options: WriterOptions;
  readonly #codes: ReturnType<typeof createCodes>;
  readonly #durations = new RecentDurations();

  constructor(options: WriterOptions) {
    this.#options = options;
    this.#codes = createCodes(options.db, options.ids);
  }

  async write(records: readonly UsageRecord[]): Promise<Written> {
    const distinct = [...new Map(records.toReversed().map((record) => [record.id, record])).values()].toReversed();
    const writtenOff = new Map<string, bigint>();
    for (const batch of batchesOf(distinct)) {
      for (const [id, picoUsd] of await this.#writeBatch(batch)) writtenOff.set(id, picoUsd);
    }
    return { writtenOff, discarded: await findDiscarded(this.#options.db.sql, spooledIds(distinct)) };
  }

  /**
   * Runs `run` until no creation of a partition interferes.
   * @returns false if a wallet cannot pay the charges; nothing is written then
   */
  async #attempt(records: readonly UsageRecord[], run: (charge: Charge) => PromiseLike<unknown>): Promise<boolean> {
    const { clock, wallet } = this.#options;
    const claims = claimsParameter(claimsOf(records));
    const charge: Charge = async (sql, affordable) => {
      const moment = { nowMs: clock.monotonicMs(), commitMs: this.#durations.least };
      const { rows, ids, names } = toRows(affordable, moment);
      const parameters = [JSON.stringify(rows), claims, JSON.stringify(ids), JSON.stringify(names)];
      const booked = { text: recordsText(affordable), parameters };
      await wallet.chargeStatement(sql, {
        organizations: organizationsOf(affordable),
        now: new Date(clock.now()),
        booked,
      });
    };
    for (let uncoded = 0; ;) {
      await this.#codes.ensure(records);
      const beganMs = clock.monotonicMs();
      try {
        await run(charge);
        this.#durations.add(clock.monotonicMs() - beganMs);
        return true;
      } catch (error) {
        if (isUncovered(error)) return false;
        if (isUncoded(error) && uncoded < uncodedTriesMax) {
          uncoded += 1;
          this.#codes.forget();
        } else if (!isBetweenPartitions(error)) throw error;
      }
    }
  }

  /** Writes a batch in one statement, which is a transaction in one round trip; it locks the wallets' rows last. */
  #commit(records: readonly UsageRecord[]): Promise<boolean> {
    const { db } = this.#options;
    const large = claimsOf(records).filter(({ claim }) => isLarge(claim));
    return this.#attempt(records, (charge) => {
      if (large.length === 0) return charge(db.sql, records);
      return db.sql.begin(async (tx) => {
        const discarded = await findDiscarded(tx, spooledIds(records));
        for (const claim of large) if (!discarded.has(claim.requestId)) await putAnswer(tx, claim);
        await charge(tx, records);
      });
    });
  }

  /**
   * Charges no more than there is. A balance that sinks before it is charged causes another try. Each such try means
   * that another writer made progress, and a balance of zero cannot sink. Locking the wallets before the other rows are
   * written would break the lock order of all writers. Claims are decided first, so that a record whose key belongs to
   * another request takes nothing from the balance that others need.
   */
  async #commitWithin(records: readonly UsageRecord[]): Promise<Written['writtenOff']> {
    const { db, wallet } = this.#options;
    const organizationIds = organizationsOf(records).map(({ organizationId }) => organizationId);
    const claims = claimsOf(records);
    let cut: readonly UsageRecord[] = [];
    const chargeWithin = async (sql: ISql, charge: Charge): Promise<void> => {
      const balances = await wallet.balances(sql, organizationIds);
      const recordedIds = (await findRecorded(sql, records)).map(({ id }) => id);
      const discarded = await findDiscarded(sql, spooledIds(records));
      const decided = claims.filter(({ requestId }) => !discarded.has(requestId));
      const repeated = decided.length === 0 ? [] : await putClaims(sql, decided);
      const made = cutToBalances(records, new Set([...recordedIds, ...discarded, ...repeated]), balances);
      cut = made.cut;
      await charge(sql, made.affordable);
    };
    for (;;) {
      const isDone = await this.#attempt(records, (charge) =>
        claims.length === 0 ? chargeWithin(db.sql, charge) : db.sql.begin((tx) => chargeWithin(tx, charge)),
      );
      const changed = [...cut, ...records.filter((record) => record.claim !== undefined && !cut.includes(record))];
      if (isDone) return readWrittenOff(db.sql, changed);
    }
  }

  async #writeBatch(records: readonly UsageRecord[]): Promise<Written['writtenOff']> {
    if (!(await this.#commit(records))) return this.#commitWithin(records);
    const claimed = records.filter(({ claim, costPicoUsd }) => claim !== undefined && costPicoUsd > 0n);
    return claimed.length === 0 ? nothing : readWrittenOff(this.#options.db.sql, claimed);
  }
}

/**
 * Splits records into batches. A record with a large answer to store has a batch of its own, so that nothing else waits for it with
 * locks held. Requests that had the same Idempotency-Key at different times follow each other, each beside the claims
 * of its time.
 */
function batchesOf(records: readonly UsageRecord[]): (readonly UsageRecord[])[] {
  if (records.every(({ claim }) => claim === undefined)) return [records];
  const batches: UsageRecord[][] = [];
  const large: UsageRecord[][] = [];
  const times = new Map<string, NonNullable<UsageRecord['claim']>[]>();
  for (const record of records) {
    const { claim } = record;
    if (claim !== undefined && isLarge(claim)) {
      large.push([record]);
      continue;
    }
    const at = claim === undefined ? 0 : placeOf(claim, times);
    (batches[at] ??= []).push(record);
  }
  return [...batches.filter((batch) => batch !== undefined), ...large];
}

/** @param times first claims of each key's times; a claim of another time is added */
function placeOf(
  claim: NonNullable<UsageRecord['claim']>,
  times: Map<string, NonNullable<UsageRecord['claim']>[]>,
): number {
  const name = `${claim.keyId} ${claim.idempotencyKey}`;
  const known = times.get(name) ?? [];
  const at = known.findIndex((first) => !isOfAnotherTime(first, claim));
  if (at !== -1) return at;
  times.set(name, [...known, claim]);
  return known.length;
}

/** Returns the ids of spooled records: only records that were on disk meanwhile can have been discarded. */
function spooledIds(records: readonly UsageRecord[]): readonly string[] {
  return records.filter(({ waitedMs }) => waitedMs !== undefined).map(({ id }) => id);
}

function claimsOf(records: readonly UsageRecord[]): ClaimOf[] {
  return records.flatMap(({ id, claim }) => (claim === undefined ? [] : [{ requestId: id, claim }]));
}

function organizationsOf(records: readonly UsageRecord[]): ChargedOrganization[] {
  const counts = new Map<string, number>();
  for (const { organizationId, costPicoUsd } of records) {
    if (costPicoUsd > 0n) counts.set(organizationId, (counts.get(organizationId) ?? 0) + 1);
  }
  return [...counts].map(([organizationId, requests]) => ({ organizationId, requests }));
}

interface RecordedRow {
  readonly id: string;
  readonly written_off: string | null;
}

/** Returns which of the records are in the database. */
function findRecorded(sql: ISql, records: readonly UsageRecord[]): PromiseLike<readonly RecordedRow[]> {
  const refs = records.map(({ id, organizationId }) => ({ id, organization_id: organizationId }));
  return sql<RecordedRow[]>`
    select r.id::text, r.written_off::text
    from json_to_recordset(${JSON.stringify(refs)}::text::json) as t(id uuid, organization_id uuid)
    join usage_ids n on n.id = t.organization_id join usage_requests r on r.organization = n.code and r.id = t.id`;
}

/**
 * Returns the written-off amounts of records that may have been cut: another writer may have recorded one whole just
 * before.
 */
async function readWrittenOff(sql: ISql, records: readonly UsageRecord[]): Promise<ReadonlyMap<string, bigint>> {
  const own = new Map(records.map(({ id, writtenOffPicoUsd }) => [id, writtenOffPicoUsd]));
  const rows = await findRecorded(sql, records);
  const missing = rows.map(({ id, written_off }) => [id, BigInt(written_off ?? 0) - (own.get(id) ?? 0n)] as const);
  return new Map(missing.filter(([, picoUsd]) => picoUsd > 0n));
}

interface Cut {
  readonly affordable: readonly UsageRecord[];
  /** Records that cost more than there is, unchanged. */
  readonly cut: readonly UsageRecord[];
}

/**
 * Charges records in id order as long as their wallet lasts, and writes off the rest.
 * @param free ids of records that are not charged now, whatever they cost
 */
function cutToBalances(
  records: readonly UsageRecord[],
  free: ReadonlySet<string>,
  balances: ReadonlyMap<string, bigint>,
): Cut {
  const remaining = new Map(balances);
  const cut: UsageRecord[] = [];
  const affordable = records
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map((record) => {
      if (free.has(record.id)) return record;
      const balance = remaining.get(record.organizationId) ?? 0n;
      const charged = record.costPicoUsd < balance ? record.costPicoUsd : balance;
      remaining.set(record.organizationId, balance - charged);
      if (charged === record.costPicoUsd) return record;
      cut.push(record);
      const missing = record.costPicoUsd - charged;
      return { ...record, costPicoUsd: charged, writtenOffPicoUsd: record.writtenOffPicoUsd + missing };
    });
  return { affordable, cut };
}

/**
 * Durations of the last commits. Rows cannot contain the duration of their own commit, so they store the least recent
 * one.
 */
class RecentDurations {
  #durationsMs: readonly number[] = [];

  add(durationMs: number): void {
    this.#durationsMs = [...this.#durationsMs, durationMs].slice(-8);
  }

  get least(): number {
    return this.#durationsMs.length === 0 ? 0 : Math.min(...this.#durationsMs);
  }
}
