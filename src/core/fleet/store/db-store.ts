import { sql } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { BoundedStore, createPacedLoop } from '#base/queues/queues.ts';
import { type Fence, FenceLostError, requireFence } from '#core/fleet/drivers/drivers.ts';
import type {
  CoordinationStore,
  Demand,
  EngineCommand,
  EngineDemand,
  GoodSpec,
  Leadership,
  NotedCommand,
  PendingCommand,
  Published,
  PublishedEngine,
} from './coordination-store.ts';
import { createGoodSpecTable, type GoodSpecTable } from './good-spec-table.ts';
import { createLeadership, type LeadershipOptions } from './leadership.ts';

/** How often a gateway reads what others wrote, and when they count as gone; milliseconds. */
export interface StoreTimes {
  readonly pollMs: number;
  /** Applies while a request waits on any gateway, or while the leader is not the only gateway. */
  readonly busyPollMs: number;
  /** A demand this old belongs to a gateway that has ended, or that cannot reach the store. */
  readonly expiresAfterMs: number;
  readonly answerMs: number;
}

const storeTimes: StoreTimes = { pollMs: 1000, busyPollMs: 250, expiresAfterMs: 15_000, answerMs: 3000 };
/** Microseconds since the Unix epoch, by Postgres' clock. */
const commandId = sql`(extract(epoch from ordered_at) * 1000000)::bigint::text`;
const sweepEveryMs = 60_000;
const publishAttemptsMax = 3;

export interface DbStoreOptions extends Omit<LeadershipOptions, 'times'> {
  readonly times?: Partial<StoreTimes>;
  /** Created by the store if absent. */
  readonly leadership?: Leadership;
}

/**
 * The store of one scope in Postgres. Every write of a leader locks the row of its lease and only succeeds while the
 * lease is held, and if nothing was written under a later epoch. A statement that timed out and arrives late changes
 * nothing: it names the version that it follows.
 */
export function createDbStore(options: DbStoreOptions): CoordinationStore {
  return new DatabaseStore(options);
}

interface News {
  readonly version: string;
  readonly commands: number;
  readonly others: number;
  readonly waiting: number;
  /** Changes with every report of another gateway. */
  readonly reported: string;
}

class DatabaseStore implements CoordinationStore {
  readonly leadership: Leadership;
  readonly #options: DbStoreOptions;
  readonly #times: StoreTimes;
  readonly #bounded = new BoundedStore();
  readonly #goodSpecs: GoodSpecTable;
  readonly #log: Log;
  readonly #listeners: (() => void)[] = [];
  /** Published version that this gateway knows. */
  #version = 0n;
  #reported = '';
  #waitsHere = false;
  #sweptAtMs = -Infinity;
  #away = false;
  #closed = false;
  readonly #loop = createPacedLoop(() => this.#poll());

  constructor(options: DbStoreOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#times = { ...storeTimes, ...options.times };
    const { db, scope } = options;
    this.#goodSpecs = createGoodSpecTable({ db, scope, answerMs: this.#times.answerMs });
    const { times: _, leadership, ...own } = options;
    this.leadership = leadership ?? createLeadership(own);
  }

  async publish(fence: Fence, engines: readonly PublishedEngine[]): Promise<bigint> {
    const text = toJson(engines);
    for (let attempt = 1; attempt <= publishAttemptsMax; attempt += 1) {
      const version = await this.#write(fence, text, this.#version);
      if (version !== null) {
        this.#version = version;
        return version;
      }
      const epoch = await this.#readHead();
      if (epoch > fence.epoch) throw new FenceLostError();
      await requireFence(fence);
    }
    throw new FenceLostError();
  }

  async read(): Promise<Published | null> {
    const { scope, db } = this.#options;
    const [row] = await this.#ask('reading the published state', () => {
      return db.sql<{ version: string; epoch: string; engines: string }[]>`
        select version::text, epoch::text, engines::text from fleet_published where scope = ${scope}`;
    });
    if (row === undefined) return null;
    const version = BigInt(row.version);
    if (version > this.#version) this.#version = version;
    return { version, epoch: BigInt(row.epoch), engines: JSON.parse(row.engines) as PublishedEngine[] };
  }

  async report({ seenVersion, engines }: Omit<Demand, 'gatewayId'>): Promise<void> {
    const { scope, gatewayId, db } = this.#options;
    const waiting = Object.values(engines).reduce((sum, engine) => sum + engine.waiting, 0);
    const beganToWait = waiting > 0 && !this.#waitsHere;
    this.#waitsHere = waiting > 0;
    await this.#ask('writing a demand', () => {
      return db.sql`insert into fleet_demands (scope, gateway_id, seen_version, waiting, engines, updated_at)
        values (${scope}, ${gatewayId}, ${String(seenVersion)}::bigint, ${waiting}, ${toJson(engines)}::text::jsonb, now())
        on conflict (scope, gateway_id) do update set seen_version = excluded.seen_version,
          waiting = excluded.waiting, engines = excluded.engines, updated_at = excluded.updated_at`;
    });
    if (beganToWait) this.#loop.wake();
  }

  async demands(): Promise<readonly Demand[]> {
    const { scope, db } = this.#options;
    const rows = await this.#ask('demands', () => {
      return db.sql<{ gatewayId: string; seenVersion: string; engines: string }[]>`
        select gateway_id as "gatewayId", seen_version::text as "seenVersion", engines::text from fleet_demands
        where scope = ${scope} and updated_at > now() - ${this.#times.expiresAfterMs}::int * interval '1 ms'`;
    });
    return rows.map(({ gatewayId, seenVersion, engines }) => ({
      gatewayId,
      seenVersion: BigInt(seenVersion),
      engines: JSON.parse(engines) as Record<string, EngineDemand>,
    }));
  }

  async command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<NotedCommand> {
    const { scope, db } = this.#options;
    const statement = sql`insert into fleet_orders (scope, engine_id, kind, ordered_at)
      values (${scope}, ${engineId}, ${kind}, clock_timestamp())
      on conflict (scope, engine_id) do update set kind = excluded.kind, ordered_at = excluded.ordered_at
      returning ${commandId} as id`;
    const [row] = await this.#ask('recording a command', () => (tx ?? db.orm).execute<{ id: string }>(statement));
    if (row === undefined) throw new Error('a command was recorded without an id');
    return { id: row.id, committed: () => this.#loop.wake() };
  }

  async takeCommands(fence: Fence): Promise<readonly PendingCommand[]> {
    const { scope, gatewayId, db } = this.#options;
    const rows = await this.#ask('commands', () => {
      return db.sql<PendingCommand[]>`
        with held as (
          select 1 from fleet_leases where scope = ${scope} and gateway_id = ${gatewayId}
            and epoch = ${String(fence.epoch)}::bigint and expires_at > now() for share
        )
        delete from fleet_orders where scope = ${scope} and exists (select 1 from held)
        returning engine_id as "engineId", kind, (extract(epoch from ordered_at) * 1000000)::bigint::text as id`;
    });
    return rows.map((row) => ({ ...row })).toSorted((a, b) => (BigInt(a.id) < BigInt(b.id) ? -1 : 1));
  }

  goodSpecs(): Promise<readonly GoodSpec[]> {
    return this.#goodSpecs.read();
  }

  keepGoodSpec({ epoch }: Fence, spec: GoodSpec): Promise<bigint | null> {
    return this.#goodSpecs.keep(spec, { gatewayId: this.#options.gatewayId, epoch });
  }

  dropGoodSpec({ epoch }: Fence, spec: Pick<GoodSpec, 'engineId' | 'revision'>): Promise<boolean> {
    return this.#goodSpecs.drop(spec, { gatewayId: this.#options.gatewayId, epoch });
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  async start(): Promise<void> {
    await this.leadership.start();
    this.#loop.start(this.#times.busyPollMs);
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#loop.close();
    await Promise.all([this.#withdraw(), this.leadership.close()]);
  }

  async #withdraw(): Promise<void> {
    const { scope, gatewayId, db } = this.#options;
    try {
      await this.#ask('deleting a demand', () => {
        return db.sql`delete from fleet_demands where scope = ${scope} and gateway_id = ${gatewayId}`;
      });
    } catch (error) {
      this.#log.warn(
        { err: error, scope },
        'this gateway stops, and the engines that its requests needed could not be deleted from PostgreSQL; these entries expire by themselves',
      );
    }
  }

  /** @returns milliseconds to wait before the next poll */
  async #poll(): Promise<number> {
    const { pollMs, busyPollMs } = this.#times;
    const leads = this.leadership.current() !== null;
    try {
      const news = await this.#readNews();
      this.#away = false;
      const published = BigInt(news.version) > this.#version;
      const isReported = leads && (news.commands > 0 || news.reported !== this.#reported);
      this.#reported = news.reported;
      if (published) this.#version = BigInt(news.version);
      if (published || isReported) for (const listener of this.#listeners) listener();
      if (leads) await this.#sweep();
      return this.#waitsHere || news.waiting > 0 || (leads && news.others > 0) ? busyPollMs : pollMs;
    } catch (error) {
      if (!this.#away)
        this.#log.warn(
          { err: error, scope: this.#options.scope },
          'PostgreSQL cannot be read: until it can, this gateway does not know which engines other gateways need and what the leader decided',
        );
      this.#away = true;
      return pollMs;
    }
  }

  async #readNews(): Promise<News> {
    const { scope, gatewayId, db } = this.#options;
    const [row] = await this.#ask('news', () => {
      return db.sql<News[]>`
        with others as (
          select * from fleet_demands where scope = ${scope} and gateway_id <> ${gatewayId}
            and updated_at > now() - ${this.#times.expiresAfterMs}::int * interval '1 ms'
        )
        select coalesce((select version from fleet_published where scope = ${scope}), 0)::text as version,
          (select count(*) from fleet_orders where scope = ${scope})::int as commands,
          (select count(*) from others)::int as others,
          coalesce((select sum(waiting) from others), 0)::int as waiting,
          coalesce((select string_agg(gateway_id::text || updated_at::text, ' ' order by gateway_id) from others), '')
            as reported`;
    });
    return row ?? { version: '0', commands: 0, others: 0, waiting: 0, reported: '' };
  }

  /** Deletes demands that are long outdated. */
  async #sweep(): Promise<void> {
    const { scope, clock, db } = this.#options;
    if (clock.monotonicMs() - this.#sweptAtMs < sweepEveryMs) return;
    this.#sweptAtMs = clock.monotonicMs();
    await this.#ask('deleting old demands', () => {
      return db.sql`delete from fleet_demands
        where scope = ${scope} and updated_at < now() - ${4 * this.#times.expiresAfterMs}::int * interval '1 ms'`;
    });
  }

  /** @returns the new version; null if the lease is not held, or another version than `after` is published */
  async #write(fence: Fence, engines: string, after: bigint): Promise<bigint | null> {
    const { scope, gatewayId, db } = this.#options;
    const [row] = await this.#ask('publishing the state', () => {
      return db.sql<{ version: string }[]>`
        with held as (
          select epoch from fleet_leases where scope = ${scope} and gateway_id = ${gatewayId}
            and epoch = ${String(fence.epoch)}::bigint and expires_at > now() for share
        )
        insert into fleet_published as published (scope, version, epoch, engines)
        select ${scope}::text, ${String(after)}::bigint + 1, held.epoch, ${engines}::text::jsonb from held
        on conflict (scope) do update
          set version = excluded.version, epoch = excluded.epoch, engines = excluded.engines
          where published.version = ${String(after)}::bigint and published.epoch <= excluded.epoch
        returning version::text`;
    });
    return row === undefined ? null : BigInt(row.version);
  }

  /** @returns the epoch of the last publication */
  async #readHead(): Promise<bigint> {
    const { scope, db } = this.#options;
    const [row] = await this.#ask('reading the published version', () => {
      return db.sql<{ version: string; epoch: string }[]>`
        select version::text, epoch::text from fleet_published where scope = ${scope}`;
    });
    this.#version = BigInt(row?.version ?? '0');
    return BigInt(row?.epoch ?? '0');
  }

  #ask<T>(what: string, run: () => PromiseLike<T>): Promise<T> {
    return this.#bounded.ask(what, this.#times.answerMs, run);
  }
}

/** Removes NUL and broken surrogate pairs, which Postgres' jsonb rejects and engines' texts may contain. */
function toJson(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => {
    return typeof inner === 'string' ? inner.replaceAll('\0', '').toWellFormed() : inner;
  });
}
