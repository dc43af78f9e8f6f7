import type { Db } from '#base/database/database.ts';
import type { Accounts, ServiceAccount } from '#core/accounts/accounts.ts';
import type { Author } from '#core/audit/audit.ts';
import type { KeyChanges } from './changes.ts';
import { defaultKeyToggles } from './defaults.ts';
import type { CreatedKey, KeyExpiry, NewKey } from './create.ts';

export interface NewServiceAccount {
  readonly organizationId: string;
  readonly projectId: string;
  readonly name: string;
  /** First key, with the account's name and the default limits; null creates none. */
  readonly firstKey: { readonly expires: KeyExpiry | null } | null;
}

export interface MadeServiceAccount {
  readonly account: ServiceAccount;
  readonly key: CreatedKey | null;
}

/** Creates service accounts together with their first key, in one transaction. */
export interface ServiceAccountSetup {
  /**
   * Returns null if there is no such project.
   * @throws AppError conflict for a closed organization, an archived project, a project that has reached its limit of
   *   service accounts, and a name in use
   */
  create(input: NewServiceAccount, author: Author): Promise<MadeServiceAccount | null>;
}

export interface ServiceAccountSetupOptions {
  readonly db: Db;
  readonly accounts: { readonly serviceAccounts: Pick<Accounts['serviceAccounts'], 'createIn'> };
  readonly keys: Pick<KeyChanges, 'createIn'>;
}

/** Returns a new key of a service account with default settings. */
export function keyOfAccount(account: ServiceAccount, name: string, expires: KeyExpiry | null): NewKey {
  return {
    organizationId: account.organizationId,
    projectId: account.projectId,
    userId: null,
    serviceAccountId: account.id,
    name,
    scope: 'inference',
    expires,
    limits: {},
    toggles: defaultKeyToggles,
    models: null,
  };
}

export function createServiceAccountSetup({ db, accounts, keys }: ServiceAccountSetupOptions): ServiceAccountSetup {
  return {
    create: ({ firstKey, ...input }, author) =>
      db.orm.transaction(async (tx) => {
        const account = await accounts.serviceAccounts.createIn(tx, input, author);
        if (account === null) return null;
        if (firstKey === null) return { account, key: null };
        const key = keyOfAccount(account, account.name, firstKey.expires);
        return { account, key: await keys.createIn(tx, key, author) };
      }),
  };
}
