import type { Reply } from './admission-store.ts';
import { heldFor, type AdmitRequest, type Settlement } from './contract.ts';
import { expiredScript, registerScript, renewScript } from './redis-hold-scripts.ts';
import { nothingUsed, type RequestRef, Settlements, type SettlementsOptions } from './settlements.ts';

/** What an admitted request holds, as its own gateway knows it. */
export interface OwnHold {
  readonly organizationId: string;
  readonly keyId: string;
  readonly tokensPerMinute: number | null;
  readonly windowStart: string;
  estimatedTokens: number;
  reservedTokens: string;
  heldMicroUsd: bigint;
  /** Durable, and not in the books yet: nothing runs any more. */
  isSpooled: boolean;
}

export interface HoldLeasesOptions extends SettlementsOptions {
  readonly gatewayId: string;
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
}

export interface AddedHold {
  readonly heldMicroUsd: bigint;
  readonly reservedTokens: string;
  readonly reply: Reply;
}

/** A hold whose lease ran out, as Redis has it. */
interface Expired {
  readonly requestId: string;
  readonly keyId: string;
  readonly gatewayId: string;
  readonly isSpooled: boolean;
}

const sweepBatchMax = 100;
/** An organization whose balance was not read for this long has nothing left to sweep. */
const indexKeptMs = 2 * 24 * 3_600_000;

/**
 * The holds and slots of what runs in this gateway. They are leases: a gateway that stops to renew them gives its slots
 * back by the clock, but a hold only by what the books say, and only once its gateway is known to be gone.
 */
export class HoldLeases {
  readonly settlements: Settlements;
  readonly #options: HoldLeasesOptions;
  readonly #own = new Map<string, OwnHold>();

  constructor(options: HoldLeasesOptions) {
    this.#options = options;
    this.settlements = new Settlements(options);
  }

  add(request: AdmitRequest, { heldMicroUsd, reservedTokens, reply }: AddedHold): void {
    const { organizationId, keyId, limits, estimatedTokens, requestId } = request;
    const windowStart = reply.rest[0] ?? '0';
    const { tokensPerMinute } = limits;
    const terms = { organizationId, keyId, windowStart, tokensPerMinute };
    this.#own.set(requestId, { ...terms, estimatedTokens, reservedTokens, heldMicroUsd, isSpooled: false });
  }

  /** What Redis keeps of it: "key gateway estimate reserved window limit". */
  #noteOf({ keyId, estimatedTokens, reservedTokens, windowStart, tokensPerMinute }: OwnHold): string {
    const of = [keyId, this.#options.gatewayId, estimatedTokens, reservedTokens, windowStart, tokensPerMinute ?? '-'];
    return of.join(' ');
  }

  find(requestId: string): OwnHold | undefined {
    return this.#own.get(requestId);
  }

  keysRunning(): readonly string[] {
    const running = [...this.#own.values()].filter(({ isSpooled }) => !isSpooled);
    return [...new Set(running.map(({ keyId }) => keyId))];
  }

  spooled(requestId: string, used: Settlement): void {
    const hold = this.#own.get(requestId);
    if (hold === undefined || hold.isSpooled) return;
    hold.isSpooled = true;
    hold.estimatedTokens = used.tokens;
    hold.reservedTokens = String(used.tokens);
    hold.heldMicroUsd = heldFor(used.chargedPicoUsd);
    const { organizationId, keyId } = hold;
    this.settlements.add({ requestId, organizationId, keyId, used, how: 'spool' });
  }

  settle(requestId: string, used: Settlement): void {
    const hold = this.#own.get(requestId);
    if (hold === undefined) return;
    this.#own.delete(requestId);
    const { organizationId, keyId } = hold;
    this.settlements.add({ requestId, organizationId, keyId, used, how: 'settle' });
  }

  settleReplayed(ref: RequestRef, used: Settlement): void {
    if (this.#own.has(ref.requestId)) this.settle(ref.requestId, used);
    else this.settlements.add({ ...ref, used, how: 'replay' });
  }

  async renew(): Promise<void> {
    await this.settlements.retry();
    const groups = new Map<string, { ref: OwnHold; ids: string[] }>();
    for (const [id, hold] of this.#own) {
      const group = groups.get(hold.keyId) ?? { ref: hold, ids: [] };
      group.ids.push(id);
      groups.set(hold.keyId, group);
    }
    // Written one behind the other without waiting: one pipeline.
    await Promise.all([...groups.values()].map(({ ref, ids }) => this.#renewKey(ref, ids)));
  }

  async register(organizationId: string): Promise<void> {
    const byKey = new Map<string, string[]>();
    for (const [id, hold] of this.#own) {
      if (hold.organizationId !== organizationId) continue;
      const args = byKey.get(hold.keyId) ?? [];
      args.push(id, this.#noteOf(hold), hold.heldMicroUsd.toString(), hold.isSpooled ? '1' : '0');
      byKey.set(hold.keyId, args);
    }
    const { store, leaseMs } = this.#options;
    const { wallet, holds, money, leases, loading } = store.organization(organizationId);
    const writing = [...byKey].map(([keyId, args]) => {
      const { slots, monthLoading, use } = store.use(organizationId, keyId);
      const keys = [wallet, holds, money, leases, slots, loading, monthLoading, use];
      return store.run(registerScript, keys, [String(leaseMs), ...args]);
    });
    this.settlements.holdBack(organizationId, writing);
    await Promise.all(writing);
  }

  async sweep(): Promise<void> {
    const { store, liveGateways } = this.#options;
    const oldMs = Math.floor((await store.nowMs()) - indexKeptMs);
    await store.redis.command('ZREMRANGEBYSCORE', store.index, '-inf', String(oldMs));
    const organizationIds = (await store.redis.command('ZRANGE', store.index, '0', '-1')) as string[];
    let live: ReadonlySet<string> | null = null;
    for (const organizationId of organizationIds) {
      const { leases, holds } = store.organization(organizationId);
      const { rest } = await store.run(expiredScript, [leases, holds], [String(sweepBatchMax)]);
      if (rest.length === 0) continue;
      live ??= await liveGateways();
      await this.#sweepHolds(organizationId, expiredOf(rest), live);
    }
  }

  close(): Promise<void> {
    return this.settlements.close();
  }

  async #renewKey(ref: OwnHold, ids: readonly string[]): Promise<void> {
    const { rest } = await this.#extendLeases(ref.organizationId, ref.keyId, ids);
    if (rest.some((id) => this.#own.has(id))) await this.register(ref.organizationId);
  }

  /** Says which holds Redis does not know. */
  #extendLeases(organizationId: string, keyId: string, ids: readonly string[]): Promise<Reply> {
    const { store, leaseMs } = this.#options;
    const { holds, leases } = store.organization(organizationId);
    const { slots } = store.use(organizationId, keyId);
    return store.run(renewScript, [holds, leases, slots], [String(leaseMs), ...ids]);
  }

  async #sweepHolds(organizationId: string, expired: readonly Expired[], live: ReadonlySet<string>): Promise<void> {
    const lost = expired.filter((hold) => this.#isLost(hold, live));
    if (lost.length === 0) return;
    const ids = lost.map(({ requestId }) => requestId);
    const booked = await this.#options.findSettled(organizationId, ids);
    let settled = 0;
    for (const { requestId, keyId, isSpooled } of lost) {
      const used = booked.get(requestId);
      if (used === undefined && isSpooled) await this.#keepSpooled(organizationId, keyId, requestId);
      else {
        await this.settlements.send([{ requestId, organizationId, keyId, used: used ?? nothingUsed, how: 'sweep' }]);
        settled += 1;
      }
    }
    if (settled === 0) return;
    this.#options.log.info({ organizationId, holds: settled }, 'holds that no gateway has were settled by the books');
  }

  /** It lies on some gateway's disk, and will be in the books when that is read: until then the money is spent. */
  async #keepSpooled(organizationId: string, keyId: string, requestId: string): Promise<void> {
    const { store } = this.#options;
    await this.#extendLeases(organizationId, keyId, [requestId]);
    await store.redis.command('ZADD', store.index, String(Math.floor(await store.nowMs())), organizationId);
  }

  /** A lease that ran out: its gateway is gone, or it is this one, which has no such request. */
  #isLost({ requestId, gatewayId }: Expired, live: ReadonlySet<string>): boolean {
    if (gatewayId !== this.#options.gatewayId) return !live.has(gatewayId);
    return !this.#own.has(requestId) && !this.settlements.has(requestId);
  }
}

/** @param rest of the script's reply: request, note, whether it is spooled, and so on */
function expiredOf(rest: readonly string[]): readonly Expired[] {
  const expired: Expired[] = [];
  for (let index = 0; index + 2 < rest.length; index += 3) {
    const [requestId = '', note = '', spooled] = rest.slice(index, index + 3);
    const [keyId = '', gatewayId = ''] = note.split(' ');
    expired.push({ requestId, keyId, gatewayId, isSpooled: spooled === '1' });
  }
  return expired;
}
