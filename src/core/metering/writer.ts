import type { Sql } from 'postgres';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import { uuidTimeMs } from '#base/id.ts';
import { type ChargedOrganization, isUncovered, type Wallet } from '#core/wallet/wallet.ts';
import { createCodes, type KnownCodes } from './codes.ts';
import { isBetweenPartitions } from './partitions.ts';
import type { UsageRecord } from './record.ts';

/** What the books made of a batch. */
export interface Written {
  /** Pico-dollars by record id that a wallet did not hold: they were written off instead of charged. */
  readonly writtenOff: ReadonlyMap<string, bigint>;
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

  /** One statement is a transaction of its own, in one round trip; the wallets' rows are locked last in it. */
  const commit = async (records: readonly UsageRecord[]): Promise<boolean> => {
    const known = await codes.of({ ids: records.flatMap(idsOf), names: records.flatMap(namesOf) });
    const booked = { text: recordsText, parameters: [JSON.stringify(records.map((record) => toRow(record, known)))] };
    const batch = { organizations: organizationsOf(records), now: new Date(clock.now()), booked };
    for (;;) {
      try {
        await wallet.chargeStatement(db.sql, batch);
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
  const commitWithin = async (records: readonly UsageRecord[]): Promise<Written> => {
    const organizationIds = organizationsOf(records).map(({ organizationId }) => organizationId);
    for (;;) {
      const balances = await wallet.balances(db.sql, organizationIds);
      const { affordable, cut } = cutToBalances(records, await findKnown(db.sql, records), balances);
      if (await commit(affordable)) return { writtenOff: await readWrittenOff(db.sql, cut) };
    }
  };

  return {
    async write(records) {
      const distinct = [...new Map(records.toReversed().map((record) => [record.id, record])).values()].toReversed();
      return (await commit(distinct)) ? { writtenOff: nothing } : commitWithin(distinct);
    },
  };
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

async function findKnown(sql: Sql, records: readonly UsageRecord[]): Promise<ReadonlySet<string>> {
  return new Set((await findBooked(sql, records)).map(({ id }) => id));
}

/** What the books say of records that were cut: another writer may have booked one whole just before. */
async function readWrittenOff(sql: Sql, cut: readonly UsageRecord[]): Promise<ReadonlyMap<string, bigint>> {
  const own = new Map(cut.map(({ id, writtenOffPicoUsd }) => [id, writtenOffPicoUsd]));
  const rows = await findBooked(sql, cut);
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

/** A row as `json_to_recordset` reads it; amounts go as text, since a JSON number would lose their digits. */
function toRow(record: UsageRecord, { ids, names }: KnownCodes): Record<string, unknown> {
  const timeMs = uuidTimeMs(record.id);
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
    reason: record.reason,
    cache_hit: record.cacheHit,
    input_tokens: record.usage.inputTokens,
    input_cached_tokens: record.usage.cachedTokens,
    output_tokens: record.usage.outputTokens,
    output_reasoning_tokens: record.usage.reasoningTokens,
    usage_source: record.usageSource,
    cost: record.costPicoUsd.toString(),
    written_off: record.writtenOffPicoUsd === 0n ? null : record.writtenOffPicoUsd.toString(),
    queued_ms: Math.round(record.queuedMs),
    first_byte_ms: record.firstByteMs === null ? null : Math.round(record.firstByteMs),
    total_ms: Math.round(record.totalMs),
    client_request_id: record.clientRequestId,
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
        cache_hit, id, cost, written_off, service_tier, reason, client_request_id, choices`;
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
 * A batch, $1, as `BookedParts`: the records, and the hourly and daily sums of those that are new. Sums are taken in
 * the order of their key, the same for every writer.
 */
const recordsText = `
    incoming as materialized (
      select * from json_to_recordset($1::text::json) as t(
        id uuid, organization_id uuid, organization integer, project integer, key integer, price_version integer,
        model integer, endpoint integer, stream boolean, service_tier text, status smallint, outcome usage_outcome,
        reason text, cache_hit boolean, input_tokens integer, input_cached_tokens integer, output_tokens integer,
        output_reasoning_tokens integer, usage_source usage_source, cost numeric, written_off numeric,
        queued_ms integer, first_byte_ms integer, total_ms integer, client_request_id text, choices smallint, hour
        timestamptz)
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
