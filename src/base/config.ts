import { isIP } from 'node:net';
import { join } from 'node:path';
import { z } from 'zod';
import { type AllowedMount, folderListProblem, liesIn, parseAllowedMount } from './host-folder.ts';

/**
 * The one reader of the environment. Everything is parsed before anything starts; what is wrong stops the start with
 * a sentence that names the variable.
 */

export interface Config {
  readonly host: string;
  readonly port: number;
  readonly metricsHost: string;
  /** Null: nothing listens for those who ask for metrics. The first worker's; each further one takes the next. */
  readonly metricsPort: number | null;
  /** Gateways that this machine runs, each a process of its own. */
  readonly workers: number;
  /** Null: the gateway runs its own PostgreSQL under `dataDir`. */
  readonly databaseUrl: string | null;
  readonly redisUrl: string | null;
  /** Address of the Docker engine of the host `local`, in the words of Docker's own client. */
  readonly dockerHost: string;
  /** Folder of Docker's own `config.json`, whose logins images are pulled with; null: this user has none. */
  readonly dockerConfigDir: string | null;
  /** How long slots and holds outlive a gateway that does not renew them. */
  readonly leaseMs: number;
  readonly logLevel: string;
  /** Null: a folder of the user's own. */
  readonly dataDir: string | null;
  readonly enginesDir: string | null;
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  readonly wrongKeysPerMinute: number;
  /** Addresses and networks of proxies whose X-Forwarded-For is believed. */
  readonly trustedProxies: readonly string[];
  readonly bootstrap: { readonly email: string | null; readonly password: string | null; readonly key: string | null };
  readonly bodyBytesMax: number;
  /** All request bodies that are not answered, and answers that are not read. */
  readonly bodiesBytesMax: number;
  readonly bodyStallTimeoutMs: number;
  readonly bodyBytesPerSecondMin: number;
  readonly headersTimeoutMs: number;
  /** A client that takes nothing of an answer for this long is cut off. */
  readonly answerStallTimeoutMs: number;
  readonly inFlightMax: number;
  readonly choicesMax: number;
  /** Prompts times choices of one request that generates, and inputs of one that does not. */
  readonly sequencesMax: number;
  readonly inputsMax: number;
  readonly upstreamFirstByteTimeoutMs: number;
  readonly upstreamIdleTimeoutMs: number;
  readonly upstreamConnectTimeoutMs: number;
  readonly startQueueMax: number;
  /** Memory that engine processes may take together; null: the machine's. */
  readonly engineMemoryBytes: number | null;
  /** Requests of the tier `flex` that may wait for one model. */
  readonly flexQueueMax: number;
  readonly settleTimeoutMs: number;
  readonly shutdownTimeoutMs: number;
  /** Bounds of the response cache: all answers together, and the age of each. */
  readonly cacheBytesMax: number;
  readonly cacheAgeMaxMs: number;
  /** Bounds of stored request data: the age of a request, and what is kept of one body. */
  readonly storeAgeMaxMs: number;
  readonly storedBodyBytesMax: number;
  readonly databasePoolMax: number;
  /** The whole environment, for `${NAME}` references of engine files and what an engine's process may inherit. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** A configuration that cannot be started with; the message names the variable and says what would do. */
export class ConfigError extends Error {
  /** @param cause why the setting does not do, where something else said so */
  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'ConfigError';
  }
}

const whole = (min: number, max: number, fallback: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be between ${min} and ${max}`)
    .default(fallback);

const optionalWhole = (min: number, max: number) => whole(min, max, 0).unwrap().optional();

/** Of GiB; null where there are none. */
const toBytes = (gib: number | undefined): number | null => (gib === undefined ? null : gib * 1_073_741_824);

const text = z.string().refine((value) => !value.includes('\0'), 'must not contain a NUL');

function urlOf(protocols: readonly string[], example: string) {
  return text.refine((value) => {
    const url = URL.parse(value);
    return url !== null && protocols.includes(url.protocol) && url.hostname !== '';
  }, `must be a URL such as ${example}`);
}

function isDecodable(value: string): boolean {
  try {
    decodeURIComponent(value);
    return true;
  } catch {
    return false;
  }
}

const databaseUrl = text
  .refine((value) => {
    const url = URL.parse(value);
    if (url === null || !['postgres:', 'postgresql:'].includes(url.protocol)) return false;
    return url.hostname !== '' || url.searchParams.has('host');
  }, 'must be a URL such as postgres://user:password@host:5432/database')
  // Passwords that were made at random have it often.
  .refine(isDecodable, 'holds a "%" that begins no code; in a URL it is written "%25"');

function isNetwork(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const family = isIP(address);
  if (family === 0 || more.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

const networks = text
  .transform((value) => value.split(',').map((part) => part.trim()))
  .refine((values) => values.every(isNetwork), 'must be addresses or networks such as 10.0.0.0/8, separated by commas');

const variables = z.object({
  HOST: text.min(1).default('127.0.0.1'),
  PORT: whole(0, 65_535, 8080),
  HEADGATE_METRICS_HOST: text.min(1).default('127.0.0.1'),
  HEADGATE_METRICS_PORT: optionalWhole(0, 65_535),
  HEADGATE_WORKERS: whole(1, 256, 1),
  DATABASE_URL: databaseUrl.optional(),
  REDIS_URL: urlOf(['redis:', 'rediss:'], 'redis://host:6379').optional(),
  DOCKER_HOST: text.min(1).default('unix:///var/run/docker.sock'),
  DOCKER_CONFIG: text.optional(),
  HOME: text.optional(),
  HEADGATE_LEASE_SECONDS: whole(1, 3600, 30),
  LOG_LEVEL: z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info'),
  HEADGATE_DATA_DIR: text.optional(),
  HEADGATE_ENGINES_DIR: text.optional(),
  HEADGATE_KEY_PREFIX: z
    .string()
    .regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,23}$/, 'must be 1 to 24 letters, digits, "-" or "_"')
    .default('sk-hg-'),
  HEADGATE_MAX_ACTIVE_KEYS: whole(1, 1_000_000, 5),
  HEADGATE_WRONG_KEYS_PER_MINUTE: whole(1, 1_000_000, 60),
  HEADGATE_TRUSTED_PROXIES: networks.default([]),
  HEADGATE_BOOTSTRAP_EMAIL: z
    .string()
    .regex(/^[^\s@]+@[^\s@]+$/, 'must be an e-mail address')
    .max(254)
    .optional(),
  HEADGATE_BOOTSTRAP_PASSWORD: text.min(8, 'must have 8 characters or more').max(1024).optional(),
  HEADGATE_BOOTSTRAP_KEY: z
    .string()
    .regex(/^[\x21-\x7e]{32,512}$/, 'must be 32 to 512 printable ASCII characters without blanks')
    .optional(),
  HEADGATE_MAX_BODY_BYTES: whole(1024, 1_073_741_824, 33_554_432),
  HEADGATE_MAX_BODIES_BYTES: optionalWhole(1024, 1_099_511_627_776),
  HEADGATE_BODY_STALL_SECONDS: whole(1, 3600, 15),
  HEADGATE_BODY_BYTES_PER_SECOND: whole(1, 1_073_741_824, 1024),
  HEADGATE_HEADERS_SECONDS: whole(1, 3600, 15),
  HEADGATE_ANSWER_STALL_SECONDS: whole(1, 3600, 120),
  HEADGATE_MAX_IN_FLIGHT: whole(1, 1_000_000, 10_000),
  HEADGATE_MAX_CHOICES: whole(1, 1024, 8),
  HEADGATE_MAX_SEQUENCES: whole(1, 65_536, 128),
  HEADGATE_MAX_INPUTS: whole(1, 1_048_576, 2048),
  HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: whole(1, 86_400, 600),
  HEADGATE_UPSTREAM_IDLE_SECONDS: whole(1, 86_400, 120),
  HEADGATE_UPSTREAM_CONNECT_SECONDS: whole(1, 600, 10),
  HEADGATE_START_QUEUE_MAX: whole(1, 1_000_000, 1000),
  HEADGATE_ENGINE_MEMORY_GIB: optionalWhole(1, 1_048_576).transform(toBytes),
  HEADGATE_FLEX_QUEUE_MAX: whole(1, 1_000_000, 1000),
  HEADGATE_SETTLE_SECONDS: whole(1, 3600, 30),
  HEADGATE_SHUTDOWN_SECONDS: whole(0, 3600, 30),
  HEADGATE_CACHE_MAX_BYTES: whole(0, 1_099_511_627_776, 67_108_864),
  HEADGATE_CACHE_SECONDS: whole(1, 31_536_000, 3600),
  HEADGATE_STORE_DAYS: whole(1, 36_500, 30),
  HEADGATE_STORE_MAX_BYTES: whole(1024, 1_073_741_824, 1_048_576),
  HEADGATE_DATABASE_POOL: whole(2, 1000, 10),
});

/** What the command `headgate` reads; the gateway leaves it alone. */
const clientVariables = z.object({
  HEADGATE_URL: urlOf(['http:', 'https:'], 'http://127.0.0.1:8080').default('http://127.0.0.1:8080'),
  HEADGATE_API_KEY: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'must be printable ASCII characters without blanks')
    .optional(),
  HEADGATE_ENGINES_DIR: text.optional(),
});

export interface ClientConfig {
  /** Of the gateway; without /v1. */
  readonly url: string;
  readonly apiKey: string | null;
  readonly enginesDir: string | null;
}

function parseVariables<Shape extends z.ZodRawShape>(
  schema: z.ZodObject<Shape>,
  environment: Readonly<Record<string, string | undefined>>,
): z.output<z.ZodObject<Shape>> {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  );
  // Programs of one machine often share an environment: what another one reads is no mistake.
  const known = { ...variables.shape, ...dockerGateVariables.shape, ...clientVariables.shape };
  const unknown = Object.keys(given).find((name) => name.startsWith('HEADGATE_') && !(name in known));
  if (unknown !== undefined) throw new ConfigError(`${unknown}: there is no setting of this name.`);
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ConfigError(`${String(issue?.path[0] ?? 'The environment')}: ${issue?.message ?? 'is not valid'}.`);
}

/** Of the largest size, that may be there at once where nothing else is said. */
const bodiesPerBudget = 8;

const secondsMs = (seconds: number): number => seconds * 1000;

/** What no variable says by itself. @throws ConfigError */
function checkTogether(read: z.output<typeof variables>): void {
  if (read.HEADGATE_WORKERS > 1 && read.REDIS_URL === undefined) {
    throw new ConfigError('REDIS_URL: several workers (HEADGATE_WORKERS) need a Redis, or every limit would multiply.');
  }
  if ((read.HEADGATE_METRICS_PORT ?? 0) + read.HEADGATE_WORKERS - 1 > 65_535) {
    throw new ConfigError('HEADGATE_METRICS_PORT: every worker takes one more, and there are not as many ports.');
  }
  if ((read.HEADGATE_MAX_BODIES_BYTES ?? Infinity) < read.HEADGATE_MAX_BODY_BYTES) {
    throw new ConfigError('HEADGATE_MAX_BODIES_BYTES: is less than one body may have (HEADGATE_MAX_BODY_BYTES).');
  }
}

/**
 * @param environment what process.env holds; variables that are set to nothing count as not set
 * @throws ConfigError for the first variable that is wrong
 */
export function parseConfig(environment: Readonly<Record<string, string | undefined>>): Config {
  const read = parseVariables(variables, environment);
  checkTogether(read);
  return Object.freeze({
    host: read.HOST,
    port: read.PORT,
    metricsHost: read.HEADGATE_METRICS_HOST,
    metricsPort: read.HEADGATE_METRICS_PORT ?? null,
    workers: read.HEADGATE_WORKERS,
    databaseUrl: read.DATABASE_URL ?? null,
    redisUrl: read.REDIS_URL ?? null,
    dockerHost: read.DOCKER_HOST,
    dockerConfigDir: read.DOCKER_CONFIG ?? (read.HOME === undefined ? null : join(read.HOME, '.docker')),
    leaseMs: secondsMs(read.HEADGATE_LEASE_SECONDS),
    logLevel: read.LOG_LEVEL,
    dataDir: read.HEADGATE_DATA_DIR ?? null,
    enginesDir: read.HEADGATE_ENGINES_DIR ?? null,
    keyPrefix: read.HEADGATE_KEY_PREFIX,
    maxActiveKeys: read.HEADGATE_MAX_ACTIVE_KEYS,
    wrongKeysPerMinute: read.HEADGATE_WRONG_KEYS_PER_MINUTE,
    trustedProxies: read.HEADGATE_TRUSTED_PROXIES,
    bootstrap: {
      email: read.HEADGATE_BOOTSTRAP_EMAIL ?? null,
      password: read.HEADGATE_BOOTSTRAP_PASSWORD ?? null,
      key: read.HEADGATE_BOOTSTRAP_KEY ?? null,
    },
    bodyBytesMax: read.HEADGATE_MAX_BODY_BYTES,
    bodiesBytesMax: read.HEADGATE_MAX_BODIES_BYTES ?? bodiesPerBudget * read.HEADGATE_MAX_BODY_BYTES,
    bodyStallTimeoutMs: secondsMs(read.HEADGATE_BODY_STALL_SECONDS),
    bodyBytesPerSecondMin: read.HEADGATE_BODY_BYTES_PER_SECOND,
    headersTimeoutMs: secondsMs(read.HEADGATE_HEADERS_SECONDS),
    answerStallTimeoutMs: secondsMs(read.HEADGATE_ANSWER_STALL_SECONDS),
    inFlightMax: read.HEADGATE_MAX_IN_FLIGHT,
    choicesMax: read.HEADGATE_MAX_CHOICES,
    sequencesMax: read.HEADGATE_MAX_SEQUENCES,
    inputsMax: read.HEADGATE_MAX_INPUTS,
    upstreamFirstByteTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS),
    upstreamIdleTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_IDLE_SECONDS),
    upstreamConnectTimeoutMs: secondsMs(read.HEADGATE_UPSTREAM_CONNECT_SECONDS),
    startQueueMax: read.HEADGATE_START_QUEUE_MAX,
    engineMemoryBytes: read.HEADGATE_ENGINE_MEMORY_GIB,
    flexQueueMax: read.HEADGATE_FLEX_QUEUE_MAX,
    settleTimeoutMs: secondsMs(read.HEADGATE_SETTLE_SECONDS),
    shutdownTimeoutMs: secondsMs(read.HEADGATE_SHUTDOWN_SECONDS),
    cacheBytesMax: read.HEADGATE_CACHE_MAX_BYTES,
    cacheAgeMaxMs: secondsMs(read.HEADGATE_CACHE_SECONDS),
    storeAgeMaxMs: secondsMs(read.HEADGATE_STORE_DAYS * 86_400),
    storedBodyBytesMax: read.HEADGATE_STORE_MAX_BYTES,
    databasePoolMax: read.HEADGATE_DATABASE_POOL,
    environment: Object.freeze({ ...environment }),
  });
}

/** What the door to the Docker socket is told: a program of its own beside the gateway. */
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
}

const list = z
  .string()
  .transform((value) => value.split(',').map((part) => part.trim()))
  .transform((parts) => parts.filter((part) => part !== ''));

function mounts(what: string, isIt: (source: string) => boolean) {
  return list.transform((entries, context): AllowedMount[] =>
    entries.flatMap((entry) => {
      const read = parseAllowedMount(entry);
      if (read !== null && isIt(read.source)) return read;
      context.addIssue({ code: 'custom', message: `must be ${what}, separated by commas` });
      return [];
    }),
  );
}

const dockerGateVariables = z.object({
  HOST: text.min(1).default('127.0.0.1'),
  PORT: whole(0, 65_535, 2375),
  LOG_LEVEL: variables.shape.LOG_LEVEL,
  HEADGATE_DOCKER_SOCKET: text.startsWith('/', 'must be the absolute path of a socket').default('/var/run/docker.sock'),
  HEADGATE_DOCKER_IMAGES: list.default(['vllm/*']),
  HEADGATE_DOCKER_BINDS: mounts('absolute paths, such as /srv/models:ro', (source) => source.startsWith('/'))
    .superRefine((folders, context) => {
      const problem = folderListProblem(folders);
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    })
    .default([]),
  HEADGATE_DOCKER_VOLUMES: mounts('names of volumes, such as hf-cache', (source) => !source.startsWith('/')).default(
    [],
  ),
  HEADGATE_DOCKER_PORTS: z.enum(['true', 'false']).default('false'),
  HEADGATE_DOCKER_SWARM: z.enum(['true', 'false']).default('false'),
});

/** @throws ConfigError for the first variable that is wrong */
export function parseDockerGateConfig(environment: Readonly<Record<string, string | undefined>>): DockerGateConfig {
  const read = parseVariables(dockerGateVariables, environment);
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
  };
}

/** The configuration of this process as the door to the Docker socket. */
export function readDockerGateConfig(): DockerGateConfig {
  return parseDockerGateConfig(process.env);
}

/**
 * @param environment as above; variables of the gateway are not looked at
 * @throws ConfigError for the first variable that is wrong
 */
export function parseClientConfig(environment: Readonly<Record<string, string | undefined>>): ClientConfig {
  const own = Object.entries(environment).filter(([name]) => name in clientVariables.shape);
  const read = parseVariables(clientVariables, Object.fromEntries(own));
  return {
    url: read.HEADGATE_URL,
    apiKey: read.HEADGATE_API_KEY ?? null,
    enginesDir: read.HEADGATE_ENGINES_DIR ?? null,
  };
}

/** What the command `headgate` was started with. */
export function readClientConfig(): ClientConfig {
  return parseClientConfig(process.env);
}

/** The configuration of this process. */
export function readConfig(): Config {
  return parseConfig(process.env);
}
