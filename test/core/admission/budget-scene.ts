import { randomUUID } from 'node:crypto';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import type { RedisStore } from '#base/redis/redis.ts';
import { createMemoryAdmission, createRedisAdmission, type RedisAdmission } from '#core/admission/admission.ts';
import type {
  Admission,
  AdmitRequest,
  HardBudget,
  Settlement,
  Spender,
  Spending,
} from '#core/admission/contract/types.ts';
import { periodOf } from '#core/budgets/budgets.ts';

const unlimited = { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null };
const balancePicoUsd = 10n ** 15n;

/** One organization: its books, its budgets, and what admits its requests. */
export class Scene {
  readonly #store: RedisStore;
  readonly organizationId = randomUUID();
  readonly spender: Spender = {
    organizationId: this.organizationId,
    keyId: randomUUID(),
    projectId: randomUUID(),
    user: 'anna',
  };
  readonly booked = new Map<string, bigint>();
  /** Amounts of every spender that counts against a slot; in micro-dollars. */
  readonly amounts = new Map<Spending['type'], bigint>();
  /** Amounts of the key for requests that a model answers; in micro-dollars. */
  readonly ofModels = new Map<string, bigint>();
  /** Runs between a question to the ledger and its answer. */
  meanwhile: () => void = () => undefined;
  live = new Set<string>();

  constructor(store: RedisStore) {
    this.#store = store;
  }

  readonly budgets = {
    of: (spender: Spender, requestId: string, model: string): readonly HardBudget[] => {
      const ofModel = this.ofModels.get(model);
      const ofAll = [...this.amounts].map(([type, amount]) => [type, amount, ''] as const);
      const all = ofModel === undefined ? ofAll : [...ofAll, ['api_key', ofModel, `_${model}`] as const];
      return all.map(([type, amountMicroUsd, suffix]) => {
        const id = { project: spender.projectId, api_key: spender.keyId, user: spender.user ?? '' }[type];
        const span = periodOf('daily', Number.parseInt(requestId.slice(0, 8) + requestId.slice(9, 13), 16));
        const slot = `${type}_${id}_${span.fromMs}${suffix}`;
        const amounts = { amountMicroUsd, allowedPicoUsd: 0n, forgivenPicoUsd: 0n };
        return { budgetId: slot, slot, spending: { type, id, period: 'daily', ...span }, ...amounts };
      });
    },
  };

  readonly spentWith = (_organizationId: string, { fromMs, toMs }: Spending, ids: readonly string[]) => {
    const inPeriod = [...this.booked].filter(([id]) => {
      const ms = Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
      return ms >= fromMs && ms < toMs;
    });
    const picoUsd = inPeriod.reduce((sum, [, cost]) => sum + cost, 0n);
    const counted = ids.filter((id) => this.booked.has(id));
    this.meanwhile();
    return Promise.resolve({ picoUsd, counted });
  };

  request(neededMicroUsd: bigint, wantedMicroUsd = neededMicroUsd, nowMs?: number): AdmitRequest {
    const { organizationId, keyId } = this.spender;
    const amounts = { neededMicroUsd, wantedMicroUsd, estimatedTokens: 1 };
    return { organizationId, keyId, limits: unlimited, requestId: uuidv7(nowMs), spender: this.spender, ...amounts };
  }

  memory(): Admission {
    return createMemoryAdmission({
      loadBalance: () => Promise.resolve({ balancePicoUsd, charged: [] }),
      loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
      onCredit: () => undefined,
      budgets: this.budgets,
      loadSpent: this.spentWith,
      clock: systemClock,
    });
  }

  redis(gatewayId: string = randomUUID(), leaseMs = 30_000): RedisAdmission {
    return createRedisAdmission({
      store: this.#store,
      prefix: 'hg:test',
      gatewayId,
      leaseMs,
      books: {
        balanceWith: (_, ids) => Promise.resolve({ balancePicoUsd, charged: ids.filter((id) => this.booked.has(id)) }),
        tokensWith: () => Promise.resolve({ tokens: 0, counted: [] }),
        isRevoked: () => Promise.resolve(false),
        spentWith: this.spentWith,
      },
      budgets: this.budgets,
      collect: () => Promise.resolve([]),
      findSettled: (_, ids) =>
        Promise.resolve(
          new Map(ids.flatMap((id) => (this.booked.has(id) ? [[id, usedOf(this.booked.get(id) ?? 0n)] as const] : []))),
        ),
      liveGateways: () => Promise.resolve(this.live),
      clock: systemClock,
      log: createLog('silent'),
    });
  }

  /** As the request path ends a request: the books first. */
  end(admission: Admission, requestId: string, picoUsd: bigint): void {
    this.booked.set(requestId, picoUsd);
    admission.settle(requestId, usedOf(picoUsd));
  }

  name(what: string): string {
    return `hg:test:{${this.organizationId}}:${what}`;
  }
}

export const usedOf = (chargedPicoUsd: bigint): Settlement => ({ chargedPicoUsd, tokens: 1 });
