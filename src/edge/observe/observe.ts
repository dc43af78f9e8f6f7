import type { Hono, MiddlewareHandler } from 'hono';
import type { MetricsConfig } from '#base/config/config.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import { createMetrics, type Metrics } from '#base/metrics/metrics.ts';
import type { Backups } from '#core/backups/backups.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import type { Metering } from '#core/metering/metering.ts';
import type { HttpEnv } from '#edge/http/http.ts';
import type { RequestObserver } from '#edge/inference/inference.ts';
import { addBackupGauge, addBookGauges, type CommitListener, createCommitMetrics } from './book-metrics.ts';
import { createEngineMetrics } from './engine-metrics.ts';
import { createEngineScrape } from './engine-scrape.ts';
import { createHealth, createHealthRoutes, type Health } from './health.ts';
import { createMetricsServer, type MetricsServer } from './metrics-server.ts';
import { createOtherRequests } from './other-requests.ts';
import { logRequest } from './request-log.ts';
import { createRequestMetrics } from './request-metrics.ts';
import { createTracing } from './tracing.ts';

export { healthPaths } from './health.ts';
export { metricsAddress } from './metrics-server.ts';

/** Gauges of things that fill up or get lost unnoticed. */

interface Filling {
  readonly used: number;
  readonly size: number;
}

interface WatchedUpkeep {
  figures(): {
    readonly dataDisk: Filling | null;
    readonly databaseBytes: number | null;
    readonly redis: Filling | null;
    readonly keyTrouble: string | null;
    readonly unexplained: number | null;
  };
}

function addUpkeepGauges(metrics: Metrics, upkeep: WatchedUpkeep): void {
  const add = (name: string, help: string, read: () => number | null): void =>
    metrics.gauge({ name, help }, (set) => {
      const value = read();
      if (value !== null) set(value);
    });
  const figures = (): ReturnType<WatchedUpkeep['figures']> => upkeep.figures();
  add('headgate_data_disk_bytes', 'Size of the disk of the data folder', () => figures().dataDisk?.size ?? null);
  add(
    'headgate_data_disk_used_bytes',
    'Used bytes of the disk of the data folder, including space reserved for root',
    () => figures().dataDisk?.used ?? null,
  );
  add('headgate_database_bytes', 'Size of the database in PostgreSQL', () => figures().databaseBytes);
  add(
    'headgate_redis_memory_max_bytes',
    'Memory limit of Redis (maxmemory); 0 if unlimited',
    () => figures().redis?.size ?? 0,
  );
  add('headgate_redis_memory_bytes', 'Memory that Redis uses; 0 if unlimited', () => figures().redis?.used ?? 0);
  add('headgate_platform_key_up', '1 while this gateway has the platform key and can encrypt secrets, else 0', () =>
    figures().keyTrouble === null ? 1 : 0,
  );
  add(
    'headgate_reconcile_unexplained_hours',
    'Number of models with unexplained differences between ledger and engine counters in the last reconciled hour; 0 on gateways that do not run this job',
    () => figures().unexplained ?? 0,
  );
}

/** The last known availability of a store. */
interface Probe {
  readonly isUp: boolean;
  /** True if the store is available, or was within the last `ms` milliseconds. */
  wasUpWithin(ms: number): boolean;
  /** Probes once; never rejects. Does not probe again while a probe is pending. */
  ask(): Promise<void>;
}

/** @param timeoutMs longer answers mean that the store is unavailable: drivers may wait indefinitely */
function createProbe(question: () => Promise<unknown>, timeoutMs: number): Probe {
  let isUp = false;
  let lastUpMs = -Infinity;
  let pending: Promise<void> | null = null;
  return {
    get isUp() {
      return isUp;
    },
    wasUpWithin: (ms) => isUp || performance.now() - lastUpMs < ms,
    async ask() {
      pending ??= question()
        .then(
          () => {
            isUp = true;
            lastUpMs = performance.now();
          },
          () => void (isUp = false),
        )
        .finally(() => {
          pending = null;
        });
      if (await isLate(pending, timeoutMs)) isUp = false;
    },
  };
}

/** Health, metrics, traces, and one log line per request. Observation changes no behavior. */
export interface Observe {
  readonly requests: RequestObserver;
  /** Middleware before every route except the inference requests, which report to `requests`. */
  readonly otherRequests: MiddlewareHandler<HttpEnv>;
  readonly onCommit: CommitListener;
  /** Adds parts that exist only later. Call it once, before anything is served. */
  watch(parts: WatchedParts): Watching;
}

export interface Watching {
  readonly health: Health;
  /** `/healthz` and `/readyz`. */
  readonly routes: Hono<HttpEnv>;
  readonly server: MetricsServer;
  /** Probes the stores, and updates the counters of engines. Call it every `refreshEveryMs`. */
  refresh(): Promise<void>;
}

interface WatchedDifference {
  readonly kind: string;
  readonly isOverdue: boolean;
}

export interface WatchedParts {
  readonly address: MetricsConfig;
  /** Milliseconds after which a client that reads nothing of its answer is disconnected. */
  readonly answerStallTimeoutMs: number;
  readonly fleet: Pick<Fleet, 'list' | 'leads' | 'readMetrics'>;
  readonly metering: Pick<
    Metering,
    'pending' | 'oldestPendingMs' | 'healthy' | 'writable' | 'spooled' | 'spooledBytes' | 'quarantined'
  >;
  /** Differences between the gateways of the database. */
  readonly agreement: { differences(): readonly WatchedDifference[] };
  readonly backups: Pick<Backups, 'ageMs'>;
  readonly upkeep: WatchedUpkeep;
  /** Milliseconds for which the gateway accepts traffic without Postgres. */
  readonly staleMs: number;
  /** True if the fleet runs: its engines were adopted, and can be started. */
  readonly fleetRuns: () => boolean;
  readonly inFlight: () => number;
  /** Sends a test statement to Postgres. */
  readonly askDatabase: () => Promise<unknown>;
  /** True if the database lacks migrations of this program. */
  readonly isDatabaseOlder: () => boolean;
  /** Null without Redis. */
  readonly askRedis: (() => Promise<unknown>) | null;
}

export const refreshEveryMs = 1000;
const answerTimeoutMs = 3000;

export function createObserve(log: Log): Observe {
  const metrics = createMetrics();
  const requestMetrics = createRequestMetrics(metrics);
  const requests: RequestObserver = {
    trace: createTracing(),
    waiting: (modelId, change) => requestMetrics.waiting(modelId, change),
    ended(summary, trace, cause) {
      requestMetrics.ended(summary);
      trace.ended(summary);
      logRequest(log, summary, { traceId: trace.traceId, cause });
    },
  };

  function watch(parts: WatchedParts): Watching {
    const { address, answerStallTimeoutMs, fleet, metering } = parts;
    const database = createDatabaseProbe(parts);
    const redis = parts.askRedis === null ? null : createProbe(parts.askRedis, answerTimeoutMs);
    const health = healthOf(parts, database, redis);
    const engines = createEngineMetrics(metrics, fleet);
    addBookGauges(metrics, metering);
    addBackupGauge(metrics, parts.backups);
    const probes: readonly Probe[] = redis === null ? [database] : [database, redis];
    metrics.gauge(
      {
        name: 'headgate_store_up',
        help: '1 while PostgreSQL or Redis answers, else 0; no series for Redis if none is configured',
        labelNames: ['store'],
      },
      (set) => {
        set(Number(database.isUp), 'postgres');
        if (redis !== null) set(Number(redis.isUp), 'redis');
      },
    );
    metrics.gauge({ name: 'headgate_ready', help: '1 while this gateway accepts traffic, else 0' }, (set) =>
      set(Number(health.notReady().length === 0)),
    );
    metrics.gauge({ name: 'headgate_requests_in_flight', help: 'Running inference requests of this gateway' }, (set) =>
      set(parts.inFlight()),
    );
    addAgreementGauge(metrics, parts.agreement);
    addUpkeepGauges(metrics, parts.upkeep);
    return {
      health,
      routes: createHealthRoutes(health),
      server: createMetricsServer({
        address,
        answerStallTimeoutMs,
        metrics,
        engineScrape: createEngineScrape(metrics, fleet),
        health,
        refresh: () => engines.update(),
      }),
      async refresh() {
        engines.update();
        await Promise.all(probes.map((probe) => probe.ask()));
      },
    };
  }

  const otherRequests = createOtherRequests(requestMetrics, log);
  return { requests, otherRequests, onCommit: createCommitMetrics(metrics), watch };
}

/** Kinds of values that gateways compare. Each kind has a series, so that alerts see the end of a difference. */
const comparedKinds = ['version', 'engine file', 'price', 'setting', 'key'];

function addAgreementGauge(metrics: Metrics, agreement: WatchedParts['agreement']): void {
  const count = (name: string, help: string, isCounted: (one: WatchedDifference) => boolean): void =>
    metrics.gauge({ name, help, labelNames: ['kind'] }, (set) => {
      const counted = agreement.differences().filter(isCounted);
      for (const kind of comparedKinds) set(counted.filter((one) => one.kind === kind).length, kind);
    });
  count(
    'headgate_gateways_differences',
    'Number of settings, files, prices, keys or versions (kind) in which the running gateways of this database differ',
    () => true,
  );
  count(
    'headgate_gateways_differences_overdue',
    'Number of differences between running gateways that have lasted longer than HEADGATE_ROLLOUT_SECONDS, by kind',
    ({ isOverdue }) => isOverdue,
  );
}

/**
 * Probes the database. A database older than the program is treated as unavailable, because no query on it is answered.
 */
function createDatabaseProbe({ askDatabase, isDatabaseOlder }: WatchedParts): Probe {
  return createProbe(async () => {
    if (isDatabaseOlder()) throw new Error('the database is older than this gateway');
    await askDatabase();
  }, answerTimeoutMs);
}

function healthOf(parts: WatchedParts, database: Probe, redis: Probe | null): Health {
  const { staleMs, metering, fleetRuns, isDatabaseOlder } = parts;
  return createHealth(
    [
      { name: 'database', isReady: () => database.wasUpWithin(staleMs) && metering.healthy },
      ...(redis === null ? [] : [{ name: 'redis' as const, isReady: () => redis.wasUpWithin(Infinity) }]),
      { name: 'fleet', isReady: fleetRuns },
    ],
    [{ name: 'database_older', isRaised: isDatabaseOlder }],
  );
}
