import { and, desc, eq, gte, lt, type SQL } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import { uuidLowerBound, uuidTimeMs } from '#base/id.ts';
import { auditLog } from './schema.ts';

/** A recorded change. Ids are UUIDs, except the target's, which is the public id. */
export interface AuditedChange {
  readonly id: string;
  readonly organizationId: string;
  readonly atMs: number;
  readonly action: string;
  readonly targetType: string;
  readonly targetId: string;
  /** The user who acted, or for whom a key acted; null for the gateway itself. */
  readonly userId: string | null;
  /** The key that acted; null for other actors. */
  readonly keyId: string | null;
  /** The service account for which the key acted; null for users. */
  readonly serviceAccountId: string | null;
  /** JSON objects; null if nothing existed before, or nothing is left. */
  readonly before: unknown;
  readonly after: unknown;
  readonly requestId: string | null;
}

type ActorFilter = { readonly userId: string } | { readonly keyId: string } | { readonly serviceAccountId: string };

export interface AuditFilter {
  /** Null in these fields selects all. */
  readonly organizationId: string | null;
  readonly action: string | null;
  readonly targetId: string | null;
  /** A user or a service account, with all keys that act for them, or a single key; UUIDs. */
  readonly actor: ActorFilter | null;
  /** Milliseconds since the Unix epoch, inclusive; `toMs` is exclusive. */
  readonly fromMs: number | null;
  readonly toMs: number | null;
  /** Returns only changes older than the entry with this id; null for the newest. */
  readonly before: string | null;
  readonly limit: number;
}

export interface AuditPage {
  readonly changes: readonly AuditedChange[];
  readonly more: boolean;
}

/** Reads the recorded changes. */
export interface AuditTrail {
  /** Returns changes, newest first. */
  list(filter: AuditFilter): Promise<AuditPage>;
}

function byActor(actor: ActorFilter): SQL {
  if ('serviceAccountId' in actor) return eq(auditLog.actorServiceAccountId, actor.serviceAccountId);
  return 'userId' in actor ? eq(auditLog.actorUserId, actor.userId) : eq(auditLog.actorKeyId, actor.keyId);
}

function conditionsOf(filter: AuditFilter): SQL | undefined {
  const { organizationId, action, targetId, actor, fromMs, toMs, before } = filter;
  return and(
    organizationId === null ? undefined : eq(auditLog.organizationId, organizationId),
    action === null ? undefined : eq(auditLog.action, action),
    targetId === null ? undefined : eq(auditLog.targetId, targetId),
    actor === null ? undefined : byActor(actor),
    fromMs === null ? undefined : gte(auditLog.id, uuidLowerBound(fromMs)),
    toMs === null ? undefined : lt(auditLog.id, uuidLowerBound(toMs)),
    before === null ? undefined : lt(auditLog.id, before),
  );
}

function toChange(row: typeof auditLog.$inferSelect): AuditedChange {
  const { actorUserId, actorKeyId, actorServiceAccountId, ...noted } = row;
  const by = { userId: actorUserId, keyId: actorKeyId, serviceAccountId: actorServiceAccountId };
  return { ...noted, atMs: uuidTimeMs(row.id), ...by };
}

export function createAuditTrail({ db }: { readonly db: Db }): AuditTrail {
  return {
    async list(filter) {
      const rows = await db.orm
        .select()
        .from(auditLog)
        .where(conditionsOf(filter))
        .orderBy(desc(auditLog.id))
        .limit(filter.limit + 1);
      return { changes: rows.slice(0, filter.limit).map(toChange), more: rows.length > filter.limit };
    },
  };
}
