import type { Clock } from '#base/clock.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { reserve } from '#core/limits/limits.ts';
import type { BooksWatch } from './books-watch.ts';
import {
  type AdmitRefusal,
  type AdmitRequest,
  type CountedDay,
  type CountedRequests,
  heldFor,
  type KeyRef,
  type Spending,
  type Spent,
} from './contract.ts';
import type { HoldLeases } from './hold-leases.ts';
import type { OwnHold } from './own-hold.ts';
import type { KnownWallet, LastKnown } from './last-known.ts';
import { OutageParts } from './outage-parts.ts';
import type { Books } from './redis-books.ts';

/** One gateway's part of a wallet. */
export interface Share {
  /** By so many it was divided. */
  readonly gateways: number;
  /** Less what this gateway has charged since. */
  balancePicoUsd: bigint;
  /** What other gateways held, as far as it was heard. */
  readonly othersMicroUsd: bigint;
  /** What all gateways together had left to give when the share was made; below zero where more was held. */
  availableMicroUsd: bigint;
  /** What this gateway may still hold; below zero where it held more already. */
  leftMicroUsd: bigint;
  /** The same when the share was made. */
  givenMicroUsd: bigint;
  /** When the books were asked last whether there is more, on the monotonic clock. */
  askedMs: number;
}

export interface OutageBooksOptions {
  readonly books: Books;
  readonly watch: BooksWatch;
  readonly leases: HoldLeases;
  readonly known: LastKnown;
  /** How many gateways live, by the database's word. */
  readonly countGateways: () => Promise<number>;
  /** The same as it was said last; null when it never was. */
  readonly gatewaysKnown: () => number | null;
  readonly clock: Clock;
}

const unavailable: AdmitRefusal = { ok: false, code: 'billing_unavailable' };
/** An answer of the books is waited for so long where something is known in its place. */
const bearableMs = 20;
/** Between two questions whether there is more than was known, of one wallet. */
const askMoreMs = 1000;

/** What is known of wallets and keys while Redis is silent: by the books where they answer at once, else by its last word. */
export class OutageBooks {
  readonly #options: OutageBooksOptions;
  readonly #shares: OutageParts<Share>;
  readonly #reading = new Map<string, Promise<Share>>();
  readonly #outdated = new Set<string>();

  /** @param before of the outage before */
  constructor(options: OutageBooksOptions, before: OutageBooks | null) {
    this.#options = options;
    const { known } = options;
    this.#shares = new OutageParts(before === null ? null : before.#shares, (organizationId) =>
      known.isWalletHeard(organizationId),
    );
  }

  /** Whether what is known may be gone by. */
  get mayServe(): boolean {
    return this.#options.watch.mayServeKnown;
  }

  share(organizationId: string): Share | null {
    return this.#shares.get(organizationId) ?? null;
  }

  /** Updates a part when a hold changes or is charged. Requests that are admitted here update it by themselves. */
  changed(organizationId: string, deltaMicroUsd: bigint, chargedPicoUsd: bigint): void {
    const share = this.#shares.find(organizationId);
    if (share === undefined) return;
    share.leftMicroUsd -= deltaMicroUsd + heldFor(chargedPicoUsd);
    share.balancePicoUsd -= chargedPicoUsd;
  }

  /** Something was booked that is no request: of more than there was this gateway has its part, of less all. */
  credited(organizationId: string, picoUsd: bigint): void {
    const share = this.#shares.find(organizationId);
    if (share === undefined) this.#outdated.add(organizationId);
    else if (picoUsd > 0n) addTo(share, picoUsd);
    else {
      share.balancePicoUsd += picoUsd;
      share.leftMicroUsd += picoUsd / PICO_PER_MICRO;
    }
  }

  /** @throws an Error where nothing is known and the books do not answer */
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

  /** Whether it may be worth while to ask for more. */
  mayHaveMore({ askedMs }: Share): boolean {
    const { watch, clock } = this.#options;
    return watch.isWorthATry && clock.monotonicMs() - askedMs >= askMoreMs;
  }

  /** Takes over what was credited since a share was made: this gateway's part of it. */
  async askMore(organizationId: string, share: Share): Promise<void> {
    const { books, clock } = this.#options;
    share.askedMs = clock.monotonicMs();
    const { balancePicoUsd } = share;
    const said = await this.#soon(() => books.balanceWith(organizationId, []), true);
    const more = (said?.balancePicoUsd ?? 0n) - balancePicoUsd;
    if (more <= 0n) return;
    addTo(share, more);
  }

  /** How many gateways divide what there is. */
  async gateways(): Promise<number> {
    const { countGateways, gatewaysKnown } = this.#options;
    const known = gatewaysKnown();
    const counted = await this.#soon(countGateways, known !== null);
    return Math.max(1, counted ?? known ?? 1);
  }

  /**
   * What was spent of a budget, and which of these requests it has.
   * @param hasOther whether something else may serve: then null comes in the place of an answer that is not there soon
   * @throws an Error where nothing else is known and the books do not answer
   */
  spent(
    organizationId: string,
    { spending, requestIds }: { readonly spending: Spending; readonly requestIds: readonly string[] },
    hasOther: boolean,
  ): Promise<Spent | null> {
    const { spentWith } = this.#options.books;
    if (spentWith === undefined) throw new Error('nobody can say what was spent of a budget');
    return this.#soon(() => spentWith(organizationId, spending, requestIds), hasOther);
  }

  /** The same of the requests of a model that its project limits. */
  requests(day: CountedDay, requestIds: readonly string[], hasOther: boolean): Promise<CountedRequests | null> {
    const { requestsWith } = this.#options.books;
    if (requestsWith === undefined) throw new Error('nobody can say what was asked of a model');
    return this.#soon(() => requestsWith(day, requestIds), hasOther);
  }

  isRevoked(key: Pick<KeyRef, 'keyId' | 'organizationId'>): Promise<boolean> {
    const { books, watch } = this.#options;
    return watch.ask(() => books.isRevoked(key));
  }

  /**
   * Tokens of a key since the start of a month: those that the books have, and what its requests here may use.
   * @param late is told them where they do not come soon, and null is the answer; null where nothing else is known
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
    const inBooks = new Set(counted);
    const running = holds.filter(([id]) => !inBooks.has(id));
    return running.reduce((sum, [, hold]) => sum + reserve(hold.estimatedTokens, limits.monthlyTokenLimit), tokens);
  }

  /** The part of an earlier outage, less what the books say that others have charged since. */
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
    const asking: { share: Share | null; said: Balance | null } = { share: null, said: null };
    const ask = async (): Promise<void> => {
      asking.said = await books.balanceWith(organizationId, [...asked.keys()]);
      if (asking.share !== null) lower(asking.share, heard?.balancePicoUsd ?? 0n, asking.said);
    };
    const [, gateways] = await Promise.all([this.#soon(ask, heard !== null), this.gateways()]);
    const { said } = asking;
    const word = said !== null && this.#outdated.has(organizationId) ? null : heard;
    const balance = lesser(said, word);
    const { balancePicoUsd, charged } = balance;
    // One that ended meanwhile may be in what the books said, or not: it counts as if it were not.
    const held = new Map([...asked, ...leases.holdsOf(organizationId)].filter(([id]) => !charged.includes(id)));
    const othersMicroUsd = heard?.othersMicroUsd ?? 0n;
    const availableMicroUsd = balancePicoUsd / PICO_PER_MICRO - othersMicroUsd - sumOf(held, isTold);
    const leftMicroUsd = partOf({ gateways, balancePicoUsd, othersMicroUsd }) - sumOf(held, () => true);
    const money = { balancePicoUsd, othersMicroUsd, availableMicroUsd, leftMicroUsd, givenMicroUsd: leftMicroUsd };
    const askedMs = balance === said ? clock.monotonicMs() : Number.NEGATIVE_INFINITY;
    const share = { gateways, ...money, askedMs };
    asking.share = share;
    this.#shares.set(organizationId, share);
    return share;
  }

  /** @param hasOther whether something else may serve: then null comes in the place of an answer that is not there soon */
  async #soon<T>(question: () => Promise<T>, hasOther: boolean): Promise<T | null> {
    const { watch } = this.#options;
    if (!hasOther) return watch.ask(question);
    if (!watch.isWorthATry) return null;
    const asked = watch.ask(question);
    const { promise: late, resolve } = Promise.withResolvers<null>();
    const timer = setTimeout(resolve, bearableMs, null);
    try {
      return await Promise.race([asked.catch(() => null), late]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * One gateway's part of a balance; what it holds already is of that part. What others held when they were heard of is
 * taken off before it is divided: it may be charged by now, and they divide what is left of it then. Together the parts
 * are no more than the balance, as far as it was known; beyond it is only what one of the others held or charged and was
 * not heard of.
 */
function partOf({
  gateways,
  balancePicoUsd,
  othersMicroUsd,
}: Pick<Share, 'gateways' | 'balancePicoUsd' | 'othersMicroUsd'>): bigint {
  const besides = balancePicoUsd / PICO_PER_MICRO - othersMicroUsd;
  return besides > 0n ? besides / BigInt(gateways) : 0n;
}

/** A balance has more than it had when the share was made. */
function addTo(share: Share, picoUsd: bigint): void {
  const before = partOf(share);
  share.balancePicoUsd += picoUsd;
  share.availableMicroUsd += picoUsd / PICO_PER_MICRO;
  const part = partOf(share) - before;
  share.leftMicroUsd += part;
  share.givenMicroUsd += part;
}

/**
 * The books answered after the share was made: others have charged what was not heard of. What this gateway charged
 * while they were asked is taken off once more, so that its part is too small then, never too large.
 * @param knownPicoUsd the balance as it was known when they were asked
 */
function lower(share: Share, knownPicoUsd: bigint, { balancePicoUsd }: Balance): void {
  if (balancePicoUsd < knownPicoUsd) addTo(share, balancePicoUsd - knownPicoUsd);
}

interface Balance {
  readonly balancePicoUsd: bigint;
  /** Requests here that it has been charged for, though they still hold something. */
  readonly charged: readonly string[];
}

/** Others may have charged something since Redis was heard of, and do so in the outage: the books know of that. */
function lesser(said: Balance | null, word: Pick<KnownWallet, 'balancePicoUsd'> | null): Balance {
  const heard = { balancePicoUsd: word?.balancePicoUsd ?? 0n, charged: [] };
  if (said === null) return heard;
  return word === null || said.balancePicoUsd <= word.balancePicoUsd ? said : heard;
}

/** Redis knew of it before it fell silent. */
const isTold = ({ standing }: OwnHold): boolean => standing === 'told';

function sumOf(holds: ReadonlyMap<string, OwnHold>, counts: (hold: OwnHold) => boolean): bigint {
  let sum = 0n;
  for (const hold of holds.values()) if (counts(hold)) sum += hold.heldMicroUsd;
  return sum;
}

/** Whether the wallet is empty for all that is known, or only this gateway's part of it. A free request needs neither. */
export function refuseByShare(share: Share, { neededMicroUsd }: AdmitRequest): AdmitRefusal | null {
  if (neededMicroUsd === 0n) return null;
  const { balancePicoUsd, leftMicroUsd } = share;
  if (balancePicoUsd > 0n && leftMicroUsd >= neededMicroUsd && leftMicroUsd >= 0n) return null;
  const availableMicroUsd = share.availableMicroUsd - (share.givenMicroUsd - leftMicroUsd);
  if (balancePicoUsd > 0n && availableMicroUsd >= neededMicroUsd && share.gateways > 1) return unavailable;
  const heldMicroUsd = balancePicoUsd / PICO_PER_MICRO - availableMicroUsd;
  return { ok: false, code: 'insufficient_funds', balancePicoUsd, heldMicroUsd };
}
