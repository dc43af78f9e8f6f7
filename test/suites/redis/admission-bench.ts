import { randomUUID } from 'node:crypto';
import { type Clock, systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { connectRedis, type RedisStore } from '#base/redis/redis.ts';
import { createRedisAdmission, type RedisAdmission } from '#core/admission/admission.ts';
import type {
  AdmitRequest,
  HardBudgets,
  KeyRef,
  ProjectLimits,
  Settlement,
  Spender,
} from '#core/admission/contract/types.ts';
import type { KeyLimits } from '#core/limits/limits.ts';

/** Admission of several gateways on one Redis and one set of books, without the gateways around it. */

export const unlimited: KeyLimits = {
  requestsPerMinute: null,
  maxConcurrency: null,
  tokensPerMinute: null,
  monthlyTokenLimit: null,
};

interface Booked {
  readonly organizationId: string;
  readonly keyId: string;
  readonly used: Settlement;
}

/** Books that can be away, and that charge no more than the balance, as those in PostgreSQL do. */
export class TestBooks {
  readonly #balances = new Map<string, bigint>();
  readonly #booked = new Map<string, Booked>();
  readonly #revoked = new Set<string>();
  /** Their answer to calls; unavailable in any state but `there`. */
  state: 'there' | 'slow' | 'refusing' | 'silent' = 'there';
  /** How often they were asked. */
  reads = 0;

  open(microUsd: bigint): string {
    const organizationId = randomUUID();
    this.#balances.set(organizationId, microUsd * 1_000_000n);
    return organizationId;
  }

  credit(organizationId: string, microUsd: bigint): void {
    this.#balances.set(organizationId, this.balance(organizationId) + microUsd * 1_000_000n);
  }

  balance(organizationId: string): bigint {
    return this.#balances.get(organizationId) ?? 0n;
  }

  revoke(keyId: string): void {
    this.#revoked.add(keyId);
  }

  /** @returns what was charged and counted */
  book({ organizationId, keyId, requestId }: AdmitRequest, used: Settlement): Settlement {
    const left = this.balance(organizationId);
    const chargedPicoUsd = used.chargedPicoUsd < left ? used.chargedPicoUsd : left;
    const booked = { ...used, chargedPicoUsd };
    this.#balances.set(organizationId, left - chargedPicoUsd);
    this.#booked.set(requestId, { organizationId, keyId, used: booked });
    return booked;
  }

  async answer<T>(read: () => T): Promise<T> {
    this.reads += 1;
    if (this.state === 'slow') await new Promise((resolve) => setTimeout(resolve, slowMs));
    if (this.state === 'silent') await new Promise(() => undefined);
    if (this.state === 'refusing') throw Object.assign(new Error('no connection'), { code: 'ECONNREFUSED' });
    return read();
  }

  balanceWith(organizationId: string, ids: readonly string[]) {
    const read = () => ({ balancePicoUsd: this.balance(organizationId), charged: this.#known(ids) });
    return this.answer(read);
  }

  tokensWith({ keyId }: Pick<KeyRef, 'keyId'>, ids: readonly string[]) {
    const all = [...this.#booked.values()].filter((one) => one.keyId === keyId);
    const read = () => ({ tokens: all.reduce((sum, { used }) => sum + used.tokens, 0), counted: this.#known(ids) });
    return this.answer(read);
  }

  /** Sums of a key, for any other parts of the spending. */
  spentWith({ id }: { readonly id: string }, ids: readonly string[]) {
    const all = [...this.#booked.values()].filter((one) => one.keyId === id);
    const read = () => ({
      picoUsd: all.reduce((sum, { used }) => sum + used.chargedPicoUsd, 0n),
      counted: this.#known(ids),
    });
    return this.answer(read);
  }

  /** Counts of an organization, for any project and model. */
  requestsWith(organizationId: string, ids: readonly string[]) {
    const all = [...this.#booked.values()].filter((one) => one.organizationId === organizationId);
    return this.answer(() => ({ requests: all.length, counted: this.#known(ids) }));
  }

  isRevoked(keyId: string): Promise<boolean> {
    return this.answer(() => this.#revoked.has(keyId));
  }

  findSettled(ids: readonly string[]): Promise<ReadonlyMap<string, Settlement>> {
    const found = () => new Map(this.#known(ids).map((id) => [id, this.#booked.get(id)?.used ?? nothing]));
    return this.answer(found);
  }

  #known(ids: readonly string[]): readonly string[] {
    return ids.filter((id) => this.#booked.has(id));
  }
}

/** Longer than what is known waits for the books. */
const slowMs = 200;

const nothing: Settlement = { chargedPicoUsd: 0n, tokens: 0 };

export interface TestGateway {
  readonly id: string;
  readonly admission: RedisAdmission;
  readonly store: RedisStore;
  /** True while it does what others tell it; one that is stopped does not. */
  answers: boolean;
  /** True while it hears that they did what it told them. */
  hears: boolean;
  /** True while its heartbeat is young. */
  lives: boolean;
}

export interface Opening {
  readonly leaseMs?: number;
  readonly gatewayId?: string;
  readonly staleMs?: number;
  /** Its own way to Redis, where others have another one. */
  readonly url?: string;
  readonly budgets?: HardBudgets;
  readonly projectLimits?: ProjectLimits;
  readonly clock?: Clock;
}

/** A bench with parts that end with `close`. */
export class AdmissionBench {
  readonly books = new TestBooks();
  readonly gateways: TestGateway[] = [];
  readonly prefix = `hg:${randomUUID()}`;
  readonly #url: string;
  readonly #timers: NodeJS.Timeout[] = [];

  constructor(url: string) {
    this.#url = url;
  }

  async open({
    leaseMs = 30_000,
    gatewayId: id = randomUUID(),
    staleMs = 300_000,
    url = this.#url,
    clock = systemClock,
    ...rules
  }: Opening = {}): Promise<TestGateway> {
    const { books, prefix } = this;
    const log = createLog('silent');
    const store = await connectRedis(url, log);
    const admission = createRedisAdmission({
      ...rules,
      store,
      prefix,
      gatewayId: id,
      leaseMs,
      staleMs,
      books: {
        balanceWith: (organizationId, ids) => books.balanceWith(organizationId, ids),
        tokensWith: (key, _sinceMs, ids) => books.tokensWith(key, ids),
        spentWith: (_organizationId, spending, ids) => books.spentWith(spending, ids),
        requestsWith: ({ organizationId }, ids) => books.requestsWith(organizationId, ids),
        isRevoked: ({ keyId }) => books.isRevoked(keyId),
      },
      collect: (organizationId) => this.#collect(id, organizationId),
      findSettled: (_organizationId, ids) => books.findSettled(ids),
      liveGateways: () => books.answer(() => this.#live()),
      clock,
      log,
    });
    const gateway: TestGateway = { id, admission, store, answers: true, hears: true, lives: true };
    this.gateways.push(gateway);
    await admission.enter();
    const renewing = setInterval(() => {
      if (gateway.answers) admission.renew().catch(() => undefined);
    }, admission.renewMs);
    this.#timers.push(renewing);
    return gateway;
  }

  #live(): ReadonlySet<string> {
    return new Set(this.gateways.filter(({ lives }) => lives).map(({ id }) => id));
  }

  /** As gateways tell each other; one that does not answer is waited for, here not as long. */
  async #collect(from: string, organizationId: string): Promise<readonly string[]> {
    const sender = this.gateways.find(({ id }) => id === from);
    if (sender?.answers === false) throw new Error('it is stopped');
    const others = this.gateways.filter(({ id, lives }) => lives && id !== from);
    if (sender?.hears === false) return others.map(({ id }) => id);
    const missing = await Promise.all(
      others.map(async ({ id, answers, admission }) => {
        if (!answers) return [id];
        try {
          await admission.register(organizationId);
          return [];
        } catch {
          return [id];
        }
      }),
    );
    return missing.flat();
  }

  async close(): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    for (const { admission, store } of this.gateways) {
      await admission.close();
      store.close();
    }
  }
}

export interface Wanted {
  readonly keyId?: string;
  readonly limits?: Partial<KeyLimits>;
  /** Micro-dollars, wanted and needed. */
  readonly microUsd?: bigint;
  readonly neededMicroUsd?: bigint;
  readonly tokens?: number;
  /** When it was accepted, in milliseconds since the Unix epoch; now where it is absent. */
  readonly acceptedMs?: number;
  readonly spender?: Spender;
  readonly model?: string;
}

export function requestOf(organizationId: string, wanted: Wanted = {}): AdmitRequest {
  const { keyId = randomUUID(), limits = {}, microUsd = 10n, neededMicroUsd = microUsd, tokens = 10 } = wanted;
  const { spender, model } = wanted;
  return {
    organizationId,
    keyId,
    requestId: uuidv7(wanted.acceptedMs),
    limits: { ...unlimited, ...limits },
    neededMicroUsd,
    wantedMicroUsd: microUsd,
    estimatedTokens: tokens,
    ...(spender !== undefined && { spender }),
    ...(model !== undefined && { model }),
  };
}

export const usedOf = (microUsd: bigint, tokens = 10): Settlement => ({
  chargedPicoUsd: microUsd * 1_000_000n,
  tokens,
});

/** Micro-dollars that are held; null while nobody knows, as on a machine so busy that Redis is taken for silent. */
export async function heldOf(
  gateway: Pick<TestGateway, 'admission'> | undefined,
  organizationId: string,
): Promise<bigint | null> {
  try {
    return (await gateway?.admission.heldMicroUsd(organizationId)) ?? null;
  } catch {
    return null;
  }
}
