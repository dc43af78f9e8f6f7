import { createHash, randomBytes } from 'node:crypto';

/** Tokens are 256 random bits in base64url. Only their SHA-256 is stored, from which they are too long to guess. */

const tokenPattern = /^[A-Za-z0-9_-]{43}$/;

export function makeToken(): string {
  return randomBytes(32).toString('base64url');
}

export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** Hashes a text that a caller presents as a token; null if the text cannot be a token. */
export function hashGiven(text: string): Buffer | null {
  return tokenPattern.test(text) ? hashToken(text) : null;
}
