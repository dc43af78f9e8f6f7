import { createHash, createHmac, timingSafeEqual } from 'node:crypto';

/**
 * Returns the token that a session's forms contain, so that no other site can send one. Derived from the session token,
 * which no page and no script can read.
 */
export function formTokenOf(token: string): string {
  return createHmac('sha256', token).update('form').digest('base64url');
}

export function isFormToken(token: string, given: string): boolean {
  const [expected, actual] = [formTokenOf(token), given].map((text) => createHash('sha256').update(text).digest());
  return expected !== undefined && actual !== undefined && timingSafeEqual(expected, actual);
}
