import { timingSafeEqual } from 'node:crypto';
import { and, eq, gt, inArray, isNotNull, isNull, or, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import {
  BoundedStore,
  ConcurrencyLimit,
  createRefreshingCache,
  type RefreshingCache,
  TooManyWaitError,
} from '#base/queues/queues.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import { type ApiKey, type KeyRecord, type KeyRow, keyStatus, toApiKey, toKeyRecord } from './api-key.ts';
import { keyWithHash } from './key-rows.ts';
import { apiKeys, formerSecrets } from './schema.ts';
import { digestSecret, hashSecret, isWellFormedSecret } from './secret.ts';

/** True if a secret belongs to a key that is neither revoked nor expired, by the database's clock. */
export async function isActiveSecret(db: Db, secret: string): Promise<boolean> {
  const hash = hashSecret(secret);
  const works = and(eq(formerSecrets.secretHash, hash), gt(formerSecrets.endsAt, sql`now()`));
  const former = db.orm.select({ id: formerSecrets.keyId }).from(formerSecrets).where(works);
  const rows = await db.orm
    .select({ id: apiKeys.id })
    .from(apiKeys)
    .where(
      and(
        or(keyWithHash(hash), inArray(apiKeys.id, former)),
        isNull(apiKeys.revokedAt),
        or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, sql`now()`)),
      ),
    );
  return rows.length > 0;
}

/** A key in memory, with the hash that a secret is compared to. */
interface KnownKey {
  readonly key: ApiKey;
  readonly organization: Organization;
  /** SHA-256 of the secret that found the key. */
  readonly secretHash: Buffer;
}

/** Returns a known key after a change of the key or its organization. */
function knownKey({ key, ...known }: KnownKey, change: { record?: KeyRecord; organization?: Organization }): KnownKey {
  const organization = change.organization ?? known.organization;
  return { ...known, organization, key: toApiKey({ ...key, ...change.record }, organization, key) };
}

/** Applies a row, except over a revocation: of two simultaneous changes, the revocation wins. */
function changedKey(known: KnownKey, row: KeyRow): KnownKey {
  if (known.key.revokedAtMs !== null && row.revokedAt === null) return known;
  return knownKey(known, { record: toKeyRecord(row) });
}

function learnRow(cache: RefreshingCache<KnownKey>, row: KeyRow): void {
  const name = nameOf(row.secretHash);
  if (row.rotatedAt === null) {
    cache.update(name, (known) => changedKey(known, row));
    return;
  }
  // The key may also be known by former secrets: only PostgreSQL knows when each of them ends.
  const isOfKey = ({ key }: KnownKey): boolean => key.id === row.id;
  cache.updateWhere(isOfKey, (known) => (nameOf(known.secretHash) === name ? changedKey(known, row) : null));
}

/** Reason that a secret is not accepted, for the log. A former secret of a rotated key has an end of its own. */
export type KeyRejection =
  | 'key_unknown'
  | 'key_expired'
  | 'key_revoked'
  | 'former_secret_expired'
  | 'organization_closed';

export interface Verifier {
  /** Reads the imported keys, which `verify` must know before any lookup, and makes every key be looked up again. */
  readonly start: () => Promise<void>;
  readonly verify: (secret: string) => ApiKey | null | Promise<ApiKey | null>;
  /** Verifies by hash, for keys whose secret is not stored. */
  readonly verifyHeld: (secretHash: Buffer) => ApiKey | null | Promise<ApiKey | null>;
  /** Returns why `verify` returned null for a secret; call this right after `verify`. */
  readonly findRejection: (secret: string) => KeyRejection;
  /** True if the operator or another program made the secret, even if its key is not active; needs no lookup. */
  readonly isImported: (secret: string) => boolean;
  /** True if there is a key whose secret the operator or another program made. */
  readonly hasImported: () => boolean;
  /** True if a text has the form of a key; needs no lookup. */
  readonly isKey: (secret: string) => boolean;
  /** Returns the number of changes applied so far. If it has grown since a read, the read may be outdated. */
  readonly taken: () => number;
  /** Applies a key that was just changed. */
  readonly learn: (row: KeyRow) => void;
  /** Applies an organization that was just changed to all its known keys. */
  readonly learnOrganization: (organization: Organization) => void;
  /** Returns the ids of the organizations whose keys are known. */
  readonly organizations: () => readonly string[];
  /** Accepts a secret without a checksum from now on. */
  readonly allowImported: (secretHash: Buffer) => void;
}

export interface VerifierOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly accounts: Pick<Accounts, 'readRoles' | 'readOrganization'>;
  /** Milliseconds that known keys stay valid while PostgreSQL is unavailable. */
  readonly staleMs?: number;
}

const staleMsDefault = 300_000;

/** Milliseconds after which a lookup fails: a silently lost connection may never answer. */
const lookUpTimeoutMs = 5000;

const cacheEntriesMax = 10_000;

const cacheRefreshAfterMs = 30_000;

/** Bounds on simultaneous lookups: anybody can invent keys, and the database's connections are for real ones. */
const lookUpBounds = { atOncePerNameMax: 3, waitingPerNameMax: 1000 };

/** Converts a stored hash to the string that `digestSecret` returns. */
const nameOf = (secretHash: Buffer): string => secretHash.toString('latin1');

/** Reads a key with one statement after another, so that a lookup uses one connection at a time. */
async function readKnownKey(
  { db, accounts }: Pick<VerifierOptions, 'db' | 'accounts'>,
  name: string,
): Promise<KnownKey | null> {
  const secretHash = Buffer.from(name, 'latin1');
  const found = (await readByHash(db, secretHash)) ?? (await readByFormerHash(db, secretHash));
  if (found === null) return null;
  const { row, secretEndsAtMs } = found;
  const organization = await accounts.readOrganization(row.organizationId);
  if (organization === null) return null;
  const roles = row.userId === null ? null : await accounts.readRoles(row.organizationId, row.userId);
  const platformAdmin = roles?.isPlatformAdmin === true;
  const administers = platformAdmin || roles?.organizationRole === 'owner' || roles?.organizationRole === 'admin';
  const seesAllProjects = row.scope === 'management' || administers;
  const key = toApiKey(toKeyRecord(row), organization, { platformAdmin, seesAllProjects, secretHash, secretEndsAtMs });
  return { key, organization, secretHash };
}

/** Returns the digests of secrets without a checksum. */
async function readImported({ orm }: Db): Promise<Set<string>> {
  const hash = sql<Buffer>`coalesce(${apiKeys.importedHash}, ${apiKeys.secretHash})`;
  const rows = await orm
    .select({ hash })
    .from(apiKeys)
    .where(or(eq(apiKeys.imported, true), isNotNull(apiKeys.importedHash)));
  return new Set(rows.map((row) => nameOf(row.hash)));
}

const isAny = (): boolean => true;

interface FoundKey {
  readonly row: KeyRow;
  readonly secretEndsAtMs: number | null;
}

async function readByHash(db: Db, secretHash: Buffer): Promise<FoundKey | null> {
  const [row] = await db.orm.select().from(apiKeys).where(eq(apiKeys.secretHash, secretHash));
  return row === undefined ? null : { row, secretEndsAtMs: null };
}

/** Runs after `readByHash`: a key that is rotated between the two reads is found here. */
async function readByFormerHash(db: Db, secretHash: Buffer): Promise<FoundKey | null> {
  const [found] = await db.orm
    .select({ row: apiKeys, endsAt: formerSecrets.endsAt })
    .from(formerSecrets)
    .innerJoin(apiKeys, eq(apiKeys.id, formerSecrets.keyId))
    .where(eq(formerSecrets.secretHash, secretHash));
  return found === undefined ? null : { row: found.row, secretEndsAtMs: found.endsAt.getTime() };
}

/** Returns why a key is not accepted; null if it is. A key whose full hash differs is unknown. */
function rejectionOf(known: KnownKey | null, name: string, nowMs: number): KeyRejection | null {
  if (known === null || !timingSafeEqual(known.secretHash, Buffer.from(name, 'latin1'))) return 'key_unknown';
  const { secretEndsAtMs } = known.key;
  if (secretEndsAtMs !== null && secretEndsAtMs <= nowMs) return 'former_secret_expired';
  const status = keyStatus(known.key, nowMs);
  if (status !== 'active') return status === 'expired' ? 'key_expired' : 'key_revoked';
  return known.key.organizationStatus === 'closed' ? 'organization_closed' : null;
}

/** Hides the secret hash, so that rotating the user's secret does not end keys the gateway uses itself. */
const heldKey = (key: ApiKey | null): ApiKey | null => (key === null ? null : { ...key, secretHash: null });

/** Returns the bounded lookup of a key by the name of its hash. @throws AppError overloaded, database_unavailable */
function createLookUp(parts: Pick<VerifierOptions, 'db' | 'accounts'>): (name: string) => Promise<KnownKey | null> {
  const lookUpLimit = new ConcurrencyLimit(lookUpBounds);
  const store = new BoundedStore();
  return async (name) => {
    try {
      return await lookUpLimit.during('keys', () =>
        store.ask('a key', lookUpTimeoutMs, () => readKnownKey(parts, name)),
      );
    } catch (error) {
      if (error instanceof TooManyWaitError) throw new AppError('overloaded');
      // A failed lookup says nothing about the key.
      throw new AppError('database_unavailable', { cause: error });
    }
  };
}

/** Finds the key for a secret, on the hot path of every request. */
export function createVerifier({ db, clock, log, accounts, staleMs = staleMsDefault }: VerifierOptions): Verifier {
  const imported = new Set<string>();
  let taken = 0;

  const load = createLookUp({ db, accounts });
  const cache = createRefreshingCache<KnownKey>({
    clock,
    entriesMax: cacheEntriesMax,
    refreshAfterMs: cacheRefreshAfterMs,
    load,
    staleMs,
    isUnavailable: (error) => !(error instanceof AppError && error.code === 'overloaded'),
    onRefreshFailed: (error) =>
      log.warn(
        { err: error },
        'an API key could not be read from PostgreSQL; its cached version stays in use for HEADGATE_AUTH_STALE_SECONDS',
      ),
  });
  const check = (known: KnownKey | null, name: string): ApiKey | null =>
    known !== null && rejectionOf(known, name, clock.now()) === null ? known.key : null;
  const byName = (name: string): ApiKey | null | Promise<ApiKey | null> => {
    const known = cache.get(name);
    if (!(known instanceof Promise)) return check(known, name);
    return known.then((found) => check(found, name));
  };
  return {
    async start() {
      const read = await readImported(db);
      // Keys that were imported during the query stay: an additional entry only costs a lookup.
      for (const name of read) imported.add(name);
      taken += 1;
      cache.updateWhere(isAny, () => null);
    },
    verify(secret) {
      const name = digestSecret(secret);
      if (cache.peek(name) === null && !imported.has(name) && !isWellFormedSecret(secret)) return null;
      return byName(name);
    },
    verifyHeld(secretHash) {
      const key = byName(nameOf(secretHash));
      return key instanceof Promise ? key.then(heldKey) : heldKey(key);
    },
    findRejection(secret) {
      const name = digestSecret(secret);
      return rejectionOf(cache.peek(name), name, clock.now()) ?? 'key_unknown';
    },
    isImported: (secret) => imported.has(digestSecret(secret)),
    hasImported: () => imported.size > 0,
    isKey: (secret) => imported.has(digestSecret(secret)) || isWellFormedSecret(secret),
    taken: () => taken,
    learn(row) {
      taken += 1;
      if (row.importedHash !== null) imported.add(nameOf(row.importedHash));
      learnRow(cache, row);
    },
    learnOrganization(organization) {
      taken += 1;
      cache.updateWhere(
        ({ key }) => key.organizationId === organization.id,
        // A closed organization stays closed: of two simultaneous changes, the closing one wins.
        (known) => (known.organization.status === 'closed' ? known : knownKey(known, { organization })),
      );
    },
    organizations: () => [...new Set(cache.values().map(({ key }) => key.organizationId))],
    allowImported(secretHash) {
      imported.add(nameOf(secretHash));
    },
  };
}
