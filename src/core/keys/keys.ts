import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { type ApiKey, type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import { ChangeWatch } from './change-watch.ts';
import { createKeyChanges } from './changes.ts';
import type { CreatedKey, NewKey, NewUserKey } from './create.ts';
import type { ForeignSecret, ImportedKey } from './import.ts';
import { notifyExpiring, type NotifyExpiring } from './expiring.ts';
import { type HeldBy, selectActiveHash, selectHeldKey } from './internal-keys.ts';
import {
  type ChangeListener,
  createKeyEvents,
  type KeyEvents,
  type OrganizationListener,
  type SecretListener,
  type StopListener,
} from './key-events.ts';
import { type KeyRef, selectKey, selectKeysById } from './key-rows.ts';
import { createLastUse } from './last-use.ts';
import {
  countActiveKeys,
  type KeyListing,
  selectKeyIdsOf,
  selectKeyNames,
  selectKeys,
  selectKeyUsers,
} from './list.ts';
import type { KeyHolder } from './revoke.ts';
import { readRevokedSecrets, type Rotation } from './rotate.ts';
import type { KeyPatch } from './update.ts';
import { createVerifier, type KeyRejection, type Verifier } from './verify.ts';

export { type ApiKey, type KeyLimits, type KeyRecord, type KeyStatus, keyStatus, type KeyToggles } from './api-key.ts';
export type { ExpiringKey } from './expiring.ts';
export type { CreatedKey, KeyExpiry, KeyOwner, NewKey, NewKeyFields } from './create.ts';
export { defaultKeyLimits, defaultKeyToggles } from './defaults.ts';
export type { ForeignSecret, ImportedKey } from './import.ts';
export type { KeyListing } from './list.ts';
export type { KeyPatch } from './update.ts';
export type { KeyRef } from './key-rows.ts';
export type { KeyChange, OrganizationStop, SecretEnd } from './key-events.ts';
export type { KeyRejection } from './verify.ts';
export {
  type BootstrapResult,
  createOrganizations,
  type FirstStart,
  type OpenedOrganization,
  type Organizations,
} from './organizations.ts';
export { createServiceAccountSetup, keyOfAccount, type ServiceAccountSetup } from './service-account-setup.ts';
export { createMembers, type Members } from './members.ts';
export { holdsSecret } from './secret.ts';
export { changesKnownMs, changesPollMs } from './change-watch.ts';
export { recoverPlatformKey, type Recovery } from './recover.ts';
export { type ApiKeyActor, type KeyPrincipal, keyPrincipal } from './principal.ts';

/** Selects every key that ever existed, with its organization. */
export const keyOwnersSql = 'select id, organization_id from api_keys';

/** A key that the gateway itself calls with, for the key's user; nobody has its secret. */
export type HeldKey = Pick<KeyRow, 'id' | 'secretHash'>;

export interface KeyPage {
  readonly keys: readonly KeyRecord[];
  readonly more: boolean;
}

export interface Keys {
  /**
   * Loads the keys without a checksum, which `verify` must know before any lookup. A second call also makes every key
   * be read again at its next use, because PostgreSQL may have been restored to an earlier state.
   */
  start(): Promise<void>;
  /**
   * Returns the key for a secret, or null if no active key has it. Known keys are returned synchronously, and stay
   * valid for `staleMs` while PostgreSQL is unavailable.
   * A revocation reaches listeners of `onRevoked` that are registered when it commits. Code that starts something that
   * must end with the key registers its listener before the next await.
   * @throws AppError database_unavailable while PostgreSQL is unavailable: for unknown keys, and after `staleMs` for
   *   all
   */
  verify(secret: string): ApiKey | null | Promise<ApiKey | null>;
  /** Like `verify`, for a key that the gateway itself calls with. */
  verifyHeld(held: HeldKey): ApiKey | null | Promise<ApiKey | null>;
  /**
   * Returns the active inference key of this user, project and name, and creates it if needed. The key is listed,
   * limited and revoked like any other, but counts for no quota. Its secret is thrown away.
   * @throws AppError conflict
   */
  hold(input: NewUserKey, author: Author): Promise<HeldKey>;
  /** Returns any active key in the form the gateway needs to call on behalf of the key's caller; null if not active. */
  heldOf(ref: KeyRef): Promise<HeldKey | null>;
  /** Like `hold`, but creates nothing: returns null if there is no such key. */
  findHeld(held: HeldBy): Promise<KeyRecord | null>;
  /** Revokes keys created by `hold` that were not used for 30 days. */
  endUnusedHeld(): Promise<void>;
  /**
   * Notifies once per active key that expires within `withinMs` and was created to live longer than that; keys created
   * by `hold` are left out. The transaction that notifies also records the notification.
   */
  notifyExpiring(withinMs: number, notify: NotifyExpiring): Promise<void>;
  /** Returns why `verify` returned null for a secret, for the log; call this right after `verify`. */
  findRejection(secret: string): KeyRejection;
  /** True if the operator or another program made the secret, even if its key is not active; needs no lookup. */
  isImported(secret: string): boolean;
  /** True if there is a key whose secret the operator or another program made. */
  hasImported(): boolean;
  /** Records a use of a key in memory. */
  touch(keyId: string): void;
  /** Writes the recorded uses in one statement. */
  flush(): Promise<void>;
  /**
   * Calls `listener` right after a revocation commits, and again when a poll for changes reads the revocation.
   * @returns a function that removes the listener
   */
  onRevoked(listener: (keyId: string) => void): () => void;
  /**
   * Calls `listener` right after a former secret of an active key is ended permanently; returns a function like
   * `onRevoked`.
   */
  onSecretEnded(listener: SecretListener): () => void;
  /** Calls `listener` after a change or revocation here commits; the request is answered when the listener is done. */
  onChanged(listener: ChangeListener): void;
  /**
   * Applies another gateway's change: `verify` uses the new row, and listeners of `onRevoked` are called if it is
   * revoked.
   */
  refresh(keyId: string): Promise<void>;
  /** Polls PostgreSQL for changes that no notification reported; call every `changesPollMs`. */
  lookForChanges(): Promise<void>;
  /**
   * Returns null if the last poll is at most 2 seconds old. Otherwise the promise resolves after a new poll, or after a
   * quarter of a second. Await this before `verify`: the process may have been frozen while something changed.
   */
  untilFresh(): Promise<void> | null;
  /**
   * Calls `listener` right after an organization is suspended or closed; returns a function that removes the listener.
   */
  onOrganizationStopped(listener: StopListener): () => void;
  /** Calls `listener` after an organization is changed here; the request is answered when the listener is done. */
  onOrganizationChanged(listener: OrganizationListener): void;
  /** Applies a committed change of an organization here, and notifies other gateways. */
  organizationChanged(organization: Organization): Promise<void>;
  /**
   * Applies changes that other gateways made to an organization; without an id, to all organizations with known keys.
   */
  refreshOrganizations(organizationId?: string): Promise<void>;
  /** True if PostgreSQL has the key as revoked or does not have it at all. */
  isRevoked(ref: KeyRef): Promise<boolean>;
  /** @throws AppError key_limit_reached */
  create(input: NewKey, author: Author): Promise<CreatedKey>;
  /** Like `create`, inside a transaction of the caller. */
  createIn(tx: Transaction, input: NewKey, author: Author): Promise<CreatedKey>;
  /** Creates a key with a secret chosen by the operator: printable, at least 32 characters, without a checksum. */
  importIn(tx: Transaction, secret: string, input: NewKey, author: Author): Promise<KeyRecord>;
  /**
   * Creates a key whose secret another program made, without a quota. Call `notify` after the commit.
   * @returns the existing key, with `isNew` false, if a key has or had the secret, in any organization
   */
  importHashIn(tx: Transaction, secret: ForeignSecret, input: NewKey, author: Author): Promise<ImportedKey>;
  list(listing: KeyListing): Promise<KeyPage>;
  /** Counts active keys of users, by the UUID of each organization that has any. */
  countActive(): Promise<ReadonlyMap<string, number>>;
  /** Returns the ids of all keys that a user ever had in an organization, including revoked and expired ones. */
  idsOf(owner: Pick<NewUserKey, 'organizationId' | 'userId'>): Promise<readonly string[]>;
  /**
   * Returns the UUID of each key's user by the key's UUID, including revoked and expired keys, without service
   * accounts.
   */
  usersOf(organizationId: string): Promise<ReadonlyMap<string, string>>;
  /** Returns the name of each key by its UUID, including revoked and expired keys. */
  namesOf(organizationId: string): Promise<ReadonlyMap<string, string>>;
  get(ref: KeyRef): Promise<KeyRecord | null>;
  /** Returns null if there is no such key. */
  patch(ref: KeyRef, patch: KeyPatch, author: Author): Promise<KeyRecord | null>;
  /** Revokes all keys of a holder. Call the returned function after the commit. */
  revokeAllIn(tx: Transaction, holder: KeyHolder, author: Author): Promise<() => Promise<void>>;
  /**
   * Replaces the secret of a key; the old secret stays valid for `graceMs`. Returns null if there is no such key.
   * @throws AppError conflict
   */
  rotate(ref: KeyRef, rotation: Rotation, author: Author): Promise<CreatedKey | null>;
  /** Revokes a key; a second call changes nothing and returns the same. Returns null if there is no such key. */
  revoke(ref: KeyRef, author: Author): Promise<KeyRecord | null>;
  /**
   * Revokes the key of a leaked secret; a leaked former secret only ends itself. True if this call ended the key or
   * secret, false if there was nothing to end.
   * @throws AppError invalid_value if the text is not a key
   */
  report(secret: string, requestId: string | null): Promise<boolean>;
}

export interface KeysOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Pick<
    Accounts,
    | 'lockOrganization'
    | 'isMember'
    | 'readRoles'
    | 'onServiceAccountsEnd'
    | 'readOrganization'
    | 'readOrganizations'
    | 'serviceAccounts'
  >;
  /** Start of new secrets: "sk-hg-". Keys created with another prefix stay valid. */
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  /** Milliseconds that known keys stay valid while PostgreSQL is unavailable; 300,000 if absent. */
  readonly staleMs?: number;
}

const readsMax = 10;

/** Reads and applies rows. Reads again if another change was applied in the meantime, which may be newer. */
export async function takeOver<T>(
  { taken }: Pick<Verifier, 'taken'>,
  read: () => Promise<readonly T[]>,
  learn: (row: T) => void,
): Promise<void> {
  for (let reads = 1; ; reads += 1) {
    const before = taken();
    const rows = await read();
    if (before !== taken() && reads < readsMax) continue;
    for (const row of rows) learn(row);
    return;
  }
}

function pageOf(rows: readonly KeyRow[], { limit }: KeyListing, present: (row: KeyRow) => KeyRecord): KeyPage {
  return { keys: rows.slice(0, limit).map(present), more: rows.length > limit };
}

const isEnded = (row: KeyRow | null): boolean => row === null || row.revokedAt !== null;

interface LearningParts extends Pick<KeysOptions, 'db' | 'accounts'> {
  readonly verifier: Verifier;
  readonly keyEvents: KeyEvents;
}

/** Applies the rows that PostgreSQL has now, and notifies listeners of what has ended. */
function createLearning({ db, accounts, verifier, keyEvents }: LearningParts) {
  const learnOrganization = (organization: Organization): void => {
    verifier.learnOrganization(organization);
    const { id: organizationId, status } = organization;
    if (status !== 'active') keyEvents.notifyStop({ organizationId, status });
  };
  const learnKey = (row: KeyRow): void => {
    verifier.learn(row);
    if (row.revokedAt !== null) keyEvents.notify(row.id);
  };
  return {
    learnOrganization,
    refreshKeys: async (ids: readonly string[]): Promise<void> => {
      await takeOver(verifier, () => selectKeysById(db, ids), learnKey);
      if (ids.length > 0) for (const end of await readRevokedSecrets(db, ids)) keyEvents.notifySecret(end);
    },
    refreshOrganizations: async (ids: readonly string[]): Promise<void> => {
      if (ids.length > 0) await takeOver(verifier, () => accounts.readOrganizations(ids), learnOrganization);
    },
  };
}

/** Creates, verifies, changes and revokes API keys. */
export function createKeys(options: KeysOptions): Keys {
  const { db, clock, accounts } = options;
  const verifier = createVerifier(options);
  const lastUse = createLastUse(options);
  const keyEvents = createKeyEvents(options.log);
  const changes = createKeyChanges({ ...options, verifier, keyEvents });
  accounts.onServiceAccountsEnd((tx, { organizationId, ids, author }) =>
    changes.revokeAllIn(tx, { organizationId, userId: undefined, serviceAccountIds: ids }, author),
  );
  const present = (row: KeyRow): KeyRecord => lastUse.applyTo(toKeyRecord(row));
  const presentFound = (row: KeyRow | null): KeyRecord | null => (row === null ? null : present(row));
  const learning = createLearning({ db, accounts, verifier, keyEvents });
  const { learnOrganization, refreshKeys, refreshOrganizations } = learning;
  const watch = new ChangeWatch({ ...options, refreshKeys, refreshOrganizations });
  return {
    start: verifier.start,
    verify: verifier.verify,
    verifyHeld: ({ secretHash }) => verifier.verifyHeld(secretHash),
    hold: changes.hold,
    heldOf: (ref) => selectActiveHash(db, ref, new Date(clock.now())),
    findHeld: async (held) => presentFound(await selectHeldKey(db.orm, held, new Date(clock.now()))),
    endUnusedHeld: changes.endUnusedHeld,
    notifyExpiring: (withinMs, notify) => notifyExpiring(db, new Date(clock.now()), withinMs, notify),
    findRejection: verifier.findRejection,
    isImported: verifier.isImported,
    hasImported: verifier.hasImported,
    touch: lastUse.touch,
    flush: lastUse.flush,
    onRevoked: keyEvents.listen,
    onSecretEnded: keyEvents.listenSecrets,
    onChanged: keyEvents.onChanged,
    refresh: (keyId) => refreshKeys([keyId]),
    lookForChanges: async () => void (await watch.poll()),
    untilFresh: () => watch.untilFresh(),
    onOrganizationStopped: keyEvents.listenStops,
    onOrganizationChanged: keyEvents.onOrganizationChanged,
    async organizationChanged(organization) {
      learnOrganization(organization);
      // Also if nothing changed: a gateway may have missed the first message.
      await keyEvents.broadcastOrganization(organization.id);
    },
    refreshOrganizations: (named) => refreshOrganizations(named === undefined ? verifier.organizations() : [named]),
    isRevoked: async (ref) => isEnded(await selectKey(db, ref)),
    create: (input, author) => db.orm.transaction((tx) => changes.createIn(tx, input, author)),
    createIn: changes.createIn,
    importIn: changes.importIn,
    importHashIn: changes.importHashIn,
    revokeAllIn: changes.revokeAllIn,
    list: async (listing) => pageOf(await selectKeys(db, listing, new Date(clock.now())), listing, present),
    countActive: () => countActiveKeys(db, new Date(clock.now())),
    idsOf: (owner) => selectKeyIdsOf(db, owner),
    usersOf: (organizationId) => selectKeyUsers(db, organizationId),
    namesOf: (organizationId) => selectKeyNames(db, organizationId),
    get: async (ref) => presentFound(await selectKey(db, ref)),
    patch: async (ref, patch, author) => presentFound(await changes.patch(ref, patch, author)),
    rotate: changes.rotate,
    revoke: async (ref, author) => presentFound(await changes.revoke(ref, author)),
    report: changes.report,
  };
}
