import { pino, type DestinationStream, type Logger } from 'pino';

export type Log = Logger;

/** Fields that could carry a secret. Code is expected not to hand them over in the first place. */
const secretFields = new Set([
  'apiKey',
  'authorization',
  'Authorization',
  'cookie',
  'databaseUrl',
  'env',
  'headerLines',
  'password',
  'redisUrl',
  'secret',
]);
const depthMax = 4;
const causesMax = 4;

/**
 * Creates a log of JSON lines on stdout. Fields that could carry a secret are removed down to a few levels. Only type,
 * message, code, stack and cause of an error are kept: drivers add statements with their values, and commands with
 * passwords. pino's own redaction by paths costs many times as much as the rest of a line.
 */
export function createLog(level: string, destination?: DestinationStream): Log {
  const options = {
    level,
    base: null,
    formatters: { log: (fields: Record<string, unknown>) => withoutSecrets(fields, depthMax) },
    serializers: { err: (error: unknown) => describeError(error, causesMax) },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}

function withoutSecrets(fields: Record<string, unknown>, depth: number): Record<string, unknown> {
  let copy: Record<string, unknown> | null = null;
  for (const name in fields) {
    if (!Object.hasOwn(fields, name)) continue;
    const value = fields[name];
    const isSecret = secretFields.has(name);
    const kept = isSecret ? undefined : cleaned(value, depth);
    if (kept === value) continue;
    copy ??= { ...fields };
    if (isSecret) delete copy[name];
    else copy[name] = kept;
  }
  return copy ?? fields;
}

function cleaned(value: unknown, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth <= 1 || value instanceof Error) return value;
  if (Array.isArray(value)) return value.map((entry: unknown) => cleaned(entry, depth - 1));
  return Object.getPrototypeOf(value) === Object.prototype
    ? withoutSecrets(value as Record<string, unknown>, depth - 1)
    : value;
}

interface ErrorText {
  readonly type: string;
  readonly message: string;
  readonly code?: string | number;
  readonly stack?: string;
  readonly cause?: ErrorText;
}

function describeError(error: unknown, causesLeft: number): ErrorText | undefined {
  if (error === undefined || error === null) return undefined;
  if (typeof error === 'string') return { type: 'string', message: withoutValues(error) };
  if (!(error instanceof Error)) return { type: typeof error, message: 'not an error' };
  const message = withoutValues(error.message);
  const { code } = error as { code?: unknown };
  const cause = causesLeft > 0 ? describeError(error.cause, causesLeft - 1) : undefined;
  // The stack begins with the message, and goes on with the lines that matter.
  const at = error.stack?.indexOf('\n    at ') ?? -1;
  return {
    type: error.name,
    message,
    ...((typeof code === 'string' || typeof code === 'number') && { code }),
    ...(at >= 0 && { stack: error.stack?.slice(at + 1) ?? '' }),
    ...(cause !== undefined && { cause }),
  };
}

/** Drizzle's errors end in the values of the statement; URLs may hold a password. */
function withoutValues(message: string): string {
  const values = message.indexOf('\nparams:');
  const kept = values === -1 ? message : message.slice(0, values);
  return kept.replaceAll(/(:\/\/[^\s/:@]*):[^\s/@]*@/g, '$1:***@');
}
