import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { BoundedStore, createPacedLoop } from '#base/queues/queues.ts';
import type { Fence } from '#core/fleet/drivers/drivers.ts';
import type { Leadership } from './coordination-store.ts';

/** Durations of a lease and of its renewals; milliseconds. */
export interface LeadershipTimes {
  readonly ttlMs: number;
  readonly renewMs: number;
  /** Interval of attempts to take the lease, or to renew a lease after a failed renewal. */
  readonly pollMs: number;
  /** Time that must be left of a lease for an action under it. */
  readonly marginMs: number;
  /** Limit for an answer of Postgres. */
  readonly answerMs: number;
}

export const leadershipTimes: LeadershipTimes = {
  ttlMs: 10_000,
  renewMs: 3000,
  pollMs: 1000,
  marginMs: 2000,
  answerMs: 2000,
};

export interface LeadershipOptions {
  readonly db: Db;
  /** The scope to lead: one gateway leads each scope. */
  readonly scope: string;
  /** Id of this gateway, new with every start. */
  readonly gatewayId: string;
  /** Ids of the live gateways, including this one. A lease of any other gateway is taken at once. */
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  readonly clock: Clock;
  readonly log: Log;
  readonly times?: LeadershipTimes;
}

/**
 * A lease in Postgres, by Postgres' clock. This gateway counts the lease from before the statement that took or renewed
 * it was sent, and ends it by the monotonic clock a margin before Postgres does: a gateway that cannot renew stops
 * leading before another may begin. A gateway that was frozen learns from the fence that its lease has ended.
 */
export function createLeadership(options: LeadershipOptions): Leadership {
  return new LeaseLeadership(options);
}

interface Term {
  readonly fence: Fence;
  /** Monotonic milliseconds. */
  endsAtMs: number;
}

interface LeaseRow {
  readonly gatewayId: string;
  readonly epoch: string;
  /** Milliseconds until the lease expires; below zero afterwards. */
  readonly leftMs: number;
}

class LeaseLeadership implements Leadership {
  readonly #options: LeadershipOptions;
  readonly #times: LeadershipTimes;
  readonly #store = new BoundedStore();
  readonly #listeners: (() => void)[] = [];
  #term: Term | null = null;
  readonly #loop = createPacedLoop(() => this.#turn());
  #started = false;
  #closed = false;
  #away = false;
  /** True if the lease may be this gateway's. */
  #took = false;
  #ends: NodeJS.Timeout | undefined;

  constructor(options: LeadershipOptions) {
    this.#options = options;
    this.#times = options.times ?? leadershipTimes;
  }

  current(): Fence | null {
    const term = this.#term;
    return term !== null && this.#now() < term.endsAtMs ? term.fence : null;
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Resolves once the leader is known, or the database is found unreachable. */
  async start(): Promise<void> {
    if (this.#started || this.#closed) return;
    this.#started = true;
    this.#loop.start(await this.#turn());
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#end();
    await this.#loop.close();
    if (!this.#took) return;
    const { scope, gatewayId } = this.#options;
    const { sql } = this.#options.db;
    try {
      await this.#ask('releasing the lease', () => {
        return sql`update fleet_leases set expires_at = now()
          where scope = ${scope} and gateway_id = ${gatewayId} and expires_at > now()`;
      });
    } catch (error) {
      this.#options.log.warn(
        { err: error, scope },
        'this gateway stops, and could not release its lease as leader of the engines; another gateway becomes leader when the lease expires',
      );
    }
  }

  /** @returns milliseconds to wait before the next call */
  async #turn(): Promise<number> {
    const { renewMs, pollMs } = this.#times;
    try {
      if (this.#term !== null) {
        if (await this.#renew(this.#term)) return renewMs;
        this.#end();
      }
      if (this.#closed) return pollMs;
      const waitMs = await this.#poll();
      this.#away = false;
      return waitMs;
    } catch (error) {
      if (!this.#away) {
        this.#options.log.warn(
          { err: error, scope: this.#options.scope },
          'PostgreSQL cannot be read: until it can, this gateway does not know the leader, and starts and stops no engines',
        );
      }
      this.#away = true;
      return pollMs;
    }
  }

  async #renew(term: Term): Promise<boolean> {
    const { scope, gatewayId } = this.#options;
    const { sql } = this.#options.db;
    const { ttlMs, marginMs } = this.#times;
    const sentAtMs = this.#now();
    const rows = await this.#ask('renewing the lease', () => {
      return sql`update fleet_leases set expires_at = now() + ${ttlMs}::int * interval '1 ms'
        where scope = ${scope} and gateway_id = ${gatewayId} and epoch = ${String(term.fence.epoch)}::bigint
          and expires_at > now()
        returning epoch`;
    });
    // If the term ended here meanwhile, listeners were notified already: the next term needs its own epoch.
    if (rows.length === 0 || this.current() === null) return false;
    this.#hold(term, sentAtMs + ttlMs - marginMs);
    this.#away = false;
    return true;
  }

  /** Takes the lease if allowed. @returns milliseconds to wait before the next call */
  async #poll(): Promise<number> {
    const { scope, gatewayId, liveGateways } = this.#options;
    const { sql } = this.#options.db;
    const [row] = await this.#ask('reading the leader', () => {
      return sql<LeaseRow[]>`select gateway_id as "gatewayId", epoch::text,
          (extract(epoch from expires_at - clock_timestamp()) * 1000)::float8 as "leftMs"
        from fleet_leases where scope = ${scope}`;
    });
    const { pollMs, renewMs } = this.#times;
    const isHeld = row !== undefined && row.gatewayId !== gatewayId && row.leftMs > 0;
    if (isHeld && (await this.#ask('reading the live gateways', liveGateways)).has(row.gatewayId)) {
      return Math.min(pollMs, Math.ceil(row.leftMs) + 5);
    }
    return (await this.#take(row ?? null, isHeld)) ? renewMs : pollMs;
  }

  /** Takes the lease if it is unchanged since it was read; with `isOfDead` also before it expires. */
  async #take(seen: LeaseRow | null, isOfDead: boolean): Promise<boolean> {
    const { scope, gatewayId, log } = this.#options;
    const { sql } = this.#options.db;
    const { ttlMs, marginMs } = this.#times;
    const sentAtMs = this.#now();
    this.#took = true;
    const [row] = await this.#ask('taking the lease', () => {
      return sql<{ epoch: string }[]>`
        insert into fleet_leases as lease (scope, gateway_id, epoch, expires_at)
        values (${scope}, ${gatewayId}, 1, now() + ${ttlMs}::int * interval '1 ms')
        on conflict (scope) do update
          set gateway_id = excluded.gateway_id, epoch = lease.epoch + 1, expires_at = excluded.expires_at
          where lease.epoch = ${seen?.epoch ?? '0'}::bigint
            and (lease.expires_at <= now() or lease.gateway_id = excluded.gateway_id or ${isOfDead})
        returning epoch::text`;
    });
    if (row === undefined || this.#closed) return false;
    const epoch = BigInt(row.epoch);
    log.info(
      { scope, epoch: row.epoch, after: seen?.gatewayId ?? null },
      'this gateway is now the leader: it starts and stops engines (see scope)',
    );
    const fence: Fence = { epoch, holds: () => this.#holds(epoch) };
    this.#term = { fence, endsAtMs: 0 };
    this.#hold(this.#term, sentAtMs + ttlMs - marginMs);
    this.#notify();
    return true;
  }

  async #holds(epoch: bigint): Promise<boolean> {
    if (this.current()?.epoch !== epoch) return false;
    const { scope, gatewayId } = this.#options;
    const { sql } = this.#options.db;
    const { marginMs } = this.#times;
    const askedAtMs = this.#now();
    try {
      const rows = await this.#ask('checking the lease', () => {
        return sql`select 1 from fleet_leases
          where scope = ${scope} and gateway_id = ${gatewayId} and epoch = ${String(epoch)}::bigint
            and expires_at > clock_timestamp() + ${marginMs}::int * interval '1 ms'`;
      });
      // This process may have been frozen before it read the answer.
      return rows.length === 1 && this.#now() - askedAtMs < marginMs / 2 && this.current()?.epoch === epoch;
    } catch {
      return false;
    }
  }

  #hold(term: Term, endsAtMs: number): void {
    term.endsAtMs = endsAtMs;
    clearTimeout(this.#ends);
    this.#ends = setTimeout(() => this.#end(), Math.max(0, endsAtMs - this.#now())).unref();
  }

  #end(): void {
    if (this.#term === null) return;
    const { scope, log } = this.#options;
    log.info(
      { scope, epoch: String(this.#term.fence.epoch) },
      'this gateway is no longer the leader: it starts and stops no engines (see scope)',
    );
    this.#term = null;
    clearTimeout(this.#ends);
    this.#notify();
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }

  #now(): number {
    return this.#options.clock.monotonicMs();
  }

  #ask<T>(what: string, run: () => PromiseLike<T>): Promise<T> {
    return this.#store.ask(what, this.#times.answerMs, run);
  }
}
