import { isDeepStrictEqual } from 'node:util';
import type { Transaction } from '#base/db.ts';
import type { Clock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { auditLog } from './schema.ts';

export { readRecentChanges, type RecentChange } from './recent-changes.ts';
export { type AuditedChange, type AuditPage, type AuditFilter, type AuditTrail, createAuditTrail } from './trail.ts';

/** An API key, which acts for the user who made it, or for a service account. Ids are UUIDs. */
export interface KeyActor {
  readonly kind: 'key';
  readonly key: { readonly id: string; readonly userId: string | null; readonly serviceAccountId: string | null };
}

/** A user who is signed in. */
export interface UserActor {
  readonly kind: 'user';
  readonly user: { readonly id: string };
  readonly sessionId: string;
}

/** The gateway itself. */
export interface SystemActor {
  readonly kind: 'system';
}

export type Actor = KeyActor | UserActor | SystemActor;

/** Who makes a change, and in which request; null outside of requests. */
export interface Author {
  readonly actor: Actor;
  readonly requestId: string | null;
  /**
   * Called with the id of what is created, as outsiders name it, in the transaction that creates it; or with the id of
   * what was there already, where a request is answered with that.
   * @throws AppError what undoes the transaction
   */
  readonly created?: (tx: Transaction, targetId: string) => Promise<void>;
}

/** The gateway itself, outside of requests. */
export const systemAuthor: Author = Object.freeze({ actor: Object.freeze({ kind: 'system' }), requestId: null });

/** The user who acts, or for whom a key does; null for the gateway itself, and where a service account acts. */
export function userIdOf(actor: Actor): string | null {
  if (actor.kind === 'key') return actor.key.userId;
  return actor.kind === 'user' ? actor.user.id : null;
}

/** The service account that acts, by a key of it; null where none does. */
export function serviceAccountIdOf(actor: Actor): string | null {
  return actor.kind === 'key' ? actor.key.serviceAccountId : null;
}

/** The key that acts; null where it is none. */
export function keyIdOf(actor: Actor): string | null {
  return actor.kind === 'key' ? actor.key.id : null;
}

/** Of a user who is signed in; null for keys and the gateway itself. */
export function sessionIdOf(actor: Actor): string | null {
  return actor.kind === 'user' ? actor.sessionId : null;
}

/** What is undefined is left out. */
type AuditValue = string | number | boolean | null | undefined | readonly AuditValue[] | AuditView;

/** What is shown of a record: plain JSON, never a secret and never a hash. */
export interface AuditView {
  readonly [field: string]: AuditValue;
}

export interface AuditEntry {
  readonly organizationId: string;
  readonly author: Author;
  /** "<target type>.<past tense>": "api_key.revoked". */
  readonly action: string;
  readonly targetType: string;
  /** The id as outsiders name it: "key_…". */
  readonly targetId: string;
  /** Null where nothing was there before. */
  readonly before: AuditView | null;
  /** Null where nothing is left. */
  readonly after: AuditView | null;
}

export interface Audit {
  /**
   * Writes one row in the transaction of the change: either both happen or neither. A change (`….changed`) after which
   * the view is what it was before has none: it describes nothing.
   */
  record(tx: Transaction, entry: AuditEntry): Promise<void>;
}

/** Who changed what, before and after. The table is append-only. */
export function createAudit({ clock }: { readonly clock: Clock }): Audit {
  return {
    async record(tx, entry) {
      if (entry.action.endsWith('.changed') && isDeepStrictEqual(entry.before, entry.after)) return;
      await tx.insert(auditLog).values({
        id: uuidv7(clock.now()),
        organizationId: entry.organizationId,
        actorUserId: userIdOf(entry.author.actor),
        actorKeyId: keyIdOf(entry.author.actor),
        actorServiceAccountId: serviceAccountIdOf(entry.author.actor),
        action: entry.action,
        targetType: entry.targetType,
        targetId: entry.targetId,
        before: entry.before,
        after: entry.after,
        requestId: entry.author.requestId,
      });
      if (entry.before === null) await entry.author.created?.(tx, entry.targetId);
    },
  };
}
