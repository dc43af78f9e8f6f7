import type { ISql, TransactionSql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound } from '#base/id.ts';
import {
  holdPartitions,
  type KnownIds,
  nobodyKnown,
  ownersText,
  readFloorMs,
  readPartitions,
  recordsText,
  unknownOrganization,
} from '#core/metering/tables/tables.ts';
import {
  type KnownHead,
  type LedgerProof,
  ledgerUsageSql,
  proveIn,
  readOwners,
  requestsHashSql,
} from '#core/wallet/wallet.ts';

/**
 * A fault in the ledger or the records, of one of these kinds:
 * - `entry`: a ledger entry is not as it was recorded, `problem` says why; all later entries of its organization follow
 *   it
 * - `wallet`: the balance, the number of entries or the head of a wallet is not that of its ledger
 * - `entry_without_records`: records of a ledger entry are missing that retention must not have deleted
 * - `entry_differs`: requests and amounts of a ledger entry are not those of its records
 * - `record_without_entry`: a record was charged, but the ledger has no entry for it; `id` is that of the record, or
 *   the first of its group
 * - `hour_differs`, `day_differs`: a sum is not that of the records, or of the hours; `id` is that of the key
 * - `ledger_differs`: the ledger does not continue from its known earlier state
 * - `charges_differ`: the usage entries of an organization do not add up to its sums
 * - `price_differs`: the cost of a record is not its tokens at its price, or the price is of another model; `id` is
 *   that of the record
 * - `unknown_code`: a code that usage is stored under has no id or name any more; `id` is that of a record, if there is
 *   one
 * - `key_differs`, `project_differs`: usage is stored under a key or project that does not belong to its organization;
 *   `id` is that of the key or project
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
  /** Number of ledger entries of which retention has deleted records; only their sums are proven. */
  readonly entriesBeforeRetention: number;
  /** In the order of their organizations' ids. */
  readonly ledgers: readonly ProvenLedger[];
  /** The first findings, at most `findingsMax`. */
  readonly findings: readonly BooksFinding[];
  readonly findingsTotal: number;
  /** Number of findings of kind `ledger_differs`. */
  readonly differingTotal: number;
  /** Time of the snapshot, by the database's clock, in milliseconds since the Unix epoch. */
  readonly takenMs: number;
}

/** Entries, balance and head of an organization's ledger. */
export interface ProvenLedger {
  readonly organizationId: string;
  readonly entries: number;
  readonly balancePicoUsd: bigint;
  readonly head: Buffer;
}

export interface VerifyOptions {
  readonly findingsMax?: number;
  /** Only this organization; absent for all. */
  readonly organizationId?: string;
  /** Earlier states of ledgers, by organization: the current ledgers must continue from them. */
  readonly known?: ReadonlyMap<string, KnownHead>;
  /** Ids that usage may be stored for; absent: ids are not checked. */
  readonly ids?: KnownIds;
}

/** Number of rows per read, the maximum in memory at a time. */
const rowsAtOnce = 1000;

/**
 * Verifies all ledgers and records in one snapshot and in bounded memory: each ledger's chain and sums, ledger entries
 * against their records, hourly sums against records, daily sums against hourly ones, and both against the ledger, the
 * cost of records against their tokens and prices, and the ids of keys, projects and models against their owners.
 * Gateways may continue to write; retention waits for the next hour. PostgreSQL sorts in its temporary files, up to the
 * size of the records.
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

  /** Returns all organizations with a ledger, and those that are known to have had one. */
  async #owners(): Promise<readonly string[]> {
    const owners = new Set(this.#known.keys());
    for await (const owner of readOwners(this.#sql)) owners.add(owner);
    return [...owners].filter((owner) => this.#only === null || owner === this.#only).toSorted();
  }

  /** @param chargedPicoUsd sum from PostgreSQL, which may not be a number */
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

/** Highest time that an id of a request can contain. */
const endOfTimeMs = 2 ** 48 - 1;
/** Returns a time as PostgreSQL reads it, which does not accept years of more than four digits with a sign. */
const momentOf = (timeMs: number): string =>
  timeMs >= 253_402_300_800_000 ? 'infinity' : new Date(timeMs).toISOString();

/** Restricts rows to the organization of parameter `n`; all rows if it is null. */
const ofOrganization = (column: string, n: number): string => `($${n}::uuid is null or ${column} = $${n}::uuid)`;
const ofCode = (n: number): string =>
  `($${n}::uuid is null or organization = (select code from usage_ids where id = $${n}::uuid))`;

/** SQL for entries of groups beside the records of the groups; $1 is the lowest kept id, $2 the organization. */
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

/** SQL for entries of one request beside the records that share no entry; parameters as in `groupsText`. */
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

/** SQL that compares a table of sums with the sums that it should have. */
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

/** SQL for the start of the hour in an id's first 48 bits. */
const hourOfId = `to_timestamp((('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint / 3600000) * 3600)`;
const counted = ['completed', 'aborted', 'ended', 'failed'].map(
  (o) => `count(*) filter (where outcome = '${o}') as ${o}`,
);
const summed = sumColumns.slice(6).map((name) => `sum(${name}) as ${name}`);

/** SQL for differing hours from id $1 and hour $3 to before id $2 and hour $4, of organization $5. */
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
