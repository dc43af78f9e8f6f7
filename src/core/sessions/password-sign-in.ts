import { createHash } from 'node:crypto';
import { AppError } from '#base/errors.ts';
import { createThrottle, type Throttle, type ThrottleOptions } from '#base/redis/redis.ts';
import { type Accounts, decoyHash, type SignInRecord, verifyPassword } from '#core/accounts/accounts.ts';
import type { SessionOwner } from './session-rows.ts';
import type { Client } from './session.ts';

/**
 * Sign-in by email address and password. Neither the answer nor its duration shows whether the account exists.
 *
 * Guesses are slowed down, never locked out: counts per client network and per account. An account has a separate count
 * for each network with a recently used address, so that a stranger elsewhere who uses up the account's count keeps
 * nobody out. Every count starts again after 15 minutes.
 */

export interface PasswordSignInOptions {
  readonly accounts: { readonly users: Pick<Accounts['users'], 'findSignIn'> };
  /** Returns true if a recent session of the user was started from the address. */
  readonly isKnownAddress: (userId: string, address: string) => Promise<boolean>;
  readonly guesses: Pick<ThrottleOptions, 'store' | 'prefix'>;
}

export interface Guess {
  readonly email: string;
  readonly password: string;
  readonly client: Client;
}

const windowSeconds = 900;
const wrongPerAddress = 30;
const wrongPerAccount = 10;
const nobody = '00000000-0000-0000-0000-000000000000';

/** Counts an attempt. @throws AppError rate_limit_exceeded */
async function count(throttle: Throttle, name: string): Promise<void> {
  const { allowed, resetMs } = await throttle.hit(name);
  if (allowed) return;
  const seconds = Math.max(1, Math.ceil(resetMs / 1000));
  throw new AppError('rate_limit_exceeded', {
    message: `Too many wrong passwords. Try again in about ${Math.ceil(seconds / 60)} min, or reset your password.`,
    headers: { 'retry-after': String(seconds) },
    reason: 'wrong_sign_ins',
  });
}

/** Returns a name of constant length, whatever was typed. */
const nameOf = (email: string): string =>
  createHash('sha256').update(email.normalize('NFKC').toLowerCase()).digest('base64url');

/** @returns the user, with the organizations open to them; null for any wrong input */
export type SignIn = (guess: Guess) => Promise<SignInRecord | null>;

export function createPasswordSignIn({ accounts, isKnownAddress, guesses }: PasswordSignInOptions): SignIn {
  const addresses = createThrottle({ kind: 'sign-in-addresses', limit: wrongPerAddress, windowSeconds, ...guesses });
  const named = createThrottle({ kind: 'sign-in-accounts', limit: wrongPerAccount, windowSeconds, ...guesses });
  return async ({ email, password, client }) => {
    // Counts before any lookup; a correct password gets the count back.
    await count(addresses, client.network);
    const found = await accounts.users.findSignIn(email);
    const isKnown = await isKnownAddress(found?.userId ?? nobody, client.address);
    const name = isKnown ? `${nameOf(email)} ${client.network}` : nameOf(email);
    await count(named, name);
    const isRight = await verifyPassword(password, found?.passwordHash ?? decoyHash, `sign-in ${client.network}`);
    if (!isRight || found === null || found.organizationIds.length === 0) return null;
    await Promise.all([addresses.giveBack(client.network), named.giveBack(name)]);
    return found;
  };
}

/** Returns the organization to enter: that of the last session, or else the one joined first. */
export function organizationFor(
  { userId, organizationIds }: Pick<SignInRecord, 'userId' | 'organizationIds'>,
  lastId: string | null,
): SessionOwner | null {
  const organizationId = organizationIds.find((id) => id === lastId) ?? organizationIds[0];
  return organizationId === undefined ? null : { userId, organizationId };
}
