import type { Clock } from '#base/clock.ts';
import { ConfigError, type Config } from '#base/config.ts';
import { type Db, readTime } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { createSteadyClock } from '#base/steady-clock.ts';
import { connectRedis, RedisAwayError, type RedisStore } from '#base/redis.ts';
import {
  type Admission,
  createMemoryAdmission,
  createRedisAdmission,
  type RedisAdmission,
} from '#core/admission/admission.ts';
import { createGateways, heartbeatMs, readNamespace, type Gateways } from '#core/gateways/gateways.ts';
import type { Keys } from '#core/keys/keys.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import type { Job } from '#edge/jobs/jobs.ts';

/**
 * What a gateway shares with others on its database: the admission store, and word of what changes. With
 * `REDIS_URL` it is in Redis; without, this process is alone and keeps it itself.
 */
export interface Coordination {
  readonly admission: Admission;
  /** For what else several gateways share; null without Redis. */
  readonly store: RedisStore | null;
  /** What names in Redis begin with. */
  readonly prefix: string;
  /** This gateway among those of its database. */
  readonly gateways: Pick<Gateways, 'id' | 'live'>;
  /** Tells the other gateways to read their engine files again; that they could not be told is logged. */
  tellReload(): Promise<void>;
  /** What to do when another gateway says so. */
  onReload(listener: () => void): void;
  readonly jobs: readonly Job[];
  /**
   * @returns ids of gateways that had this one's place before and are gone
   * @throws ConfigError when another gateway runs here that nothing would be shared with
   */
  start(): Promise<readonly string[]>;
  stop(): Promise<void>;
}

/** Where gateways of one database meet in Redis, before their rooms are built. */
export interface SharedStore {
  readonly store: RedisStore | null;
  readonly prefix: string;
}

/** @throws ConfigError when REDIS_URL cannot be reached */
export async function openSharedStore(config: Config, db: Db, log: Log): Promise<SharedStore> {
  if (config.redisUrl === null) return { store: null, prefix: '' };
  const prefix = await readNamespace(db);
  try {
    return { store: await connectRedis(config.redisUrl, log), prefix };
  } catch (error) {
    if (!(error instanceof RedisAwayError)) throw error;
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new ConfigError(`REDIS_URL: Redis cannot be used (${reason}).`, error);
  }
}

export interface CoordinationParts extends SharedStore {
  readonly config: Config;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly dataDir: string;
  /** Which of the gateways that share the data folder this one is. */
  readonly slot: number;
  readonly wallet: Wallet;
  readonly keys: Keys;
  readonly metering: Metering;
}

export function createCoordination(parts: CoordinationParts): Coordination {
  const gateways = createGateways(parts);
  const beat: Job = { name: 'heartbeat', everyMs: heartbeatMs, run: () => gateways.beat() };
  return parts.store === null
    ? coordinateAlone(parts, gateways, beat)
    : coordinateThrough({ ...parts, store: parts.store }, gateways, beat);
}

function coordinateAlone(
  { wallet, metering, db, clock: machine, log, prefix }: CoordinationParts,
  gateways: Gateways,
  beat: Job,
): Coordination {
  const clock = createSteadyClock({ clock: machine, askTime: () => readTime(db), log });
  const admission = createMemoryAdmission({
    loadBalance: (organizationId) => wallet.balance(organizationId),
    loadTokens: (key, sinceMs, requestIds) => metering.reports.tokensWith({ ...key, sinceMs }, requestIds),
    onCredit: (listener) => wallet.onCredit(listener),
    clock,
  });
  return {
    admission,
    store: null,
    prefix,
    gateways,
    tellReload: () => Promise.resolve(),
    onReload: () => undefined,
    jobs: [beat],
    start: () => gateways.start(),
    stop: () => gateways.stop(),
  };
}

type SharedParts = CoordinationParts & { readonly store: RedisStore };

function coordinateThrough(parts: SharedParts, gateways: Gateways, beat: Job): Coordination {
  const { store, prefix, wallet, keys, log } = parts;
  const admission = createSharedAdmission(parts, gateways);
  wallet.onCredit((organizationId) => {
    admission.credited(organizationId).catch((error: unknown) => log.error({ err: error }, 'a credit was not told'));
  });
  keys.onChanged(async (change) => {
    if (change.revoked) await admission.revoked(change);
    await gateways.tell({ kind: 'key', keyId: change.keyId });
  });
  // While nothing could be heard, a key of a running stream may have been revoked.
  store.onGap(() => {
    for (const keyId of admission.keysRunning()) {
      keys.refresh(keyId).catch((error: unknown) => log.warn({ err: error, keyId }, 'a key could not be read again'));
    }
  });
  let reload = (): void => undefined;
  gateways.onMessage(async (message) => {
    const { kind, keyId, organizationId } = message;
    if (kind === 'engine files') reload();
    if (kind === 'key' && keyId !== undefined) await keys.refresh(keyId);
    if (kind === 'collect' && organizationId !== undefined) await admission.register(organizationId);
  });
  return {
    admission,
    store,
    prefix,
    gateways,
    async tellReload() {
      try {
        await gateways.tell({ kind: 'engine files' });
      } catch (error) {
        log.warn({ err: error }, 'other gateways were not told to read their engine files again');
      }
    },
    onReload(listener) {
      reload = listener;
    },
    jobs: [
      beat,
      { name: 'renew leases', everyMs: admission.renewMs, run: () => admission.renew() },
      { name: 'sweep leases', everyMs: parts.config.leaseMs / 2, run: () => admission.sweep() },
    ],
    start: () => gateways.start(),
    async stop() {
      await admission.close();
      await gateways.stop();
      store.close();
    },
  };
}

function createSharedAdmission(parts: SharedParts, gateways: Gateways): RedisAdmission {
  const { store, prefix, clock, log, wallet, keys, metering, config } = parts;
  return createRedisAdmission({
    store,
    prefix,
    gatewayId: gateways.id,
    leaseMs: config.leaseMs,
    books: {
      balanceWith: (organizationId, requestIds) => wallet.balanceWith(organizationId, requestIds),
      tokensWith: (key, sinceMs, requestIds) => metering.reports.tokensWith({ ...key, sinceMs }, requestIds),
      isRevoked: (key) => keys.isRevoked(key),
    },
    collect: (organizationId) => gateways.tell({ kind: 'collect', organizationId }),
    findSettled: (organizationId, requestIds) => metering.reports.findSettled(organizationId, requestIds),
    liveGateways: () => gateways.live(),
    clock,
    log,
  });
}
