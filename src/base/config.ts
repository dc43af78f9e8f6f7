import type { z } from 'zod';
import { ownVariables, readSecretFiles } from './config-files.ts';
import { booksVariables, clientVariables, dockerGateVariables } from './config-programs.ts';
import * as sections from './config-sections.ts';
import { ConfigError, type Environment, readVariables } from './config-values.ts';
import { type Login, normalUrl, readLogin, userFolders } from './login-file.ts';
import { type AllowedMount, liesIn } from './host-folder.ts';

/**
 * The one reader of the environment. Everything is parsed before anything starts; what is wrong stops the start with
 * a sentence that names the variable.
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
} from './config-sections.ts';
export { ownSettings, settingsInCommon } from './config-common.ts';
export { ConfigError } from './config-values.ts';

/** The configuration of a gateway; a room gets its own section, or values of it. */
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
  /** The whole environment, for `${NAME}` references of engine files and what an engine's process may inherit. */
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

/** Programs of one machine often share an environment: another one's variable is no mistake. */
const knownVariables: ReadonlySet<string> = new Set(
  Object.keys({ ...gatewayVariables, ...dockerGateVariables, ...clientVariables }),
);

/**
 * @param environment what process.env holds; variables that are set to nothing count as not set
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

/** Mistakes that only several variables together show. @throws ConfigError */
function checkTogether(read: z.output<z.ZodObject<typeof gatewayVariables>>): void {
  if (read.HEADGATE_WORKERS > 1 && read.REDIS_URL === undefined) {
    throw new ConfigError('REDIS_URL: several workers (HEADGATE_WORKERS) need a Redis, or every limit would multiply.');
  }
  if (read.HEADGATE_RUNS_IMAGE !== undefined && read.HEADGATE_RUNS_EGRESS === 'machine') {
    throw new ConfigError(
      'HEADGATE_RUNS_EGRESS: runs in containers (HEADGATE_RUNS_IMAGE) never have the network of a machine; cluster and internet are to be had.',
    );
  }
  if ((read.HEADGATE_METRICS_PORT ?? 0) + read.HEADGATE_WORKERS - 1 > 65_535) {
    throw new ConfigError('HEADGATE_METRICS_PORT: every worker takes one more, and there are not as many ports.');
  }
  if ((read.HEADGATE_MAX_BODIES_BYTES ?? Infinity) < read.HEADGATE_MAX_BODY_BYTES) {
    throw new ConfigError('HEADGATE_MAX_BODIES_BYTES: is less than one body may have (HEADGATE_MAX_BODY_BYTES).');
  }
}

/** Settings that are given and do nothing beside the others, each with why; in sentences that name the variable. */
export function findIdleSettings(config: Config): readonly string[] {
  const isGiven = (name: keyof typeof gatewayVariables): boolean => (config.environment[name] ?? '') !== '';
  const { metrics, cache, limits, platform, signIn } = config;
  const idle: readonly [boolean, string][] = [
    [
      isGiven('HEADGATE_METRICS_HOST') && metrics.port === null,
      'HEADGATE_METRICS_HOST has no effect without HEADGATE_METRICS_PORT: metrics are answered nowhere',
    ],
    [
      isGiven('HEADGATE_WEB_HOST') && platform.web === null,
      'HEADGATE_WEB_HOST has no effect without HEADGATE_WEB_PORT: web addresses of runs are served nowhere',
    ],
    [
      isGiven('HEADGATE_CACHE_SECONDS') && cache.bytesMax === 0,
      'HEADGATE_CACHE_SECONDS has no effect while HEADGATE_CACHE_MAX_BYTES is 0: no answer is cached',
    ],
    [
      isGiven('HEADGATE_MAX_CHOICES') && limits.choicesMax > limits.sequencesMax,
      'HEADGATE_MAX_CHOICES has no effect above HEADGATE_MAX_SEQUENCES, which bounds prompts times choices',
    ],
    [
      isGiven('HEADGATE_MAIL_FROM') && signIn.mail === null,
      'HEADGATE_MAIL_FROM has no effect without HEADGATE_SMTP_URL: no mail is sent',
    ],
    ...(['HEADGATE_OIDC_NAME', 'HEADGATE_OIDC_ORGANIZATION'] as const).map((name): [boolean, string] => [
      isGiven(name) && signIn.oidc === null,
      `${name} has no effect without HEADGATE_OIDC_ISSUER: there is no provider to sign in with`,
    ]),
    [
      isGiven('HEADGATE_OIDC_ROLE') && (signIn.oidc?.newPeople ?? null) === null,
      'HEADGATE_OIDC_ROLE has no effect without HEADGATE_OIDC_ORGANIZATION: who has no account is refused',
    ],
  ];
  return idle.filter(([isIdle]) => isIdle).map(([, sentence]) => sentence);
}

/** The configuration of this process as a gateway. @throws ConfigError */
export function readConfig(): Config {
  return parseConfig(readSecretFiles(process.env));
}

/** The configuration of the program that guards the Docker socket. */
export interface DockerGateConfig {
  readonly host: string;
  readonly port: number;
  readonly logLevel: string;
  readonly socketPath: string;
  /** Images that may be run, with `*` for any text. */
  readonly images: readonly string[];
  /** Folders of the machine that may be mounted, each as it is named and nothing in it; none lies in another one. */
  readonly binds: readonly AllowedMount[];
  /** Named volumes that may be mounted. */
  readonly volumes: readonly AllowedMount[];
  readonly allowsPorts: boolean;
  readonly allowsSwarm: boolean;
  readonly runImages: readonly string[];
  readonly runNetworks: readonly string[];
  /** Number of the user that the program switches to if it is started as root; null: it stays root. */
  readonly user: number | null;
  /** The group that it keeps then; null: the socket's. */
  readonly group: number | null;
}

/** @throws ConfigError for the first variable that is wrong */
export function parseDockerGateConfig(environment: Environment): DockerGateConfig {
  const read = readVariables(dockerGateVariables, environment, knownVariables);
  const socketPath = read.HEADGATE_DOCKER_SOCKET;
  const holder = read.HEADGATE_DOCKER_BINDS.find(({ source }) => liesIn(socketPath, source));
  if (holder !== undefined) throw new ConfigError(`HEADGATE_DOCKER_BINDS: ${holder.source} holds the Docker socket.`);
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

/** The configuration of this process as the guard of the Docker socket. @throws ConfigError */
export function readDockerGateConfig(): DockerGateConfig {
  return parseDockerGateConfig(process.env);
}

/** The configuration of the command `headgate`. */
export interface ClientConfig {
  /** URL of the gateway, without /v1. */
  readonly url: string;
  readonly apiKey: string | null;
  /** Where the key comes from; null without one. `typed`: just now, and it is kept nowhere yet. */
  readonly keySource: 'environment' | 'login' | 'typed' | null;
  readonly enginesDir: string | null;
  /** Where `headgate login` keeps what it was told; null for a user without a home. */
  readonly loginFile: string | null;
  /** Why what is there cannot be used. */
  readonly loginProblem: string | null;
  /** Where `headgate` keeps what it has installed for this user; null for one without a home. */
  readonly programsDir: string | null;
  /** The whole environment, for programs that are started. */
  readonly environment: Environment;
}

/**
 * Variables win over what `headgate login` was told; a key that it was told is for its own gateway alone.
 * @param environment its variables of other programs are not looked at
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

/** The configuration of this process as the command `headgate`. @throws ConfigError */
export function readClientConfig(): ClientConfig {
  const own = readSecretFiles(ownVariables(process.env, clientVariables));
  const environment = { ...process.env, HEADGATE_API_KEY: undefined, HEADGATE_API_KEY_FILE: undefined, ...own };
  return parseClientConfig(environment, readLogin(userFolders(process.env).loginFile));
}

/** Where commands that work on the database themselves find it. */
export interface BooksConfig {
  /** Prefix of the secrets of new keys. */
  readonly keyPrefix: string;
  /** Null: the built-in PostgreSQL of the data folder. */
  readonly databaseUrl: string | null;
  /** Null: a folder of the user's own. */
  readonly dataDir: string | null;
  /** Null: those of a file in the data folder. */
  readonly platformKeys: readonly Buffer[] | null;
  readonly backupPassphrase: string | null;
  readonly environment: Environment;
}

/** The same of this process for commands that work on the database. @throws ConfigError */
export function readBooksConfig(): BooksConfig {
  const variables = { ...booksVariables, HEADGATE_KEY_PREFIX: sections.keys.variables.HEADGATE_KEY_PREFIX };
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
