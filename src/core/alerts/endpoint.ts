import { and, eq } from 'drizzle-orm';
import type { Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { Sealed, Secrets } from '#core/secrets/secrets.ts';
import { alertDeliveries, webhookEndpoints } from './schema.ts';

export type EndpointRow = typeof webhookEndpoints.$inferSelect;

/** A webhook endpoint of an organization, without its secret. */
export interface Endpoint {
  /** UUID of the endpoint. */
  readonly id: string;
  readonly organizationId: string;
  readonly url: string;
  readonly description: string;
  /** Kinds of alerts to send; null: all. */
  readonly events: readonly string[] | null;
  readonly enabled: boolean;
  /** Reason why the gateway disabled the endpoint; null if it did not. */
  readonly disabledReason: 'failing' | 'gone' | null;
  /** Time since which nothing was delivered; null if the last attempt succeeded. */
  readonly failingSinceMs: number | null;
  readonly createdAtMs: number;
  readonly rotatedAtMs: number | null;
  /** Time until which the previous secret signs too; null if it no longer does. */
  readonly formerSecretEndsAtMs: number | null;
}

export interface EndpointRef {
  readonly organizationId: string;
  readonly id: string;
}

/** Context of a change: the transaction, the audit log, and one time for all its rows. */
export interface ChangeContext {
  readonly tx: Transaction;
  readonly audit: Audit;
  readonly now: Date;
}

export const isEndpoint = ({ organizationId, id }: EndpointRef) =>
  and(eq(webhookEndpoints.id, id), eq(webhookEndpoints.organizationId, organizationId));

const msOf = (moment: Date | null): number | null => moment?.getTime() ?? null;

/** @param nowMs current time: an expired former secret is not shown */
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

/** Returns the purpose that binds an encrypted secret to its endpoint. */
export const purposeOf = (endpointId: string): string => `webhook ${formatId('wh', endpointId)}`;

/** Returns scheme and host of an address: the rest may be a secret of the receiver. */
export const originOf = (url: string): string => new URL(url).origin;

/** Returns the fields that the audit log stores: of the address only its origin. */
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
  if (row === null) throw new Error('an endpoint exists neither before nor after the change');
  // Only the origin of a URL is recorded, so a changed URL gets a flag: the rest may be a secret.
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

/** Fails all pending deliveries of a disabled endpoint; users can replay them. */
export async function giveUpPending({ tx }: Pick<ChangeContext, 'tx'>, endpointId: string): Promise<void> {
  await tx
    .update(alertDeliveries)
    .set({ status: 'failed', nextAttemptAt: null, lastError: 'disabled' })
    .where(and(eq(alertDeliveries.endpointId, endpointId), eq(alertDeliveries.status, 'pending')));
}

/** Returns the secrets that sign at a time, the current one first. @throws AppError secrets_unavailable */
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
