import type { Clock } from '#base/clock.ts';
import type { LedgerHealth } from '#core/admission/contract/contract.ts';

export interface Account {
  readonly organizationId: string;
  /** Time when the database returned the balance, on the monotonic clock. */
  loadedMs: number;
  balancePicoUsd: bigint;
  heldMicroUsd: bigint;
  /** True if no known value is valid any more: the database is asked whatever is held on the account. */
  isForgotten: boolean;
  /** Counts settlements and credits. A balance that is read while one happens may or may not include it. */
  changes: number;
}

/**
 * Reads an organization's balance from the database, in pico-dollars, and which of these requests it was charged for.
 */
export type LoadBalance = (
  organizationId: string,
  requestIds: readonly string[],
) => Promise<{ readonly balancePicoUsd: bigint; readonly charged: readonly string[] }>;

export interface MemoryAccountsOptions {
  readonly loadBalance: LoadBalance;
  /** Requests that run here, or wait to be recorded, and hold something on an account. */
  readonly holdsOf: (account: Account) => ReadonlyMap<string, { isCharged: boolean }>;
  readonly books: LedgerHealth;
  readonly clock: Clock;
}

/**
 * Milliseconds after which a balance without holds is read again, so that changes made outside this process show up.
 */
const goodForMs = 30_000;
/** The same before the balance rejects a request. */
const goodForRefusalMs = 2_000;
/** If there are this many accounts, those that may be read again are dropped. */
const accountsKeptMax = 10_000;

/**
 * Balances of organizations in this process's memory. They follow each charge and credit of this process. If nothing is
 * held on an account, no charge is in the database that is not yet deducted here, so the database may be asked again.
 * While it does not answer, the known balance stays in use.
 */
export class MemoryAccounts {
  readonly #options: MemoryAccountsOptions;
  readonly #accounts = new Map<string, Account>();
  readonly #loading = new Map<string, Promise<Account>>();
  /** Number of credits recorded while a balance was being read for the first time, by organization. */
  readonly #creditsSeen = new Map<string, number>();
  /** Number of times that everything was forgotten. */
  #rounds = 0;

  constructor(options: MemoryAccountsOptions) {
    this.#options = options;
  }

  find(organizationId: string): Account | undefined {
    return this.#accounts.get(organizationId);
  }

  /** Returns the account if it may be used without asking the database, else null. */
  current(organizationId: string): Account | null {
    const account = this.#accounts.get(organizationId);
    if (account === undefined) return null;
    if (!this.#isOlder(account, goodForMs)) return account;
    const { books } = this.#options;
    return !books.isWorthATry && books.mayServeKnown ? account : null;
  }

  /**
   * True if the database may have a newer balance. Prevents rejections despite a credit recorded outside this process.
   */
  mayBeOutdated(account: Account): boolean {
    return this.#isOlder(account, goodForRefusalMs) && this.#options.books.isWorthATry;
  }

  /**
   * Returns the account after asking the database. @throws errors of the database if no known value may be used instead
   */
  async read(organizationId: string): Promise<Account> {
    const { books } = this.#options;
    const known = this.#accounts.get(organizationId);
    const reading = this.#loadOnce(organizationId);
    if (known === undefined) return reading;
    await books.orKnown(reading);
    const account = this.#accounts.get(organizationId) ?? known;
    if (!books.mayServeKnown && this.#isOlder(account, goodForMs)) return reading;
    return account;
  }

  /** Has every balance read from the database before it is used again. */
  forget(): void {
    this.#rounds += 1;
    for (const account of this.#accounts.values()) {
      account.isForgotten = true;
      account.changes += 1;
    }
  }

  credited(organizationId: string, deltaPicoUsd: bigint): void {
    const account = this.#accounts.get(organizationId);
    if (account !== undefined) {
      account.balancePicoUsd += deltaPicoUsd;
      account.changes += 1;
    } else if (this.#loading.has(organizationId)) {
      this.#creditsSeen.set(organizationId, (this.#creditsSeen.get(organizationId) ?? 0) + 1);
    }
  }

  #isOlder(account: Account, ms: number): boolean {
    if (account.isForgotten) return true;
    return account.heldMicroUsd === 0n && this.#options.clock.monotonicMs() - account.loadedMs >= ms;
  }

  #loadOnce(organizationId: string): Promise<Account> {
    const running = this.#loading.get(organizationId);
    if (running !== undefined) return running;
    const known = this.#accounts.get(organizationId);
    const loading = known === undefined ? this.#load(organizationId) : this.#reload(known);
    const started = loading.finally(() => this.#loading.delete(organizationId));
    started.catch(() => undefined);
    this.#loading.set(organizationId, started);
    return started;
  }

  async #load(organizationId: string): Promise<Account> {
    for (;;) {
      const seen = this.#creditsSeen.get(organizationId) ?? 0;
      const rounds = this.#rounds;
      const { balancePicoUsd } = await this.#ask(organizationId, []);
      // A credit recorded during the read may or may not be included: read again.
      if ((this.#creditsSeen.get(organizationId) ?? 0) !== seen || rounds !== this.#rounds) continue;
      const loadedMs = this.#options.clock.monotonicMs();
      const account = { organizationId, loadedMs, balancePicoUsd, heldMicroUsd: 0n, isForgotten: false, changes: 0 };
      if (this.#accounts.size >= accountsKeptMax) this.#forgetOld();
      this.#accounts.set(organizationId, account);
      this.#creditsSeen.delete(organizationId);
      return account;
    }
  }

  /**
   * Reads a balance again. Holds, charges or credits during the read make the answer void, because the balance here has
   * followed them. A forgotten balance has followed nothing, so it is read until nothing comes between.
   */
  async #reload(account: Account): Promise<Account> {
    const { holdsOf, clock } = this.#options;
    for (;;) {
      const { changes } = account;
      const { balancePicoUsd, charged } = await this.#ask(account.organizationId, [...holdsOf(account).keys()]);
      const isFollowed = account.changes !== changes || account.heldMicroUsd !== 0n;
      if (isFollowed && !account.isForgotten) return account;
      if (account.changes !== changes) continue;
      const recordedIds = new Set(charged);
      for (const [id, hold] of holdsOf(account)) hold.isCharged = recordedIds.has(id);
      account.balancePicoUsd = balancePicoUsd;
      account.loadedMs = clock.monotonicMs();
      account.isForgotten = false;
      return account;
    }
  }

  #forgetOld(): void {
    if (this.#options.books.isUnavailable) return;
    for (const account of this.#accounts.values()) {
      if (this.#isOlder(account, goodForMs)) this.#accounts.delete(account.organizationId);
    }
  }

  #ask(organizationId: string, requestIds: readonly string[]): ReturnType<LoadBalance> {
    const { books, loadBalance } = this.#options;
    return books.ask(() => loadBalance(organizationId, requestIds));
  }
}
