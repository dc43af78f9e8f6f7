import { join } from 'node:path';
import { z } from 'zod';
import { databaseUrl, logLevel, networks, optionalWhole, origins, text, urlOf, whole } from './values.ts';
import { secondsMs, section } from './section.ts';

/** The sections of the gateway's configuration: the variables of each, and the value that rooms get from them. */

export interface HttpConfig {
  readonly host: string;
  readonly port: number;
  /** Addresses and networks of proxies whose X-Forwarded-For is trusted. */
  readonly trustedProxies: readonly string[];
  /** Origins whose pages may call the API from a browser; `*` is any. */
  readonly corsOrigins: readonly string[];
  readonly headersTimeoutMs: number;
  /** Milliseconds after which a client that reads nothing of an answer is cut off. */
  readonly answerStallTimeoutMs: number;
  /** Milliseconds for which a stopping gateway reports this at /readyz and still serves, before it closes its port. */
  readonly drainMs: number;
  /** Milliseconds that running requests may take to end once the port is closed. */
  readonly shutdownTimeoutMs: number;
}

export const http = section(
  {
    HOST: text.min(1).default('127.0.0.1'),
    PORT: whole(0, 65_535, 8080),
    HEADGATE_TRUSTED_PROXIES: networks.default([]),
    HEADGATE_CORS_ORIGINS: origins.default([]),
    HEADGATE_HEADERS_SECONDS: whole(1, 3600, 15),
    HEADGATE_ANSWER_STALL_SECONDS: whole(1, 3600, 120),
    HEADGATE_DRAIN_SECONDS: whole(0, 600, 0),
    HEADGATE_SHUTDOWN_SECONDS: whole(0, 3600, 30),
  },
  (read): HttpConfig => ({
    host: read.HOST,
    port: read.PORT,
    trustedProxies: read.HEADGATE_TRUSTED_PROXIES,
    corsOrigins: read.HEADGATE_CORS_ORIGINS,
    headersTimeoutMs: secondsMs(read.HEADGATE_HEADERS_SECONDS),
    answerStallTimeoutMs: secondsMs(read.HEADGATE_ANSWER_STALL_SECONDS),
    drainMs: secondsMs(read.HEADGATE_DRAIN_SECONDS),
    shutdownTimeoutMs: secondsMs(read.HEADGATE_SHUTDOWN_SECONDS),
  }),
);

export interface MetricsConfig {
  readonly host: string;
  /** Port of the first worker; each further worker uses the next port. Null: metrics are not served. */
  readonly port: number | null;
}

export const metrics = section(
  { HEADGATE_METRICS_HOST: text.min(1).default('127.0.0.1'), HEADGATE_METRICS_PORT: optionalWhole(0, 65_535) },
  (read): MetricsConfig => ({ host: read.HEADGATE_METRICS_HOST, port: read.HEADGATE_METRICS_PORT ?? null }),
);

export interface ProcessConfig {
  /** Gateways on this machine, one process each. */
  readonly workers: number;
  readonly logLevel: string;
  /** Null: the default folder of the user. */
  readonly dataDir: string | null;
  /** Milliseconds for which slots, holds and running idempotency keys outlive a gateway that does not renew them. */
  readonly leaseMs: number;
  /** Milliseconds that a start waits for an unreachable PostgreSQL or Redis. */
  readonly startWaitMs: number;
  /** Milliseconds for which gateways of one database may differ before an alert: a rollout takes no longer. */
  readonly rolloutMs: number;
}

export const gatewayProcess = section(
  {
    HEADGATE_WORKERS: whole(1, 256, 1),
    LOG_LEVEL: logLevel,
    HEADGATE_DATA_DIR: text.optional(),
    HEADGATE_LEASE_SECONDS: whole(1, 3600, 30),
    HEADGATE_START_WAIT_SECONDS: whole(0, 3600, 60),
    HEADGATE_ROLLOUT_SECONDS: whole(1, 86_400, 600),
  },
  (read): ProcessConfig => ({
    workers: read.HEADGATE_WORKERS,
    logLevel: read.LOG_LEVEL,
    dataDir: read.HEADGATE_DATA_DIR ?? null,
    leaseMs: secondsMs(read.HEADGATE_LEASE_SECONDS),
    startWaitMs: read.HEADGATE_START_WAIT_SECONDS * 1000,
    rolloutMs: secondsMs(read.HEADGATE_ROLLOUT_SECONDS),
  }),
);

export interface DatabaseConfig {
  /** Null: the gateway runs its own PostgreSQL in its data folder. */
  readonly url: string | null;
  readonly poolMax: number;
  /** Connections beside the pool, for reports. */
  readonly reportsPoolMax: number;
  /** Milliseconds that a statement of a report may take. */
  readonly reportTimeoutMs: number;
  /** Milliseconds that a settlement waits for PostgreSQL before it is written to the spool. */
  readonly spoolAfterMs: number;
  /** Milliseconds for which cached keys, wallets and limits are used while PostgreSQL is unavailable. */
  readonly staleMs: number;
}

export const database = section(
  {
    DATABASE_URL: databaseUrl.optional(),
    HEADGATE_DATABASE_POOL: whole(2, 1000, 10),
    HEADGATE_REPORTS_POOL: whole(1, 1000, 3),
    HEADGATE_REPORT_SECONDS: whole(1, 3600, 15),
    HEADGATE_SPOOL_AFTER_MS: whole(1, 60_000, 250),
    HEADGATE_AUTH_STALE_SECONDS: whole(0, 86_400, 300),
  },
  (read): DatabaseConfig => ({
    url: read.DATABASE_URL ?? null,
    poolMax: read.HEADGATE_DATABASE_POOL,
    reportsPoolMax: read.HEADGATE_REPORTS_POOL,
    reportTimeoutMs: secondsMs(read.HEADGATE_REPORT_SECONDS),
    spoolAfterMs: read.HEADGATE_SPOOL_AFTER_MS,
    staleMs: read.HEADGATE_AUTH_STALE_SECONDS * 1000,
  }),
);

export interface RedisConfig {
  /** Null: there is only this gateway, and its memory is used instead. */
  readonly url: string | null;
}

export const redis = section(
  { REDIS_URL: urlOf(['redis:', 'rediss:'], 'redis://host:6379').optional() },
  (read): RedisConfig => ({ url: read.REDIS_URL ?? null }),
);

export interface DockerConfig {
  /** Address of the Docker engine of the host `local`, in the form that Docker's own client accepts. */
  readonly host: string;
  /** Folder of Docker's `config.json`, whose logins are used to pull images; null: this user has none. */
  readonly configDir: string | null;
}

export const docker = section(
  {
    DOCKER_HOST: text.min(1).default('unix:///var/run/docker.sock'),
    DOCKER_CONFIG: text.optional(),
    HOME: text.optional(),
  },
  (read): DockerConfig => ({
    host: read.DOCKER_HOST,
    configDir: read.DOCKER_CONFIG ?? (read.HOME === undefined ? null : join(read.HOME, '.docker')),
  }),
);

export interface EnginesConfig {
  /** Null: the folder that is installed with the gateway. */
  readonly dir: string | null;
  /** Bytes of memory that engine processes may use together; null: the machine's memory. */
  readonly memoryBytes: number | null;
  /** Requests that may wait for one cold model. */
  readonly startQueueMax: number;
  /** Requests of the tier `flex` that may wait for one model. */
  readonly flexQueueMax: number;
}

/** Converts GiB to bytes; null if absent. */
const toBytes = (gib: number | undefined): number | null => (gib === undefined ? null : gib * 1_073_741_824);

export const engines = section(
  {
    HEADGATE_ENGINES_DIR: text.optional(),
    HEADGATE_ENGINE_MEMORY_GIB: optionalWhole(1, 1_048_576).transform(toBytes),
    HEADGATE_START_QUEUE_MAX: whole(1, 1_000_000, 1000),
    HEADGATE_FLEX_QUEUE_MAX: whole(1, 1_000_000, 1000),
  },
  (read): EnginesConfig => ({
    dir: read.HEADGATE_ENGINES_DIR ?? null,
    memoryBytes: read.HEADGATE_ENGINE_MEMORY_GIB,
    startQueueMax: read.HEADGATE_START_QUEUE_MAX,
    flexQueueMax: read.HEADGATE_FLEX_QUEUE_MAX,
  }),
);

export interface KeysConfig {
  readonly prefix: string;
  /** Active keys per organization. */
  readonly maxActive: number;
  /** Service accounts per project. */
  readonly maxServiceAccounts: number;
  /** Wrong keys per address and minute that are answered as wrong keys. */
  readonly wrongPerMinute: number;
  /** Header, in lower case, in which requests of keys that say so name their end user; null without one. */
  readonly endUserHeader: string | null;
}

export const keys = section(
  {
    HEADGATE_KEY_PREFIX: z
      .string()
      .regex(
        /^[A-Za-z0-9][A-Za-z0-9_-]{0,23}$/,
        'must be 1 to 24 letters, digits, "-" or "_", starting with a letter or digit',
      )
      .default('sk-hg-'),
    HEADGATE_MAX_ACTIVE_KEYS: whole(1, 1_000_000, 5),
    HEADGATE_MAX_SERVICE_ACCOUNTS: whole(0, 1_000, 20),
    HEADGATE_WRONG_KEYS_PER_MINUTE: whole(1, 1_000_000, 60),
    HEADGATE_END_USER_HEADER: z
      .string()
      .regex(/^[A-Za-z][A-Za-z0-9-]{0,63}$/, 'must be the name of a header, such as X-OpenWebUI-User-Id')
      .regex(/^(?!(?:proxy-)?authorization$|cookie$|x-api-key$)/i, 'must not be a header that holds a secret')
      .optional(),
  },
  (read): KeysConfig => ({
    prefix: read.HEADGATE_KEY_PREFIX,
    maxActive: read.HEADGATE_MAX_ACTIVE_KEYS,
    maxServiceAccounts: read.HEADGATE_MAX_SERVICE_ACCOUNTS,
    wrongPerMinute: read.HEADGATE_WRONG_KEYS_PER_MINUTE,
    endUserHeader: read.HEADGATE_END_USER_HEADER?.toLowerCase() ?? null,
  }),
);

/** Account and key that the first start creates. The first start generates values that are null. */
export interface BootstrapConfig {
  readonly email: string | null;
  readonly password: string | null;
  readonly key: string | null;
}

export const bootstrap = section(
  {
    HEADGATE_BOOTSTRAP_EMAIL: z
      .string()
      .regex(/^[^\s@]+@[^\s@]+$/, 'must be an email address')
      .max(254)
      .optional(),
    HEADGATE_BOOTSTRAP_PASSWORD: text.min(8, 'must have 8 characters or more').max(1024).optional(),
    HEADGATE_BOOTSTRAP_KEY: z
      .string()
      .regex(/^[\x21-\x7e]{32,512}$/, 'must be 32 to 512 printable ASCII characters without spaces')
      .optional(),
  },
  (read): BootstrapConfig => ({
    email: read.HEADGATE_BOOTSTRAP_EMAIL ?? null,
    password: read.HEADGATE_BOOTSTRAP_PASSWORD ?? null,
    key: read.HEADGATE_BOOTSTRAP_KEY ?? null,
  }),
);

/** Limits of requests. */
export interface LimitsConfig {
  readonly bodyBytesMax: number;
  /** Bytes of all request bodies without an answer, and of all answers that clients have not read. */
  readonly bodiesBytesMax: number;
  readonly bodyStallTimeoutMs: number;
  readonly bodyBytesPerSecondMin: number;
  readonly inFlightMax: number;
  readonly choicesMax: number;
  /** Prompts times choices of a generating request. For other requests: inputs, and inputs that are texts. */
  readonly sequencesMax: number;
  readonly inputsMax: number;
  readonly textsMax: number;
  /** Milliseconds that the end of an answer waits for the charge. */
  readonly settleTimeoutMs: number;
}

/** Bodies of the largest size that may be in memory at once if HEADGATE_MAX_BODIES_BYTES is not set. */
const bodiesPerBudget = 8;

export const limits = section(
  {
    HEADGATE_MAX_BODY_BYTES: whole(1024, 1_073_741_824, 33_554_432),
    HEADGATE_MAX_BODIES_BYTES: optionalWhole(1024, 1_099_511_627_776),
    HEADGATE_BODY_STALL_SECONDS: whole(1, 3600, 15),
    HEADGATE_BODY_BYTES_PER_SECOND: whole(1, 1_073_741_824, 1024),
    HEADGATE_MAX_IN_FLIGHT: whole(1, 1_000_000, 10_000),
    HEADGATE_MAX_CHOICES: whole(1, 1024, 8),
    HEADGATE_MAX_SEQUENCES: whole(1, 65_536, 128),
    HEADGATE_MAX_INPUTS: whole(1, 1_048_576, 2048),
    HEADGATE_MAX_TEXTS: whole(1, 1_048_576, 8192),
    HEADGATE_SETTLE_SECONDS: whole(1, 3600, 30),
  },
  (read): LimitsConfig => ({
    bodyBytesMax: read.HEADGATE_MAX_BODY_BYTES,
    bodiesBytesMax: read.HEADGATE_MAX_BODIES_BYTES ?? bodiesPerBudget * read.HEADGATE_MAX_BODY_BYTES,
    bodyStallTimeoutMs: secondsMs(read.HEADGATE_BODY_STALL_SECONDS),
    bodyBytesPerSecondMin: read.HEADGATE_BODY_BYTES_PER_SECOND,
    inFlightMax: read.HEADGATE_MAX_IN_FLIGHT,
    choicesMax: read.HEADGATE_MAX_CHOICES,
    sequencesMax: read.HEADGATE_MAX_SEQUENCES,
    inputsMax: read.HEADGATE_MAX_INPUTS,
    textsMax: read.HEADGATE_MAX_TEXTS,
    settleTimeoutMs: secondsMs(read.HEADGATE_SETTLE_SECONDS),
  }),
);

/** Milliseconds for which an engine may be silent. */
export interface UpstreamConfig {
  readonly firstByteTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly connectTimeoutMs: number;
  /** Logs the text with which engines reject requests; the text may quote prompts. */
  readonly logsText: boolean;
}

export const upstream = section(
  {
    HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: whole(1, 86_400, 600),
    HEADGATE_UPSTREAM_IDLE_SECONDS: whole(1, 86_400, 120),
    HEADGATE_UPSTREAM_CONNECT_SECONDS: whole(1, 600, 10),
    HEADGATE_LOG_ENGINE_TEXT: z.enum(['true', 'false']).default('false'),
  },
  (read): UpstreamConfig => ({
    firstByteTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS),
    idleTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_IDLE_SECONDS),
    connectTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_CONNECT_SECONDS),
    logsText: read.HEADGATE_LOG_ENGINE_TEXT === 'true',
  }),
);

/** Bounds of the response cache: all answers together, and the age of each. */
export interface CacheConfig {
  readonly bytesMax: number;
  readonly ageMaxMs: number;
}

export const cache = section(
  {
    HEADGATE_CACHE_MAX_BYTES: whole(0, 1_099_511_627_776, 67_108_864),
    HEADGATE_CACHE_SECONDS: whole(1, 31_536_000, 3600),
  },
  (read): CacheConfig => ({
    bytesMax: read.HEADGATE_CACHE_MAX_BYTES,
    ageMaxMs: secondsMs(read.HEADGATE_CACHE_SECONDS),
  }),
);

/** Bounds of stored requests (age, kept bytes of one body), of stored responses and of records. */
export interface StorageConfig {
  readonly ageMaxMs: number;
  readonly bodyBytesMax: number;
  /** Age of stored responses; 0: no responses are stored. */
  readonly responseAgeMaxMs: number;
  /** Days after the end of a month when its records are dropped; null keeps all records. */
  readonly usageDays: number | null;
  /** PEM file of the private key that signs statements; null: statements are not signed. */
  readonly statementKeyFile: string | null;
}

export const storage = section(
  {
    HEADGATE_STORE_DAYS: whole(1, 36_500, 30),
    HEADGATE_STORE_MAX_BYTES: whole(1024, 1_073_741_824, 1_048_576),
    HEADGATE_RESPONSE_DAYS: whole(0, 36_500, 30),
    HEADGATE_USAGE_DAYS: optionalWhole(1, 36_500),
    HEADGATE_STATEMENT_KEY_FILE: text.optional(),
  },
  (read): StorageConfig => ({
    ageMaxMs: secondsMs(read.HEADGATE_STORE_DAYS * 86_400),
    bodyBytesMax: read.HEADGATE_STORE_MAX_BYTES,
    responseAgeMaxMs: secondsMs(read.HEADGATE_RESPONSE_DAYS * 86_400),
    usageDays: read.HEADGATE_USAGE_DAYS ?? null,
    statementKeyFile: read.HEADGATE_STATEMENT_KEY_FILE ?? null,
  }),
);

export { batches, type BatchesConfig } from './batches.ts';
export { platform, type PlatformConfig } from './platform.ts';
export { signIn, type SignInConfig } from './sign-in.ts';
export { alerts, type AlertsConfig } from './alerts.ts';
