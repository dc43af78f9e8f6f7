import type { AdmitRequest, HardBudget, ProjectLimit } from '#core/admission/contract/contract.ts';
import { type KeyLimits, nextMonthMs } from '#core/limits/limits.ts';
import type { AdmissionStore, Reply } from './admission-store.ts';
import { admitBoundScript, admitScript } from './admit-scripts.ts';

/** Maximum number of admissions in a batch. Redis takes about a millisecond for them. */
const batchMax = 50;

/** A request that Redis shall admit. */
export interface Asked {
  readonly request: AdmitRequest;
  /** Hard budgets that apply to the request. */
  readonly budgets: readonly HardBudget[];
  /** Limits of the request's project; null without limits. */
  readonly limit: ProjectLimit | null;
  /** Start of the counted month, in milliseconds since the Unix epoch. */
  readonly monthMs: number;
  /** True if Redis only returns what would happen. */
  readonly isDry: boolean;
  /** True if a balance may be used however long ago it was read. */
  readonly takesOld: boolean;
}

/** Values that all requests of an API key share while its limits stay the same. */
interface Terms {
  readonly keyId: string;
  readonly organizationId: string;
  readonly limits: KeyLimits;
  readonly monthMs: number;
  readonly takesOld: boolean;
  readonly notBeforeMs: number;
  /** The terms as the script reads them: lines, without a line break at the end. */
  readonly lines: string;
}

/** Requests of one API key that are sent together. */
interface Batch<Ask> {
  readonly terms: Terms;
  readonly asked: Ask[];
  /** True if one of them has budgets or limits of its project. */
  isBound: boolean;
}

/** Maximum number of API keys whose terms are kept, about 2 MB. Then all are dropped and built anew. */
const termsMax = 5000;

export interface AdmitBatcherOptions<Ask> {
  readonly store: AdmissionStore;
  readonly gatewayId: string;
  readonly leaseMs: number;
  /** Called before a batch is sent: settlements so far must be sent before the batch. */
  readonly beforeAsking: () => void;
  /** Called once for each request with its part of Redis' reply; must not throw. */
  readonly onReply: (asked: Ask, reply: Reply) => void;
  /**
   * Called after all `onReply` calls with Redis' answer about the wallet, "micro pico held", and the time of Redis'
   * clock.
   */
  readonly onWallet: (organizationId: string, word: string, nowMs: number) => void;
  /** Called instead of `onReply` if Redis could not be asked. */
  readonly onFailure: (asked: Ask, error: unknown) => void;
}

/**
 * Asks Redis to admit requests. Requests of one key that come in one round of the event loop go out in one call.
 * Results come by callbacks: a promise for each request costs more than everything else that this class does for it.
 */
export class AdmitBatcher<Ask extends Asked> {
  readonly #options: AdmitBatcherOptions<Ask>;
  readonly #terms = new Map<string, Terms>();
  #batches = new Map<string, Batch<Ask>>();

  constructor(options: AdmitBatcherOptions<Ask>) {
    this.#options = options;
  }

  ask(asked: Ask): void {
    const batch = this.#batchFor(asked);
    batch.asked.push(asked);
    if (asked.budgets.length > 0 || asked.limit !== null) batch.isBound = true;
    if (batch.asked.length >= batchMax) this.#flush();
  }

  #batchFor(asked: Ask): Batch<Ask> {
    const { request } = asked;
    const terms = this.#termsOf(asked);
    const open = this.#batches.get(request.keyId);
    if (open?.terms === terms) return open;
    // The limits of the key have just changed.
    if (open !== undefined) this.#flush();
    if (this.#batches.size === 0) this.#options.store.redis.atRoundEnd(() => this.#flush());
    const batch: Batch<Ask> = { terms, asked: [], isBound: false };
    this.#batches.set(request.keyId, batch);
    return batch;
  }

  #termsOf({ request, monthMs, takesOld }: Ask): Terms {
    const { organizationId, keyId, limits } = request;
    const { leaseMs, gatewayId, store } = this.#options;
    const { notBeforeMs } = store;
    const known = this.#terms.get(keyId);
    const isSame = known?.monthMs === monthMs && known.takesOld === takesOld && known.notBeforeMs === notBeforeMs;
    if (isSame && areEqual(known.limits, limits)) return known;
    const { requestsPerMinute, maxConcurrency, tokensPerMinute, monthlyTokenLimit } = limits;
    const limitLines = [requestsPerMinute, maxConcurrency, tokensPerMinute, monthlyTokenLimit].map(text);
    const age = takesOld ? '-' : notBeforeMs;
    const lines = [...limitLines, monthMs, nextMonthMs(monthMs), leaseMs, age, gatewayId, keyId].join('\n');
    const terms = { keyId, organizationId, limits, monthMs, takesOld, notBeforeMs, lines };
    if (this.#terms.size >= termsMax) this.#terms.clear();
    this.#terms.set(keyId, terms);
    return terms;
  }

  #flush(): void {
    if (this.#batches.size === 0) return;
    const batches = this.#batches;
    this.#batches = new Map();
    this.#options.beforeAsking();
    for (const batch of batches.values()) void this.#send(batch);
  }

  async #send({ terms, asked, isBound }: Batch<Ask>): Promise<void> {
    const { store, onReply, onWallet, onFailure } = this.#options;
    let { lines } = terms;
    for (const { request, budgets, limit, isDry } of asked) {
      const { requestId, neededMicroUsd, wantedMicroUsd, estimatedTokens } = request;
      lines += `\n${requestId}\n${neededMicroUsd}\n${wantedMicroUsd}\n${estimatedTokens}\n${isDry ? '1' : '0'}`;
      if (isBound) lines += `\n${limitsText(budgets)}\n${projectLimitText(limit)}`;
    }
    const keys = store.requests(terms.organizationId, terms.keyId);
    let reply: Reply;
    try {
      reply = isBound
        ? await store.runLines(admitBoundScript, keys.admitBound, lines, 'short')
        : await store.runLines(admitScript, keys.admit, lines, 'short');
    } catch (error) {
      for (const one of asked) onFailure(one, error);
      return;
    }
    const { word, nowMs, rest } = reply;
    for (const [index, one] of asked.entries()) {
      onReply(one, word === 'ok' ? replyOf(rest[index + 1] ?? '', nowMs) : reply);
    }
    if (word === 'ok') onWallet(terms.organizationId, rest[0] ?? '', nowMs);
  }
}

/** Returns the budgets as the script reads them. */
function limitsText(budgets: readonly HardBudget[]): string {
  if (budgets.length === 0) return '-';
  return budgets.map(({ slot, amountMicroUsd }) => `${slot} ${amountMicroUsd}`).join(' ');
}

/** Returns the limits of a project as the script reads them. */
export function projectLimitText(limit: ProjectLimit | null): string {
  if (limit === null) return '-';
  const { requestsPerMinute, tokensPerMinute, requestsPerDay } = limit.limits;
  return [limit.slot, ...[requestsPerMinute, tokensPerMinute, requestsPerDay].map(text)].join(' ');
}

/** Returns the part of a reply for one request: a line of words. */
function replyOf(line: string, nowMs: number): Reply {
  const [word = '', ...rest] = line.split(' ');
  return { word, nowMs, rest };
}

function areEqual(one: KeyLimits, other: KeyLimits): boolean {
  return (
    one === other ||
    (one.requestsPerMinute === other.requestsPerMinute &&
      one.maxConcurrency === other.maxConcurrency &&
      one.tokensPerMinute === other.tokensPerMinute &&
      one.monthlyTokenLimit === other.monthlyTokenLimit)
  );
}

const text = (limit: number | null): string => (limit === null ? '-' : String(limit));
