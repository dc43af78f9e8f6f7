import { createHash } from 'node:crypto';
import type * as sections from './sections.ts';

/** Lists the settings that must be equal on all gateways of one database, and those that may differ. */

type Value = string | number | boolean | null | readonly string[];
type Values = Readonly<Record<string, Value>>;

/** The sections of a configuration that have settings which must be equal. */
interface CommonSections {
  readonly process: sections.ProcessConfig;
  readonly keys: sections.KeysConfig;
  readonly limits: sections.LimitsConfig;
  readonly cache: sections.CacheConfig;
  readonly storage: sections.StorageConfig;
  readonly batches: sections.BatchesConfig;
  readonly platform: sections.PlatformConfig;
  readonly signIn: sections.SignInConfig;
  readonly alerts: sections.AlertsConfig;
  readonly http: sections.HttpConfig;
}

/** Settings that must be equal: otherwise a request, file, run or email has other outcomes on another gateway. */
function commonValues(config: CommonSections): Values {
  return { ...valuesOfRequests(config), ...valuesOfPeople(config), ...valuesOfRuns(config) };
}

function valuesOfRequests({ process, keys, limits, cache, storage, batches, http }: CommonSections): Values {
  return {
    HEADGATE_LEASE_SECONDS: process.leaseMs / 1000,
    HEADGATE_KEY_PREFIX: keys.prefix,
    HEADGATE_MAX_ACTIVE_KEYS: keys.maxActive,
    HEADGATE_MAX_SERVICE_ACCOUNTS: keys.maxServiceAccounts,
    HEADGATE_WRONG_KEYS_PER_MINUTE: keys.wrongPerMinute,
    HEADGATE_END_USER_HEADER: keys.endUserHeader,
    HEADGATE_CORS_ORIGINS: http.corsOrigins.toSorted(),
    HEADGATE_MAX_BODY_BYTES: limits.bodyBytesMax,
    HEADGATE_MAX_CHOICES: limits.choicesMax,
    HEADGATE_MAX_SEQUENCES: limits.sequencesMax,
    HEADGATE_MAX_INPUTS: limits.inputsMax,
    HEADGATE_MAX_TEXTS: limits.textsMax,
    HEADGATE_CACHE_MAX_BYTES: cache.bytesMax,
    HEADGATE_CACHE_SECONDS: cache.ageMaxMs / 1000,
    HEADGATE_STORE_DAYS: storage.ageMaxMs / 86_400_000,
    HEADGATE_STORE_MAX_BYTES: storage.bodyBytesMax,
    HEADGATE_RESPONSE_DAYS: storage.responseAgeMaxMs / 86_400_000,
    HEADGATE_USAGE_DAYS: storage.usageDays,
    HEADGATE_FILE_DAYS: batches.fileAgeMaxMs / 86_400_000,
    HEADGATE_FILES_MAX_BYTES: batches.filesBytesMax,
    HEADGATE_BATCH_LINES: batches.linesMax,
  };
}

function valuesOfPeople({ signIn, alerts }: CommonSections): Values {
  return {
    HEADGATE_MAX_WEBHOOKS: alerts.webhooksMax,
    HEADGATE_WEBHOOK_HOSTS: alerts.webhookHosts.toSorted(),
    HEADGATE_PUBLIC_URL: signIn.publicUrl,
    HEADGATE_SMTP_URL: signIn.mail === null ? null : hashOf(signIn.mail.url),
    HEADGATE_MAIL_FROM: signIn.mail?.from ?? null,
    ...valuesOfProvider(signIn),
  };
}

function valuesOfProvider({ oidc }: sections.SignInConfig): Values {
  return {
    HEADGATE_OIDC_ISSUER: oidc?.issuer ?? null,
    HEADGATE_OIDC_CLIENT_ID: oidc?.clientId ?? null,
    HEADGATE_OIDC_CLIENT_SECRET: oidc === null ? null : hashOf(oidc.clientSecret),
    HEADGATE_OIDC_NAME: oidc?.name ?? null,
    HEADGATE_OIDC_ORGANIZATION: oidc?.newPeople?.organizationId ?? null,
    HEADGATE_OIDC_ROLE: oidc?.newPeople?.role ?? null,
  };
}

function valuesOfRuns({ platform }: CommonSections): Values {
  const { containerRuns, localRuns } = platform;
  return {
    HEADGATE_NODE_SILENCE_SECONDS: platform.nodeSilenceMs === null ? null : platform.nodeSilenceMs / 1000,
    HEADGATE_OWN_HOSTS: platform.ownHosts.toSorted(),
    HEADGATE_RUNS_IMAGE: containerRuns?.image ?? null,
    HEADGATE_RUNS_NETWORK: containerRuns?.network ?? null,
    HEADGATE_RUNS_EGRESS: localRuns.egress,
    HEADGATE_RUNS_REQUIRE: localRuns.required.toSorted(),
    HEADGATE_RUNS_MEMORY_MIB: localRuns.memoryBytes / 1_048_576,
    HEADGATE_RUNS_CPUS: localRuns.milliCpus / 1000,
    HEADGATE_RUNS_DISK_MIB: localRuns.diskBytes / 1_048_576,
    HEADGATE_RUNS_STATE_MIB: platform.stateBytesMax / 1_048_576,
    HEADGATE_RUN_SECONDS: platform.runMs / 1000,
    HEADGATE_DRIFT_HOURS: platform.driftHours ?? 0,
    HEADGATE_ALLOW_UNSANDBOXED_RUNS: platform.allowUnsandboxedRuns,
  };
}

/**
 * Settings that may differ by gateway: where it listens and keeps its data, how much its machine can do, how long it
 * waits, and settings that only the first start or the command `headgate` reads.
 */
export const ownSettings: readonly string[] = [
  'HEADGATE_ANSWER_STALL_SECONDS',
  'HEADGATE_AUTH_STALE_SECONDS',
  // Only a gateway that lacks the platform key needs the passphrase that sealed the copy.
  'HEADGATE_BACKUP_PASSPHRASE',
  'HEADGATE_BATCH_CONCURRENCY',
  'HEADGATE_BODY_BYTES_PER_SECOND',
  'HEADGATE_BODY_STALL_SECONDS',
  'HEADGATE_BOOTSTRAP_EMAIL',
  'HEADGATE_BOOTSTRAP_KEY',
  'HEADGATE_BOOTSTRAP_PASSWORD',
  'HEADGATE_DATABASE_POOL',
  'HEADGATE_DATA_DIR',
  'HEADGATE_DRAIN_SECONDS',
  'HEADGATE_ENGINES_DIR',
  'HEADGATE_ENGINE_MEMORY_GIB',
  'HEADGATE_FLEX_QUEUE_MAX',
  'HEADGATE_HEADERS_SECONDS',
  'HEADGATE_LOG_ENGINE_TEXT',
  'HEADGATE_MAX_BODIES_BYTES',
  'HEADGATE_MAX_IN_FLIGHT',
  'HEADGATE_METRICS_HOST',
  'HEADGATE_METRICS_PORT',
  // Compared by the fingerprint of the key in use, wherever it is kept.
  'HEADGATE_PLATFORM_KEY',
  'HEADGATE_PROVIDER_MIRROR',
  'HEADGATE_REPORTS_POOL',
  'HEADGATE_REPORT_SECONDS',
  'HEADGATE_ROLLOUT_SECONDS',
  'HEADGATE_RUNS_AT_ONCE',
  'HEADGATE_RUNS_DIR',
  'HEADGATE_RUNS_UID',
  'HEADGATE_SETTLE_SECONDS',
  'HEADGATE_SHUTDOWN_SECONDS',
  'HEADGATE_SPOOL_AFTER_MS',
  'HEADGATE_START_QUEUE_MAX',
  'HEADGATE_START_WAIT_SECONDS',
  // Compared by the public key, wherever the file lies.
  'HEADGATE_STATEMENT_KEY_FILE',
  'HEADGATE_TERRAFORM_BIN',
  'HEADGATE_TRUSTED_PROXIES',
  'HEADGATE_UPSTREAM_CONNECT_SECONDS',
  'HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS',
  'HEADGATE_UPSTREAM_IDLE_SECONDS',
  'HEADGATE_WEB_HOST',
  'HEADGATE_WEB_PORT',
  'HEADGATE_WORKERS',
];

/** Returns the settings that must be equal by name: secrets as a fingerprint, missing values as "not set". */
export function settingsInCommon(config: CommonSections): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(commonValues(config)).map(([name, value]) => [name, textOf(value)]));
}

function textOf(value: Value): string {
  const text = typeof value === 'object' ? (value ?? []).join(',') : String(value);
  return text === '' ? 'not set' : text;
}

/** Hashes a secret to a few digits. The database keeps and shows them; they are too few to test guesses against. */
function hashOf(secret: string): string {
  return `set (${createHash('sha256').update('headgate setting\0').update(secret).digest('hex').slice(0, 4)})`;
}
