import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Actor, Audit } from '#core/audit/audit.ts';
import type { ApiKey, KeyLimits, KeyScope, KeyStatus, KeyToggles } from './api-key.ts';

export { type ApiKey, type KeyLimits, type KeyScope, type KeyStatus, keyStatus, type KeyToggles } from './api-key.ts';

export interface NewKey {
  readonly organizationId: string;
  /** Of the same organization and not archived; the caller has looked. */
  readonly projectId: string;
  readonly userId: string;
  readonly name: string;
  readonly scope: KeyScope;
  readonly expiresAtMs: number | null;
  readonly limits: KeyLimits;
  readonly toggles: KeyToggles;
}

export type KeyPatch = Partial<KeyLimits & KeyToggles & { readonly name: string }>;

export interface KeyListing {
  readonly organizationId: string;
  readonly limit: number;
  /** Keys made before this one (its UUID); null for the newest. */
  readonly before: string | null;
  readonly status: KeyStatus | null;
}

export interface KeyPage {
  readonly keys: readonly ApiKey[];
  readonly more: boolean;
}

export interface CreatedKey {
  readonly key: ApiKey;
  /** Shown once; it is kept nowhere. */
  readonly secret: string;
}

export interface Keys {
  /** Loads what `verify` must know before any look-up: the keys that have no checksum. */
  start(): Promise<void>;
  /**
   * The key behind a secret, null when there is none that is active. Answers at once when the key is known. A known
   * key keeps its answer while Postgres is away.
   * A revocation reaches listeners of `onRevoked` that are registered when it commits: who starts something that
   * must end with the key registers it before the next await.
   * @throws AppError billing_unavailable for a key that is not known yet while Postgres is away
   */
  verify(secret: string): ApiKey | null | Promise<ApiKey | null>;
  /** Remembers a use, in memory. */
  touch(keyId: string): void;
  /** Writes remembered uses in one statement. */
  flush(): Promise<void>;
  /** Calls `listener` right after a revocation has committed; returns what takes the listener off. */
  onRevoked(listener: (keyId: string) => void): () => void;
  /** @throws AppError key_limit_reached */
  create(input: NewKey, actor: Actor): Promise<CreatedKey>;
  /** As `create`, inside a transaction of the caller. */
  createIn(tx: Transaction, input: NewKey, actor: Actor): Promise<CreatedKey>;
  /** Makes a key of a secret that the operator chose: printable, 32 characters or more, without a checksum. */
  importIn(tx: Transaction, secret: string, input: NewKey, actor: Actor): Promise<ApiKey>;
  list(listing: KeyListing): Promise<KeyPage>;
  get(organizationId: string, keyId: string): Promise<ApiKey | null>;
  patch(organizationId: string, keyId: string, patch: KeyPatch, actor: Actor): Promise<ApiKey | null>;
  /** Ends a key's life; a second call changes nothing and answers the same. Null when there is no such key. */
  revoke(organizationId: string, keyId: string, actor: Actor): Promise<ApiKey | null>;
  /**
   * Revokes the key of a leaked secret. True when this call ended its life, false when there was nothing to end.
   * @throws AppError invalid_value when the text is no key at all
   */
  report(secret: string, requestId: string | null): Promise<boolean>;
}

export interface KeysOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'isPlatformAdmin'>;
  /** What secrets begin with: "sk-hg-". Keys made under another prefix stay valid. */
  readonly keyPrefix: string;
  readonly maxActiveKeys: number;
}
