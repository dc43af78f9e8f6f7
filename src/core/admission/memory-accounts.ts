import type { Clock } from '#base/clock.ts';
import type { BooksWatch } from './books-watch.ts';

export interface Account {
  readonly organizationId: string;
  /** When the books said the balance, on the monotonic clock. */
  loadedMs: number;
  balancePicoUsd: bigint;
  heldMicroUsd: bigint;
  /** Nothing that is known of it is good any more: the books are asked whatever is held on it. */
  isForgotten: boolean;
  /** Counts settlements and credits: what is read of the books while one happens may hold it or not. */
  changes: number;
}

/** Reads an organization's balance from the books, in pico-dollars, and which of these requests it was charged for. */
export type LoadBalance = (
  organizationId: string,
  requestIds: readonly string[],
) => Promise<{ readonly balancePicoUsd: bigint; readonly charged: readonly string[] }>;

export interface MemoryAccountsOptions {
  readonly loadBalance: LoadBalance;
  /** Requests that run here, or wait to be booked, and hold something on an account. */
  readonly holdsOf: (account: Account) => ReadonlyMap<string, { isCharged: boolean }>;
  readonly books: BooksWatch;
  readonly clock: Clock;
}

/** A balance that nothing is held on is read anew after this long: what was booked past this process shows up. */
const goodForMs = 30_000;
/** The same before it refuses a request. */
const goodForRefusalMs = 2_000;
/** Accounts that may be read again are forgotten when there are this many. */
const accountsKeptMax = 10_000;

/**
 * Balances of organizations in this process's memory. They follow what is booked here. Where nothing is held on one,
 * nothing is booked and not yet taken off here, so the books may be asked again; while they do not answer, the balance
 * that is known serves on.
 */
export class MemoryAccounts {
  readonly #options: MemoryAccountsOptions;
  readonly #accounts = new Map<string, Account>();
  readonly #loading = new Map<string, Promise<Account>>();
  /** Credits booked while a balance was being read for the first time, by organization. */
  readonly #creditsSeen = new Map<string, number>();
  /** Counts how often everything was forgotten. */
  #rounds = 0;

  constructor(options: MemoryAccountsOptions) {
    this.#options = options;
  }

  find(organizationId: string): Account | undefined {
    return this.#accounts.get(organizationId);
  }

  /** The account where it may be gone by without a question to the books, else null. */
  current(organizationId: string): Account | null {
    const account = this.#accounts.get(organizationId);
    if (account === undefined) return null;
    if (!this.#isOlder(account, goodForMs)) return account;
    const { books } = this.#options;
    return !books.isWorthATry && books.mayServeKnown ? account : null;
  }

  /** Whether the books may know more of it, so that nobody is refused for what was booked past this process. */
  mayBeOutdated(account: Account): boolean {
    return this.#isOlder(account, goodForRefusalMs) && this.#options.books.isWorthATry;
  }

  /** The account after a question to the books. @throws what they throw where nothing may serve in their place */
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

  /** Has the books asked of every balance before it is gone by again. */
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
      // A credit that was booked while the balance was read may or may not be in it: read again.
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
   * What was held, booked or credited meanwhile makes the answer void: the balance here has followed it. One that is
   * forgotten has followed nothing: it is asked for until nothing comes between.
   */
  async #reload(account: Account): Promise<Account> {
    const { holdsOf, clock } = this.#options;
    for (;;) {
      const { changes } = account;
      const { balancePicoUsd, charged } = await this.#ask(account.organizationId, [...holdsOf(account).keys()]);
      const isFollowed = account.changes !== changes || account.heldMicroUsd !== 0n;
      if (isFollowed && !account.isForgotten) return account;
      if (account.changes !== changes) continue;
      const inBooks = new Set(charged);
      for (const [id, hold] of holdsOf(account)) hold.isCharged = inBooks.has(id);
      account.balancePicoUsd = balancePicoUsd;
      account.loadedMs = clock.monotonicMs();
      account.isForgotten = false;
      return account;
    }
  }

  #forgetOld(): void {
    if (this.#options.books.isAway) return;
    for (const account of this.#accounts.values()) {
      if (this.#isOlder(account, goodForMs)) this.#accounts.delete(account.organizationId);
    }
  }

  #ask(organizationId: string, requestIds: readonly string[]): ReturnType<LoadBalance> {
    const { books, loadBalance } = this.#options;
    return books.ask(() => loadBalance(organizationId, requestIds));
  }
}
