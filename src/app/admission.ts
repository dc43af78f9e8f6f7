import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { RedisStore } from '#base/redis/redis.ts';
import {
  type Admission,
  createHoldReview,
  createMemoryAdmission,
  createRedisAdmission,
  type HoldReview,
  type RedisAdmission,
} from '#core/admission/admission.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { BudgetCache } from '#core/budgets/budgets.ts';
import type { Keys } from '#core/keys/keys.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { RateLimitCache } from '#core/rate-limits/rate-limits.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import type { Coordination, SharedStore } from './coordination.ts';
import type { Part } from './lifecycle.ts';

export interface AdmissionParts {
  readonly shared: SharedStore;
  readonly leaseMs: number;
  /** Milliseconds for which loaded balances and monthly sums are used while PostgreSQL is unavailable. */
  readonly staleMs: number;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly coordination: Coordination;
  readonly keys: Keys;
  readonly audit: Audit;
  readonly wallet: Wallet;
  readonly metering: Metering;
  readonly budgets: BudgetCache;
  readonly projectLimits: RateLimitCache;
}

export interface AdmissionPart {
  readonly admission: Admission;
  readonly holds: HoldReview;
  readonly part: Part;
}

/** Creates limits and holds: in Redis, shared by all gateways of a database, or in the memory of a single gateway. */
export function createAdmission({ shared: { store, prefix }, ...parts }: AdmissionParts): AdmissionPart {
  return store === null ? admitAlone(parts) : admitThrough({ ...parts, store, prefix });
}

function admitAlone({
  wallet,
  metering,
  budgets,
  projectLimits,
  staleMs,
  clock,
  db,
  audit,
}: Omit<AdmissionParts, 'shared'>): AdmissionPart {
  const admission = createMemoryAdmission({
    loadBalance: (organizationId, requestIds) => metering.reports.balanceWith(organizationId, requestIds),
    loadTokens: (key, sinceMs, requestIds) => metering.reports.tokensWith({ ...key, sinceMs }, requestIds),
    onCredit: (listener) => wallet.onCredit(listener),
    budgets,
    loadSpent: (organizationId, spending, requestIds) =>
      metering.spending.spentWith(organizationId, spending, requestIds),
    projectLimits,
    loadDay: (day, requestIds) => metering.reports.requestsWith(day, requestIds),
    staleMs,
    clock,
  });
  return { admission, holds: createHoldReview({ db, audit, orphanedHolds: null }), part: { name: 'admission' } };
}

interface RedisParts extends Omit<AdmissionParts, 'shared'> {
  readonly store: RedisStore;
  readonly prefix: string;
}

function admitThrough(parts: RedisParts): AdmissionPart {
  const admission = createSharedAdmission(parts);
  const { wallet, keys, store, coordination, leaseMs, log } = parts;
  wallet.onCredit((organizationId, deltaPicoUsd) =>
    admission.credited(organizationId, deltaPicoUsd).catch((error: unknown) => {
      log.error(
        { err: error, organizationId },
        'a credit is in the wallet, but the gateways cannot spend it yet: Redis rejected the update. It takes effect when they read the balance again',
      );
    }),
  );
  keys.onChanged(async (change) => {
    if (change.revoked) await admission.revoked(change);
  });
  // A key of a running stream may have been revoked while this gateway received no messages.
  store.onGap(() => {
    for (const keyId of admission.keysRunning()) {
      keys
        .refresh(keyId)
        .catch((error: unknown) =>
          log.warn(
            { err: error, keyId },
            'an API key with running requests could not be read again after messages from Redis were lost; a revocation of the key may end the requests late',
          ),
        );
    }
  });
  store.onGap(() => {
    keys
      .refreshOrganizations()
      .catch((error: unknown) =>
        log.warn(
          { err: error },
          'organizations could not be read again after messages from Redis were lost; a suspension may take effect late',
        ),
      );
  });
  coordination.onMessage('collect', async ({ organizationId }) => {
    if (organizationId !== undefined) await admission.register(organizationId);
  });
  const part: Part = {
    name: 'admission',
    jobs: [
      { name: 'renew leases', everyMs: admission.renewMs, where: 'every', run: () => admission.renew() },
      // Runs on every gateway: a frozen gateway must not delay the release of what a killed gateway held.
      { name: 'sweep leases', everyMs: leaseMs / 2, where: 'every', run: () => admission.sweep() },
    ],
    start: () => admission.enter(),
    stop: () => admission.close(),
  };
  const { db, audit } = parts;
  return { admission, holds: createHoldReview({ db, audit, orphanedHolds: admission.orphanedHolds }), part };
}

function createSharedAdmission({ store, prefix, leaseMs, staleMs, clock, log, ...rooms }: RedisParts): RedisAdmission {
  const { keys, metering, budgets, projectLimits } = rooms;
  const { gateways } = rooms.coordination;
  return createRedisAdmission({
    store,
    prefix,
    gatewayId: gateways.id,
    leaseMs,
    staleMs,
    books: {
      balanceWith: (organizationId, requestIds) => metering.reports.balanceWith(organizationId, requestIds),
      tokensWith: (key, sinceMs, requestIds) => metering.reports.tokensWith({ ...key, sinceMs }, requestIds),
      spentWith: (organizationId, spending, requestIds) =>
        metering.spending.spentWith(organizationId, spending, requestIds),
      requestsWith: (day, requestIds) => metering.reports.requestsWith(day, requestIds),
      isRevoked: (key) => keys.isRevoked(key),
    },
    budgets,
    projectLimits,
    collect: (organizationId) => gateways.broadcast({ kind: 'collect', organizationId }),
    findSettled: (organizationId, requestIds) => metering.reports.findSettled(organizationId, requestIds),
    liveGateways: () => gateways.live(),
    clock,
    log,
  });
}
