import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/db.ts';
import { type Accounts, hashPassword } from '#core/accounts/accounts.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { firstKeyOf, type Keys, type NewKey } from '#core/keys/keys.ts';
import type { Wallet } from '#core/wallet/wallet.ts';

export interface BootstrapParts {
  readonly db: Pick<Db, 'orm'>;
  readonly accounts: Accounts;
  readonly keys: Keys;
  readonly wallet: Pick<Wallet, 'open' | 'creditIn'>;
}

export interface BootstrapSettings {
  /** Null makes admin@localhost. */
  readonly email: string | null;
  /** Null makes an admin who cannot sign in until a password is set. */
  readonly password: string | null;
  /** A secret to take as it is, 32 printable characters or more; null makes one. */
  readonly key: string | null;
  readonly creditPicoUsd: bigint;
}

export interface BootstrapResult {
  /** Whether this call made the first organization. */
  readonly created: boolean;
  /** The secret that was made, to be shown once; null when nothing was made or the secret was given. */
  readonly secret: string | null;
}

/** The books' own name for the credit of the first start: it cannot be booked twice. */
const creditReference = 'bootstrap';

/**
 * Sets an empty database up: an organization with a project, a wallet with credit, an admin and one management key.
 * One transaction makes everything or nothing; where several gateways start at once a lock lets one of them do it.
 */
export async function runBootstrap(parts: BootstrapParts, settings: BootstrapSettings): Promise<BootstrapResult> {
  // Hashing takes tens of milliseconds: not under the lock.
  const passwordHash = settings.password === null ? null : await hashPassword(settings.password);
  return parts.db.orm.transaction(async (tx) => {
    await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate bootstrap'))`);
    if (!(await parts.accounts.isEmptyIn(tx))) return { created: false, secret: null };
    const owner = {
      email: settings.email ?? 'admin@localhost',
      name: 'Admin',
      passwordHash,
      platformRole: 'admin' as const,
    };
    const made = await parts.accounts.createOrganizationIn(tx, { name: 'Default', owner }, systemAuthor);
    await openWallet(tx, parts.wallet, made.organization.id, settings.creditPicoUsd);
    return { created: true, secret: await makeKey(tx, parts.keys, firstKeyOf(made), settings.key) };
  });
}

async function openWallet(
  tx: Transaction,
  wallet: BootstrapParts['wallet'],
  organizationId: string,
  creditPicoUsd: bigint,
): Promise<void> {
  await wallet.open(tx, organizationId);
  if (creditPicoUsd === 0n) return;
  const booked = await wallet.creditIn(tx, {
    organizationId,
    amountPicoUsd: creditPicoUsd,
    reference: creditReference,
    note: 'Credit of the first start',
    author: systemAuthor,
  });
  if (booked.kind !== 'created') throw new Error(`the first credit was not booked: ${booked.kind}`);
}

async function makeKey(tx: Transaction, keys: Keys, input: NewKey, given: string | null): Promise<string | null> {
  if (given === null) return (await keys.createIn(tx, input, systemAuthor)).secret;
  await keys.importIn(tx, given, input, systemAuthor);
  return null;
}
