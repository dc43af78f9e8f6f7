import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

/**
 * Format of a secret: "<prefix><project>-<random><checksum>". The operator chooses the prefix; `project` is the last 12
 * hexadecimal digits of the project's id; then 26 random base62 characters (154 bits) and 6 for the CRC-32 of
 * everything before. The checksum tells a mistyped key from an unknown one without a lookup; it is no protection.
 */

const alphabet = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** `last4` shows 24 bits of the checksum; the random part has more than 128 bits beyond them. */
const randomLength = 26;
const checksumLength = 6;
const bodyPattern = new RegExp(`[0-9a-f]{12}-[0-9A-Za-z]{${randomLength + checksumLength}}$`);

/** Stored and shown parts of a new secret. */
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

/** @param projectId UUID of the key's project */
export function makeSecret(keyPrefix: string, projectId: string): SecretParts {
  const prefix = keyPrefix + projectId.replaceAll('-', '').slice(-12);
  const unchecked = `${prefix}-${randomText(randomLength)}`;
  const secret = unchecked + checksum(unchecked);
  return { secret, secretHash: hashSecret(secret), prefix, last4: secret.slice(-4) };
}

/** Returns the stored and shown parts of a secret chosen by the operator. */
export function importedParts(secret: string): SecretParts {
  return { secret, secretHash: hashSecret(secret), prefix: secret.slice(0, 4), last4: secret.slice(-4) };
}

/** True if a text has the form of a key created by a gateway, with any prefix. */
export function isWellFormedSecret(text: string): boolean {
  return bodyPattern.test(text) && checksum(text.slice(0, -checksumLength)) === text.slice(-checksumLength);
}

const inTextBodyPattern = new RegExp(`^[0-9a-f]{12}-[0-9A-Za-z]{${randomLength + checksumLength}}$`);
/** Hexadecimal digits of the project before the hyphen. */
const projectLength = 12;
const prefixMax = 64;

/**
 * CRC-32 of each single byte (zlib's reflected polynomial), and its inverse: the byte whose CRC has a given top byte.
 */
const crcOfByte = Uint32Array.from({ length: 256 }, (_, byte) => {
  let rest = byte;
  for (let bit = 0; bit < 8; bit += 1) rest = (rest >>> 1) ^ (rest & 1 ? 0xed_b8_83_20 : 0);
  return rest;
});
const byteOfTop = new Uint8Array(256);
for (const [byte, crc] of crcOfByte.entries()) byteOfTop[crc >>> 24] = byte;

/**
 * True if a text contains a key created by a gateway, with any prefix of up to 64 characters. Strangers write the text,
 * so the work grows only linearly with its length.
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
 * True if the checksum before `end` matches a key whose prefix ends at `bodyStart`, wherever the prefix starts. The CRC
 * is computed backwards from its final state: at the key's first character it must equal the initial state of a CRC.
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
 * Returns the SHA-256 of a secret with one character per byte (Node's "binary" is latin1), as the key of in-memory
 * maps: Node builds the string in a fifth of a buffer's time. A secret has more entropy than guessing can cover, so a
 * slower hash is not needed.
 */
export function digestSecret(secret: string): string {
  return hash('sha256', secret, 'binary');
}

/** Returns the SHA-256 of a secret as bytes, as stored. */
export function hashSecret(secret: string): Buffer {
  return Buffer.from(digestSecret(secret), 'latin1');
}
