import type { z } from 'zod';
import { ConfigError } from '#base/config-error.ts';
import { type AllowedMount, liesIn } from '#base/host-folder.ts';
import { ownVariables, readSecretFiles } from './files.ts';
import { type Login, normalUrl, readLogin, userFolders } from './login-file.ts';
import { databaseCommandVariables, clientVariables, dockerGateVariables } from './programs.ts';
import * as sections from './sections.ts';
import { type Environment, readVariables } from './values.ts';

/**
 * The only reader of the environment. Everything is parsed before anything starts; a wrong value stops the start with a
 * sentence that names the variable.
 */

export type {
  AlertsConfig,
  BatchesConfig,
  BootstrapConfig,
  CacheConfig,
  DatabaseConfig,
  DockerConfig,
  EnginesConfig,
  HttpConfig,
  KeysConfig,
  LimitsConfig,
  MetricsConfig,
  PlatformConfig,
  ProcessConfig,
  RedisConfig,
  SignInConfig,
  StorageConfig,
  UpstreamConfig,
} from './sections.ts';
export { ownSettings, settingsInCommon } from './common.ts';

/** The configuration of a gateway; each room gets its own section, or values of that section. */
export interface Config {
  readonly http: sections.HttpConfig;
  readonly metrics: sections.MetricsConfig;
  readonly process: sections.ProcessConfig;
  readonly database: sections.DatabaseConfig;
  readonly redis: sections.RedisConfig;
  readonly docker: sections.DockerConfig;
  readonly engines: sections.EnginesConfig;
  readonly keys: sections.KeysConfig;
  readonly bootstrap: sections.BootstrapConfig;
  readonly limits: sections.LimitsConfig;
  readonly upstream: sections.UpstreamConfig;
  readonly cache: sections.CacheConfig;
  readonly storage: sections.StorageConfig;
  readonly batches: sections.BatchesConfig;
  readonly platform: sections.PlatformConfig;
  readonly signIn: sections.SignInConfig;
  readonly alerts: sections.AlertsConfig;
  /** The whole environment, for `${NAME}` in engine files and for variables that engine processes inherit. */
  readonly environment: Environment;
}

const gatewayVariables = {
  ...sections.http.variables,
  ...sections.metrics.variables,
  ...sections.gatewayProcess.variables,
  ...sections.database.variables,
  ...sections.redis.variables,
  ...sections.docker.variables,
  ...sections.engines.variables,
  ...sections.keys.variables,
  ...sections.bootstrap.variables,
  ...sections.limits.variables,
  ...sections.upstream.variables,
  ...sections.cache.variables,
  ...sections.storage.variables,
  ...sections.batches.variables,
  ...sections.platform.variables,
  ...sections.signIn.variables,
  ...sections.alerts.variables,
};

/** Variables of all programs: programs of one machine often share an environment, so none of these is a mistake. */
const knownVariables: ReadonlySet<string> = new Set(
  Object.keys({ ...gatewayVariables, ...dockerGateVariables, ...clientVariables }),
);

/**
 * @param environment content of process.env; empty variables count as not set
 * @throws ConfigError for the first variable that is wrong
 */
export function parseConfig(environment: Environment): Config {
  const read = readVariables(gatewayVariables, environment, knownVariables);
  checkTogether(read);
  return Object.freeze({
    http: sections.http.from(read),
    metrics: sections.metrics.from(read),
    process: sections.gatewayProcess.from(read),
    database: sections.database.from(read),
    redis: sections.redis.from(read),
    docker: sections.docker.from(read),
    engines: sections.engines.from(read),
    keys: sections.keys.from(read),
    bootstrap: sections.bootstrap.from(read),
    limits: sections.limits.from(read),
    upstream: sections.upstream.from(read),
    cache: sections.cache.from(read),
    storage: sections.storage.from(read),
    batches: sections.batches.from(read),
    platform: sections.platform.from(read),
    signIn: sections.signIn.from(read),
    alerts: sections.alerts.from(read),
    environment: Object.freeze({ ...environment }),
  });
}

/** Checks variables that depend on one another. @throws ConfigError */
function checkTogether(read: z.output<z.ZodObject<typeof gatewayVariables>>): void {
  if (read.HEADGATE_WORKERS > 1 && read.REDIS_URL === undefined) {
    throw new ConfigError(
      'REDIS_URL: is missing; several workers (HEADGATE_WORKERS) need Redis, otherwise each worker would apply every limit separately.',
    );
  }
  if (read.HEADGATE_RUNS_IMAGE !== undefined && read.HEADGATE_RUNS_EGRESS === 'machine') {
    throw new ConfigError(
      'HEADGATE_RUNS_EGRESS: machine is not available for runs in containers (HEADGATE_RUNS_IMAGE); set cluster or internet.',
    );
  }
  if ((read.HEADGATE_METRICS_PORT ?? 0) + read.HEADGATE_WORKERS - 1 > 65_535) {
    throw new ConfigError(
      'HEADGATE_METRICS_PORT: each worker uses one more port, which exceeds 65535; set a lower port.',
    );
  }
  if ((read.HEADGATE_MAX_BODIES_BYTES ?? Infinity) < read.HEADGATE_MAX_BODY_BYTES) {
    throw new ConfigError(
      'HEADGATE_MAX_BODIES_BYTES: must be at least HEADGATE_MAX_BODY_BYTES, the limit for one body.',
    );
  }
}

/** Lists settings that have no effect beside the other settings, in sentences that name the variable and the reason. */
export function findIdleSettings(config: Config): readonly string[] {
  const isGiven = (name: keyof typeof gatewayVariables): boolean => (config.environment[name] ?? '') !== '';
  const { metrics, cache, limits, platform, signIn } = config;
  const idle: readonly [boolean, string][] = [
    [
      isGiven('HEADGATE_METRICS_HOST') && metrics.port === null,
      'HEADGATE_METRICS_HOST has no effect without HEADGATE_METRICS_PORT: metrics are not served',
    ],
    [
      isGiven('HEADGATE_WEB_HOST') && platform.web === null,
      'HEADGATE_WEB_HOST has no effect without HEADGATE_WEB_PORT: web addresses of runs are not served',
    ],
    [
      isGiven('HEADGATE_CACHE_SECONDS') && cache.bytesMax === 0,
      'HEADGATE_CACHE_SECONDS has no effect while HEADGATE_CACHE_MAX_BYTES is 0: responses are not cached',
    ],
    [
      isGiven('HEADGATE_MAX_CHOICES') && limits.choicesMax > limits.sequencesMax,
      'HEADGATE_MAX_CHOICES has no effect above HEADGATE_MAX_SEQUENCES, which limits prompts times choices',
    ],
    [
      isGiven('HEADGATE_MAIL_FROM') && signIn.mail === null,
      'HEADGATE_MAIL_FROM has no effect without HEADGATE_SMTP_URL: no email is sent',
    ],
    ...(['HEADGATE_OIDC_NAME', 'HEADGATE_OIDC_ORGANIZATION'] as const).map((name): [boolean, string] => [
      isGiven(name) && signIn.oidc === null,
      `${name} has no effect without HEADGATE_OIDC_ISSUER: no sign-in provider is configured`,
    ]),
    [
      isGiven('HEADGATE_OIDC_ROLE') && (signIn.oidc?.newPeople ?? null) === null,
      'HEADGATE_OIDC_ROLE has no effect without HEADGATE_OIDC_ORGANIZATION: people without an account are rejected',
    ],
  ];
  return idle.filter(([isIdle]) => isIdle).map(([, sentence]) => sentence);
}

/** Reads the configuration of this process as a gateway. @throws ConfigError */
export function readConfig(): Config {
  return parseConfig(readSecretFiles(process.env));
}

/** Configuration of the program that guards the Docker socket. */
export interface DockerGateConfig {
  readonly host: string;
  readonly port: number;
  readonly logLevel: string;
  readonly socketPath: string;
  /** Images that may be run, with `*` for any text. */
  readonly images: readonly string[];
  /** Folders of the machine that may be mounted: exactly these, no folder inside them. No folder lies in another. */
  readonly binds: readonly AllowedMount[];
  /** Named volumes that may be mounted. */
  readonly volumes: readonly AllowedMount[];
  readonly allowsPorts: boolean;
  readonly allowsSwarm: boolean;
  readonly runImages: readonly string[];
  readonly runNetworks: readonly string[];
  /** Number of the user that the program switches to if it is started as root; null: it stays root. */
  readonly user: number | null;
  /** Number of the group that the program then keeps; null: the group of the socket. */
  readonly group: number | null;
}

/** @throws ConfigError for the first variable that is wrong */
export function parseDockerGateConfig(environment: Environment): DockerGateConfig {
  const read = readVariables(dockerGateVariables, environment, knownVariables);
  const socketPath = read.HEADGATE_DOCKER_SOCKET;
  const holder = read.HEADGATE_DOCKER_BINDS.find(({ source }) => liesIn(socketPath, source));
  if (holder !== undefined)
    throw new ConfigError(
      `HEADGATE_DOCKER_BINDS: ${holder.source} contains the Docker socket; list a folder without it.`,
    );
  return {
    host: read.HOST,
    port: read.PORT,
    logLevel: read.LOG_LEVEL,
    socketPath,
    images: read.HEADGATE_DOCKER_IMAGES,
    binds: read.HEADGATE_DOCKER_BINDS,
    volumes: read.HEADGATE_DOCKER_VOLUMES,
    allowsPorts: read.HEADGATE_DOCKER_PORTS === 'true',
    allowsSwarm: read.HEADGATE_DOCKER_SWARM === 'true',
    runImages: read.HEADGATE_DOCKER_RUN_IMAGES,
    runNetworks: read.HEADGATE_DOCKER_RUN_NETWORKS,
    user: read.HEADGATE_DOCKER_GATE_USER ?? null,
    group: read.HEADGATE_DOCKER_GATE_GROUP ?? null,
  };
}

/** Reads the configuration of this process as the guard of the Docker socket. @throws ConfigError */
export function readDockerGateConfig(): DockerGateConfig {
  return parseDockerGateConfig(process.env);
}

/** Configuration of the command `headgate`. */
export interface ClientConfig {
  /** URL of the gateway, without /v1. */
  readonly url: string;
  readonly apiKey: string | null;
  /** Source of the key; null without a key. `typed`: just typed, and not stored yet. */
  readonly keySource: 'environment' | 'login' | 'typed' | null;
  readonly enginesDir: string | null;
  /** File in which `headgate login` stores gateway and keys; null for a user without a home. */
  readonly loginFile: string | null;
  /** Reason why the login file cannot be used; null if there is none. */
  readonly loginProblem: string | null;
  /** Folder of the programs that `headgate` has installed for this user; null for a user without a home. */
  readonly programsDir: string | null;
  /** The whole environment, for programs that are started. */
  readonly environment: Environment;
}

/**
 * Combines variables and the login file: variables override the file, and a key of the file is only for its gateway.
 * @param environment may contain variables of other programs, which are ignored
 * @throws ConfigError for the first variable that is wrong
 */
export function parseClientConfig(environment: Environment, login: Login | null = null): ClientConfig {
  const own = Object.entries(environment).filter(([name]) => name in clientVariables);
  const read = readVariables(clientVariables, Object.fromEntries(own), knownVariables);
  const isNamed = (environment['HEADGATE_URL'] ?? '') !== '';
  const url = isNamed || login?.url === undefined || login.url === null ? read.HEADGATE_URL : login.url;
  const kept = login?.keys[normalUrl(url)] ?? null;
  const apiKey = read.HEADGATE_API_KEY ?? kept;
  return {
    url,
    apiKey,
    keySource: apiKey === null ? null : read.HEADGATE_API_KEY === undefined ? 'login' : 'environment',
    enginesDir: read.HEADGATE_ENGINES_DIR ?? null,
    ...userFolders(environment),
    loginProblem: login?.problem ?? null,
    environment: Object.freeze({ ...environment }),
  };
}

/** Reads the configuration of this process as the command `headgate`. @throws ConfigError */
export function readClientConfig(): ClientConfig {
  const own = readSecretFiles(ownVariables(process.env, clientVariables));
  const environment = { ...process.env, HEADGATE_API_KEY: undefined, HEADGATE_API_KEY_FILE: undefined, ...own };
  return parseClientConfig(environment, readLogin(userFolders(process.env).loginFile));
}

/** Configuration of commands that work on the database directly. */
export interface DatabaseCommandConfig {
  /** Prefix of the secrets of new keys. */
  readonly keyPrefix: string;
  /** Null: the built-in PostgreSQL of the data folder. */
  readonly databaseUrl: string | null;
  /** Null: the default folder of the user. */
  readonly dataDir: string | null;
  /** Null: the keys in the data folder's file. */
  readonly platformKeys: readonly Buffer[] | null;
  readonly backupPassphrase: string | null;
  readonly environment: Environment;
}

/** Reads the configuration of this process for commands that work on the database. @throws ConfigError */
export function readDatabaseCommandConfig(): DatabaseCommandConfig {
  const variables = { ...databaseCommandVariables, HEADGATE_KEY_PREFIX: sections.keys.variables.HEADGATE_KEY_PREFIX };
  const own = readSecretFiles(ownVariables(process.env, variables));
  const read = readVariables(variables, own, knownVariables);
  return {
    keyPrefix: read.HEADGATE_KEY_PREFIX,
    databaseUrl: read.DATABASE_URL ?? null,
    dataDir: read.HEADGATE_DATA_DIR ?? null,
    platformKeys: read.HEADGATE_PLATFORM_KEY ?? null,
    backupPassphrase: read.HEADGATE_BACKUP_PASSPHRASE ?? null,
    environment: Object.freeze({ ...process.env }),
  };
}
