import { isIP } from 'node:net';
import { z } from 'zod';
import { ConfigError } from '#base/config-error.ts';
import { nearest } from '#base/edit-distance.ts';

/** Types of environment variables, and the reader of a set of variables. */

export type Environment = Readonly<Record<string, string | undefined>>;

export const whole = (min: number, max: number, fallback: number) =>
  z
    .string()
    .regex(/^\d{1,15}$/, 'must be a whole number')
    .transform(Number)
    .refine((value) => value >= min && value <= max, `must be between ${min} and ${max}`)
    .default(fallback);

export const optionalWhole = (min: number, max: number) => whole(min, max, 0).unwrap().optional();

export const text = z.string().refine((value) => !value.includes('\0'), 'must not contain a NUL character');

export const logLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent']).default('info');

/** Values separated by commas; empty values are dropped. */
export const list = z
  .string()
  .transform((value) => value.split(',').map((part) => part.trim()))
  .transform((parts) => parts.filter((part) => part !== ''));

export function urlOf(protocols: readonly string[], example: string) {
  return text.refine((value) => {
    const url = URL.parse(value);
    return url !== null && protocols.includes(url.protocol) && url.hostname !== '';
  }, `must be a URL such as ${example}`);
}

export const databaseUrl = text
  .refine((value) => {
    const url = URL.parse(value);
    if (url === null || !['postgres:', 'postgresql:'].includes(url.protocol)) return false;
    return url.hostname !== '' || url.searchParams.has('host');
  }, 'must be a URL such as postgres://user:password@host:5432/database')
  // Random passwords often contain "%".
  .refine(isDecodable, 'contains an invalid "%"; write it as "%25" in a URL');

export const networks = list.refine(
  (values) => values.every(isNetwork),
  'must be addresses or networks such as 10.0.0.0/8, separated by commas',
);

/** Keys of 32 bytes in base64, the newest first. */
export const platformKeys = list
  .refine(
    (parts) => parts.length > 0 && parts.every((part) => /^[A-Za-z0-9+/_-]{43}=?$/.test(part)),
    'must be keys of 32 bytes in base64, the newest first, separated by commas; create one with: openssl rand -base64 32',
  )
  .transform((parts) => parts.map((part) => Buffer.from(part, 'base64')));

export const backupPassphrase = text.min(20, 'must have 20 characters or more; create one with: openssl rand -hex 24');

/** Origins as browsers send them; `*` is any. */
export const origins = list.refine(
  (values) => values.every((value) => value === '*' || isOrigin(value)),
  'must be origins such as https://app.example.org, without a path, separated by commas, or "*"',
);

function isOrigin(value: string): boolean {
  const url = URL.parse(value);
  return url !== null && ['http:', 'https:'].includes(url.protocol) && url.origin === value;
}

/** Host names in any case, without ports. */
export const hostNames = list
  .transform((names) => names.map((name) => name.toLowerCase()))
  .refine(
    (names) => names.every((name) => /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/.test(name)),
    'must be host names without ports, separated by commas',
  );

function isDecodable(value: string): boolean {
  try {
    decodeURIComponent(value);
    return true;
  } catch {
    return false;
  }
}

function isNetwork(value: string): boolean {
  const [address = '', bits, ...more] = value.split('/');
  const family = isIP(address);
  if (family === 0 || more.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}

/** Variable that the system sets: never a suggestion for a misspelled name. */
const systemsOwn = 'HOME';

/** Suggests the setting that was meant. Settings whose names are common to many programs have no prefix. */
function hint(unknown: string, known: ReadonlySet<string>): string {
  const bare = (name: string): string => name.replace(/^HEADGATE_/, '');
  const names = new Map([...known].filter((name) => name !== systemsOwn).map((name) => [bare(name), name]));
  const meant = names.get(nearest(bare(unknown), [...names.keys()]) ?? '');
  if (meant === undefined) return '';
  return meant === bare(unknown) ? `; use ${meant} (without the prefix)` : `; the closest setting is ${meant}`;
}

/**
 * Reads variables; empty variables count as not set.
 *
 * @param known variables of all programs: any other name that begins with HEADGATE_ is a mistake
 * @throws ConfigError for the first variable that is wrong
 */
export function readVariables<Shape extends z.ZodRawShape>(
  shape: Shape,
  environment: Environment,
  known: ReadonlySet<string>,
): z.output<z.ZodObject<Shape>> {
  const given = Object.fromEntries(
    Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''),
  );
  const unknown = Object.keys(given).find((name) => name.startsWith('HEADGATE_') && !known.has(name));
  if (unknown !== undefined) throw new ConfigError(`${unknown}: unknown setting${hint(unknown, known)}.`);
  const parsed = z.object(shape).safeParse(given);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new ConfigError(`${String(issue?.path[0] ?? 'The environment')}: ${issue?.message ?? 'is not valid'}.`);
}
