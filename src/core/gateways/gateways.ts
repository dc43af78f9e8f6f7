import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Clock } from '#base/clock.ts';
import { ConfigError } from '#base/config.ts';
import { type Db, isUnknownSchema } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { readMissing } from '#base/migrations.ts';
import type { RedisStore } from '#base/redis.ts';
import { readVersion } from '#base/version.ts';
import { Bus, type Message, type MessageHandler } from './bus.ts';
import { type DatabaseChange, DatabaseWatch, type Noticed, type Sighting } from './database-watch.ts';
import { type GatewayRun, readUncleanRuns } from './gateway-runs.ts';
import { placeOf } from './place.ts';
import { bounded, goneAfterMs, type LiveGateway, type Published, readLiveGateways } from './published.ts';
import { createUnderWay, type UnderWay } from './under-way.ts';

export { type Agreement, compareMs, createAgreement, differenceText, type StandingDifference } from './agreement.ts';
export type { Message } from './bus.ts';
export { createConnectionCheck } from './connection-check.ts';
export type { DatabaseChange } from './database-watch.ts';
export type { GatewayRun } from './gateway-runs.ts';
export { type HistoryChange, noteRestore, readHistoryChanges } from './history-changes.ts';
export { readGatewayDirId } from './place.ts';
export {
  type Difference,
  findDifferences,
  fingerprint,
  isContested,
  type LiveGateway,
  type Published,
  readLiveGateways,
} from './published.ts';
export type { CountedMost, UnderWay } from './under-way.ts';

/**
 * The gateways of one database. Each writes a heartbeat there; those that share a Redis send messages through it. A
 * gateway that would neither be alone nor share refuses to start, since it would give every limit a second time.
 */
export interface Gateways {
  readonly id: string;
  /** Of its slot in the gateway folder, the same after every start: no other gateway that lives has it. */
  readonly placeId: string;
  /**
   * Takes its place among the others.
   * @returns ids of gateways that had the place before and did not leave it: they are gone
   * @throws ConfigError naming REDIS_URL when others run that it does not share Redis with
   */
  start(): Promise<readonly string[]>;
  /** Says that it lives, from its start to its stop; to be called every `heartbeatMs`. */
  beat(): Promise<void>;
  /**
   * Calls the listener once PostgreSQL is followed by another one, or by an earlier state of itself: what was read of it
   * is not known any more. Called again with every heartbeat until it succeeds.
   */
  onDatabaseChange(listener: DatabaseListener): void;
  /**
   * Whether the database lacks migrations of this program since the last heartbeat, as after the restore of a backup
   * from before an upgrade. It is used like one that is away until a gateway starts, which migrates it.
   */
  readonly isDatabaseOlder: boolean;
  readonly underWay: UnderWay;
  /** Ids of the gateways that live, this one included. */
  live(): Promise<ReadonlySet<string>>;
  /** Adds a kind of things that all gateways must have in common, before the start. No value may be a secret. */
  publishes(kind: string, read: () => Readonly<Record<string, string>>): void;
  /** Everything that this gateway publishes, as it is now. */
  published(): Published;
  /** Writes what this gateway publishes; to be called after each change. It is written at the start, too. */
  publish(): Promise<void>;
  /** Reads the gateways that live with what they publish. */
  readLive(): Promise<readonly LiveGateway[]>;
  /** Runs that ended uncleanly in a span of time, in milliseconds since the Unix epoch; `toMs` is not in it. */
  uncleanRuns(fromMs: number, toMs: number): Promise<readonly GatewayRun[]>;
  /** Sets what carries out the others' messages. */
  onMessage(handle: MessageHandler): void;
  /**
   * Tells all others, and waits until those that live have done what it says, at most a second. Alone it does nothing.
   * @returns ids of those that live and did not say that it is done
   */
  tell(message: Message): Promise<readonly string[]>;
  /** Leaves the others at once; while Postgres is away, when its heartbeat is old. */
  stop(): Promise<void>;
}

export interface GatewaysOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** The folder of this gateway in the data folder. */
  readonly gatewayDir: string;
  /** Which of the workers that share the gateway folder this one is; 0 when absent. */
  readonly slot?: number;
  /** Null for a gateway that shares nothing. */
  readonly store: RedisStore | null;
  /** What names in Redis begin with. */
  readonly prefix: string;
}

export type DatabaseListener = (change: DatabaseChange) => Promise<void>;

export const heartbeatMs = 2000;
const acknowledgeMs = 1000;
const helloMs = 500;
const retryAfterMs = 250;

const changeTexts: Readonly<Record<DatabaseChange, string>> = {
  server:
    'another PostgreSQL server answers, or it was started again: what was committed after knownAt may be lost, and ' +
    'everything that is known of it is read again',
  rewound:
    "PostgreSQL's history went back: what was committed after knownAt is lost, and everything that is known of it is " +
    'read again',
  exchanged: 'another database answers under the address of the one that this gateway started on',
};

const olderText =
  'the database is older than this gateway, as after the restore of a backup from before an upgrade: it is used like one ' +
  'that is away. Restart one gateway, which migrates the database, or restore a newer backup';

interface Other {
  readonly id: string;
  readonly shares: boolean;
  readonly seen: string;
}

export function createGateways(options: GatewaysOptions): Gateways {
  return new DatabaseGateways(options);
}

/**
 * What names in Redis begin with, so that gateways of other databases may use the same Redis: the server's own id and
 * the database's.
 */
export async function readNamespace({ sql }: Db): Promise<string> {
  const [row] = await sql<{ cluster: string; database: string }[]>`
    select (select system_identifier from pg_control_system())::text as cluster,
      (select oid from pg_database where datname = current_database())::text as database`;
  return `hg:${BigInt(row?.cluster ?? '0').toString(36)}.${row?.database ?? '0'}`;
}

class DatabaseGateways implements Gateways {
  readonly id = randomUUID();
  readonly #options: GatewaysOptions;
  readonly #bus: Bus | null;
  readonly placeId: string;
  readonly underWay: UnderWay;
  readonly #version = readVersion();
  /** Set by `start` alone, which has checked that the place may be taken. */
  #hasPlace = false;
  #liveLast: ReadonlySet<string> | null = null;
  readonly #publishing = new Map<string, () => Readonly<Record<string, string>>>();
  readonly #watch = new DatabaseWatch();
  readonly #databaseListeners: DatabaseListener[] = [];
  #isRenewing = false;
  isDatabaseOlder = false;

  constructor(options: GatewaysOptions) {
    const { store, prefix, db, log, gatewayDir, slot = 0 } = options;
    this.#options = options;
    this.underWay = createUnderWay({ db, log, id: this.id });
    this.#bus = store === null ? null : new Bus({ store, prefix, gatewayId: this.id, log });
    this.placeId = placeOf(gatewayDir, slot);
  }

  async start(): Promise<readonly string[]> {
    await this.#bus?.open();
    const sharing = new Set<string>();
    const first = new Map<string, string>();
    const former: string[] = [];
    for (;;) {
      const { notSharing, gone } = await this.#enter(sharing);
      former.push(...gone);
      if (notSharing.length === 0) {
        this.#hasPlace = true;
        return former;
      }
      // Outside of the transaction: one whose connection is lost must not wait for Redis, holding its lock.
      const silent = await this.#silentAmong(notSharing);
      for (const { id, seen } of notSharing) {
        const before = first.get(id);
        if (!silent.has(id)) sharing.add(id);
        else if (before === undefined) first.set(id, seen);
        // A gateway that was killed leaves a heartbeat that stands still: that one is waited out.
        else if (before !== seen) throw this.#refusal();
      }
      if (silent.size > 0) await new Promise((resolve) => setTimeout(resolve, retryAfterMs));
    }
  }

  async beat(): Promise<void> {
    if (!this.#hasPlace) return;
    try {
      const seen = await this.#writeBeat();
      if (seen !== undefined) this.#look(seen);
    } catch (error) {
      if (isUnknownSchema(error)) await this.#setOlder(true);
      throw error;
    }
  }

  async #writeBeat(): Promise<Sighting | undefined> {
    const { sql } = this.#options.db;
    // One that was taken for dead, and only slept, goes on with its run.
    const [seen] = await sql<Sighting[]>`with run as (
        ${this.#insertRun()} on conflict (id) do update set last_seen_at = now(), ended_at = null, ended = null,
          beats = gateway_runs.beats + 1
        returning beats
      ), gone as (
        update gateway_runs set ended_at = last_seen_at, ended = 'unclean'
        where ended_at is null and last_seen_at < now() - ${goneAfterMs}::int * interval '1 ms' and id <> ${this.id}
      ), lives as (
        insert into gateways (id, place_id, started_at, last_seen_at, shares, published)
        values (${this.id}, ${this.placeId}, now(), now(), ${this.#bus !== null},
          ${JSON.stringify(this.published())}::text::jsonb)
        on conflict (id) do update set last_seen_at = now()
      )
      select beats::float8 as beats, ${this.#sightingColumns()} from run`;
    return seen;
  }

  async #setOlder(isOlder: boolean): Promise<void> {
    const { db, log } = this.#options;
    if (isOlder === this.isDatabaseOlder) return;
    this.isDatabaseOlder = isOlder;
    if (isOlder) log.error({ missing: await readMissing(db.sql) }, olderText);
    else log.info('the database has all migrations of this gateway again');
  }

  onDatabaseChange(listener: DatabaseListener): void {
    this.#databaseListeners.push(listener);
  }

  /**
   * A database from before this gateway's start has none of its heartbeats, but those of gateways before it. Later ones
   * than this gateway saw are of the new history.
   */
  #sightingColumns() {
    const seenAt = this.#watch.seenAt ?? 'infinity';
    return this.#options.db.sql`
      (select system_identifier from pg_control_system())::text || '.' ||
        (select oid from pg_database where datname = current_database())::text as database,
      pg_postmaster_start_time()::text as server, now()::text as at,
      coalesce(
        (select last_seen_at from gateway_runs where id = ${this.id}),
        (select max(last_seen_at) from gateway_runs where last_seen_at <= ${seenAt}::timestamptz),
        '-infinity')::text as before`;
  }

  /** Not awaited: heartbeats go on while everything is read again. */
  #look(seen: Sighting): void {
    const noticed = this.#watch.compare(seen);
    if (noticed === null) {
      this.#watch.accept(seen);
      void this.#setOlder(false);
    } else if (!this.#isRenewing) void this.#renew(noticed, seen);
  }

  async #renew(noticed: Noticed, seen: Sighting): Promise<void> {
    const { db, log } = this.#options;
    const { change, knownAt } = noticed;
    this.#isRenewing = true;
    try {
      if (change !== 'exchanged') {
        await this.#setOlder((await readMissing(db.sql)).length > 0);
        if (this.isDatabaseOlder) return;
      }
      log.warn({ change, knownAt, noticedAt: seen.at }, changeTexts[change]);
      for (const listener of this.#databaseListeners) await listener(change);
      if (change === 'exchanged') return;
      await db.sql`insert into database_changes (gateway_id, change, known_at, noticed_at)
        values (${this.id}, ${change}, ${knownAt}::timestamptz, ${seen.at}::timestamptz)`;
      this.#watch.accept(seen);
      log.warn({ change }, 'everything that was known of the database was read again');
    } catch (error) {
      log.warn({ err: error, change }, 'what is known of the database could not be read again; it is tried again');
    } finally {
      this.#isRenewing = false;
    }
  }

  #insertRun() {
    const { db, slot = 0 } = this.#options;
    return db.sql`insert into gateway_runs (id, place_id, host, slot, version, started_at, last_seen_at)
      values (${this.id}, ${this.placeId}, ${hostname()}, ${slot}, ${this.#version}, now(), now())`;
  }

  uncleanRuns(fromMs: number, toMs: number): Promise<readonly GatewayRun[]> {
    return readUncleanRuns(this.#options.db, fromMs, toMs);
  }

  async live(): Promise<ReadonlySet<string>> {
    const { sql } = this.#options.db;
    const rows = await sql<{ id: string }[]>`
      select id from gateways where last_seen_at > now() - ${goneAfterMs}::int * interval '1 ms'`;
    this.#liveLast = new Set([this.id, ...rows.map(({ id }) => id)]);
    return this.#liveLast;
  }

  publishes(kind: string, read: () => Readonly<Record<string, string>>): void {
    this.#publishing.set(kind, read);
  }

  published(): Published {
    return Object.fromEntries([...this.#publishing].map(([kind, read]) => [kind, bounded(read())]));
  }

  async publish(): Promise<void> {
    const { sql } = this.#options.db;
    await sql`update gateways set published = ${JSON.stringify(this.published())}::text::jsonb where id = ${this.id}`;
  }

  readLive(): Promise<readonly LiveGateway[]> {
    return readLiveGateways(this.#options.db);
  }

  onMessage(handle: MessageHandler): void {
    this.#bus?.onMessage(handle);
  }

  async tell(message: Message): Promise<readonly string[]> {
    if (this.#bus === null) return [];
    const missing = await this.#bus.tell(message, [...(await this.#liveOrLast())], acknowledgeMs);
    if (missing.length > 0) this.#options.log.warn({ message, missing }, 'gateways did not answer a message');
    return missing;
  }

  /** While Postgres is away nobody knows better than it said last. */
  async #liveOrLast(): Promise<ReadonlySet<string>> {
    try {
      return await this.live();
    } catch (error) {
      if (this.#liveLast === null) throw error;
      return this.#liveLast;
    }
  }

  async stop(): Promise<void> {
    const { db, log } = this.#options;
    this.#hasPlace = false;
    try {
      await db.sql`with run as (
          update gateway_runs set last_seen_at = now(), ended_at = now(), ended = 'clean' where id = ${this.id}
        )
        delete from gateways where id = ${this.id}`;
    } catch (error) {
      // A gateway stops all the same while Postgres is away.
      log.warn(
        { err: error },
        'this gateway could not be taken off the list of gateways; the others drop it when its heartbeat is 15 seconds old',
      );
    }
  }

  /**
   * Writes the first heartbeat if all others are known to share with this one; says which are not known to otherwise.
   *
   * @param sharing ids
   */
  async #enter(
    sharing: ReadonlySet<string>,
  ): Promise<{ readonly notSharing: readonly Other[]; readonly gone: readonly string[] }> {
    const { sql } = this.#options.db;
    return sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtext('headgate gateways'))`;
      const deleted = await tx<{ id: string; place_id: string }[]>`delete from gateways
        where place_id = ${this.placeId} or last_seen_at < now() - ${goneAfterMs}::int * interval '1 ms'
        returning id, place_id`;
      const gone = deleted.filter((row) => row.place_id === this.placeId).map(({ id }) => id);
      const others = await tx<Other[]>`select id, shares, last_seen_at::text as seen from gateways`;
      const notSharing = others.filter(({ id }) => !sharing.has(id));
      if (notSharing.length > 0) return { notSharing, gone };
      await tx`update gateway_runs set ended_at = last_seen_at, ended = 'unclean' where ended_at is null
        and (place_id = ${this.placeId} or last_seen_at < now() - ${goneAfterMs}::int * interval '1 ms')`;
      await tx`${this.#insertRun()}`;
      await tx`insert into gateways (id, place_id, started_at, last_seen_at, shares, published)
        values (${this.id}, ${this.placeId}, now(), now(), ${this.#bus !== null},
          ${JSON.stringify(this.published())}::text::jsonb)`;
      const [seen] = await tx<Sighting[]>`select 0::float8 as beats, ${this.#sightingColumns()}`;
      if (seen !== undefined) this.#watch.accept(seen);
      return { notSharing, gone };
    });
  }

  /** Whoever answers through our Redis shares it; that two URLs are different says nothing. */
  async #silentAmong(others: readonly Other[]): Promise<ReadonlySet<string>> {
    const asked = this.#bus === null ? [] : others.filter(({ shares }) => shares).map(({ id }) => id);
    const missing = asked.length === 0 ? [] : await this.#bus?.tell({ kind: 'hello' }, asked, helloMs);
    return new Set(others.map(({ id }) => id).filter((id) => !asked.includes(id) || missing?.includes(id) === true));
  }

  #refusal(): ConfigError {
    const text =
      this.#bus === null
        ? 'REDIS_URL: another gateway runs on this database. Name a Redis that both use, or every limit would hold twice.'
        : 'REDIS_URL: another gateway runs on this database and does not use this Redis; all must use the same one.';
    return new ConfigError(text);
  }
}
