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

/** What requests of a key that are asked for together have in common. */
interface Bunch {
  readonly keyId: string;
  readonly organizationId: string;
  readonly limits: KeyLimits;
  readonly monthMs: number;
  readonly asked: Asked[];
}

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

  #bunchFor({ organizationId, keyId, limits }: AdmitRequest, monthMs: number): Bunch {
    const open = this.#bunches.get(keyId);
    if (open !== undefined) {
      if (open.monthMs === monthMs && areEqual(open.limits, limits)) return open;
      // Its limits were just changed.
      this.#flush();
    }
    if (this.#bunches.size === 0) this.#options.memory.store.atRoundEnd(() => this.#flush());
    const bunch = { keyId, organizationId, limits, monthMs, asked: [] };
    this.#bunches.set(keyId, bunch);
    return bunch;
  }

  #flush(): void {
    if (this.#bunches.size === 0) return;
    const bunches = this.#bunches;
    this.#bunches = new Map();
    this.#options.beforeAsking();
    for (const bunch of bunches.values()) void this.#send(bunch);
  }

  async #send({ keyId, organizationId, limits, monthMs, asked }: Bunch): Promise<void> {
    const { memory, leaseMs, gatewayId } = this.#options;
    const args = [
      text(limits.requestsPerMinute),
      text(limits.maxConcurrency),
      text(limits.tokensPerMinute),
      text(limits.monthlyTokenLimit),
      String(monthMs),
      String(nextMonthMs(monthMs)),
      String(leaseMs),
      gatewayId,
      keyId,
    ];
    for (const { request, isDry } of asked) {
      const { requestId, neededMicroUsd, wantedMicroUsd, estimatedTokens } = request;
      const money = `${neededMicroUsd}\n${wantedMicroUsd}`;
      args.push(`${requestId}\n${money}\n${estimatedTokens}\n${isDry ? '1' : '0'}`);
    }
    try {
      const { word, nowMs, rest } = await memory.run(admitScript, memory.requests(organizationId, keyId).admit, args);
      for (const [index, { resolve }] of asked.entries()) {
        const [own = '', ...values] = word === 'ok' ? (rest[index] ?? '').split(' ') : [word];
        resolve({ word: own, nowMs, rest: values });
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
