import type { Clock } from '#base/clock.ts';
import type { CacheConfig, StorageConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { createStoredResponses, type StoredResponses } from '#core/responses/responses.ts';
import { createMemoryStore, createRedisStore, createResponseCache, type ResponseCache } from '#core/cache/cache.ts';
import type { History, Metering } from '#core/metering/metering.ts';
import {
  type Contents,
  createContents,
  createIdempotency,
  createReceipts,
  type Idempotency,
  type Receipts,
} from '#core/stored-requests/stored-requests.ts';
import type { Job } from '#edge/jobs/jobs.ts';
import type { Coordination, SharedStore } from './coordination.ts';
import type { Part } from './lifecycle.ts';

/** Stored requests, answers and responses, which are deleted after some time. */
export interface Retention {
  readonly rooms: RetentionRooms;
  /** Writes pending rows at its stop. */
  readonly part: Part;
  /** Must start after the books: a spooled record may decide the state of an idempotency key. */
  readonly claims: Part;
}

export interface RetentionRooms {
  readonly cache: ResponseCache;
  readonly contents: Contents;
  readonly idempotency: Idempotency;
  readonly receipts: Receipts;
  readonly storedResponses: StoredResponses;
}

export interface RetentionParts {
  readonly cacheBounds: CacheConfig;
  readonly storage: StorageConfig;
  /** Milliseconds that an idempotency key outlives the gateway that runs its request. */
  readonly leaseMs: number;
  readonly shared: SharedStore;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly secrets: Secrets;
  readonly metering: Metering;
  /** Turns for callers that read contents. */
  readonly history: Pick<History, 'during'>;
  readonly coordination: Pick<Coordination, 'gateways' | 'formerIds'>;
}

const cachedAnswerBytesMax = 4_194_304;
const cleaningMs = 60_000;
const contentsTimeoutMs = 10_000;
const resealMs = 60_000;
const usageMs = 600_000;

export function createRetention(parts: RetentionParts): Retention {
  const { db, clock, log, audit, metering, coordination, leaseMs } = parts;
  const cache = createResponseCache({ store: openCacheStore(parts), answerBytesMax: cachedAnswerBytesMax, log });
  const contents = createContents({
    db,
    clock,
    log,
    audit,
    ...parts.storage,
    during: (organizationId, run) => parts.history.during(organizationId, run),
  });
  const idempotency = createIdempotency({
    db,
    clock,
    log,
    gatewayId: coordination.gateways.id,
    leaseMs,
    formerIds: () => coordination.formerIds(),
    isReplayed: () => metering.spooled === 0,
  });
  const receipts = createReceipts({ db });
  const { secrets, storage } = parts;
  const storedResponses = createStoredResponses({ db, secrets, clock, log, audit, ageMaxMs: storage.responseAgeMaxMs });
  metering.onUnspooled((records, isBooked) => {
    for (const { id, claim } of records) if (claim !== undefined) idempotency.unspooled(id, isBooked);
  });
  const part: Part = {
    name: 'stored requests',
    jobs: [
      ...usageJobs(parts),
      { name: 'delete old idempotency keys', everyMs: cleaningMs, where: 'one', run: () => idempotency.deleteOld() },
      { name: 'delete old receipts of changes', everyMs: cleaningMs, where: 'one', run: () => receipts.deleteOld() },
      {
        name: 'delete old rejected requests and histograms',
        everyMs: usageMs,
        where: 'one',
        run: () => metering.deleteOld(),
      },
      { name: 'delete old contents', everyMs: cleaningMs, where: 'one', run: () => contents.deleteOld() },
      { name: 'delete old responses', everyMs: cleaningMs, where: 'one', run: () => storedResponses.deleteOld() },
      {
        name: 'encrypt keys of stored responses with the current platform key',
        everyMs: resealMs,
        where: 'every',
        run: () => storedResponses.reseal(),
      },
    ],
    async stop() {
      await idempotency.close();
      await contents.close(contentsTimeoutMs);
    },
  };
  const claims: Part = {
    name: 'idempotency keys',
    jobs: [
      {
        name: 'renew leases of idempotency keys',
        everyMs: leaseMs / 3,
        where: 'every',
        run: () => idempotency.renew(),
      },
    ],
    // Requests of a killed gateway of this place can be sent again at once, unless their records are still spooled.
    start: () => idempotency.renew(),
  };
  return { rooms: { cache, contents, idempotency, receipts, storedResponses }, part, claims };
}

/** Deletes old months of records, some minutes after they become due or the setting is changed. */
function usageJobs({ metering, storage: { usageDays } }: RetentionParts): readonly Job[] {
  if (usageDays === null) return [];
  const run = async (): Promise<void> => void (await metering.dropOldPartitions(usageDays));
  return [{ name: 'drop old usage', everyMs: usageMs, where: 'one', run }];
}

function openCacheStore({ cacheBounds, shared, clock, log }: RetentionParts) {
  if (shared.store === null) return createMemoryStore({ ...cacheBounds, clock });
  return createRedisStore({ ...cacheBounds, store: shared.store, prefix: shared.prefix, log });
}
