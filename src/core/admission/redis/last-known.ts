import { PICO_PER_MICRO } from '#base/money.ts';
import { dayStartMs, type KeyUse, type ModelUse } from '#core/limits/limits.ts';

/** Redis' last answer about a wallet. */
interface WalletReply {
  /**
   * Micro-dollars, pico-dollars beyond them, and micro-dollars held by all gateways, in the form of the script's reply.
   */
  reply: string;
  /** Micro-dollars that this gateway held at that time. */
  ownMicroUsd: bigint;
  /** Time of Redis' clock. */
  heardMs: number;
  /** Amount that this gateway has charged since. */
  chargedPicoUsd: bigint;
  /** Increases with each answer of Redis. */
  number: number;
}

/** Redis' last answer about a key. */
interface UseReply {
  values: readonly string[];
  monthMs: number | null;
  number: number;
}

/** Redis' last answer about a key, parsed; times are of Redis' clock. */
export interface KnownUse {
  readonly use: KeyUse;
  /** Start of the month that `use.monthTokens` counts; null if month tokens are not counted. */
  readonly monthMs: number | null;
}

export interface KnownWallet {
  readonly balancePicoUsd: bigint;
  /** Micro-dollars that other gateways held. */
  readonly othersMicroUsd: bigint;
  /** Time of Redis' clock. */
  readonly heardMs: number;
}

/** Redis' last answer about a budget's spending. */
export interface KnownSpent {
  /** Rounded up. */
  readonly spentMicroUsd: bigint;
  /** Micro-dollars held by other gateways; a value below zero counts as zero. */
  readonly othersMicroUsd: bigint;
}

interface SpentReply extends KnownSpent {
  readonly number: number;
}

/** Redis' last answer about a model in a project. */
interface ModelReply {
  /** Window's start, requests, tokens, and requests of the day or "-". */
  readonly values: readonly string[];
  readonly dayMs: number;
  readonly number: number;
}

/** Maximum number of remembered answers of each kind, about 5 MB for organizations and keys. */
const repliesMax = 10_000;

/** Redis' last answers about wallets and keys, for use while Redis is unavailable. */
export class LastKnown {
  readonly #wallets = new Map<string, WalletReply>();
  readonly #uses = new Map<string, UseReply>();
  readonly #budgets = new Map<string, SpentReply>();
  readonly #models = new Map<string, ModelReply>();
  readonly #revoked = new Map<string, true>();
  #number = 0;
  /** Values of `#number` when everything was forgotten, and when the last outage was over. */
  #forgotten = 0;
  #over = 0;

  /** Forgets everything: the database that Redis had read may have been restored to an older state. */
  forget(): void {
    this.#forgotten = this.#next();
    for (const replies of [this.#wallets, this.#uses, this.#budgets, this.#models, this.#revoked]) replies.clear();
  }

  /** Stores an answer about a wallet. Answers are parsed only when needed, since each admission stores one. */
  recordWallet(organizationId: string, reported: { reply: string; ownMicroUsd: bigint; heardMs: number }): void {
    const wallet = this.#wallets.get(organizationId);
    const number = this.#next();
    if (wallet === undefined) remember(this.#wallets, organizationId, { ...reported, chargedPicoUsd: 0n, number });
    else {
      wallet.number = number;
      wallet.reply = reported.reply;
      wallet.ownMicroUsd = reported.ownMicroUsd;
      wallet.heardMs = reported.heardMs;
      wallet.chargedPicoUsd = 0n;
    }
  }

  recordUse(keyId: string, values: readonly string[], monthMs: number | null): void {
    const known = this.#uses.get(keyId);
    const number = this.#next();
    if (known === undefined) remember(this.#uses, keyId, { values, monthMs, number });
    else {
      known.number = number;
      known.values = values;
      known.monthMs = monthMs;
    }
  }

  recordBudget(organizationId: string, slot: string, reported: KnownSpent): void {
    remember(this.#budgets, `${organizationId} ${slot}`, { ...reported, number: this.#next() });
  }

  budgetCharged(organizationId: string, slot: string, picoUsd: bigint): void {
    const name = `${organizationId} ${slot}`;
    const reported = this.#budgets.get(name);
    if (reported === undefined) return;
    const spentMicroUsd = reported.spentMicroUsd + (picoUsd + PICO_PER_MICRO - 1n) / PICO_PER_MICRO;
    this.#budgets.set(name, { ...reported, spentMicroUsd });
  }

  /** Returns the last answer about a budget; null if Redis was never asked about it. */
  budget(organizationId: string, slot: string): KnownSpent | null {
    return this.#budgets.get(`${organizationId} ${slot}`) ?? null;
  }

  /** @param heardMs time of Redis' clock */
  recordModel(slot: string, values: readonly string[], heardMs: number): void {
    remember(this.#models, slot, { values, dayMs: dayStartMs(heardMs), number: this.#next() });
  }

  /** Returns the last answer about a model; null if Redis was never asked about it. */
  model(slot: string): ModelUse | null {
    const known = this.#models.get(slot);
    return known === undefined ? null : readModelUse(known.values, known.dayMs, 0);
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
    const [micro = '0', pico = '0', held = '0'] = wallet.reply.split(' ');
    const balancePicoUsd = BigInt(micro) * PICO_PER_MICRO + BigInt(pico) - wallet.chargedPicoUsd;
    // Settlements of this gateway that were on their way to Redis make this value too large, never too small.
    const others = BigInt(held) - wallet.ownMicroUsd;
    return { balancePicoUsd, othersMicroUsd: others > 0n ? others : 0n, heardMs: wallet.heardMs };
  }

  /** Returns the last answer about a key; null if Redis was never asked about it. */
  use(keyId: string): KnownUse | null {
    const known = this.#uses.get(keyId);
    return known === undefined ? null : { use: readUse(known.values, 0), monthMs: known.monthMs };
  }

  /**
   * Notes that Redis decides again: it has all decisions made in its place, and its answers include them from now on.
   */
  outageOver(): void {
    this.#over = this.#number;
  }

  /** True if Redis answered about a wallet after the last outage, or if its answers were forgotten since. */
  isWalletHeard(organizationId: string): boolean {
    return this.#isHeard(this.#wallets.get(organizationId));
  }

  /** True if Redis answered about a key after the last outage, or if its answers were forgotten since. */
  isUseHeard(keyId: string): boolean {
    return this.#isHeard(this.#uses.get(keyId));
  }

  /** Does the same as `isWalletHeard` for a budget. @param name organization and slot, with a space between */
  isBudgetHeard(name: string): boolean {
    return this.#isHeard(this.#budgets.get(name));
  }

  /** Does the same as `isWalletHeard` for a model in a project. */
  isModelHeard(slot: string): boolean {
    return this.#isHeard(this.#models.get(slot));
  }

  #isHeard(reply: { readonly number: number } | undefined): boolean {
    return (reply?.number ?? this.#forgotten) > this.#over;
  }

  #next(): number {
    this.#number += 1;
    return this.#number;
  }
}

/**
 * Parses the use of a key from a script's reply: window's start, requests, tokens, tokens of the month, running.
 * @param aheadMs milliseconds by which the wanted clock is ahead of Redis' clock
 */
export function readUse(values: readonly string[], aheadMs: number): KeyUse {
  const [startMs = 0, requests = 0, tokens = 0, monthTokens = 0, running = 0] = values.map(Number);
  return { windowStartMs: startMs === 0 ? 0 : startMs + aheadMs, requests, tokens, monthTokens, running };
}

/**
 * Parses a project's use of a model from a script's reply.
 * @param dayMs day that the reply is about
 * @param aheadMs as for `readUse`
 */
export function readModelUse(values: readonly string[], dayMs: number, aheadMs: number): ModelUse {
  const [startMs = 0, requests = 0, tokens = 0] = values.slice(0, 3).map(Number);
  const day = values[3] ?? '-';
  const windowStartMs = startMs === 0 ? 0 : startMs + aheadMs;
  return {
    windowStartMs,
    requests,
    tokens,
    dayMs: day === '-' ? null : dayMs,
    dayRequests: Number(day === '-' ? 0 : day),
  };
}

/**
 * Stores an answer. If the map is full, the oldest entry is dropped; Redis is asked about it again when it is needed.
 */
function remember<V>(replies: Map<string, V>, name: string, reply: V): void {
  if (replies.size >= repliesMax && !replies.has(name)) {
    const [oldest = ''] = replies.keys();
    replies.delete(oldest);
  }
  replies.set(name, reply);
}
