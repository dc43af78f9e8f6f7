import { argon2, type Argon2Parameters, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { createRequire } from 'node:module';
import { AppError } from '#base/errors.ts';
import { ConcurrencyLimit, NoSlotError, TooManyWaitError } from '#base/queues/queues.ts';
import { emailKeyOf } from './email.ts';

const require = createRequire(import.meta.url);

interface Language {
  readonly dictionary: { readonly 'passwords-common': readonly string[] };
}

let known: ReadonlySet<string> | null = null;

/** Returns true if a password is among the 49,000 most used ones; loads the list at the first call. */
function isCommonPassword(password: string): boolean {
  known ??= new Set((require('@zxcvbn-ts/language-common') as Language).dictionary['passwords-common']);
  return known.has(password.toLowerCase());
}

/**
 * Password hashes: argon2id with its parameters, in the PHC string format (https://github.com/P-H-C/phc-string-format):
 * $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>, base64 without padding.
 */

const deriveNow: (algorithm: 'argon2id', parameters: Argon2Parameters) => Promise<Buffer> = promisify(argon2);

/**
 * Limits hashing for the whole process, like its thread pool, half of which stays free for files and names: each hash
 * takes 19 MiB and tens of milliseconds of a core. An asker with many hashes waits only for their own.
 */
const hashLimit = new ConcurrencyLimit({
  atOnceMax: 2,
  atOncePerNameMax: 1,
  waitingMax: 64,
  waitingPerNameMax: 16,
  waitMsMax: 10_000,
});

/** @throws AppError overloaded */
async function derive(asker: string, parameters: Argon2Parameters): Promise<Buffer> {
  try {
    return await hashLimit.during(asker, () => deriveNow('argon2id', parameters));
  } catch (error) {
    if (!(error instanceof TooManyWaitError || error instanceof NoSlotError)) throw error;
    throw new AppError('overloaded', { message: 'Too many passwords are being checked. Try again shortly.' });
  }
}

/** OWASP's minimum: 19 MiB, two passes, one lane. */
const current = { memory: 19_456, passes: 2, parallelism: 1 };
const tagBytes = 32;

const phcPattern = /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

const encode = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/, '');

function phcOf(nonce: Buffer, tag: Buffer): string {
  const { memory, passes, parallelism } = current;
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${encode(nonce)}$${encode(tag)}`;
}

/**
 * Hash without a password: accounts without a password are checked against it, so that the check takes as long as any.
 */
export const decoyHash = phcOf(randomBytes(16), randomBytes(tagBytes));

/** Length of a new password in characters; the first start also accepts longer ones. */
export const passwordCharacters = { min: 8, max: 128 } as const;

/**
 * Returns the problem of a new password, to follow the field's name in a message; null if there is none.
 * @param email of the password's user; null if unknown
 */
export function passwordProblem(text: string, email: string | null = null): string | null {
  const { length } = Array.from(text);
  const { min, max } = passwordCharacters;
  if (length < min || length > max) return `must have ${min} to ${max} characters`;
  if (text.includes('\0')) return 'must not contain NUL characters';
  if (!text.isWellFormed()) return 'must be well-formed Unicode';
  if (email !== null && emailKeyOf(text) === emailKeyOf(email)) return 'must not be the email address';
  return isCommonPassword(text) ? 'is a common password: choose another one' : null;
}

/**
 * Returns the text to store for a password.
 * @param asker name for the queue of hashes, such as the id of an organization
 * @throws AppError overloaded
 */
export async function hashPassword(password: string, asker = 'system'): Promise<string> {
  const nonce = randomBytes(16);
  const tag = await derive(asker, { ...current, message: password, nonce, tagLength: tagBytes });
  return phcOf(nonce, tag);
}

/**
 * Returns true if a password matches a stored text; false for a text of another format too.
 * @param asker as for `hashPassword`
 * @throws AppError overloaded
 */
export async function verifyPassword(password: string, kept: string, asker = 'system'): Promise<boolean> {
  const match = phcPattern.exec(kept);
  if (match === null) return false;
  const [, memory = '', passes = '', parallelism = '', salt = '', hash = ''] = match;
  const expected = Buffer.from(hash, 'base64');
  const tag = await derive(asker, {
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    message: password,
    nonce: Buffer.from(salt, 'base64'),
    tagLength: expected.length,
  });
  return timingSafeEqual(tag, expected);
}
