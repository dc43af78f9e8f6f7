import { sql } from 'drizzle-orm';
import type { Db, Transaction } from '#base/database/database.ts';
import {
  type Accounts,
  hashPassword,
  type Organization,
  type OrganizationMade,
  type OrganizationPatch,
  readAdminSignIns,
  verifyPassword,
} from '#core/accounts/accounts.ts';
import { type Author, systemAuthor } from '#core/audit/audit.ts';
import type { NewKey } from './create.ts';
import { defaultKeyToggles } from './defaults.ts';
import { isActiveSecret } from './verify.ts';
import type { KeyChanges } from './changes.ts';

export interface OpenedOrganization {
  readonly organization: Organization;
  /** Secret of the management key; shown once and not stored. */
  readonly secret: string;
}

/** Settings of the first start. */
export interface FirstStart {
  /** Email of the first administrator; null uses admin@localhost. */
  readonly email: string | null;
  /** Null creates an administrator who cannot sign in until a password is set. */
  readonly password: string | null;
  /** A secret to import unchanged, at least 32 printable characters; null generates one. */
  readonly key: string | null;
}

export interface BootstrapResult {
  /** True if this call created the first organization. */
  readonly created: boolean;
  /** The generated secret, to be shown once; null if nothing was created or the secret was given. */
  readonly secret: string | null;
  /** Settings that only the first start applies and that differ from what exists; nothing was changed. */
  readonly ignored: readonly (keyof FirstStart)[];
}

/** Opens organizations with their accounts, wallet and keys, in one transaction. */
export interface Organizations {
  /** Opens an organization with an owner, the project `default`, a management key and everything else that joins in. */
  open(name: string, author: Author): Promise<OpenedOrganization>;
  /**
   * Sets up an empty database: opens the first organization, whose owner is a platform administrator. A lock lets only
   * one of several starting gateways do this. Changes nothing if there is an organization.
   */
  bootstrap(start: FirstStart): Promise<BootstrapResult>;
  /**
   * Changes an organization; all gateways apply the change to its keys before this returns. Returns null if there is no
   * such organization.
   * @throws AppError conflict for a closed organization, and for suspending the platform's own organization
   */
  change(organizationId: string, patch: OrganizationPatch, author: Author): Promise<Organization | null>;
  /**
   * Closes an organization permanently and revokes its keys; usage and payments are kept. A second call changes
   * nothing. Returns null if there is no such organization.
   * @throws AppError conflict for the platform's own organization
   */
  close(organizationId: string, author: Author): Promise<Organization | null>;
}

export interface OrganizationsOptions {
  readonly db: Db;
  readonly accounts: Pick<
    Accounts,
    'createOrganizationIn' | 'isEmptyIn' | 'changeOrganizationIn' | 'closeOrganizationIn'
  >;
  readonly keys: Pick<KeyChanges, 'createIn' | 'importIn' | 'revokeAllIn'> & {
    readonly organizationChanged: (organization: Organization) => Promise<void>;
  };
}

/** Returns the settings that differ from those of the existing platform administrators. */
async function findIgnored(db: Db, { email, password, key }: FirstStart): Promise<readonly (keyof FirstStart)[]> {
  const signIns = await readAdminSignIns(db);
  const has = async (kept: string | null): Promise<boolean> =>
    password !== null && kept !== null && verifyPassword(password, kept);
  const passwords = password === null ? [] : await Promise.all(signIns.map(({ passwordHash }) => has(passwordHash)));
  const ignored: readonly [keyof FirstStart, boolean][] = [
    ['email', email !== null && !signIns.some((signIn) => signIn.email.toLowerCase() === email.toLowerCase())],
    ['password', password !== null && !passwords.includes(true)],
    ['key', key !== null && !(await isActiveSecret(db, key))],
  ];
  return ignored.filter(([, isIgnored]) => isIgnored).map(([name]) => name);
}

export function createOrganizations({ db, accounts, keys }: OrganizationsOptions): Organizations {
  async function openFirst(
    tx: Transaction,
    { email, key }: FirstStart,
    passwordHash: string | null,
  ): Promise<string | null> {
    const owner = {
      email: email ?? 'admin@localhost',
      name: 'Admin',
      passwordHash,
      platformRole: 'admin' as const,
    };
    const made = await accounts.createOrganizationIn(tx, { name: 'Default', owner, isFirst: true }, systemAuthor);
    if (key === null) return (await keys.createIn(tx, firstKeyOf(made), systemAuthor)).secret;
    await keys.importIn(tx, key, firstKeyOf(made), systemAuthor);
    return null;
  }

  return {
    open: (name, author) =>
      db.orm.transaction(async (tx) => {
        const made = await accounts.createOrganizationIn(tx, { name, owner: null, isFirst: false }, author);
        const { secret } = await keys.createIn(tx, firstKeyOf(made), author);
        return { organization: made.organization, secret };
      }),
    async bootstrap(start) {
      // Hashing takes tens of milliseconds, so it runs before the lock is taken.
      const passwordHash = start.password === null ? null : await hashPassword(start.password);
      const made = await db.orm.transaction(async (tx) => {
        await tx.execute(sql`select pg_advisory_xact_lock(hashtext('headgate bootstrap'))`);
        if (!(await accounts.isEmptyIn(tx))) return null;
        return { created: true, secret: await openFirst(tx, start, passwordHash), ignored: [] };
      });
      return made ?? { created: false, secret: null, ignored: await findIgnored(db, start) };
    },
    async change(organizationId, patch, author) {
      const changed = await db.orm.transaction((tx) =>
        accounts.changeOrganizationIn(tx, organizationId, patch, author),
      );
      if (changed !== null) await keys.organizationChanged(changed);
      return changed;
    },
    async close(organizationId, author) {
      const closed = await db.orm.transaction(async (tx) => {
        const organization = await accounts.closeOrganizationIn(tx, organizationId, author);
        return organization === null
          ? null
          : { organization, notify: await keys.revokeAllIn(tx, { organizationId, userId: null }, author) };
      });
      if (closed === null) return null;
      await Promise.all([keys.organizationChanged(closed.organization), closed.notify()]);
      return closed.organization;
    },
  };
}

/** Returns the management key that a new organization starts with; it acts for the owner. */
function firstKeyOf({ organization, project, ownerId }: OrganizationMade): NewKey {
  return {
    organizationId: organization.id,
    projectId: project.id,
    userId: ownerId,
    name: 'Management key',
    scope: 'management',
    expires: null,
    limits: {},
    toggles: defaultKeyToggles,
    models: null,
  };
}
