import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import { tellExpiring, type TellExpiring } from './expiring.ts';
import { type HeldBy, selectActiveHash, selectHeldKey } from './held-keys.ts';
import { type ApiKey, type KeyRecord, type KeyRow, toKeyRecord } from './api-key.ts';
import { type CreatedKey, createKeyChanges } from './changes.ts';
import {
  countActiveKeys,
  type KeyHolder,
  type KeyListing,
  type KeyPatch,
  type KeyRef,
  type NewKey,
  type NewUserKey,
  selectKey,
  selectKeyIdsOf,
  selectKeyUsers,
  selectKeysById,
  selectKeys,
} from './key-rows.ts';
import {
  type ChangeListener,
  createKeyEvents,
  type KeyEvents,
  type OrganizationListener,
  type SecretListener,
  type StopListener,
} from './key-events.ts';
import { createLastUse } from './last-use.ts';
import { ChangeWatch } from './change-watch.ts';
import { readRevokedSecrets, type Rotation } from './rotation.ts';
import { createVerifier, type Verifier } from './verifier.ts';

export { type ApiKey, type KeyLimits, type KeyRecord, type KeyStatus, keyStatus, type KeyToggles } from './api-key.ts';
export type { ExpiringKey } from './expiring.ts';
export type { CreatedKey } from './changes.ts';
export { defaultKeyLimits, defaultKeyToggles } from './defaults.ts';
export type { KeyExpiry, KeyListing, KeyOwner, KeyPatch, KeyRef, NewKey, NewKeyFields } from './key-rows.ts';
export type { KeyChange, OrganizationStop, SecretEnd } from './key-events.ts';
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
export { changesKnownMs, changesLookMs } from './change-watch.ts';
export { type Recovery, recoverPlatformKey } from './recovery.ts';
export { keyOwnersSql } from './key-owners.ts';
export { type ApiKeyActor, type KeyPrincipal, keyPrincipal } from './principal.ts';

/** A key that the gateway itself calls with, for the user whom it is of; nobody has its secret. */
export type HeldKey = Pick<KeyRow, 'id' | 'secretHash'>;

export interface KeyPage {
  readonly keys: readonly KeyRecord[];
  readonly more: boolean;
}

export interface Keys {
  /**
   * Loads what `verify` must know before any look-up: the keys that have no checksum. Called again it also has every key
   * read again when it is used next: PostgreSQL's history may have gone back.
   */
  start(): Promise<void>;
  /**
   * The key behind a secret, null when there is none that is active. Answers at once when the key is known. A known
   * key keeps its answer while Postgres is away, for `staleMs`.
   * A revocation reaches listeners of `onRevoked` that are registered when it commits: who starts something that
   * must end with the key registers it before the next await.
   * @throws AppError database_unavailable for a key that is not known yet while Postgres is away, and then for all
   */
  verify(secret: string): ApiKey | null | Promise<ApiKey | null>;
  /** As `verify`, for a key that the gateway holds. */
  verifyHeld(held: HeldKey): ApiKey | null | Promise<ApiKey | null>;
  /**
   * The active inference key of this user, project and name, made where there is none. It is listed, limited and
   * revoked as every other, and counts for no quota. Its secret is thrown away.
   * @throws AppError conflict
   */
  hold(input: NewUserKey, author: Author): Promise<HeldKey>;
  /** A key as the gateway calls with it for whoever called with it; null where it is not active. */
  heldOf(ref: KeyRef): Promise<HeldKey | null>;
  /** The one that is held already; null where there is none. */
  findHeld(held: HeldBy): Promise<KeyRecord | null>;
  /** Revokes those that nobody has used for 30 days. */
  endUnusedHeld(): Promise<void>;
  /**
   * Tells once of each active key whose life ends within so many milliseconds, and was meant to last longer than that;
   * of none that is held. That it was told stands in the transaction that tells it.
   */
  tellExpiring(withinMs: number, tell: TellExpiring): Promise<void>;
  /** After `verify` said null: whether the secret is that of a key all the same, revoked or expired. */
  knows(secret: string): boolean;
  /** Whether a secret is one that an operator chose, active or not; without a look-up. */
  isImported(secret: string): boolean;
  /** Whether there is one that an operator chose. */
  hasImported(): boolean;
  /** Notes a use, in memory. */
  touch(keyId: string): void;
  /** Writes noted uses in one statement. */
  flush(): Promise<void>;
  /** Calls `listener` right after a revocation has committed; returns what takes the listener off. */
  onRevoked(listener: (keyId: string) => void): () => void;
  /** The same for a former secret that was ended for good, while its key lives on. */
  onSecretEnded(listener: SecretListener): () => void;
  /** Calls `listener` after a change or a revocation here has committed; it is answered when the listener is done. */
  onChanged(listener: ChangeListener): void;
  /** Takes over a change that another gateway made: `verify` goes by it, listeners of `onRevoked` are called. */
  refresh(keyId: string): Promise<void>;
  /** Looks in PostgreSQL for changes that nobody told this gateway of; to be called every `changesLookMs`. */
  lookForChanges(): Promise<void>;
  /**
   * Null where such a look was made within 2 seconds; else what ends when there was one, after a quarter of a second
   * at most. To be awaited before `verify`: the process may have been frozen while something changed.
   */
  untilFresh(): Promise<void> | null;
  /** Calls `listener` right after an organization was suspended or closed; returns what takes the listener off. */
  onOrganizationStopped(listener: StopListener): () => void;
  /** Calls `listener` after an organization was changed here; it is answered when the listener is done. */
  onOrganizationChanged(listener: OrganizationListener): void;
  /** Takes over a change of an organization that was committed here, and tells of it. */
  organizationChanged(organization: Organization): Promise<void>;
  /** Takes over changes of organizations that another gateway made; of all whose keys are known when none is named. */
  refreshOrganizations(organizationId?: string): Promise<void>;
  /** As PostgreSQL has it; a key that is not there counts as revoked. */
  isRevoked(ref: KeyRef): Promise<boolean>;
  /** @throws AppError key_limit_reached */
  create(input: NewKey, author: Author): Promise<CreatedKey>;
  /** As `create`, inside a transaction of the caller. */
  createIn(tx: Transaction, input: NewKey, author: Author): Promise<CreatedKey>;
  /** Makes a key of a secret that the operator chose: printable, 32 characters or more, without a checksum. */
  importIn(tx: Transaction, secret: string, input: NewKey, author: Author): Promise<KeyRecord>;
  list(listing: KeyListing): Promise<KeyPage>;
  /** By the UUIDs of all organizations that have some. */
  countActive(): Promise<ReadonlyMap<string, number>>;
  /** Of all keys that a user ever had in an organization, revoked and expired ones too. */
  idsOf(owner: Pick<NewUserKey, 'organizationId' | 'userId'>): Promise<readonly string[]>;
  /** Whom an organization's keys act for, revoked and expired ones too: UUIDs of users by those of keys, without service accounts. */
  usersOf(organizationId: string): Promise<ReadonlyMap<string, string>>;
  get(ref: KeyRef): Promise<KeyRecord | null>;
  /** Null when there is no such key. */
  patch(ref: KeyRef, patch: KeyPatch, author: Author): Promise<KeyRecord | null>;
  /** Ends the life of all keys of a holder; what it returns is to be called once that is committed. */
  revokeAllIn(tx: Transaction, holder: KeyHolder, author: Author): Promise<() => Promise<void>>;
  /**
   * Gives a key another secret; the one that it had works on for `graceMs`. Null when there is no such key.
   * @throws AppError conflict
   */
  rotate(ref: KeyRef, rotation: Rotation, author: Author): Promise<CreatedKey | null>;
  /** Ends a key's life; a second call changes nothing and answers the same. Null when there is no such key. */
  revoke(ref: KeyRef, author: Author): Promise<KeyRecord | null>;
  /**
   * Revokes the key of a leaked secret; of a former secret that one ends alone. True when this call ended its life, false when there was nothing to end.
   * @throws AppError invalid_value when the text is no key at all
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
  /** What secrets begin with: "sk-hg-". Keys made under another prefix stay valid. */
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
  /** How long keys that are known stay valid while Postgres is away; 300,000 when absent. */
  readonly staleMs?: number;
}

const readsMax = 10;

/** Takes over what is read, and reads it again where something else was taken over meanwhile, which may be newer. */
async function takeOver<T>(
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

/** Takes over what PostgreSQL says now, and tells of what has ended. */
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

/** API keys: made, found, changed, ended. */
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
    tellExpiring: (withinMs, tell) => tellExpiring(db, new Date(clock.now()), withinMs, tell),
    knows: verifier.knows,
    isImported: verifier.isImported,
    hasImported: verifier.hasImported,
    touch: lastUse.touch,
    flush: lastUse.flush,
    onRevoked: keyEvents.listen,
    onSecretEnded: keyEvents.listenSecrets,
    onChanged: keyEvents.onChanged,
    refresh: (keyId) => refreshKeys([keyId]),
    lookForChanges: async () => void (await watch.look()),
    untilFresh: () => watch.untilFresh(),
    onOrganizationStopped: keyEvents.listenStops,
    onOrganizationChanged: keyEvents.onOrganizationChanged,
    async organizationChanged(organization) {
      learnOrganization(organization);
      // Also where nothing changed: a gateway may have missed the first message.
      await keyEvents.broadcastOrganization(organization.id);
    },
    refreshOrganizations: (named) => refreshOrganizations(named === undefined ? verifier.organizations() : [named]),
    isRevoked: async (ref) => isEnded(await selectKey(db, ref)),
    create: (input, author) => db.orm.transaction((tx) => changes.createIn(tx, input, author)),
    createIn: changes.createIn,
    importIn: changes.importIn,
    revokeAllIn: changes.revokeAllIn,
    list: async (listing) => pageOf(await selectKeys(db, listing, new Date(clock.now())), listing, present),
    countActive: () => countActiveKeys(db, new Date(clock.now())),
    idsOf: (owner) => selectKeyIdsOf(db, owner),
    usersOf: (organizationId) => selectKeyUsers(db, organizationId),
    get: async (ref) => presentFound(await selectKey(db, ref)),
    patch: async (ref, patch, author) => presentFound(await changes.patch(ref, patch, author)),
    rotate: changes.rotate,
    revoke: async (ref, author) => presentFound(await changes.revoke(ref, author)),
    report: changes.report,
  };
}
