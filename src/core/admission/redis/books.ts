import { randomUUID } from 'node:crypto';
import { uuidTimeMs } from '#base/id.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import type {
  LedgerHealth,
  CountedTokens,
  Gathering,
  HardBudget,
  KeyRef,
  LoadDay,
  LoadSpent,
  ProjectLimit,
} from '#core/admission/contract/contract.ts';
import type { AdmissionStore, Reply } from './admission-store.ts';
import { beginBudgetScript, endBudgetScript } from './budget-scripts.ts';
import { beginDayScript, endDayScript } from './model-scripts.ts';
import { beginMonthScript, beginWalletScript, endMonthScript, endWalletScript, keyScript } from './books-scripts.ts';

/** Queries of the admission store to the database, each in one snapshot. */
export interface Books {
  /** Returns the balance in pico-dollars, and which of these requests it was charged for. */
  readonly balanceWith: (
    organizationId: string,
    requestIds: readonly string[],
  ) => Promise<{ balancePicoUsd: bigint; charged: readonly string[] }>;
  /** Returns the tokens of a key since a time (ms since the Unix epoch), and which of these requests are included. */
  readonly tokensWith: (
    key: Pick<KeyRef, 'keyId' | 'organizationId'>,
    sinceMs: number,
    requestIds: readonly string[],
  ) => Promise<CountedTokens>;
  /** Reads the spending of hard budgets; absent if there are none. */
  readonly spentWith?: LoadSpent;
  /** Reads the requests of a model that project limits count; absent if there are none. */
  readonly requestsWith?: LoadDay;
  readonly isRevoked: (key: Pick<KeyRef, 'keyId' | 'organizationId'>) => Promise<boolean>;
}

export interface RedisBooksOptions {
  readonly store: AdmissionStore;
  readonly books: Books;
  readonly gathering: Gathering;
  readonly watch: LedgerHealth;
}

/** Cap for larger balances: Lua compares numbers exactly up to 2^53. */
const balanceMicroUsdMax = 4_000_000_000_000_000n;
const attemptsMax = 50;

/** Returns a balance in the form that Redis stores: whole micro-dollars, rounded down, and pico-dollars beyond them. */
export function splitBalance(picoUsd: bigint): { micro: string; pico: string } {
  const capped = picoUsd > balanceMicroUsdMax * PICO_PER_MICRO ? balanceMicroUsdMax * PICO_PER_MICRO : picoUsd;
  const pico = ((capped % PICO_PER_MICRO) + PICO_PER_MICRO) % PICO_PER_MICRO;
  return { micro: ((capped - pico) / PICO_PER_MICRO).toString(), pico: pico.toString() };
}

/**
 * Reads balances, months and revocations into Redis if it has none. A settlement during the read makes the read void. A
 * charge that the database already has is marked, so that its settlement does not deduct it again: the balance in Redis
 * is exact whoever reads, settles and credits at the same time.
 */
export class RedisBooks {
  readonly #options: RedisBooksOptions;
  readonly #running = new Map<string, Promise<void>>();

  constructor(options: RedisBooksOptions) {
    this.#options = options;
  }

  loadWallet(organizationId: string): Promise<void> {
    return this.#once(`wallet ${organizationId}`, () => this.#readWallet(organizationId));
  }

  loadMonth(key: KeyRef, monthMs: number): Promise<void> {
    return this.#once(`month ${monthMs} ${key.keyId}`, () => this.#readMonth(key, monthMs));
  }

  loadBudgets(organizationId: string, budgets: readonly HardBudget[]): Promise<unknown> {
    return Promise.all(
      budgets.map((budget) =>
        this.#once(`budget ${organizationId} ${budget.slot}`, () => this.#readBudget(organizationId, budget)),
      ),
    );
  }

  /** Loads today's requests of a model that has project limits. */
  async loadDay(organizationId: string, limit: ProjectLimit | null): Promise<void> {
    if (limit === null) return;
    await this.#once(`day ${limit.slot}`, () => this.#readDay(organizationId, limit));
  }

  loadKey(key: KeyRef): Promise<void> {
    return this.#once(`key ${key.keyId}`, async () => {
      const { books, watch } = this.#options;
      const isRevoked = await watch.ask(() => books.isRevoked(key));
      const { use } = this.#options.store.use(key.organizationId, key.keyId);
      await this.#options.store.run(keyScript, [use], [isRevoked ? '0' : '1']);
    });
  }

  #once(name: string, read: () => Promise<void>): Promise<void> {
    const running = this.#running.get(name);
    if (running !== undefined) return running;
    const started = read().finally(() => this.#running.delete(name));
    this.#running.set(name, started);
    return started;
  }

  async #readWallet(organizationId: string): Promise<void> {
    const { store, books, gathering, watch } = this.#options;
    const { wallet, holds, loading, known } = store.organization(organizationId);
    const keys = [wallet, holds, loading, known];
    await store.redis.command('ZADD', store.index, String(Math.floor(await store.nowMs())), organizationId);
    let toldServer: string | null = null;
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const begun = await store.run(beginWalletScript, keys, [randomUUID(), String(store.notBeforeMs)]);
      if (begun.word === 'there') return;
      const { token, server, isKnown, requestIds } = readBegun(begun);
      if (!isKnown && server !== toldServer) {
        await gathering.gather(organizationId);
        toldServer = server;
        continue;
      }
      const { balancePicoUsd, charged } = await watch.ask(() => books.balanceWith(organizationId, requestIds));
      const { micro, pico } = splitBalance(balancePicoUsd);
      const ended = await store.run(endWalletScript, keys, [token, micro, pico, ...charged]);
      if (ended.word !== 'again') return;
    }
    throw new Error(`a balance changed ${attemptsMax} times while it was read from PostgreSQL`);
  }

  async #readBudget(organizationId: string, { slot, spending }: HardBudget): Promise<void> {
    const { store, books, watch } = this.#options;
    const { spentWith } = books;
    if (spentWith === undefined) throw new Error('the spending of a budget cannot be read');
    const { wallet, holds, loading, budgets } = store.organization(organizationId);
    const keys = [wallet, holds, loading, budgets];
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const begun = await store.run(beginBudgetScript, keys, [randomUUID(), String(store.notBeforeMs), slot]);
      if (begun.word === 'there') return;
      const [token = '', ...requestIds] = begun.rest;
      const { picoUsd, counted } = await watch.ask(() => spentWith(organizationId, spending, requestIds));
      const { micro, pico } = splitBalance(-picoUsd);
      const ended = await store.run(endBudgetScript, keys, [token, slot, micro, pico, ...counted]);
      if (ended.word !== 'again') return;
    }
    throw new Error(`the spending of a budget changed ${attemptsMax} times while it was read from PostgreSQL`);
  }

  async #readDay(organizationId: string, { slot, projectId, model }: ProjectLimit): Promise<void> {
    const { store, books, watch } = this.#options;
    const { requestsWith } = books;
    if (requestsWith === undefined) throw new Error('the requests for a model cannot be read');
    const { wallet, holds, loading, days } = store.organization(organizationId);
    const keys = [wallet, holds, loading, days];
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const begun = await store.run(beginDayScript, keys, [randomUUID(), slot, String(store.notBeforeMs)]);
      if (begun.word === 'there') return;
      const [token = '', day = '0', ...requestIds] = begun.rest;
      const of = { organizationId, projectId, model, dayMs: Number(day) };
      const { requests, counted } = await watch.ask(() => requestsWith(of, requestIds));
      const ended = await store.run(endDayScript, keys, [token, slot, day, String(requests), ...counted]);
      if (ended.word !== 'again') return;
    }
    throw new Error(`the requests of a day changed ${attemptsMax} times while they were read from PostgreSQL`);
  }

  async #readMonth(key: KeyRef, monthMs: number): Promise<void> {
    const { store, books, watch } = this.#options;
    const { use, monthLoading } = store.use(key.organizationId, key.keyId);
    const keys = [use, store.organization(key.organizationId).holds, monthLoading];
    const limit = String(key.limits.monthlyTokenLimit ?? 0);
    for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
      const of = [String(monthMs), key.keyId, String(store.notBeforeMs)];
      const begun = await store.run(beginMonthScript, keys, [randomUUID(), ...of]);
      if (begun.word === 'there') return;
      const { token, requestIds } = readBegun(begun);
      const { tokens, counted } = await watch.ask(() => books.tokensWith(key, monthMs, requestIds));
      // A request that was accepted last month counts in that month in the database, however long it runs.
      const ofOthers = requestIds.filter((id) => uuidTimeMs(id) < monthMs);
      const args = [token, ...of, String(tokens), limit, ...counted, ...ofOthers];
      const ended = await store.run(endMonthScript, keys, args);
      if (ended.word !== 'again') return;
    }
    throw new Error(`the tokens of a month changed ${attemptsMax} times while they were read from PostgreSQL`);
  }
}

function readBegun({ rest }: Reply): {
  token: string;
  server: string;
  isKnown: boolean;
  requestIds: readonly string[];
} {
  const [token = '', server = '', known, ...requestIds] = rest;
  return { token, server, isKnown: known === '1', requestIds };
}
