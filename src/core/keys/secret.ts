import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

/**
 * A secret is "<prefix><project>-<random><checksum>": the prefix that operators choose, the last 12 hexadecimal
 * digits of the project's id, 26 random characters of base62 (154 bits) and 6 of the CRC-32 of all before them. The
 * checksum tells a mistyped key from an unknown one without a look-up; it protects nothing.
 */

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** `last4` shows 24 of the checksum's bits; the random part keeps more than 128 beyond them. */
const randomLength = 26;
const checksumLength = 6;
const bodyPattern = new RegExp(`[0-9a-f]{12}-[0-9A-Za-z]{${randomLength + checksumLength}}$`);

/** What is stored and shown of a new secret. */
export interface SecretParts {
  readonly secret: string;
  readonly secretHash: Buffer;
  readonly prefix: string;
  readonly last4: string;
}

function randomText(length: number): string {
  let text = '';
  while (text.length < length) {
    // 248 is the largest multiple of 62 in a byte: above it the first characters would come up more often.
    for (const byte of randomBytes(length * 2)) {
      if (byte < 248 && text.length < length) text += alphabet.charAt(byte % 62);
    }
  }
  return text;
}

function checksum(text: string): string {
  let rest = crc32(text);
  let digits = '';
  for (let index = 0; index < checksumLength; index += 1) {
    digits = alphabet.charAt(rest % 62) + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
}

/** @param projectId the UUID of the project that the key is made in */
export function makeSecret(keyPrefix: string, projectId: string): SecretParts {
  const prefix = keyPrefix + projectId.replaceAll('-', '').slice(-12);
  const unchecked = `${prefix}-${randomText(randomLength)}`;
  const secret = unchecked + checksum(unchecked);
  return { secret, secretHash: hashSecret(secret), prefix, last4: secret.slice(-4) };
}

/** What is stored and shown of a secret that the operator chose. */
export function importedParts(secret: string): SecretParts {
  return { secret, secretHash: hashSecret(secret), prefix: secret.slice(0, 4), last4: secret.slice(-4) };
}

/** Whether a text can be a key that was made here, under whatever prefix. */
export function isWellFormedSecret(text: string): boolean {
  return bodyPattern.test(text) && checksum(text.slice(0, -checksumLength)) === text.slice(-checksumLength);
}

const inTextBodyPattern = new RegExp(`^[0-9a-f]{12}-[0-9A-Za-z]{${randomLength + checksumLength}}$`);
/** The project's digits before the hyphen. */
const projectLength = 12;
const prefixMax = 64;

/** The CRC-32 of one byte each (the reflected polynomial of zlib), and the byte whose CRC has a top byte. */
const crcOfByte = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = (rest >>> 1) ^ (rest & 1 ? 0xed_b8_83_20 : 0);
  return rest;
});
const byteOfTop = new Uint8Array(256);
for (const [byte, crc] of crcOfByte.entries()) byteOfTop[crc >>> 24] = byte;

/**
 * Whether a text has a key in it that was made here, under whatever prefix of up to 64 characters. Strangers write the
 * text: the work grows with its length, and no more.
 */
export function holdsSecret(text: string): boolean {
  for (let hyphen = text.indexOf('-'); hyphen !== -1; hyphen = text.indexOf('-', hyphen + 1)) {
    const start = hyphen - projectLength;
    const end = hyphen + 1 + randomLength + checksumLength;
    if (start < 0 || !inTextBodyPattern.test(text.slice(start, end))) continue;
    if (isChecked(text, start, end)) return true;
  }
  return false;
}

/**
 * Whether the checksum at `end` is that of a key whose prefix ends at `bodyStart`, wherever the prefix begins. The CRC is
 * computed backwards, from its last state: at the key's first character it must be the state that a CRC begins with.
 */
function isChecked(text: string, bodyStart: number, end: number): boolean {
  let sum = 0;
  for (const digit of text.slice(end - checksumLength, end)) sum = sum * 62 + alphabet.indexOf(digit);
  if (sum > 0xff_ff_ff_ff) return false;
  let state = ~sum >>> 0;
  const first = Math.max(0, bodyStart - prefixMax);
  for (let at = end - checksumLength - 1; at >= first; at -= 1) {
    const code = text.charCodeAt(at);
    if (code < 0x21 || code > 0x7e) return false;
    const byte = byteOfTop[state >>> 24] ?? 0;
    state = (((state ^ (crcOfByte[byte] ?? 0)) << 8) | (byte ^ code)) >>> 0;
    if (at <= bodyStart && state === 0xff_ff_ff_ff) return true;
  }
  return false;
}

/**
 * SHA-256, one character a byte (Node's "binary" is latin1), which names a secret in memory: Node makes the string in
 * a fifth of a buffer's time. A secret has more entropy than any guess can cover, so nothing slower is needed.
 */
export function digestSecret(secret: string): string {
  return hash('sha256', secret, 'binary');
}

/** The same as bytes, as it is stored. */
export function hashSecret(secret: string): Buffer {
  return Buffer.from(digestSecret(secret), 'latin1');
}
