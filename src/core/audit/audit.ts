import type { Transaction } from '#base/db.ts';
import type { Clock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { auditLog } from './schema.ts';

/** Who makes a change, and in which request; all null for the gateway itself. */
export interface Actor {
  readonly userId: string | null;
  readonly keyId: string | null;
  readonly requestId: string | null;
}

/** The gateway itself, when it sets itself up. */
export const gatewayActor: Actor = Object.freeze({ userId: null, keyId: null, requestId: null });

/** What is shown of a record: plain JSON, never a secret and never a hash. */
export type AuditView = Readonly<Record<string, string | number | boolean | null>>;

export interface AuditEntry {
  readonly organizationId: string;
  readonly actor: Actor;
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
  /** Writes one row in the transaction of the change: either both happen or neither. */
  record(tx: Transaction, entry: AuditEntry): Promise<void>;
}

/** Who changed what, before and after. The table is append-only. */
export function createAudit({ clock }: { readonly clock: Clock }): Audit {
  return {
    async record(tx, entry) {
      await tx.insert(auditLog).values({
        id: uuidv7(clock.now()),
        organizationId: entry.organizationId,
        actorUserId: entry.actor.userId,
        actorKeyId: entry.actor.keyId,
        action: entry.action,
        targetType: entry.targetType,
        targetId: entry.targetId,
        before: entry.before,
        after: entry.after,
        requestId: entry.actor.requestId,
      });
    },
  };
}
