import type { Clock } from '#base/clock.ts';
import type { CacheConfig, StorageConfig } from '#base/config.ts';
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
  readonly cacheBounds: CacheConfig;
  readonly storage: StorageConfig;
  readonly leaseMs: number;
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
  const { db, clock, log, audit, metering, gateways, leaseMs } = parts;
  const cache = createResponseCache({ store: openCacheStore(parts), answerBytesMax: cachedAnswerBytesMax, log });
  const contents = createContents({ db, clock, log, audit, ...parts.storage });
  const idempotency = createIdempotency({
    db,
    log,
    gatewayId: gateways.id,
    leaseMs,
    isBooked: async ({ organizationId, keyId, requestId: id }) =>
      (await metering.reports.readRecord({ organizationId, keyId, id })) !== null,
  });
  return {
    cache,
    contents,
    idempotency,
    jobs: [
      {
        name: 'renew leases of idempotency keys',
        everyMs: leaseMs / 3,
        where: 'every',
        run: () => idempotency.renew(),
      },
      { name: 'delete old idempotency keys', everyMs: cleaningMs, where: 'one', run: () => idempotency.deleteOld() },
      { name: 'delete old contents', everyMs: cleaningMs, where: 'one', run: () => contents.deleteOld() },
    ],
    async close(timeoutMs) {
      await idempotency.close();
      await contents.close(timeoutMs);
    },
  };
}

function openCacheStore({ cacheBounds, shared, clock, log }: RetentionParts) {
  if (shared.store === null) return createMemoryStore({ ...cacheBounds, clock });
  return createRedisStore({ ...cacheBounds, store: shared.store, prefix: shared.prefix, log });
}
