import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { within } from '#base/within.ts';
import {
  type AdmitRefusal,
  type AdmitRequest,
  type LedgerHealth,
  type CountedDay,
  type CountedRequests,
  heldFor,
  type KeyRef,
  type Spending,
  type Spent,
} from '#core/admission/contract/contract.ts';
import type { Books, HoldLeases, KnownWallet, LastKnown, OwnHold } from '#core/admission/redis/redis.ts';
import { reserve } from '#core/limits/limits.ts';
import { OutageParts } from './parts.ts';

/** One gateway's part of a wallet. */
export interface Share {
  /** Number of gateways that divide the wallet. */
  readonly gateways: number;
  /** Balance, minus the charges of this gateway since. */
  balancePicoUsd: bigint;
  /** Amount that other gateways held at the last report. */
  readonly othersMicroUsd: bigint;
  /** Amount that all gateways together could give when the share was made; below zero if more was held. */
  availableMicroUsd: bigint;
  /** Amount that this gateway may still hold; below zero if it already held more. */
  leftMicroUsd: bigint;
  /** `leftMicroUsd` when the share was made. */
  givenMicroUsd: bigint;
  /** Time when the database was last asked for more, on the monotonic clock. */
  askedMs: number;
}

export interface OutageAccountsOptions {
  readonly books: Books;
  readonly watch: LedgerHealth;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  /** Counts the live gateways in the database. */
  readonly countGateways: () => Promise<number>;
  /** Returns the last count of live gateways; null if they were never counted. */
  readonly gatewaysKnown: () => number | null;
  readonly clock: Clock;
}

const unavailable: AdmitRefusal = { ok: false, code: 'billing_unavailable' };
/** Milliseconds to wait for the database if a known value can be used instead. */
const bearableMs = 20;
/** Milliseconds between two checks whether a wallet has more than was known. */
const askMoreMs = 1000;

/** Wallets and keys while Redis is unavailable: from the database if it answers at once, else Redis' last answer. */
export class OutageAccounts {
  readonly #options: OutageAccountsOptions;
  readonly #shares: OutageParts<Share>;
  readonly #reading = new Map<string, Promise<Share>>();
  readonly #outdated = new Set<string>();

  /** @param before books of the previous outage */
  constructor(options: OutageAccountsOptions, before: OutageAccounts | null) {
    this.#options = options;
    const { known } = options;
    this.#shares = new OutageParts(before === null ? null : before.#shares, (organizationId) =>
      known.isWalletHeard(organizationId),
    );
  }

  /** True if known values may be used. */
  get mayServe(): boolean {
    return this.#options.watch.mayServeKnown;
  }

  share(organizationId: string): Share | null {
    return this.#shares.get(organizationId) ?? null;
  }

  /** Updates a part when a hold changes or is charged. Requests that are admitted here update the part themselves. */
  changed(organizationId: string, deltaMicroUsd: bigint, chargedPicoUsd: bigint): void {
    const share = this.#shares.find(organizationId);
    if (share === undefined) return;
    share.leftMicroUsd -= deltaMicroUsd + heldFor(chargedPicoUsd);
    share.balancePicoUsd -= chargedPicoUsd;
  }

  /** Applies a credit or adjustment: this gateway gets its part of an increase, and all of a decrease. */
  credited(organizationId: string, picoUsd: bigint): void {
    const share = this.#shares.find(organizationId);
    if (share === undefined) this.#outdated.add(organizationId);
    else if (picoUsd > 0n) addTo(share, picoUsd);
    else {
      share.balancePicoUsd += picoUsd;
      share.leftMicroUsd += picoUsd / PICO_PER_MICRO;
    }
  }

  /** Returns this gateway's part of a wallet. @throws an Error if nothing is known and the database does not answer */
  read(organizationId: string): Promise<Share> {
    const made = this.#shares.get(organizationId);
    if (made !== undefined) return Promise.resolve(made);
    const running = this.#reading.get(organizationId);
    if (running !== undefined) return running;
    const former = this.#shares.takeUp(organizationId);
    const share = former === undefined ? this.#makeShare(organizationId) : this.#takeUp(organizationId, former);
    const reading = share.finally(() => {
      if (this.#reading.get(organizationId) === reading) this.#reading.delete(organizationId);
    });
    this.#reading.set(organizationId, reading);
    return reading;
  }

  /** True if it is time to check again whether the wallet has more. */
  mayHaveMore({ askedMs }: Share): boolean {
    const { watch, clock } = this.#options;
    return watch.isWorthATry && clock.monotonicMs() - askedMs >= askMoreMs;
  }

  /** Adds credits since a share was made: this gateway's part of them. */
  async askMore(organizationId: string, share: Share): Promise<void> {
    const { books, clock } = this.#options;
    share.askedMs = clock.monotonicMs();
    const { balancePicoUsd } = share;
    const balance = await this.#soon(() => books.balanceWith(organizationId, []), true);
    const more = (balance?.balancePicoUsd ?? 0n) - balancePicoUsd;
    if (more <= 0n) return;
    addTo(share, more);
  }

  /** Returns the number of gateways that divide the wallet. */
  async gateways(): Promise<number> {
    const { countGateways, gatewaysKnown } = this.#options;
    const known = gatewaysKnown();
    const counted = await this.#soon(countGateways, known !== null);
    return Math.max(1, counted ?? known ?? 1);
  }

  /**
   * Reads the amount spent of a budget, and which of these requests are included.
   * @param hasOther true if another value can be used: then a late answer gives null
   * @throws an Error if no other value is known and the database does not answer
   */
  spent(
    organizationId: string,
    { spending, requestIds }: { readonly spending: Spending; readonly requestIds: readonly string[] },
    hasOther: boolean,
  ): Promise<Spent | null> {
    const { spentWith } = this.#options.books;
    if (spentWith === undefined) throw new Error('the spending of a budget cannot be read');
    return this.#soon(() => spentWith(organizationId, spending, requestIds), hasOther);
  }

  /** Reads the requests of a model that its project limits. The parameter and errors are as for `spent`. */
  requests(day: CountedDay, requestIds: readonly string[], hasOther: boolean): Promise<CountedRequests | null> {
    const { requestsWith } = this.#options.books;
    if (requestsWith === undefined) throw new Error('the requests for a model cannot be read');
    return this.#soon(() => requestsWith(day, requestIds), hasOther);
  }

  isRevoked(key: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<boolean> {
    const { books, watch } = this.#options;
    return watch.ask(() => books.isRevoked(key));
  }

  /**
   * Returns the tokens of a key since the start of a month: those in the database, and those that its requests here may
   * use.
   * @param late called with the tokens if they come late; the result is then null. Null if nothing else is known
   */
  async monthTokens(key: KeyRef, startMs: number, late: ((tokens: number) => void) | null): Promise<number | null> {
    const asking: { tokens: number | null; isLate: boolean } = { tokens: null, isLate: false };
    const ask = async (): Promise<number> => {
      const tokens = await this.#readMonth(key, startMs);
      asking.tokens = tokens;
      if (asking.isLate) late?.(tokens);
      return tokens;
    };
    const soon = await this.#soon(ask, late !== null);
    asking.isLate = true;
    return soon ?? asking.tokens;
  }

  async #readMonth({ organizationId, keyId, limits }: KeyRef, startMs: number): Promise<number> {
    const { books, leases } = this.#options;
    const holds = [...leases.holdsOf(organizationId)].filter(([, hold]) => hold.keyId === keyId);
    const ids = holds.map(([id]) => id);
    const { tokens, counted } = await books.tokensWith({ organizationId, keyId }, startMs, ids);
    const recordedIds = new Set(counted);
    const running = holds.filter(([id]) => !recordedIds.has(id));
    return running.reduce((sum, [, hold]) => sum + reserve(hold.estimatedTokens, limits.monthlyTokenLimit), tokens);
  }

  /** Takes a part of an earlier outage, minus what other gateways have charged since according to the database. */
  async #takeUp(organizationId: string, share: Share): Promise<Share> {
    const { balancePicoUsd } = share;
    await this.#soon(async () => {
      lower(share, balancePicoUsd, await this.#options.books.balanceWith(organizationId, []));
    }, true);
    return share;
  }

  async #makeShare(organizationId: string): Promise<Share> {
    const { books, known, leases, clock } = this.#options;
    const heard = known.wallet(organizationId);
    const asked = leases.holdsOf(organizationId);
    const asking: { share: Share | null; recorded: Balance | null } = { share: null, recorded: null };
    const ask = async (): Promise<void> => {
      asking.recorded = await books.balanceWith(organizationId, [...asked.keys()]);
      if (asking.share !== null) lower(asking.share, heard?.balancePicoUsd ?? 0n, asking.recorded);
    };
    const [, gateways] = await Promise.all([this.#soon(ask, heard !== null), this.gateways()]);
    const { recorded } = asking;
    const lastKnown = recorded !== null && this.#outdated.has(organizationId) ? null : heard;
    const balance = lesser(recorded, lastKnown);
    const { balancePicoUsd, charged } = balance;
    // A hold that ended meanwhile may or may not be in the database's answer: it counts as not included.
    const held = new Map([...asked, ...leases.holdsOf(organizationId)].filter(([id]) => !charged.includes(id)));
    const othersMicroUsd = heard?.othersMicroUsd ?? 0n;
    const availableMicroUsd = balancePicoUsd / PICO_PER_MICRO - othersMicroUsd - sumOf(held, isRegistered);
    const leftMicroUsd = partOf({ gateways, balancePicoUsd, othersMicroUsd }) - sumOf(held, () => true);
    const money = { balancePicoUsd, othersMicroUsd, availableMicroUsd, leftMicroUsd, givenMicroUsd: leftMicroUsd };
    const askedMs = balance === recorded ? clock.monotonicMs() : Number.NEGATIVE_INFINITY;
    const share = { gateways, ...money, askedMs };
    asking.share = share;
    this.#shares.set(organizationId, share);
    return share;
  }

  /** @param hasOther true if another value can be used: then a late answer gives null */
  async #soon<T>(question: () => Promise<T>, hasOther: boolean): Promise<T | null> {
    const { watch } = this.#options;
    if (!hasOther) return watch.ask(question);
    if (!watch.isWorthATry) return null;
    const asked = watch.ask(question).catch(() => null);
    return within(asked, bearableMs, () => null);
  }
}

/**
 * Returns one gateway's part of a balance; its own holds are included in that part. The holds of the others at the last
 * report are deducted before the division: they may be charged by now, and the others divide what is left then.
 * Together the parts are no more than the known balance, except for holds and charges of other gateways that were not
 * reported.
 */
function partOf({
  gateways,
  balancePicoUsd,
  othersMicroUsd,
}: Pick<Share, 'gateways' | 'balancePicoUsd' | 'othersMicroUsd'>): bigint {
  const besides = balancePicoUsd / PICO_PER_MICRO - othersMicroUsd;
  return besides > 0n ? besides / BigInt(gateways) : 0n;
}

/** Adds an increase of the balance to a share. */
function addTo(share: Share, picoUsd: bigint): void {
  const before = partOf(share);
  share.balancePicoUsd += picoUsd;
  share.availableMicroUsd += picoUsd / PICO_PER_MICRO;
  const part = partOf(share) - before;
  share.leftMicroUsd += part;
  share.givenMicroUsd += part;
}

/**
 * Lowers a share when the database answers after the share was made: other gateways have charged amounts that were not
 * reported. Charges of this gateway during the query are deducted twice, so its part may be too small, never too large.
 * @param knownPicoUsd balance that was known when the query began
 */
function lower(share: Share, knownPicoUsd: bigint, { balancePicoUsd }: Balance): void {
  if (balancePicoUsd < knownPicoUsd) addTo(share, balancePicoUsd - knownPicoUsd);
}

interface Balance {
  readonly balancePicoUsd: bigint;
  /** Requests of this gateway that the balance was charged for, although they still have a hold. */
  readonly charged: readonly string[];
}

/**
 * Returns the smaller balance: others may have charged since Redis' last answer, and during the outage. The database
 * has that.
 */
function lesser(recorded: Balance | null, lastKnown: Pick<KnownWallet, 'balancePicoUsd'> | null): Balance {
  const heard = { balancePicoUsd: lastKnown?.balancePicoUsd ?? 0n, charged: [] };
  if (recorded === null) return heard;
  return lastKnown === null || recorded.balancePicoUsd <= lastKnown.balancePicoUsd ? recorded : heard;
}

/** True if Redis had the hold before the outage. */
const isRegistered = ({ standing }: OwnHold): boolean => standing === 'registered';

function sumOf(holds: ReadonlyMap<string, OwnHold>, counts: (hold: OwnHold) => boolean): bigint {
  let sum = 0n;
  for (const hold of holds.values()) if (counts(hold)) sum += hold.heldMicroUsd;
  return sum;
}

/**
 * Rejects if the wallet is empty as far as known, or if only this gateway's part is used up. Free requests need no
 * money.
 */
export function refuseByShare(share: Share, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  if (neededMicroUsd === 0n) return null;
  const { balancePicoUsd, leftMicroUsd } = share;
  if (balancePicoUsd > 0n && leftMicroUsd >= neededMicroUsd && leftMicroUsd >= 0n) return null;
  const availableMicroUsd = share.availableMicroUsd - (share.givenMicroUsd - leftMicroUsd);
  if (balancePicoUsd > 0n && availableMicroUsd >= neededMicroUsd && share.gateways > 1) return unavailable;
  const heldMicroUsd = balancePicoUsd / PICO_PER_MICRO - availableMicroUsd;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
