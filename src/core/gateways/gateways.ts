import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Clock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import { readVersion } from '#base/config/config.ts';
import { type Db, isUnknownSchema, readMissing } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { RedisStore } from '#base/redis/redis.ts';
import { Bus, type Message, type MessageHandler } from './bus.ts';
import { type DatabaseChange, DatabaseWatch, type Noticed, type Sighting } from './database-watch.ts';
import { type GatewayRun, readUncleanRuns } from './gateway-runs.ts';
import { placeOf } from './place.ts';
import { bounded, expiresAfterMs, type LiveGateway, type Published, readLiveGateways } from './differences.ts';
import { createTokenWatermarks, type TokenWatermarks } from './token-watermarks.ts';

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
} from './differences.ts';
export type { CountedMost, TokenWatermarks } from './token-watermarks.ts';

/**
 * The gateways of one database. Each writes heartbeats there; those that share a Redis send messages through it. A
 * gateway that is neither the only one nor shares a Redis refuses to start, since it would grant every limit twice.
 */
export interface Gateways {
  readonly id: string;
  /** Id of the gateway's slot in the gateway folder, equal after every start: no other live gateway has it. */
  readonly placeId: string;
  /**
   * Registers this gateway among the others.
   * @returns ids of gateways that had the slot before and did not unregister: they are dead
   * @throws ConfigError naming REDIS_URL if other gateways run that do not share a Redis with this one
   */
  start(): Promise<readonly string[]>;
  /** Writes a heartbeat, between start and stop; must be called every `heartbeatMs`. */
  beat(): Promise<void>;
  /**
   * Calls the listener when PostgreSQL is replaced by another server, or by an earlier state of itself: everything read
   * from it before is then unreliable. Calls again with every heartbeat until the listener succeeds.
   */
  onDatabaseChange(listener: DatabaseListener): void;
  /**
   * True if the database has lacked migrations of this program since the last heartbeat, for example after restoring a
   * backup from before an upgrade. The database counts as unavailable until a gateway starts and migrates it.
   */
  readonly isDatabaseOlder: boolean;
  readonly tokenWatermarks: TokenWatermarks;
  /** Returns the ids of the live gateways, including this one. */
  live(): Promise<ReadonlySet<string>>;
  /** Adds a kind of values that must be equal in all gateways, before the start. No value may be a secret. */
  publishes(kind: string, read: () => Readonly<Record<string, string>>): void;
  /** Returns all values that this gateway publishes now. */
  published(): Published;
  /** Writes the published values; must be called after each change. The start also writes them. */
  publish(): Promise<void>;
  /** Reads the live gateways with their published values. */
  readLive(): Promise<readonly LiveGateway[]>;
  /** Returns runs that ended uncleanly in a time span, in milliseconds since the Unix epoch; `toMs` is exclusive. */
  uncleanRuns(fromMs: number, toMs: number): Promise<readonly GatewayRun[]>;
  /** Sets the handler for the others' messages. */
  onMessage(handle: MessageHandler): void;
  /**
   * Sends a message to all others, if any, and waits until the live ones have carried it out, at most a second.
   * @returns ids of live gateways that did not acknowledge the message
   */
  broadcast(message: Message): Promise<readonly string[]>;
  /** Unregisters this gateway at once; while PostgreSQL is unavailable, others drop it when its heartbeat is old. */
  stop(): Promise<void>;
}

export interface GatewaysOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  /** This gateway's folder in the data folder. */
  readonly gatewayDir: string;
  /** Number of this worker among the workers that share the gateway folder; 0 if absent. */
  readonly slot?: number;
  /** Null for a gateway that shares nothing. */
  readonly store: RedisStore | null;
  /** Prefix of all names in Redis. */
  readonly prefix: string;
}

export type DatabaseListener = (change: DatabaseChange) => Promise<void>;

export const heartbeatMs = 2000;
const acknowledgeMs = 1000;
const helloMs = 500;
const retryAfterMs = 250;

const changeTexts: Readonly<Record<DatabaseChange, string>> = {
  server:
    'another PostgreSQL server answers, or the server was restarted: commits after a time (see knownAt) may be lost, and ' +
    'the gateway reads all of its data again',
  rewound:
    'PostgreSQL lost its most recent commits (after the time knownAt), and the gateway reads all of its data again',
  exchanged: "a different database answers at the address of the gateway's database",
};

const olderText =
  'the database is older than this gateway, as after restoring a backup from before an upgrade; it is treated as ' +
  'unavailable. Restart one gateway, which migrates the database, or restore a newer backup';

interface Other {
  readonly id: string;
  readonly shares: boolean;
  readonly seen: string;
}

export function createGateways(options: GatewaysOptions): Gateways {
  return new DatabaseGateways(options);
}

/** Returns the prefix of names in Redis, made of server id and database id: several databases may share a Redis. */
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
  readonly tokenWatermarks: TokenWatermarks;
  readonly #version = readVersion();
  /** Set only by `start`, which has checked that the slot is free. */
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
    this.tokenWatermarks = createTokenWatermarks({ db, log, id: this.id });
    this.#bus = store === null ? null : new Bus({ store, prefix, gatewayId: this.id, log });
    this.placeId = placeOf(gatewayDir, slot);
  }

  async start(): Promise<readonly string[]> {
    await this.#bus?.open();
    const sharing = new Set<string>();
    const first = new Map<string, string>();
    const former: string[] = [];
    for (;;) {
      const { notSharing, previousIds } = await this.#enter(sharing);
      former.push(...previousIds);
      if (notSharing.length === 0) {
        this.#hasPlace = true;
        return former;
      }
      // Outside of the transaction: one whose connection is lost must not hold its lock while waiting for Redis.
      const silent = await this.#silentAmong(notSharing);
      for (const { id, seen } of notSharing) {
        const before = first.get(id);
        if (!silent.has(id)) sharing.add(id);
        else if (before === undefined) first.set(id, seen);
        // A killed gateway leaves a heartbeat that does not change: `start` waits until it is old.
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
    // A gateway that counted as dead but only slept continues its run.
    const [seen] = await sql<Sighting[]>`with run as (
        ${this.#insertRun()} on conflict (id) do update set last_seen_at = now(), ended_at = null, ended = null,
          beats = gateway_runs.beats + 1
        returning beats
      ), gone as (
        update gateway_runs set ended_at = last_seen_at, ended = 'unclean'
        where ended_at is null and last_seen_at < now() - ${expiresAfterMs}::int * interval '1 ms' and id <> ${this.id}
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
    else log.info('the database again has all migrations of this gateway');
  }

  onDatabaseChange(listener: DatabaseListener): void {
    this.#databaseListeners.push(listener);
  }

  /**
   * Columns of a sighting. A database from before this gateway's start has none of its heartbeats, but those of earlier
   * gateways. Heartbeats later than the last one this gateway saw belong to the new history.
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

  /** Compares a heartbeat. Not awaited: heartbeats continue while all data is read again. */
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
      log.warn({ change }, 'all data of the database was read again');
    } catch (error) {
      log.warn({ err: error, change }, 'the data of the database could not be read again; retrying');
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
      select id from gateways where last_seen_at > now() - ${expiresAfterMs}::int * interval '1 ms'`;
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

  async broadcast(message: Message): Promise<readonly string[]> {
    if (this.#bus === null) return [];
    const missing = await this.#bus.send(message, [...(await this.#liveOrLast())], acknowledgeMs);
    if (missing.length > 0)
      this.#options.log.warn(
        { message, missing },
        'some gateways (see missing) did not confirm a message in time; they read changes from PostgreSQL themselves, except reloads of engine files',
      );
    return missing;
  }

  /** Returns the live gateways; while PostgreSQL is unavailable, those of the last successful query. */
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
      // The gateway stops even if PostgreSQL is unavailable.
      log.warn(
        { err: error },
        'this gateway stops, and could not be removed from the list of gateways; the others remove it after 15 seconds',
      );
    }
  }

  /**
   * Writes the first heartbeat if all others are known to share a Redis with this gateway; otherwise returns those that
   * are not known to share.
   *
   * @param sharing ids
   */
  async #enter(
    sharing: ReadonlySet<string>,
  ): Promise<{ readonly notSharing: readonly Other[]; readonly previousIds: readonly string[] }> {
    const { sql } = this.#options.db;
    return sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtext('headgate gateways'))`;
      const deleted = await tx<{ id: string; place_id: string }[]>`delete from gateways
        where place_id = ${this.placeId} or last_seen_at < now() - ${expiresAfterMs}::int * interval '1 ms'
        returning id, place_id`;
      const previousIds = deleted.filter((row) => row.place_id === this.placeId).map(({ id }) => id);
      const others = await tx<Other[]>`select id, shares, last_seen_at::text as seen from gateways`;
      const notSharing = others.filter(({ id }) => !sharing.has(id));
      if (notSharing.length > 0) return { notSharing, previousIds };
      await tx`update gateway_runs set ended_at = last_seen_at, ended = 'unclean' where ended_at is null
        and (place_id = ${this.placeId} or last_seen_at < now() - ${expiresAfterMs}::int * interval '1 ms')`;
      await tx`${this.#insertRun()}`;
      await tx`insert into gateways (id, place_id, started_at, last_seen_at, shares, published)
        values (${this.id}, ${this.placeId}, now(), now(), ${this.#bus !== null},
          ${JSON.stringify(this.published())}::text::jsonb)`;
      const [seen] = await tx<Sighting[]>`select 0::float8 as beats, ${this.#sightingColumns()}`;
      if (seen !== undefined) this.#watch.accept(seen);
      return { notSharing, previousIds };
    });
  }

  /** Returns gateways that do not answer through this Redis. An answer proves a shared Redis; URLs prove nothing. */
  async #silentAmong(others: readonly Other[]): Promise<ReadonlySet<string>> {
    const asked = this.#bus === null ? [] : others.filter(({ shares }) => shares).map(({ id }) => id);
    const missing = asked.length === 0 ? [] : await this.#bus?.send({ kind: 'hello' }, asked, helloMs);
    return new Set(others.map(({ id }) => id).filter((id) => !asked.includes(id) || missing?.includes(id) === true));
  }

  #refusal(): ConfigError {
    const text =
      this.#bus === null
        ? 'REDIS_URL: another gateway uses this database. Set a Redis that both use, otherwise each gateway would apply every limit separately.'
        : 'REDIS_URL: another gateway uses this database with a different Redis. Set the same Redis for all gateways.';
    return new ConfigError(text);
  }
}
