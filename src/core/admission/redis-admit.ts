import { nextMonthMs, type KeyLimits } from '#core/limits/limits.ts';
import type { AdmitRequest } from './admission.ts';
import { admitScript } from './redis-scripts.ts';
import type { Reply, ShortMemory } from './short-memory.ts';

/** So many admissions keep Redis from others for about a millisecond. */
const bunchMax = 50;

interface Asked {
  readonly request: AdmitRequest;
  readonly isDry: boolean;
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: unknown) => void;
}

/** What the requests of a key have in common, as long as its limits stay as they are. */
interface Terms {
  readonly keyId: string;
  readonly organizationId: string;
  readonly limits: KeyLimits;
  readonly monthMs: number;
  /** As the script reads them: lines, the last one without its end. */
  readonly lines: string;
}

/** Requests of a key that are asked for together. */
interface Bunch {
  readonly terms: Terms;
  readonly asked: Asked[];
}

/** Terms are kept for so many API keys, about 2 MB, then made anew. */
const termsMax = 5000;

export interface AdmitDeskOptions {
  readonly memory: ShortMemory;
  readonly gatewayId: string;
  readonly leaseMs: number;
  /** Called before anything is asked: what was settled until now must be found settled. */
  readonly beforeAsking: () => void;
}

/** Asks Redis to admit requests; those of one key that come in one round of the event loop are one call. */
export class AdmitDesk {
  readonly #options: AdmitDeskOptions;
  readonly #terms = new Map<string, Terms>();
  #bunches = new Map<string, Bunch>();

  constructor(options: AdmitDeskOptions) {
    this.#options = options;
  }

  /** @throws RedisAwayError */
  ask(request: AdmitRequest, monthMs: number, isDry: boolean): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const bunch = this.#bunchFor(request, monthMs);
      bunch.asked.push({ request, isDry, resolve, reject });
      if (bunch.asked.length >= bunchMax) this.#flush();
    });
  }

  #bunchFor(request: AdmitRequest, monthMs: number): Bunch {
    const terms = this.#termsOf(request, monthMs);
    const open = this.#bunches.get(request.keyId);
    if (open?.terms === terms) return open;
    // Its limits were just changed.
    if (open !== undefined) this.#flush();
    if (this.#bunches.size === 0) this.#options.memory.store.atRoundEnd(() => this.#flush());
    const bunch = { terms, asked: [] };
    this.#bunches.set(request.keyId, bunch);
    return bunch;
  }

  #termsOf({ organizationId, keyId, limits }: AdmitRequest, monthMs: number): Terms {
    const known = this.#terms.get(keyId);
    if (known !== undefined && known.monthMs === monthMs && areEqual(known.limits, limits)) return known;
    const { leaseMs, gatewayId } = this.#options;
    const { requestsPerMinute, maxConcurrency, tokensPerMinute, monthlyTokenLimit } = limits;
    const limitLines = [requestsPerMinute, maxConcurrency, tokensPerMinute, monthlyTokenLimit].map(text);
    const lines = [...limitLines, monthMs, nextMonthMs(monthMs), leaseMs, gatewayId, keyId].join('\n');
    const terms = { keyId, organizationId, limits, monthMs, lines };
    if (this.#terms.size >= termsMax) this.#terms.clear();
    this.#terms.set(keyId, terms);
    return terms;
  }

  #flush(): void {
    if (this.#bunches.size === 0) return;
    const bunches = this.#bunches;
    this.#bunches = new Map();
    this.#options.beforeAsking();
    for (const bunch of bunches.values()) void this.#send(bunch);
  }

  async #send({ terms, asked }: Bunch): Promise<void> {
    const { memory } = this.#options;
    let { lines } = terms;
    for (const { request, isDry } of asked) {
      const { requestId, neededMicroUsd, wantedMicroUsd, estimatedTokens } = request;
      lines += `\n${requestId}\n${neededMicroUsd}\n${wantedMicroUsd}\n${estimatedTokens}\n${isDry ? '1' : '0'}`;
    }
    const keys = memory.requests(terms.organizationId, terms.keyId).admit;
    try {
      const { word, nowMs, rest } = await memory.runLines(admitScript, keys, lines);
      for (let index = 0; index < asked.length; index += 1) {
        const values = word === 'ok' ? (rest[index] ?? '').split(' ') : [word];
        asked[index]?.resolve({ word: values.shift() ?? '', nowMs, rest: values });
      }
    } catch (error) {
      for (const { reject } of asked) reject(error);
    }
  }
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
