import { and, eq } from 'drizzle-orm';
import type { Transaction } from '#base/db.ts';
import { formatId } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { Sealed, Secrets } from '#core/secrets/secrets.ts';
import { alertDeliveries, webhookEndpoints } from './schema.ts';

export type EndpointRow = typeof webhookEndpoints.$inferSelect;

/** Where an organization's events are sent to. Its secret is not among what is shown. */
export interface Endpoint {
  /** A UUID. */
  readonly id: string;
  readonly organizationId: string;
  readonly url: string;
  readonly description: string;
  /** Kinds of alerts; null: all. */
  readonly events: readonly string[] | null;
  readonly enabled: boolean;
  /** Why the gateway has switched it off; null where it has not. */
  readonly disabledReason: 'failing' | 'gone' | null;
  /** Since when nothing arrived; null: what was sent last arrived. */
  readonly failingSinceMs: number | null;
  readonly createdAtMs: number;
  readonly rotatedAtMs: number | null;
  /** Until when the secret before the one of today signs too; null where none does. */
  readonly formerSecretEndsAtMs: number | null;
}

export interface EndpointRef {
  readonly organizationId: string;
  readonly id: string;
}

/** What a change needs: the transaction, the audit, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

export const isEndpoint = ({ organizationId, id }: EndpointRef) =>
  and(eq(webhookEndpoints.id, id), eq(webhookEndpoints.organizationId, organizationId));

const msOf = (moment: Date | null): number | null => moment?.getTime() ?? null;

/** @param nowMs a former secret whose time is over signs nothing */
export function toEndpoint(row: EndpointRow, nowMs: number): Endpoint {
  const { id, organizationId, url, description, events, enabled, disabledReason, formerEndsAt } = row;
  return {
    id,
    organizationId,
    url,
    description,
    events,
    enabled,
    disabledReason,
    failingSinceMs: msOf(row.failingSince),
    createdAtMs: row.createdAt.getTime(),
    rotatedAtMs: msOf(row.rotatedAt),
    formerSecretEndsAtMs: formerEndsAt !== null && formerEndsAt.getTime() > nowMs ? formerEndsAt.getTime() : null,
  };
}

/** Bound to what it is of. */
export const purposeOf = (endpointId: string): string => `webhook ${formatId('wh', endpointId)}`;

/** Scheme and host of an address: what stands behind may be a secret of its receiver. */
export const originOf = (url: string): string => new URL(url).origin;

/** What the audit keeps: of the address its origin alone. */
const auditView = ({ url, description, events, enabled, disabledReason }: EndpointRow): AuditView => ({
  origin: originOf(url),
  description,
  events,
  enabled,
  ...(disabledReason !== null && { disabled_reason: disabledReason }),
});

export async function recordEndpoint(
  { tx, audit }: ChangeContext,
  action: 'created' | 'changed' | 'rotated' | 'deleted' | 'disabled',
  { before, after }: { readonly before: EndpointRow | null; readonly after: EndpointRow | null },
  author: Author,
): Promise<void> {
  const row = after ?? before;
  if (row === null) throw new Error('an endpoint was neither there before nor is there now');
  // Of a URL only the origin is shown: the rest may be a secret.
  const isMoved = before !== null && after !== null && before.url !== after.url;
  await audit.record(tx, {
    organizationId: row.organizationId,
    author,
    action: `webhook.${action}`,
    targetType: 'webhook',
    targetId: formatId('wh', row.id),
    before: before === null ? null : auditView(before),
    after: after === null ? null : { ...auditView(after), ...(isMoved && { url_changed: true }) },
  });
}

/** What waits for an endpoint that was switched off is not sent; it may be sent again by hand. */
export async function giveUpPending({ tx }: Pick<ChangeContext, 'tx'>, endpointId: string): Promise<void> {
  await tx
    .update(alertDeliveries)
    .set({ status: 'failed', nextAttemptAt: null, lastError: 'disabled' })
    .where(and(eq(alertDeliveries.endpointId, endpointId), eq(alertDeliveries.status, 'pending')));
}

/** The secrets that sign at a moment, the one of today first. @throws AppError secrets_unavailable */
export function secretsOf(secrets: Pick<Secrets, 'open'>, row: EndpointRow, nowMs: number): readonly string[] {
  const purpose = purposeOf(row.id);
  const sealed: Sealed[] = [{ keyId: row.secretKeyId, bytes: row.secretSealed }];
  const { formerKeyId, formerSealed, formerEndsAt } = row;
  const isWorking = formerEndsAt !== null && formerEndsAt.getTime() > nowMs;
  if (isWorking && formerKeyId !== null && formerSealed !== null) {
    sealed.push({ keyId: formerKeyId, bytes: formerSealed });
  }
  return sealed.map((one) => secrets.open(purpose, one));
}
