import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { RedisAwayError } from '#base/redis.ts';
import type { AdmitRequest, Settlement } from './admission.ts';
import { expiredScript, registerScript, renewScript, settleScript } from './redis-scripts.ts';
import type { Reply, ShortMemory } from './short-memory.ts';

/** What an admitted request holds, as its own gateway knows it. */
export interface OwnHold {
  readonly organizationId: string;
  readonly keyId: string;
  /** What Redis keeps of it: "key gateway estimate reserved window limit". */
  readonly note: string;
  heldMicroUsd: bigint;
}

type How = 'settle' | 'undo' | 'sweep';
type HoldRef = Pick<OwnHold, 'organizationId' | 'keyId'>;

interface Unsettled extends HoldRef {
  readonly used: Settlement;
  readonly how: How;
}

export interface RedisLeasesOptions {
  readonly memory: ShortMemory;
  readonly gatewayId: string;
  readonly leaseMs: number;
  readonly findSettled: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<ReadonlyMap<string, Settlement>>;
  readonly liveGateways: () => Promise<ReadonlySet<string>>;
  readonly log: Log;
}

export interface AddedHold {
  readonly heldMicroUsd: bigint;
  readonly reservedTokens: string;
  readonly reply: Reply;
}

const nothingUsed: Settlement = { chargedPicoUsd: 0n, tokens: 0 };
const sweepBatchMax = 100;
/** An organization whose balance was not read for this long has nothing left to sweep. */
const indexKeptMs = 2 * 24 * 3_600_000;

/**
 * The holds and slots of what runs in this gateway. They are leases: a gateway that stops to renew them gives its slots
 * back by the clock, but a hold only by what the books say, and only once its gateway is known to be gone.
 */
export class RedisLeases {
  readonly #options: RedisLeasesOptions;
  readonly #own = new Map<string, OwnHold>();
  /** Settlements that Redis has not confirmed. */
  readonly #unsettled = new Map<string, Unsettled>();
  readonly #sending = new Set<Promise<void>>();
  #later: (() => Promise<unknown>)[] = [];

  constructor(options: RedisLeasesOptions) {
    this.#options = options;
  }

  add(request: AdmitRequest, { heldMicroUsd, reservedTokens, reply }: AddedHold): void {
    const { organizationId, keyId, limits, estimatedTokens, requestId } = request;
    const windowStart = reply.rest[0] ?? '0';
    const limit = limits.tokensPerMinute ?? '-';
    const note = `${keyId} ${this.#options.gatewayId} ${estimatedTokens} ${reservedTokens} ${windowStart} ${limit}`;
    this.#own.set(requestId, { organizationId, keyId, note, heldMicroUsd });
  }

  find(requestId: string): OwnHold | undefined {
    return this.#own.get(requestId);
  }

  keysRunning(): readonly string[] {
    return [...new Set([...this.#own.values()].map(({ keyId }) => keyId))];
  }

  settle(requestId: string, used: Settlement): void {
    const hold = this.#own.get(requestId);
    if (hold === undefined) return;
    this.#own.delete(requestId);
    this.#begin(requestId, { organizationId: hold.organizationId, keyId: hold.keyId, used, how: 'settle' });
  }

  /** Takes an admission back of which nobody knows whether it happened. */
  undo({ requestId, organizationId, keyId }: AdmitRequest): void {
    this.#unsettled.set(requestId, { organizationId, keyId, used: nothingUsed, how: 'undo' });
  }

  /** Does something now, or as soon as Redis can be asked again. */
  async sure(task: () => Promise<unknown>): Promise<void> {
    try {
      await task();
    } catch (error) {
      if (!(error instanceof RedisAwayError)) throw error;
      this.#later.push(task);
    }
  }

  async renew(): Promise<void> {
    await this.#retry();
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
      args.push(id, hold.note, hold.heldMicroUsd.toString());
      byKey.set(hold.keyId, args);
    }
    const { memory, leaseMs } = this.#options;
    const { wallet, holds, money, leases, loading } = memory.organization(organizationId);
    await Promise.all(
      [...byKey].map(([keyId, args]) => {
        const { slots, monthLoading, use } = memory.use(organizationId, keyId);
        const keys = [wallet, holds, money, leases, slots, loading, monthLoading, use];
        return memory.run(registerScript, keys, [String(leaseMs), ...args]);
      }),
    );
  }

  async sweep(): Promise<void> {
    const { memory, liveGateways } = this.#options;
    const oldMs = Math.floor((await memory.nowMs()) - indexKeptMs);
    await memory.store.command('ZREMRANGEBYSCORE', memory.index, '-inf', String(oldMs));
    const organizationIds = (await memory.store.command('ZRANGE', memory.index, '0', '-1')) as string[];
    let live: ReadonlySet<string> | null = null;
    for (const organizationId of organizationIds) {
      const { leases, holds } = memory.organization(organizationId);
      const { rest } = await memory.run(expiredScript, [leases, holds], [String(sweepBatchMax)]);
      if (rest.length === 0) continue;
      live ??= await liveGateways();
      await this.#sweepHolds(organizationId, rest, live);
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#sending);
    await this.#retry();
  }

  async #renewKey(ref: HoldRef, ids: readonly string[]): Promise<void> {
    const { memory, leaseMs } = this.#options;
    const { holds, leases } = memory.organization(ref.organizationId);
    const { slots } = memory.use(ref.organizationId, ref.keyId);
    const { rest } = await memory.run(renewScript, [holds, leases, slots], [String(leaseMs), ...ids]);
    if (rest.some((id) => this.#own.has(id))) await this.register(ref.organizationId);
  }

  async #sweepHolds(organizationId: string, notes: readonly string[], live: ReadonlySet<string>): Promise<void> {
    const lost = new Map<string, string>();
    for (let index = 0; index + 1 < notes.length; index += 2) {
      const [keyId = '', gatewayId = ''] = (notes[index + 1] ?? '').split(' ');
      if (!live.has(gatewayId)) lost.set(notes[index] ?? '', keyId);
    }
    if (lost.size === 0) return;
    const settled = await this.#options.findSettled(organizationId, [...lost.keys()]);
    for (const [requestId, keyId] of lost) {
      const used = settled.get(requestId) ?? nothingUsed;
      await this.#send(requestId, { organizationId, keyId, used, how: 'sweep' });
    }
    this.#options.log.info({ organizationId, holds: lost.size }, 'holds of gateways that are gone were settled');
  }

  async #retry(): Promise<void> {
    const later = this.#later;
    this.#later = [];
    for (const task of later) await this.sure(task);
    await Promise.all([...this.#unsettled].map(([id, unsettled]) => this.#confirm(id, unsettled)));
  }

  #begin(requestId: string, unsettled: Unsettled): void {
    const sending = this.#confirm(requestId, unsettled).finally(() => this.#sending.delete(sending));
    this.#sending.add(sending);
  }

  async #confirm(requestId: string, unsettled: Unsettled): Promise<void> {
    try {
      await this.#send(requestId, unsettled);
      this.#unsettled.delete(requestId);
    } catch (error) {
      if (error instanceof RedisAwayError) this.#unsettled.set(requestId, unsettled);
      else this.#options.log.error({ err: error, requestId }, 'a settlement was refused');
    }
  }

  async #send(requestId: string, { organizationId, keyId, used, how }: Unsettled): Promise<void> {
    const { memory } = this.#options;
    const { wallet, holds, money, leases, loading } = memory.organization(organizationId);
    const { use, slots, monthLoading } = memory.use(organizationId, keyId);
    const micro = (used.chargedPicoUsd / PICO_PER_MICRO).toString();
    const pico = (used.chargedPicoUsd % PICO_PER_MICRO).toString();
    const keys = [wallet, holds, money, leases, use, slots, loading, monthLoading];
    await memory.run(settleScript, keys, [requestId, micro, pico, String(used.tokens), how]);
  }
}
