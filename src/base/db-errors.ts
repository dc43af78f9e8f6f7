/**
 * Classes of SQLSTATE that blame the statement: cardinality, data, integrity, syntax or names, a view's check, limits of
 * the server, PL/pgSQL.
 * 42501 is a right that somebody took away. 42703 and 42P01 are columns and tables that are not there: the database is
 * older than this program, as after the restore of a backup from before an upgrade.
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
  return connectionsFault.test(code) || isSaid(error) || (isOfQuery(error) && !notSent.test(code));
}

/** Postgres said it and closed the connection with it. */
const isSaid = (error: unknown): boolean => linksOf(error).some((link) => 'severity' in link);

/** postgres.js and drizzle give the errors of queries the query's text. */
function isOfQuery(error: unknown): boolean {
  const links = linksOf(error);
  // An error that is no driver's, such as a TypeError of a column's mapping, is a fault of ours.
  const last = links.at(-1);
  return links.some((link) => 'query' in link) && last !== undefined && 'code' in last;
}

function linksOf(error: unknown): readonly Error[] {
  return error instanceof Error ? [error, ...linksOf(error.cause)] : [];
}

/**
 * Why a database that somebody named cannot be used at all: it is not reached, not there, or refuses who we are.
 * @returns null for every other error
 */
export function whyUnusable(error: unknown): string | null {
  const code = errorCode(error);
  // Classes of SQLSTATE: 28 authorization, 3D no such database; 42501 is a missing right, 53300 too many connections.
  const isUnusable = code !== null && /^(28|3D|42501|53300|EAI_)/.test(code);
  if (!isDatabaseUnavailable(error) && !isUnusable && !isFailedConnect(error)) return null;
  let cause = error;
  while (cause instanceof Error && cause.cause instanceof Error) cause = cause.cause;
  // A name with several addresses fails with one error for each, and no text of its own.
  return cause instanceof Error && cause.message !== '' ? cause.message : code;
}

/** A unix socket that is not there, or not for us, has the code of a file. */
function isFailedConnect(error: unknown): boolean {
  return error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}

/**
 * The SQLSTATE of what Postgres said of a statement.
 * @returns null when it said nothing, or closed the connection with it (FATAL): nothing was said of the statement then
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
