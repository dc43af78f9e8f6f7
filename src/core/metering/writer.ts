import type { Sql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { uuidTimeMs } from '#base/id.ts';
import {
  claimsParameter,
  claimsText,
  type ClaimOf,
  isLarge,
  isOfAnotherTime,
  putAnswer,
} from '#core/requests/requests.ts';
import { type ChargedOrganization, isUncovered, type Wallet } from '#core/wallet/wallet.ts';
import { createCodes, type KnownCodes } from './codes.ts';
import { packFacts } from './facts.ts';
import { isBetweenPartitions } from './partitions.ts';
import { discardedText, findDiscarded } from './quarantine.ts';
import { repeatedReason, type UsageRecord } from './record.ts';

/** What the books made of a batch. */
export interface Written {
  /**
   * Pico-dollars by record id that were written off instead of charged: a wallet did not hold them, or another request
   * with the same Idempotency-Key was charged before.
   */
  readonly writtenOff: ReadonlyMap<string, bigint>;
  /** Those by record id that an operator has given up: they are not in the books. */
  readonly discarded: ReadonlySet<string>;
}

/**
 * Writes records, hourly and daily sums, ledger entries and balances of a batch: all of them or nothing. A record that
 * is there already changes nothing, so that a batch may be repeated, whole or in part, and by several at once.
 */
export interface Writer {
  /**
   * @throws the driver's error; nothing is written then, unless the answer to a commit was lost. `isBeforeRetention`
   * knows the one of a record that is too old to be booked.
   */
  write(records: readonly UsageRecord[]): Promise<Written>;
}

export interface WriterOptions {
  /** Its `sql` may be another one with each statement. */
  readonly db: Pick<Db, 'sql'>;
  readonly clock: Clock;
  readonly wallet: Wallet;
}

const nothing: ReadonlyMap<string, bigint> = new Map();

export function createWriter({ db, clock, wallet }: WriterOptions): Writer {
  const codes = createCodes(db);
  const durations = new RecentDurations();

  /** One statement is a transaction of its own, in one round trip; the wallets' rows are locked last in it. */
  const commit = async (records: readonly UsageRecord[]): Promise<boolean> => {
    const known = await codes.of({ ids: records.flatMap(idsOf), names: records.flatMap(namesOf) });
    const rows = JSON.stringify(
      records.map((record) => toRow(record, known, { nowMs: clock.monotonicMs(), commitMs: durations.least })),
    );
    const claims = claimsOf(records);
    const booked = { text: recordsText, parameters: [rows, claimsParameter(claims)] };
    const batch = { organizations: organizationsOf(records), now: new Date(clock.now()), booked };
    const large = claims.filter(({ claim }) => isLarge(claim));
    for (;;) {
      const beganMs = clock.monotonicMs();
      try {
        if (large.length === 0) await wallet.chargeStatement(db.sql, batch);
        else {
          await db.sql.begin(async (tx) => {
            const discarded = await findDiscarded(tx, spooledIds(records));
            for (const claim of large) if (!discarded.has(claim.requestId)) await putAnswer(tx, claim);
            await wallet.chargeStatement(tx, batch);
          });
        }
        durations.add(clock.monotonicMs() - beganMs);
        return true;
      } catch (error) {
        if (isUncovered(error)) return false;
        if (!isBetweenPartitions(error)) throw error;
      }
    }
  };

  /**
   * Charges no more than there is. A balance that sinks before it is charged makes another try; each such try is one
   * that another writer got ahead with, and what is at zero cannot sink. A lock on the wallets, held from before the
   * other rows are written, would be taken in another order than everybody else takes it.
   */
  const commitWithin = async (records: readonly UsageRecord[]): Promise<Written['writtenOff']> => {
    const organizationIds = organizationsOf(records).map(({ organizationId }) => organizationId);
    for (;;) {
      const balances = await wallet.balances(db.sql, organizationIds);
      const { affordable, cut } = cutToBalances(records, await findKnown(db.sql, records), balances);
      const changed = [...cut, ...records.filter((record) => record.claim !== undefined && !cut.includes(record))];
      if (await commit(affordable)) return readWrittenOff(db.sql, changed);
    }
  };

  const writeBatch = async (records: readonly UsageRecord[]): Promise<Written['writtenOff']> => {
    if (!(await commit(records))) return commitWithin(records);
    const claimed = records.filter(({ claim, costPicoUsd }) => claim !== undefined && costPicoUsd > 0n);
    return claimed.length === 0 ? nothing : readWrittenOff(db.sql, claimed);
  };

  return {
    async write(records) {
      const distinct = [...new Map(records.toReversed().map((record) => [record.id, record])).values()].toReversed();
      const writtenOff = new Map<string, bigint>();
      for (const batch of batchesOf(distinct)) {
        for (const [id, picoUsd] of await writeBatch(batch)) writtenOff.set(id, picoUsd);
      }
      return { writtenOff, discarded: await findDiscarded(db.sql, spooledIds(distinct)) };
    },
  };
}

/**
 * What has a large answer to keep is alone, so that nothing else waits for that with locks held. Requests that had the
 * same Idempotency-Key at different times follow each other, each of them beside what its key stood for then.
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

/** @param times of each key the first claims of its times, which it is added to where it is another */
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

/** Only what was on disk meanwhile can have been given up. */
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

interface BookedRow {
  readonly id: string;
  readonly written_off: string | null;
}

/** Those of the records that are in the books. */
function findBooked(sql: Sql, records: readonly UsageRecord[]): PromiseLike<readonly BookedRow[]> {
  const refs = records.map(({ id, organizationId }) => ({ id, organization_id: organizationId }));
  return sql<BookedRow[]>`
    select r.id::text, r.written_off::text
    from json_to_recordset(${JSON.stringify(refs)}::text::json) as t(id uuid, organization_id uuid)
    join usage_ids n on n.id = t.organization_id join usage_requests r on r.organization = n.code and r.id = t.id`;
}

/** Those that a commit changes nothing by. */
async function findKnown(sql: Sql, records: readonly UsageRecord[]): Promise<ReadonlySet<string>> {
  const discarded = await findDiscarded(sql, spooledIds(records));
  return new Set([...(await findBooked(sql, records)).map(({ id }) => id), ...discarded]);
}

/** What the books say of records that may have been cut: another writer may have booked one whole just before. */
async function readWrittenOff(sql: Sql, records: readonly UsageRecord[]): Promise<ReadonlyMap<string, bigint>> {
  const own = new Map(records.map(({ id, writtenOffPicoUsd }) => [id, writtenOffPicoUsd]));
  const rows = await findBooked(sql, records);
  const missing = rows.map(({ id, written_off }) => [id, BigInt(written_off ?? 0) - (own.get(id) ?? 0n)] as const);
  return new Map(missing.filter(([, picoUsd]) => picoUsd > 0n));
}

interface Cut {
  readonly affordable: readonly UsageRecord[];
  /** Those that cost more than there is, as they were. */
  readonly cut: readonly UsageRecord[];
}

/** Charges new records in id order as long as their wallet lasts, and writes off the rest. */
function cutToBalances(
  records: readonly UsageRecord[],
  known: ReadonlySet<string>,
  balances: ReadonlyMap<string, bigint>,
): Cut {
  const left = new Map(balances);
  const cut: UsageRecord[] = [];
  const affordable = records
    .toSorted((a, b) => (a.id < b.id ? -1 : 1))
    .map((record) => {
      if (known.has(record.id)) return record;
      const balance = left.get(record.organizationId) ?? 0n;
      const charged = record.costPicoUsd < balance ? record.costPicoUsd : balance;
      left.set(record.organizationId, balance - charged);
      if (charged === record.costPicoUsd) return record;
      cut.push(record);
      const missing = record.costPicoUsd - charged;
      return { ...record, costPicoUsd: charged, writtenOffPicoUsd: record.writtenOffPicoUsd + missing };
    });
  return { affordable, cut };
}

const hourMs = 3_600_000;
/** Of a smallint. */
const choicesMax = 32_767;

interface WriteMoment {
  /** On the monotonic clock. */
  readonly nowMs: number;
  /** What a commit takes at least. */
  readonly commitMs: number;
}

/** Of the last commits. What the next one takes cannot be in what it writes: its rows say what it takes at least. */
class RecentDurations {
  #durationsMs: readonly number[] = [];

  add(durationMs: number): void {
    this.#durationsMs = [...this.#durationsMs, durationMs].slice(-8);
  }

  get least(): number {
    return this.#durationsMs.length === 0 ? 0 : Math.min(...this.#durationsMs);
  }
}

/** A row as `json_to_recordset` reads it; amounts go as text, since a JSON number would lose their digits. */
function toRow(
  record: UsageRecord,
  { ids, names }: KnownCodes,
  { nowMs, commitMs }: WriteMoment,
): Record<string, unknown> {
  const timeMs = uuidTimeMs(record.id);
  const { facts, settledMs = nowMs, waitedMs } = record;
  return {
    id: record.id,
    organization_id: record.organizationId,
    organization: ids.get(record.organizationId),
    project: ids.get(record.projectId),
    key: ids.get(record.keyId),
    price_version: ids.get(record.priceVersionId),
    model: names.get(record.model),
    endpoint: names.get(record.endpoint),
    stream: record.stream,
    service_tier: record.serviceTier === 'default' ? null : record.serviceTier,
    status: record.status,
    outcome: record.outcome,
    failure: record.reason,
    cache_hit: record.cacheHit,
    input_tokens: record.usage.inputTokens,
    input_cached_tokens: record.usage.cachedTokens,
    output_tokens: record.usage.outputTokens,
    output_reasoning_tokens: record.usage.reasoningTokens,
    usage_source: record.usageSource,
    amount: record.costPicoUsd.toString(),
    beyond: record.writtenOffPicoUsd === 0n ? null : record.writtenOffPicoUsd.toString(),
    queued_ms: Math.round(record.queuedMs),
    first_byte_ms: record.firstByteMs === null ? null : Math.round(record.firstByteMs),
    total_ms: Math.round(record.totalMs),
    client_request_id: record.clientRequestId,
    known: facts === undefined ? null : packFacts(facts).toString('hex'),
    waited_ms: Math.round(waitedMs ?? nowMs - settledMs),
    commit_ms: waitedMs === undefined ? commitMs : null,
    choices: (record.choices ?? 1) === 1 ? null : Math.min(record.choices ?? 1, choicesMax),
    hour: new Date(timeMs - (timeMs % hourMs)).toISOString(),
  };
}

const idsOf = ({ organizationId, projectId, keyId, priceVersionId }: UsageRecord): string[] => [
  organizationId,
  projectId,
  keyId,
  priceVersionId,
];

const namesOf = ({ model, endpoint }: UsageRecord): string[] => [model, endpoint];

const columns = `organization, project, key, price_version, model, endpoint, input_tokens, input_cached_tokens,
        output_tokens, output_reasoning_tokens, queued_ms, first_byte_ms, total_ms, outcome, usage_source, status, stream,
        cache_hit, id, cost, written_off, service_tier, reason, client_request_id, facts, choices`;
const sumColumns = `requests, completed, aborted, ended, failed, cache_hits, input_tokens, input_cached_tokens,
        output_tokens, output_reasoning_tokens, cost`;
const sums = `count(*), count(*) filter (where outcome = 'completed'), count(*) filter (where outcome = 'aborted'),
        count(*) filter (where outcome = 'ended'), count(*) filter (where outcome = 'failed'),
        count(*) filter (where cache_hit), sum(input_tokens), sum(input_cached_tokens), sum(output_tokens),
        sum(output_reasoning_tokens), sum(cost)`;
const added = sumColumns
  .split(',')
  .map((name) => `${name.trim()} = s.${name.trim()} + excluded.${name.trim()}`)
  .join(', ');

/**
 * A batch, $1, with its Idempotency-Keys, $2, as `BookedParts`: the records, and the hourly and daily sums of those
 * that are new. Sums are taken in the order of their key, the same for every writer. A request whose key is another
 * one's is written off. One that an operator gave up changes nothing.
 */
const recordsText = `given as materialized (
      select * from json_to_recordset($1::text::json) as t(
        id uuid, organization_id uuid, organization integer, project integer, key integer, price_version integer,
        model integer, endpoint integer, stream boolean, service_tier text, status smallint, outcome usage_outcome,
        failure text, cache_hit boolean, input_tokens integer, input_cached_tokens integer, output_tokens integer,
        output_reasoning_tokens integer, usage_source usage_source, amount numeric, beyond numeric,
        queued_ms integer, first_byte_ms integer, total_ms integer, client_request_id text, choices smallint, known text, waited_ms double precision,
        commit_ms double precision, hour timestamptz)
    ), ${discardedText('given')}, ${claimsText('$2', 'discarded')}, incoming as materialized (
      select g.*, case when is_repeated then 0 else amount end as cost,
        case when is_repeated then nullif(coalesce(beyond, 0) + amount, 0) else beyond end as written_off,
        case when is_repeated then coalesce(failure, '${repeatedReason}') else failure end as reason,
        decode(known, 'hex') || substr(int4send(least(16777215, round(waited_ms + case when commit_ms is null then 0
          else greatest(commit_ms, extract(epoch from clock_timestamp() - statement_timestamp()) * 1000) end))::integer),
          2) as facts
      from given g cross join lateral (select id in (select id from repeated) as is_repeated) r
      where g.id not in (select id from discarded)
    ), inserted as (
      insert into usage_requests (group_id, ${columns})
      select g.group_id, ${columns}
      from incoming i left join charge_groups g on g.organization_id = i.organization_id and i.cost > 0
      order by id
      on conflict (organization, id) do nothing
      returning id
    ), fresh as materialized (
      select i.* from incoming i join inserted using (id)
    ), hourly as (
      insert into usage_hourly as s (organization, hour, key, project, model, ${sumColumns})
      select organization, hour, key, project, model, ${sums}
      from fresh group by organization, hour, key, project, model
      order by organization, hour, key, project, model
      on conflict (organization, hour, key, project, model) do update set ${added}
      returning 1
    ), daily as (
      insert into usage_daily as s (organization, day, key, project, model, ${sumColumns})
      select organization, (hour at time zone 'UTC')::date as day, key, project, model, ${sums}
      from fresh where (select count(*) from hourly) is not null
      group by organization, day, key, project, model
      order by organization, day, key, project, model
      on conflict (organization, day, key, project, model) do update set ${added}
      returning 1
    ), booked as (
      select organization_id, id as request_id, cost as amount from fresh
      where cost > 0 and (select count(*) from daily) is not null
    )`;
