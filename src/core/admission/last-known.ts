import { PICO_PER_MICRO } from '#base/money.ts';
import { dayStartMs, type KeyUse, type ModelUse } from '#core/limits/limits.ts';

/** What Redis said last of a wallet. */
interface WalletWord {
  /** Micro-dollars, pico-dollars beyond them, and micro-dollars held by all gateways, as the script says them. */
  word: string;
  /** Micro-dollars that this gateway held then. */
  ownMicroUsd: bigint;
  /** By Redis' clock. */
  heardMs: number;
  /** What this gateway has charged since. */
  chargedPicoUsd: bigint;
  /** Increases with each word of Redis. */
  number: number;
}

/** The same of a key. */
interface UseWords {
  words: readonly string[];
  monthMs: number | null;
  number: number;
}

/** What Redis said last of a key, in the time of its clock. */
export interface UseWord {
  readonly use: KeyUse;
  /** Start of the month that `use.monthTokens` counts; null where they are not counted. */
  readonly monthMs: number | null;
}

export interface KnownWallet {
  readonly balancePicoUsd: bigint;
  /** Micro-dollars that other gateways held. */
  readonly othersMicroUsd: bigint;
  /** By Redis' clock. */
  readonly heardMs: number;
}

/** What Redis said last of a budget's spending. */
export interface KnownSpent {
  /** Rounded up. */
  readonly spentMicroUsd: bigint;
  /** Held by other gateways; below zero counts as nothing. */
  readonly othersMicroUsd: bigint;
}

interface SpentWord extends KnownSpent {
  readonly number: number;
}

/** What Redis said last of a model in a project. */
interface ModelWords {
  /** Window's start, requests, tokens, and requests of the day or "-". */
  readonly words: readonly string[];
  readonly dayMs: number;
  readonly number: number;
}

/** So many organizations and keys are remembered, about 5 MB. */
const wordsMax = 10_000;

/** What Redis has told this gateway of wallets and keys, for when it is silent. */
export class LastKnown {
  readonly #wallets = new Map<string, WalletWord>();
  readonly #uses = new Map<string, UseWords>();
  readonly #budgets = new Map<string, SpentWord>();
  readonly #models = new Map<string, ModelWords>();
  readonly #revoked = new Map<string, true>();
  #number = 0;
  /** The numbers that were the last ones when everything was forgotten, and when the last outage was over. */
  #forgotten = 0;
  #over = 0;

  /** Forgets everything: the books that Redis had read may have gone back. */
  forget(): void {
    this.#forgotten = this.#next();
    for (const words of [this.#wallets, this.#uses, this.#budgets, this.#models, this.#revoked]) words.clear();
  }

  /** Words are understood when they are needed: these are called with every admission. */
  walletSaid(organizationId: string, said: { word: string; ownMicroUsd: bigint; heardMs: number }): void {
    const wallet = this.#wallets.get(organizationId);
    const number = this.#next();
    if (wallet === undefined) remember(this.#wallets, organizationId, { ...said, chargedPicoUsd: 0n, number });
    else {
      wallet.number = number;
      wallet.word = said.word;
      wallet.ownMicroUsd = said.ownMicroUsd;
      wallet.heardMs = said.heardMs;
      wallet.chargedPicoUsd = 0n;
    }
  }

  useSaid(keyId: string, words: readonly string[], monthMs: number | null): void {
    const known = this.#uses.get(keyId);
    const number = this.#next();
    if (known === undefined) remember(this.#uses, keyId, { words, monthMs, number });
    else {
      known.number = number;
      known.words = words;
      known.monthMs = monthMs;
    }
  }

  budgetSaid(organizationId: string, slot: string, said: KnownSpent): void {
    remember(this.#budgets, `${organizationId} ${slot}`, { ...said, number: this.#next() });
  }

  budgetCharged(organizationId: string, slot: string, picoUsd: bigint): void {
    const name = `${organizationId} ${slot}`;
    const said = this.#budgets.get(name);
    if (said === undefined) return;
    const spentMicroUsd = said.spentMicroUsd + (picoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
    this.#budgets.set(name, { ...said, spentMicroUsd });
  }

  /** Null where Redis was never asked about it. */
  budget(organizationId: string, slot: string): KnownSpent | null {
    return this.#budgets.get(`${organizationId} ${slot}`) ?? null;
  }

  /** @param heardMs by Redis' clock */
  modelSaid(slot: string, words: readonly string[], heardMs: number): void {
    remember(this.#models, slot, { words, dayMs: dayStartMs(heardMs), number: this.#next() });
  }

  /** Null where Redis was never asked about it. */
  model(slot: string): ModelUse | null {
    const known = this.#models.get(slot);
    return known === undefined ? null : readModelUse(known.words, known.dayMs, 0);
  }

  revoked(keyId: string): void {
    remember(this.#revoked, keyId, true);
  }

  isRevoked(keyId: string): boolean {
    return this.#revoked.has(keyId);
  }

  charged(organizationId: string, picoUsd: bigint): void {
    const wallet = this.#wallets.get(organizationId);
    if (wallet !== undefined) wallet.chargedPicoUsd += picoUsd;
  }

  wallet(organizationId: string): KnownWallet | null {
    const wallet = this.#wallets.get(organizationId);
    if (wallet === undefined) return null;
    const [micro = '0', pico = '0', held = '0'] = wallet.word.split(' ');
    const balancePicoUsd = BigInt(micro) * PICO_PER_MICRO + BigInt(pico) - wallet.chargedPicoUsd;
    // What was settled here and was on its way to Redis makes it too large, never too small.
    const others = BigInt(held) - wallet.ownMicroUsd;
    return { balancePicoUsd, othersMicroUsd: others > 0n ? others : 0n, heardMs: wallet.heardMs };
  }

  /** Null where Redis was never asked about the key. */
  use(keyId: string): UseWord | null {
    const known = this.#uses.get(keyId);
    return known === undefined ? null : { use: readUse(known.words, 0), monthMs: known.monthMs };
  }

  /** Redis decides again: it knows of all that was decided in its place, and what it says from now on counts that. */
  outageOver(): void {
    this.#over = this.#number;
  }

  /** True if Redis answered about a wallet after the last outage, or if its answers were forgotten since. */
  isWalletHeard(organizationId: string): boolean {
    return this.#isHeard(this.#wallets.get(organizationId));
  }

  /** The same of a key. */
  isUseHeard(keyId: string): boolean {
    return this.#isHeard(this.#uses.get(keyId));
  }

  /** The same of a budget's spending. @param name organization and slot, with a space between */
  isBudgetHeard(name: string): boolean {
    return this.#isHeard(this.#budgets.get(name));
  }

  /** The same of a model in a project. */
  isModelHeard(slot: string): boolean {
    return this.#isHeard(this.#models.get(slot));
  }

  #isHeard(word: { readonly number: number } | undefined): boolean {
    return (word?.number ?? this.#forgotten) > this.#over;
  }

  #next(): number {
    this.#number += 1;
    return this.#number;
  }
}

/**
 * What a key has used, as the scripts say it: window's start, requests, tokens, tokens of the month, running.
 * @param aheadMs by how much the clock whose time is wanted is ahead of Redis'
 */
export function readUse(words: readonly string[], aheadMs: number): KeyUse {
  const [startMs = 0, requests = 0, tokens = 0, monthTokens = 0, running = 0] = words.map(Number);
  return { windowStartMs: startMs === 0 ? 0 : startMs + aheadMs, requests, tokens, monthTokens, running };
}

/**
 * What a project has used of a model, as the scripts say it.
 * @param dayMs the day that they said it of
 * @param aheadMs as for `readUse`
 */
export function readModelUse(words: readonly string[], dayMs: number, aheadMs: number): ModelUse {
  const [startMs = 0, requests = 0, tokens = 0] = words.slice(0, 3).map(Number);
  const day = words[3] ?? '-';
  const windowStartMs = startMs === 0 ? 0 : startMs + aheadMs;
  return {
    windowStartMs,
    requests,
    tokens,
    dayMs: day === '-' ? null : dayMs,
    dayRequests: Number(day === '-' ? 0 : day),
  };
}

/** Where there is no room, what was heard of first is forgotten: it is heard of again when it is asked about. */
function remember<V>(words: Map<string, V>, name: string, word: V): void {
  if (words.size >= wordsMax && !words.has(name)) {
    const [oldest = ''] = words.keys();
    words.delete(oldest);
  }
  words.set(name, word);
}
