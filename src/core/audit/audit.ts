import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { uuidLowerBound, uuidv7 } from '#base/id.ts';
import { auditLog } from './schema.ts';

export { type AuditedChange, type AuditPage, type AuditFilter, type AuditTrail, createAuditTrail } from './trail.ts';

/** A row of the audit log, identified by the changed object. */
export interface RecentChange {
  readonly id: string;
  readonly targetType: string;
  /** The public id: "key_…". */
  readonly targetId: string;
}

/**
 * Returns changes of existing objects and imported keys, by any actor, oldest first. Reads a range of the primary key.
 * @param targetTypes as the log names them: "api_key"
 * @param sinceMs in the clock of the gateways that wrote the rows, milliseconds since the Unix epoch
 */
export async function readRecentChanges(
  { sql }: Pick<Db, 'sql'>,
  targetTypes: readonly string[],
  sinceMs: number,
): Promise<readonly RecentChange[]> {
  return sql<RecentChange[]>`
    select id::text, target_type as "targetType", target_id as "targetId" from audit_log
    where id >= ${uuidLowerBound(sinceMs)} and target_type in ${sql([...targetTypes])}
      and (before is not null or action = 'api_key.imported')
    order by id`;
}

/** An API key that acts for the user who created it, or for a service account. Ids are UUIDs. */
export interface KeyActor {
  readonly kind: 'key';
  readonly key: { readonly id: string; readonly userId: string | null; readonly serviceAccountId: string | null };
}

/** A signed-in user. */
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

/** The actor of a change, and its request; null outside of requests. */
export interface Author {
  readonly actor: Actor;
  readonly requestId: string | null;
  /**
   * Called with the public id of a created object, in the transaction that creates it; or with the id of the existing
   * object, if a request is answered with an existing one.
   * @throws AppError to roll back the transaction
   */
  readonly created?: (tx: Transaction, targetId: string) => Promise<void>;
}

/** The gateway itself, outside of requests. */
export const systemAuthor: Author = Object.freeze({ actor: Object.freeze({ kind: 'system' }), requestId: null });

/** Returns the user who acts, or for whom a key acts; null for the gateway itself and for service accounts. */
export function userIdOf(actor: Actor): string | null {
  if (actor.kind === 'key') return actor.key.userId;
  return actor.kind === 'user' ? actor.user.id : null;
}

/** Returns the service account whose key acts; null for other actors. */
export function serviceAccountIdOf(actor: Actor): string | null {
  return actor.kind === 'key' ? actor.key.serviceAccountId : null;
}

/** Returns the key that acts; null for other actors. */
export function keyIdOf(actor: Actor): string | null {
  return actor.kind === 'key' ? actor.key.id : null;
}

/** Returns the session of a signed-in user; null for keys and the gateway itself. */
export function sessionIdOf(actor: Actor): string | null {
  return actor.kind === 'user' ? actor.sessionId : null;
}

/** A value of an audit view; undefined values are left out. */
type AuditValue = string | number | boolean | null | undefined | readonly AuditValue[] | AuditView;

/** A record as the audit log shows it: plain JSON, never a secret and never a hash. */
export interface AuditView {
  readonly [field: string]: AuditValue;
}

export interface AuditEntry {
  readonly organizationId: string;
  readonly author: Author;
  /** "<target type>.<past tense>": "api_key.revoked". */
  readonly action: string;
  readonly targetType: string;
  /** The public id: "key_…". */
  readonly targetId: string;
  /** Null if nothing existed before. */
  readonly before: AuditView | null;
  /** Null if nothing is left. */
  readonly after: AuditView | null;
}

export interface Audit {
  /**
   * Writes one row in the transaction of the change: either both happen or neither. Writes none for a change
   * (`….changed`) that leaves the view as it was.
   */
  record(tx: Transaction, entry: AuditEntry): Promise<void>;
}

/** Records who changed what, before and after. The table is append-only. */
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
