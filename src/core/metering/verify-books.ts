import type { ISql, TransactionSql } from 'postgres';
import type { Db } from '#base/db.ts';
import { uuidLowerBound } from '#base/id.ts';
import {
  type KnownHead,
  type LedgerProof,
  ledgerUsageSql,
  proveIn,
  readOwners,
  requestsHashSql,
} from '#core/wallet/wallet.ts';
import { holdPartitions, readFloorMs, readPartitions } from './partitions.ts';
import { type KnownIds, nobodyKnown, ownersText, recordsText, unknownOrganization } from './verify-names.ts';

/**
 * What is wrong:
 * - `entry`: a ledger entry is not what was booked, `problem` says why; all later ones of its organization follow it
 * - `wallet`: the balance, the number of entries or the head of a wallet is not that of its ledger
 * - `entry_without_records`: records of a ledger entry are gone that must still be there
 * - `entry_differs`: requests and amounts of a ledger entry are not those of its records
 * - `record_without_entry`: a record was charged, but the ledger knows nothing of it; `id` is that of the record, or
 *   the first of its group
 * - `hour_differs`, `day_differs`: a sum is not that of the records, or of the hours; `id` is that of the key
 * - `ledger_differs`: the ledger does not go on from what it is known to have been
 * - `charges_differ`: the usage entries of an organization do not come to what its sums say
 * - `price_differs`: a record does not cost its tokens at the price that it names, or that is another model's; `id` is
 *   that of the record
 * - `unknown_code`: what a number stands for under which usage is kept is gone; `id` is that of a record, where it has one
 * - `key_differs`, `project_differs`: usage is kept under a key or project that is none of its organization; `id` is its
 */
export interface BooksFinding {
  readonly kind:
    | 'entry'
    | 'wallet'
    | 'ledger_differs'
    | 'entry_without_records'
    | 'entry_differs'
    | 'record_without_entry'
    | 'hour_differs'
    | 'day_differs'
    | 'charges_differ'
    | 'price_differs'
    | 'unknown_code'
    | 'key_differs'
    | 'project_differs';
  readonly organizationId: string;
  readonly id: string | null;
  readonly problem: string | null;
}

export interface BooksProof {
  readonly organizations: number;
  readonly entries: number;
  /** Ledger entries some or all of whose records retention has taken away; only their sums are proven. */
  readonly entriesBeforeRetention: number;
  /** In the order of their organizations' ids. */
  readonly ledgers: readonly ProvenLedger[];
  /** The first that were found, at most `findingsMax`. */
  readonly findings: readonly BooksFinding[];
  readonly findingsTotal: number;
  /** How many of them are `ledger_differs`. */
  readonly differingTotal: number;
  /** When the snapshot was taken, by the database's clock, in milliseconds since the Unix epoch. */
  readonly takenMs: number;
}

/** What an organization's ledger comes to. */
export interface ProvenLedger {
  readonly organizationId: string;
  readonly entries: number;
  readonly balancePicoUsd: bigint;
  readonly head: Buffer;
}

export interface VerifyOptions {
  readonly findingsMax?: number;
  /** Only the books of this one; absent are all. */
  readonly organizationId?: string;
  /** What ledgers once came to, by organization: those of today must go on from it. */
  readonly known?: ReadonlyMap<string, KnownHead>;
  /** Whose ids usage may be kept by; absent: that is not looked at. */
  readonly ids?: KnownIds;
}

/** Rows of one read; what is held in memory at a time. */
const rowsAtOnce = 1000;

/**
 * Proves all books in one snapshot and in bounded memory: each ledger's chain and sums, ledger entries against the
 * records that they stand for, hourly sums against records, daily against hourly ones, and both against the ledger, the
 * cost of records against their tokens and prices, and what names keys, projects and models against who has them.
 * Gateways may go on writing; retention waits for the next hour. What PostgreSQL sorts for it goes to its temporary files, up to the size of the records.
 */
export function verifyBooks(db: Pick<Db, 'sql'>, options: VerifyOptions = {}): Promise<BooksProof> {
  return db.sql.begin('isolation level repeatable read read only', async (tx) => {
    await tx.unsafe("set local statement_timeout = 0; set local work_mem = '64MB'; set local jit = off");
    await holdPartitions(tx);
    const check = new BooksCheck(tx, options);
    await check.begin();
    await check.ledgers();
    await check.entries();
    await check.sums();
    await check.names(options.ids ?? nobodyKnown);
    return check.proof();
  });
}

interface FoundRow {
  readonly organization_id: string;
  readonly id: string | null;
  readonly problem: string | null;
}

interface NamedRow extends FoundRow {
  readonly kind: 'price_differs' | 'unknown_code' | 'key_differs' | 'project_differs';
}

interface EntryRow extends FoundRow {
  readonly kind: 'entry_without_records' | 'entry_differs' | 'record_without_entry' | 'before_retention';
}

class BooksCheck {
  readonly #sql: ISql;
  readonly #findingsMax: number;
  readonly #known: ReadonlyMap<string, KnownHead>;
  readonly #only: string | null;
  readonly #ledgers: ProvenLedger[] = [];
  readonly #findings: BooksFinding[] = [];
  #found = 0;
  #differing = 0;
  #takenMs = 0;
  #organizations = 0;
  #entries = 0;
  #before = 0;

  constructor(sql: TransactionSql, { findingsMax = 1000, known = new Map(), organizationId }: VerifyOptions) {
    this.#sql = sql;
    this.#findingsMax = findingsMax;
    this.#known = known;
    this.#only = organizationId ?? null;
  }

  proof(): BooksProof {
    return {
      organizations: this.#organizations,
      entries: this.#entries,
      entriesBeforeRetention: this.#before,
      ledgers: this.#ledgers,
      findings: this.#findings,
      findingsTotal: this.#found,
      differingTotal: this.#differing,
      takenMs: this.#takenMs,
    };
  }

  async begin(): Promise<void> {
    const [row] = await this.#sql<{ ms: number }[]>`select (extract(epoch from now()) * 1000)::float8 as ms`;
    this.#takenMs = row?.ms ?? 0;
  }

  #find(kind: BooksFinding['kind'], { organization_id, id, problem }: FoundRow): void {
    this.#found += 1;
    if (kind === 'ledger_differs') this.#differing += 1;
    if (this.#findings.length >= this.#findingsMax) return;
    this.#findings.push({ kind, organizationId: organization_id, id, problem });
  }

  async ledgers(): Promise<void> {
    for (const owner of await this.#owners()) {
      const proof = await proveIn(this.#sql, owner, this.#known.get(owner) ?? null);
      this.#ledger(proof, await this.#chargedBySums(owner));
    }
  }

  /** Also those of which it is known that they were there. */
  async #owners(): Promise<readonly string[]> {
    const owners = new Set(this.#known.keys());
    for await (const owner of readOwners(this.#sql)) owners.add(owner);
    return [...owners].filter((owner) => this.#only === null || owner === this.#only).toSorted();
  }

  /** @param chargedPicoUsd as PostgreSQL sums it, which may be no number */
  #ledger({ organizationId, ...proof }: LedgerProof, chargedPicoUsd: string): void {
    this.#organizations += 1;
    this.#entries += proof.entries;
    const { entries, balancePicoUsd, head } = proof;
    this.#ledgers.push({ organizationId, entries, balancePicoUsd, head });
    const found = { organization_id: organizationId, id: null };
    if (proof.altered !== null) this.#find('entry', { ...found, ...proof.altered });
    if (proof.wallet !== null) this.#find('wallet', { ...found, problem: proof.wallet });
    if (proof.continuity !== null) this.#find('ledger_differs', { ...found, problem: proof.continuity });
    if (proof.usagePicoUsd.toString() === chargedPicoUsd) return;
    this.#find('charges_differ', { ...found, problem: `ledger ${proof.usagePicoUsd}, sums ${chargedPicoUsd}` });
  }

  async #chargedBySums(organizationId: string): Promise<string> {
    const [row] = await this.#sql<{ cost: string }[]>`
      select coalesce(sum(cost), 0)::text as cost from usage_daily
      where organization = (select code from usage_ids where id = ${organizationId})`;
    return row?.cost ?? '0';
  }

  async entries(): Promise<void> {
    const floor = uuidLowerBound(await readFloorMs(this.#sql));
    for (const text of [groupsText, singlesText]) {
      const rows = this.#sql.unsafe<EntryRow[]>(text, [floor, this.#only]).cursor(rowsAtOnce);
      for await (const some of rows) for (const row of some) this.#entry(row);
    }
  }

  #entry({ kind, ...row }: EntryRow): void {
    if (kind === 'before_retention') this.#before += 1;
    else this.#find(kind, row);
  }

  async sums(): Promise<void> {
    const floorMs = await readFloorMs(this.#sql);
    const partitions = await readPartitions(this.#sql);
    const bounds = partitions.flatMap(({ fromMs, toMs }) => [fromMs ?? 0, toMs ?? 0]).filter((ms) => ms > floorMs);
    const starts = [floorMs, ...new Set(bounds)].toSorted((a, b) => a - b);
    for (const [index, fromMs] of starts.entries()) {
      const toMs = starts[index + 1] ?? endOfTimeMs;
      const parameters = [uuidLowerBound(fromMs), uuidLowerBound(toMs), momentOf(fromMs), momentOf(toMs)];
      await this.#all('hour_differs', hoursText, parameters);
    }
    for (const [index, fromMs] of [0, ...starts].entries()) {
      const toMs = starts[index] ?? endOfTimeMs;
      if (fromMs < toMs) await this.#all('day_differs', daysText, [momentOf(fromMs), momentOf(toMs)]);
    }
  }

  async names(ids: KnownIds): Promise<void> {
    for (const text of [recordsText(ids), ownersText(ids)]) {
      const rows = this.#sql.unsafe<NamedRow[]>(text, [this.#only]).cursor(rowsAtOnce);
      for await (const some of rows) for (const { kind, ...row } of some) this.#find(kind, row);
    }
  }

  async #all(kind: BooksFinding['kind'], text: string, parameters: string[]): Promise<void> {
    const rows = this.#sql.unsafe<FoundRow[]>(text, [...parameters, this.#only]).cursor(rowsAtOnce);
    for await (const some of rows) for (const row of some) this.#find(kind, row);
  }
}

/** The last moment that an id of a request can carry. */
const endOfTimeMs = 2 ** 48 - 1;
/** As PostgreSQL reads it, which knows no years of more than four digits with a sign. */
const momentOf = (timeMs: number): string =>
  timeMs >= 253_402_300_800_000 ? 'infinity' : new Date(timeMs).toISOString();

/** Rows of the organization that parameter `n` names; all rows where it is null. */
const ofOrganization = (column: string, n: number): string => `($${n}::uuid is null or ${column} = $${n}::uuid)`;
const ofCode = (n: number): string =>
  `($${n}::uuid is null or organization = (select code from usage_ids where id = $${n}::uuid))`;

/** Entries of groups beside the records of the groups; $1 is the lowest id of what is kept, $2 the organization. */
const groupsText = `
  with ${ledgerUsageSql}, grouped as (
    select organization_id, group_id, count(*) as requests, sum(amount) as amount,
      (array_agg(request_id order by request_id))[1] as first, ${requestsHashSql} as requests_hash
    from (select n.id as organization_id, group_id, r.id as request_id, cost as amount
      from usage_requests r join usage_ids n on n.code = r.organization
      where group_id is not null and ${ofOrganization('n.id', 2)}) as r
    group by organization_id, group_id
  )
  select coalesce(e.organization_id, g.organization_id)::text as organization_id, coalesce(e.id, g.first)::text as id,
    case when e.id is null then null else format('%s of %s requests', coalesce(g.requests, 0), e.requests) end as problem,
    case when e.id is null then 'record_without_entry'
      when coalesce(g.requests, 0) < e.requests and e.request_id < $1::uuid then 'before_retention'
      when coalesce(g.requests, 0) < e.requests then 'entry_without_records'
      else 'entry_differs' end as kind
  from (select * from ledger_usage where group_id is not null and ${ofOrganization('organization_id', 2)}) as e
  full join grouped g on g.organization_id = e.organization_id and g.group_id = e.group_id
  where e.id is null or g.requests is distinct from e.requests or g.amount <> e.amount
    or g.requests_hash is distinct from e.requests_hash or g.first <> e.request_id`;

/** Entries of one request beside the records that share no entry; parameters as above. */
const singlesText = `
  with ${ledgerUsageSql}
  select coalesce(e.organization_id, r.organization_id)::text as organization_id, coalesce(e.id, r.id)::text as id,
    format('ledger %s, record %s', e.amount, r.cost) as problem,
    case when e.id is null then 'record_without_entry' when r.id is not null then 'entry_differs'
      when e.request_id < $1::uuid then 'before_retention' else 'entry_without_records' end as kind
  from (select * from ledger_usage where group_id is null and ${ofOrganization('organization_id', 2)}) as e
  full join (select n.id as organization_id, q.id, cost
    from usage_requests q join usage_ids n on n.code = q.organization
    where group_id is null and cost > 0 and ${ofOrganization('n.id', 2)}) as r
    on r.organization_id = e.organization_id and r.id = e.request_id
  where e.id is null or r.id is null or r.cost <> e.amount`;

const keyColumns = ['organization', 'key', 'project', 'model'];
const sumColumns = [
  'requests',
  'completed',
  'aborted',
  'ended',
  'failed',
  'cache_hits',
  'input_tokens',
  'input_cached_tokens',
  'output_tokens',
  'output_reasoning_tokens',
  'cost',
];

const idOf = (code: string): string => `(select id::text from usage_ids where code = coalesce(b.${code}, x.${code}))`;
const nameOf = (code: string): string => `(select name from usage_names where code = coalesce(b.${code}, x.${code}))`;

/** Two tables of sums of which one says what the other should. */
function differencesText(booked: string, expected: string, moment: 'hour' | 'day'): string {
  const same = [...keyColumns, moment].map((name) => `b.${name} = x.${name}`).join(' and ');
  const list = (table: string): string => sumColumns.map((name) => `${table}.${name}`).join(', ');
  return `
    select coalesce(${idOf('organization')}, '${unknownOrganization}') as organization_id, ${idOf('key')} as id,
      format('%s %s: requests %s, should be %s', coalesce(b.${moment}, x.${moment}), ${nameOf('model')},
        coalesce(b.requests, 0), coalesce(x.requests, 0)) as problem
    from (${booked}) as b full join (${expected}) as x on ${same}
    where (${list('b')}) is distinct from (${list('x')})`;
}

/** Start of the hour that an id carries, as PostgreSQL computes it of the first 48 bits. */
const hourOfId = `to_timestamp((('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000) * 3600)`;
const counted = ['completed', 'aborted', 'ended', 'failed'].map(
  (o) => `count(*) filter (where outcome = '${o}') as ${o}`,
);
const summed = sumColumns.slice(6).map((name) => `sum(${name}) as ${name}`);

/** From id $1 and hour $3 on, before id $2 and hour $4, of organization $5. */
const hoursText = differencesText(
  `select * from usage_hourly where hour >= $3::timestamptz and hour < $4::timestamptz and ${ofCode(5)}`,
  `select ${keyColumns.join(', ')}, ${hourOfId} as hour, count(*) as requests, ${counted.join(', ')},
    count(*) filter (where cache_hit) as cache_hits, ${summed.join(', ')}
    from usage_requests where id >= $1::uuid and id < $2::uuid and ${ofCode(5)} group by 1, 2, 3, 4, 5`,
  'hour',
);

const daysText = differencesText(
  `select * from usage_daily where day >= ($1::timestamptz at time zone 'UTC')::date
    and day < ($2::timestamptz at time zone 'UTC')::date and ${ofCode(3)}`,
  `select ${keyColumns.join(', ')}, (hour at time zone 'UTC')::date as day,
    ${sumColumns.map((name) => `sum(${name}) as ${name}`).join(', ')}
    from usage_hourly where hour >= $1::timestamptz and hour < $2::timestamptz and ${ofCode(3)} group by 1, 2, 3, 4, 5`,
  'day',
);
