import { randomUUID } from 'node:crypto';
import { systemClock } from '#base/clock.ts';
import { uuidTimeMs, uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import type { RedisStore } from '#base/redis/redis.ts';
import { createMemoryAdmission, createRedisAdmission, type RedisAdmission } from '#core/admission/admission.ts';
import type { Admission, AdmitRequest, CountedDay, ProjectLimit, Spender } from '#core/admission/contract/types.ts';
import { dayStartMs, type ModelLimits } from '#core/limits/limits.ts';

/** Limits of a project over books that the test writes. */

const log = createLog('silent');
const unlimited = { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null };
const balancePicoUsd = 10n ** 15n;
export const models = ['a', 'b'] as const;
export type Model = (typeof models)[number];

/** One project: its books, its limits, and what admits its requests. */
export class Scene {
  readonly spender: Spender = {
    organizationId: randomUUID(),
    keyId: randomUUID(),
    projectId: randomUUID(),
    user: null,
  };
  /** Model by request. */
  readonly booked = new Map<string, string>();
  readonly limits = new Map<string, ProjectLimit>();
  readonly servedBy = new Map<string, string>();
  live = new Set<string>();
  collect: () => Promise<readonly string[]> = () => Promise.resolve([]);

  limit(model: Model, limits: Partial<ModelLimits>): void {
    const slot = this.limits.get(model)?.slot ?? randomUUID();
    const all = { requestsPerMinute: null, tokensPerMinute: null, requestsPerDay: null, ...limits };
    this.limits.set(model, { slot, projectId: this.spender.projectId, model, limits: all });
  }

  readonly projectLimits = { of: (_: Spender, model: string) => this.limits.get(model) ?? null };

  /** Resolves when a reading of the ledger may go on. */
  beforeDay = Promise.resolve();

  readonly loadDay = async ({ model, dayMs }: CountedDay, ids: readonly string[]) => {
    await this.beforeDay;
    const own = [...this.booked].filter(([id, by]) => by === model && dayStartMs(uuidTimeMs(id)) === dayMs);
    return { requests: own.length, counted: ids.filter((id) => this.booked.get(id) === model) };
  };

  request(model: Model, estimatedTokens: number): AdmitRequest {
    const { organizationId, keyId } = this.spender;
    const requestId = uuidv7();
    this.servedBy.set(requestId, model);
    const amounts = { neededMicroUsd: 1n, wantedMicroUsd: 1n, estimatedTokens };
    return { organizationId, keyId, limits: unlimited, requestId, spender: this.spender, model, ...amounts };
  }

  memory(): Admission {
    return createMemoryAdmission({
      loadBalance: () => Promise.resolve({ balancePicoUsd, charged: [] }),
      loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
      onCredit: () => undefined,
      projectLimits: this.projectLimits,
      loadDay: this.loadDay,
      clock: systemClock,
    });
  }

  redis(store: RedisStore, gatewayId: string = randomUUID()): RedisAdmission {
    return createRedisAdmission({
      store,
      prefix: 'hg:test',
      gatewayId,
      leaseMs: 30_000,
      books: {
        balanceWith: (_, ids) => Promise.resolve({ balancePicoUsd, charged: ids.filter((id) => this.booked.has(id)) }),
        tokensWith: () => Promise.resolve({ tokens: 0, counted: [] }),
        isRevoked: () => Promise.resolve(false),
        requestsWith: this.loadDay,
      },
      projectLimits: this.projectLimits,
      collect: () => this.collect(),
      findSettled: () => Promise.resolve(new Map()),
      liveGateways: () => Promise.resolve(this.live),
      clock: systemClock,
      log,
    });
  }

  /** As the request path ends a request: the books first. */
  end(admission: Admission, requestId: string, tokens: number): void {
    this.booked.set(requestId, this.servedBy.get(requestId) ?? '');
    admission.settle(requestId, { chargedPicoUsd: 0n, tokens });
  }
}

/** Notices without their times. */
export async function ask(admission: Admission, request: AdmitRequest): Promise<unknown> {
  const result = await admission.admit(request);
  const view = result.ok ? result.view : 'limits' in result ? result.limits : null;
  const left = [view?.requests?.remaining ?? null, view?.tokens?.remaining ?? null];
  if (result.ok) return ['ok', left];
  return [result.code, 'ofProject' in result ? result.ofProject?.name : null, left];
}
