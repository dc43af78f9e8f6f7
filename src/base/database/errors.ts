/**
 * Classes of SQLSTATE that blame the statement: cardinality, data, integrity, syntax or names, a view's check, limits
 * of the server, PL/pgSQL.
 * Exceptions: 42501 is a revoked permission. 42703 and 42P01 are missing columns and tables: the database is older than
 * this program, as after the restore of a backup from before an upgrade.
 */
const statementsFault = /^(21|22|23|42(?!501|703|P01)|44|54|P0)/;
const unknownSchema = ['42703', '42P01'];
/** Codes of postgres.js for statements that it does not send; all its other codes are about connections. */
const notSent = /^(UNDEFINED_VALUE|NOT_TAGGED_CALL|MAX_PARAMETERS_EXCEEDED|UNSAFE_TRANSACTION|INVALID_VALUE)$/;
const connectionsFault = /^(CONNECT|CONNECTION_|ECONN|ENOTFOUND|EPIPE|ETIMEDOUT|EHOSTUNREACH)/;

/** True if PostgreSQL does not know a table or column of this program. */
export function isUnknownSchema(error: unknown): boolean {
  return unknownSchema.includes(sqlStateOf(error) ?? '');
}

/**
 * True if the database is at fault and not the statement, so that the same statement may succeed later: the database is
 * unreachable, or reports anything except that the statement is wrong.
 */
export function isDatabaseUnavailable(error: unknown): boolean {
  const state = sqlStateOf(error);
  if (state !== null) return !statementsFault.test(state);
  const code = errorCode(error) ?? '';
  return connectionsFault.test(code) || isServerError(error) || (isOfQuery(error) && !notSent.test(code));
}

/** True if PostgreSQL itself reported the error. */
const isServerError = (error: unknown): boolean => linksOf(error).some((link) => 'severity' in link);

/** True if the error is a driver's error of a query: postgres.js and drizzle add the query's text to these. */
function isOfQuery(error: unknown): boolean {
  const links = linksOf(error);
  // An error from elsewhere, such as a TypeError in a column's mapping, is a bug of this program.
  const last = links.at(-1);
  return links.some((link) => 'query' in link) && last !== undefined && 'code' in last;
}

function linksOf(error: unknown): readonly Error[] {
  return error instanceof Error ? [error, ...linksOf(error.cause)] : [];
}

/**
 * Describes why a configured database cannot be used at all: it is unreachable, does not exist, or rejects the login.
 * @returns null for every other error
 */
export function describeConnectionFailure(error: unknown): string | null {
  const code = errorCode(error);
  // Classes of SQLSTATE: 28 authorization, 3D no such database; 42501 is a missing right, 53300 too many connections.
  const isUnusable = code !== null && /^(28|3D|42501|53300|EAI_)/.test(code);
  if (!isDatabaseUnavailable(error) && !isUnusable && !isConnectFailure(error)) return null;
  let cause = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  // A host name with several addresses fails with one error per address, and without a message of its own.
  return cause instanceof Error && cause.message !== '' ? cause.message : code;
}

/** True if PostgreSQL has no space left for what it must write. */
export const isDiskFull = (error: unknown): boolean => errorCode(error) === '53100';

/** True if connecting failed: a unix socket that is missing or not accessible fails with the code of a file. */
function isConnectFailure(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}

/**
 * Returns the SQLSTATE with which PostgreSQL answered a statement.
 * @returns null if PostgreSQL did not answer, or closed the connection (FATAL, PANIC): the error is not the statement's
 */
export function sqlStateOf(error: unknown): string | null {
  for (let current = error; current instanceof Error; current = current.cause) {
    if (!('severity' in current) || !('code' in current) || typeof current.code !== 'string') continue;
    return current.severity === 'FATAL' || current.severity === 'PANIC' ? null : current.code;
  }
  return null;
}

function errorCode(error: unknown): string | null {
  for (let current = error; current instanceof Error; current = current.cause) {
    if ('code' in current && typeof current.code === 'string') return current.code;
  }
  return null;
}

/** True if an error reports a violated unique index; `constraint` narrows the check to one index. */
export function isUniqueViolation(error: unknown, constraint?: string): boolean {
  for (let current = error; current instanceof Error; current = current.cause) {
    if ('code' in current && current.code === '23505') {
      return constraint === undefined || ('constraint_name' in current && current.constraint_name === constraint);
    }
  }
  return false;
}
