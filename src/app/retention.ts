import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import { createMemoryStore, createRedisStore, createResponseCache, type ResponseCache } from '#core/cache/cache.ts';
import type { Gateways } from '#core/gateways/gateways.ts';
import type { Metering } from '#core/metering/metering.ts';
import { createContents, createIdempotency, type Contents, type Idempotency } from '#core/requests/requests.ts';
import type { Job } from '#edge/jobs/jobs.ts';
import type { SharedStore } from './coordination.ts';

/** What a gateway keeps of requests and answers, each for those who ask for it, and none of it for ever. */
export interface Retention {
  readonly cache: ResponseCache;
  readonly contents: Contents;
  readonly idempotency: Idempotency;
  readonly jobs: readonly Job[];
  /** Writes what is still to be written. */
  close(timeoutMs: number): Promise<void>;
}

export interface RetentionParts {
  readonly config: Config;
  readonly shared: SharedStore;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly metering: Metering;
  readonly gateways: Pick<Gateways, 'id'>;
}

const cachedAnswerBytesMax = 4_194_304;
const cleaningMs = 60_000;

export function createRetention(parts: RetentionParts): Retention {
  const { config, db, clock, log, audit, metering, gateways } = parts;
  const cache = createResponseCache({ store: openCacheStore(parts), answerBytesMax: cachedAnswerBytesMax, log });
  const { storeAgeMaxMs: ageMaxMs, storedBodyBytesMax: bodyBytesMax } = config;
  const contents = createContents({ db, clock, log, audit, ageMaxMs, bodyBytesMax });
  const idempotency = createIdempotency({
    db,
    log,
    gatewayId: gateways.id,
    leaseMs: config.leaseMs,
    isBooked: async ({ organizationId, keyId, requestId: id }) =>
      (await metering.reports.readRecord({ organizationId, keyId, id })) !== null,
  });
  return {
    cache,
    contents,
    idempotency,
    jobs: [
      { name: 'renew leases of idempotency keys', everyMs: config.leaseMs / 3, run: () => idempotency.renew() },
      { name: 'delete old idempotency keys', everyMs: cleaningMs, run: () => idempotency.deleteOld() },
      { name: 'delete old contents', everyMs: cleaningMs, run: () => contents.deleteOld() },
    ],
    async close(timeoutMs) {
      await idempotency.close();
      await contents.close(timeoutMs);
    },
  };
}

function openCacheStore({ config, shared, clock, log }: RetentionParts) {
  const bounds = { bytesMax: config.cacheBytesMax, ageMaxMs: config.cacheAgeMaxMs };
  if (shared.store === null) return createMemoryStore({ ...bounds, clock });
  return createRedisStore({ ...bounds, store: shared.store, prefix: shared.prefix, log });
}
