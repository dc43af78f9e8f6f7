import { drizzle, type PostgresJsDatabase } from 'drizzle-orm/postgres-js';
import postgres, { type Sql } from 'postgres';
import { passwordFileParameter, readPassword } from '#base/config/config.ts';
import { within } from '#base/within.ts';
import { withKnownCommits } from './commits.ts';
import { createReconnecting, type Reconnecting } from './socket.ts';

export {
  isDatabaseUnavailable,
  isDiskFull,
  isUniqueViolation,
  isUnknownSchema,
  sqlStateOf,
  describeConnectionFailure,
} from './errors.ts';

/** PostgreSQL through two interfaces to one pool: drizzle for typed queries, `sql` for hot or special ones. */
export interface Db {
  readonly orm: PostgresJsDatabase;
  readonly sql: Sql;
  /**
   * Returns one connection beside the pool, for state that a session of PostgreSQL keeps. The connection opens at its
   * first use, and again after a loss. The caller ends it.
   * @param limits the pool's where absent
   */
  session(limits?: StatementLimits): Sql;
  /** Closes the pool. */
  close(): Promise<void>;
}

/** A transaction that one room begins and hands to another. */
export type Transaction = Parameters<Parameters<PostgresJsDatabase['transaction']>[0]>[0];

export interface ConnectOptions {
  readonly poolMax?: number;
  /** Text after "headgate" in `application_name`; absent for the general pool. */
  readonly purpose?: string;
  readonly limits?: StatementLimits;
}

/**
 * PostgreSQL's settings of these names, in milliseconds, for every statement of a connection. Null keeps the server's
 * setting.
 */
export interface StatementLimits {
  readonly lockTimeoutMs: number | null;
  readonly statementTimeoutMs: number;
  readonly idleInTransactionTimeoutMs: number;
}

const commonLimits: StatementLimits = {
  lockTimeoutMs: null,
  statementTimeoutMs: 30_000,
  idleInTransactionTimeoutMs: 60_000,
};
/** Milliseconds that a connection may be silent beyond the time limit of its statement. */
const silenceBeyondMs = 5000;

/**
 * Reads the parts of a URL that postgres.js misreads: an IPv6 address, whose colons it takes for the port's, and
 * libpq's `?host=` and `?port=`, which it would hand to the server as settings. A host that begins with a slash is the
 * folder of a unix socket.
 */
function placeOf(given: string): { readonly url: string; readonly place: object } {
  const { url, login } = loginOf(given);
  const parsed = new URL(url);
  const host = parsed.searchParams.get('host') ?? parsed.hostname;
  const port = Number(parsed.searchParams.get('port') ?? parsed.port) || 5432;
  const isPlain = parsed.searchParams.get('host') === null && !host.startsWith('[');
  if (isPlain) return { url, place: login };
  for (const name of ['host', 'port']) parsed.searchParams.delete(name);
  const place = host.startsWith('/')
    ? { path: `${host}/.s.PGSQL.${port}` }
    : { host: [host.replace(/^\[(.*)\]$/, '$1')], port: [port] };
  return { url: parsed.href, place: { ...place, ...login } };
}

/** Reads the password again for each connection where the URL names its file, so that a new one needs no restart. */
function loginOf(url: string): { readonly url: string; readonly login: object } {
  const parsed = new URL(url);
  const path = parsed.searchParams.get(passwordFileParameter);
  if (path === null) return { url, login: {} };
  parsed.searchParams.delete(passwordFileParameter);
  let known = decodeURIComponent(parsed.password);
  // Never throws: postgres.js catches no error of this function, which would end the process.
  const password = (): string => (known = readPassword(path) ?? known);
  return { url: parsed.href, login: { password } };
}

/**
 * Leaves two cases to postgres.js: several hosts, because it moves to the next host itself while it connects; and TLS
 * from the first byte, which needs a connection that is already open.
 */
function reconnectingTo(url: string, silenceMs: number): Partial<Reconnecting> {
  const { hostname, searchParams } = new URL(url);
  const isLeftAlone = hostname.includes(',') || searchParams.get('sslnegotiation') === 'direct';
  return isLeftAlone ? {} : createReconnecting(silenceMs);
}

/**
 * Turns off the query for array types: no code here reads or writes arrays. postgres.js would send the query on every
 * new connection, and if that connection is lost, nobody catches the error and the process ends.
 */
const everyConnection = { fetch_types: false, onnotice: () => undefined };

function openPool(url: string, { poolMax = 10, purpose, limits = commonLimits }: ConnectOptions, session = {}): Sql {
  const { url: plain, place } = placeOf(url);
  const { lockTimeoutMs, statementTimeoutMs, idleInTransactionTimeoutMs } = limits;
  return postgres(plain, {
    ...place,
    max: poolMax,
    connect_timeout: 5,
    ...reconnectingTo(plain, statementTimeoutMs + silenceBeyondMs),
    ...everyConnection,
    ...session,
    connection: {
      application_name: purpose === undefined ? 'headgate' : `headgate ${purpose}`,
      statement_timeout: statementTimeoutMs,
      idle_in_transaction_session_timeout: idleInTransactionTimeoutMs,
      // Compiling a statement takes longer than any of ours saves by it: 20 ms for a report of 15.
      jit: false,
      ...(lockTimeoutMs !== null && { lock_timeout: lockTimeoutMs }),
    },
  });
}

/** Opens a pool; connections open when they are first needed. */
export function connectDb(url: string, options: ConnectOptions = {}): Db {
  const sql = openPool(url, options);
  const orm = drizzle(sql);
  orm.transaction = withKnownCommits(orm.transaction.bind(orm), sql);
  return {
    orm,
    sql,
    session: (limits = options.limits ?? commonLimits) =>
      openPool(url, { ...options, limits, poolMax: 1 }, { max_lifetime: null }),
    close: () => sql.end({ timeout: 5 }),
  };
}

/** Connections for one purpose only, so that all waiting statements can be given up. */
export interface DedicatedDb {
  readonly sql: Sql;
  /** Closes every connection: waiting statements are rejected, and the next statement opens a new connection. */
  abandon(): void;
  close(): Promise<void>;
}

/** Opens connections that only the caller uses, and that can be given up. */
export function connectDedicated(url: string, options: Required<ConnectOptions>): DedicatedDb {
  let sql = openPool(url, options);
  return {
    get sql() {
      return sql;
    },
    abandon() {
      const given = sql;
      sql = openPool(url, options);
      void given.end({ timeout: 0 }).catch(() => undefined);
    },
    close: () => sql.end({ timeout: 5 }),
  };
}

/** Returns the database's time, in milliseconds since the Unix epoch. */
export async function readTime({ sql }: Db): Promise<number> {
  const [row] = await sql<{ ms: number }[]>`select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms`;
  return row?.ms ?? 0;
}

/** Time limit for the first answer of a server; longer than a connection may take to open. */
const firstAnswerTimeoutMs = 15_000;

/**
 * Fails if the server does not answer in time. When none of several hosts is reachable, postgres.js tries them forever
 * without a pause, and it waits forever for a program that is not PostgreSQL.
 */
async function expectAnswer(sql: Sql): Promise<void> {
  await within(sql`select 1`, firstAnswerTimeoutMs, () => {
    const message = `no response within ${firstAnswerTimeoutMs / 1000} s`;
    throw Object.assign(new Error(message), { code: 'CONNECTION_CLOSED' });
  });
}

/**
 * Runs work on one connection without limits on its statements, if the server answers, and closes the connection.
 * @param silenceMs milliseconds that a statement may take before its connection counts as lost
 */
export async function withUnlimited<T>(url: string, silenceMs: number, run: (sql: Sql) => Promise<T>): Promise<T> {
  const { url: plain, place } = placeOf(url);
  const options = { max: 1, connect_timeout: 10, ...everyConnection };
  const sql = postgres(plain, { ...place, ...options, ...reconnectingTo(plain, silenceMs) });
  try {
    await expectAnswer(sql);
    return await run(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}
