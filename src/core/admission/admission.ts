import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';

/**
 * The short memory that decides whether a request may run: here the wallet's holds. `admit`, `extend` and `settle` are
 * all that the request path asks, so that limits, and a store shared by several gateways, can come behind them.
 *
 * available = balance − held, in whole micro-dollars, and no hold is ever given beyond it: since a request is charged
 * at most its hold, no wallet goes below zero. Balances are loaded from Postgres once and then follow what this
 * process books; while Postgres is away a balance that is known keeps serving, an unknown one is `billing_unavailable`.
 */
export interface Admission {
  /** All or nothing. A hold between `needed` and `wanted` is given: as much as is available. */
  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult>;
  /** Adds to a hold as much as is available, up to `moreMicroUsd`; returns what was added. */
  extend(requestId: string, moreMicroUsd: bigint): bigint | Promise<bigint>;
  /** Gives the hold back and takes what was charged off the balance. Only the first call for an id counts. */
  settle(requestId: string, chargedPicoUsd: bigint): void;
  /** Micro-dollars held for running requests of an organization. */
  heldMicroUsd(organizationId: string): bigint;
}

export interface AdmitRequest {
  readonly requestId: string;
  readonly organizationId: string;
  readonly keyId: string;
  /** The least that makes sense: the prompt and one token. */
  readonly neededMicroUsd: bigint;
  readonly wantedMicroUsd: bigint;
}

export type AdmitResult =
  | { readonly ok: true; readonly heldMicroUsd: bigint }
  | {
      readonly ok: false;
      readonly code: 'insufficient_funds';
      readonly balancePicoUsd: bigint;
      readonly heldMicroUsd: bigint;
    }
  | { readonly ok: false; readonly code: 'billing_unavailable' };

export interface AdmissionOptions {
  /** Reads an organization's balance from the books, in pico-dollars. */
  readonly loadBalance: (organizationId: string) => Promise<bigint>;
  /** Calls the listener after a credit or an adjustment was booked. */
  readonly onCredit: (listener: (organizationId: string, deltaPicoUsd: bigint) => void) => void;
  readonly clock: Clock;
}

/** A balance that nothing is held on is read anew after this long: what was booked past this process shows up. */
const knownForMs = 30_000;

interface Account {
  readonly organizationId: string;
  readonly loadedMs: number;
  balancePicoUsd: bigint;
  heldMicroUsd: bigint;
}

interface Hold {
  readonly account: Account;
  heldMicroUsd: bigint;
}

const availableMicroUsd = (account: Account): bigint => account.balancePicoUsd / PICO_PER_MICRO - account.heldMicroUsd;

/** Admission of one gateway, in this process's memory. */
export function createMemoryAdmission(options: AdmissionOptions): Admission {
  return new MemoryAdmission(options);
}

class MemoryAdmission implements Admission {
  readonly #options: AdmissionOptions;
  readonly #accounts = new Map<string, Account>();
  readonly #loading = new Map<string, Promise<Account>>();
  /** Credits booked while a balance was being read, by organization. */
  readonly #creditsSeen = new Map<string, number>();
  readonly #holds = new Map<string, Hold>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
    options.onCredit((organizationId, deltaPicoUsd) => this.#credited(organizationId, deltaPicoUsd));
  }

  admit(request: AdmitRequest): AdmitResult | Promise<AdmitResult> {
    const account = this.#accounts.get(request.organizationId);
    if (account !== undefined) return this.#decide(account, request);
    return this.#loadOnce(request.organizationId).then(
      (loaded) => this.#decide(loaded, request),
      () => ({ ok: false, code: 'billing_unavailable' }),
    );
  }

  extend(requestId: string, moreMicroUsd: bigint): bigint {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return 0n;
    const available = availableMicroUsd(hold.account);
    const added = available < moreMicroUsd ? available : moreMicroUsd;
    if (added <= 0n) return 0n;
    hold.account.heldMicroUsd += added;
    hold.heldMicroUsd += added;
    return added;
  }

  settle(requestId: string, chargedPicoUsd: bigint): void {
    const hold = this.#holds.get(requestId);
    if (hold === undefined) return;
    this.#holds.delete(requestId);
    hold.account.heldMicroUsd -= hold.heldMicroUsd;
    hold.account.balancePicoUsd -= chargedPicoUsd;
    this.#forgetIdle(hold.account);
  }

  heldMicroUsd(organizationId: string): bigint {
    return this.#accounts.get(organizationId)?.heldMicroUsd ?? 0n;
  }

  #credited(organizationId: string, deltaPicoUsd: bigint): void {
    const account = this.#accounts.get(organizationId);
    if (account !== undefined) account.balancePicoUsd += deltaPicoUsd;
    else if (this.#loading.has(organizationId)) {
      this.#creditsSeen.set(organizationId, (this.#creditsSeen.get(organizationId) ?? 0) + 1);
    }
  }

  #decide(account: Account, request: AdmitRequest): AdmitResult {
    const available = availableMicroUsd(account);
    if (account.balancePicoUsd <= 0n || available < request.neededMicroUsd) {
      const { balancePicoUsd, heldMicroUsd } = account;
      return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
    }
    const heldMicroUsd = available < request.wantedMicroUsd ? available : request.wantedMicroUsd;
    account.heldMicroUsd += heldMicroUsd;
    this.#holds.set(request.requestId, { account, heldMicroUsd });
    return { ok: true, heldMicroUsd };
  }

  #loadOnce(organizationId: string): Promise<Account> {
    const running = this.#loading.get(organizationId);
    if (running !== undefined) return running;
    const started = this.#load(organizationId).finally(() => this.#loading.delete(organizationId));
    this.#loading.set(organizationId, started);
    return started;
  }

  async #load(organizationId: string): Promise<Account> {
    for (;;) {
      const seen = this.#creditsSeen.get(organizationId) ?? 0;
      const balancePicoUsd = await this.#options.loadBalance(organizationId);
      // A credit that was booked while the balance was read may or may not be in it: read again.
      if ((this.#creditsSeen.get(organizationId) ?? 0) !== seen) continue;
      const loadedMs = this.#options.clock.monotonicMs();
      const account = { organizationId, loadedMs, balancePicoUsd, heldMicroUsd: 0n };
      this.#accounts.set(organizationId, account);
      this.#creditsSeen.delete(organizationId);
      return account;
    }
  }

  /** Nothing held means nothing that is booked and not yet taken off here, so the books alone say the balance. */
  #forgetIdle(account: Account): void {
    if (account.heldMicroUsd !== 0n) return;
    if (this.#options.clock.monotonicMs() - account.loadedMs < knownForMs) return;
    if (this.#accounts.get(account.organizationId) === account) this.#accounts.delete(account.organizationId);
  }
}
