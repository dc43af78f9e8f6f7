import { argon2, type Argon2Parameters, randomBytes, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';

/**
 * Passwords as argon2id, parameters in the text, in the PHC string format
 * (https://github.com/P-H-C/phc-string-format): $argon2id$v=19$m=19456,t=2,p=1$<salt>$<hash>, base64 without padding.
 */

const derive: (algorithm: 'argon2id', parameters: Argon2Parameters) => Promise<Buffer> = promisify(argon2);

/** OWASP's least: 19 MiB, two passes, one lane. */
const current = { memory: 19_456, passes: 2, parallelism: 1 };
const tagBytes = 32;

const phcPattern = /^\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,3})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/;

const encode = (bytes: Buffer): string => bytes.toString('base64').replace(/=+$/, '');

/** The text to keep of a password. */
export async function hashPassword(password: string): Promise<string> {
  const nonce = randomBytes(16);
  const tag = await derive('argon2id', { ...current, message: password, nonce, tagLength: tagBytes });
  const { memory, passes, parallelism } = current;
  return `$argon2id$v=19$m=${memory},t=${passes},p=${parallelism}$${encode(nonce)}$${encode(tag)}`;
}

/** Whether a password is the one behind a kept text; false for a text of another format too. */
export async function verifyPassword(password: string, kept: string): Promise<boolean> {
  const match = phcPattern.exec(kept);
  if (match === null) return false;
  const [, memory = '', passes = '', parallelism = '', salt = '', hash = ''] = match;
  const expected = Buffer.from(hash, 'base64');
  const tag = await derive('argon2id', {
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    message: password,
    nonce: Buffer.from(salt, 'base64'),
    tagLength: expected.length,
  });
  return timingSafeEqual(tag, expected);
}
