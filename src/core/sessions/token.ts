import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** Tokens are 256 random bits in base64url. What is kept of one is its SHA-256: it is too long to be guessed from that. */

const tokenPattern = /^[A-Za-z0-9_-]{43}$/;

export function makeToken(): string {
  return randomBytes(32).toString('base64url');
}

export function hashToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** Of what somebody says is a token; null for what cannot be one. */
export function hashGiven(text: string): Buffer | null {
  return tokenPattern.test(text) ? hashToken(text) : null;
}

/**
 * What a form of a session carries, so that no other site can send one: derived from the token, which no page and no
 * script can read.
 */
export function formTokenOf(token: string): string {
  return createHmac('sha256', token).update('form').digest('base64url');
}

export function isFormToken(token: string, given: string): boolean {
  const [expected, actual] = [formTokenOf(token), given].map((text) => createHash('sha256').update(text).digest());
  return expected !== undefined && actual !== undefined && timingSafeEqual(expected, actual);
}
