import { formatId } from '#base/id.ts';
import type { Organization, OrganizationStatus, Scope } from '#core/accounts/accounts.ts';
import type { AuditView } from '#core/audit/audit.ts';
import type { apiKeys } from './schema.ts';

export type KeyStatus = 'active' | 'revoked' | 'expired';

/** What the holder may use per minute, at once and per month; null is unlimited, numbers are 1 or more. */
export interface KeyLimits {
  readonly requestsPerMinute: number | null;
  readonly maxConcurrency: number | null;
  readonly tokensPerMinute: number | null;
  readonly monthlyTokenLimit: number | null;
}

export interface KeyToggles {
  readonly storeRequests: boolean;
  readonly cacheResponses: boolean;
  /** Whether it is used for its own project only; null: while that project has a hard budget. */
  readonly confined: boolean | null;
}

/** A key as it is kept; the secret and its hash are not part of it. Ids are UUIDs. */
export interface KeyRecord extends KeyLimits, KeyToggles {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  /** Who made it and whom it acts for; null for a key of a service account. */
  readonly userId: string | null;
  /** The service account that it acts for; null for a key of a user. */
  readonly serviceAccountId: string | null;
  readonly name: string;
  readonly prefix: string;
  readonly last4: string;
  readonly scope: Scope;
  /** The gateway calls with it for its user, and nobody has its secret. */
  readonly held: boolean;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly lastUsedAtMs: number | null;
  readonly revokedAtMs: number | null;
  /** When it got the secret that it has; null where that is its first. */
  readonly rotatedAtMs: number | null;
  /** When the last of its former secrets ends; null where it has none. */
  readonly formerSecretsEndAtMs: number | null;
  /** Ids of models; null: all of its organization. */
  readonly models: readonly string[] | null;
}

/** A key that somebody calls with, and what its organization says of it. */
export interface ApiKey extends KeyRecord {
  /** Whether the key's user administers the platform; true says nothing about the key's scope. */
  readonly platformAdmin: boolean;
  /** Whether the person that it acts for sees all projects of the organization, and not only those that are public. */
  readonly seesAllProjects: boolean;
  readonly organizationStatus: OrganizationStatus;
  /** Ids of the models that it may use: its own and its organization's list allow them. Null: all. */
  readonly usableModels: ReadonlySet<string> | null;
  /** By which of its secrets it was called: their SHA-256. Null where the gateway calls with it by itself. */
  readonly secretHash: Buffer | null;
}

/** Both lists hold: null is a list of all. */
function usableModels(
  own: readonly string[] | null,
  organizations: readonly string[] | null,
): ReadonlySet<string> | null {
  if (own === null || organizations === null) {
    const list = own ?? organizations;
    return list === null ? null : new Set(list);
  }
  return new Set(own.filter((id) => organizations.includes(id)));
}

export function toApiKey(
  record: KeyRecord,
  organization: Organization,
  { platformAdmin, seesAllProjects, secretHash }: Pick<ApiKey, 'platformAdmin' | 'seesAllProjects' | 'secretHash'>,
): ApiKey {
  return {
    ...record,
    platformAdmin,
    seesAllProjects,
    secretHash,
    organizationStatus: organization.status,
    usableModels: usableModels(record.models, organization.models),
  };
}

export type KeyRow = typeof apiKeys.$inferSelect;

const momentMs = (moment: Date | null): number | null => (moment === null ? null : moment.getTime());

export function toKeyRecord(row: KeyRow): KeyRecord {
  return {
    id: row.id,
    organizationId: row.organizationId,
    projectId: row.projectId,
    userId: row.userId,
    serviceAccountId: row.serviceAccountId,
    name: row.name,
    prefix: row.prefix,
    last4: row.last4,
    scope: row.scope,
    held: row.held,
    createdAtMs: row.createdAt.getTime(),
    expiresAtMs: momentMs(row.expiresAt),
    lastUsedAtMs: momentMs(row.lastUsedAt),
    revokedAtMs: momentMs(row.revokedAt),
    rotatedAtMs: momentMs(row.rotatedAt),
    formerSecretsEndAtMs: momentMs(row.formerSecretsEndAt),
    requestsPerMinute: row.requestsPerMinute,
    maxConcurrency: row.maxConcurrency,
    tokensPerMinute: row.tokensPerMinute,
    monthlyTokenLimit: row.monthlyTokenLimit,
    storeRequests: row.storeRequests,
    cacheResponses: row.cacheResponses,
    confined: row.confined,
    models: row.models,
  };
}

/** @param nowMs milliseconds since the Unix epoch; a key that was revoked stays "revoked" past its expiry */
export function keyStatus(key: Pick<KeyRecord, 'expiresAtMs' | 'revokedAtMs'>, nowMs: number): KeyStatus {
  if (key.revokedAtMs !== null) return 'revoked';
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? 'expired' : 'active';
}

/** What the audit keeps of a key. */
export function keyAuditView(row: KeyRow): AuditView {
  return {
    name: row.name,
    prefix: row.prefix,
    last4: row.last4,
    scope: row.scope,
    project_id: formatId('proj', row.projectId),
    ...(row.serviceAccountId !== null && { service_account_id: formatId('svc_acct', row.serviceAccountId) }),
    expires_at: row.expiresAt?.toISOString() ?? null,
    revoked_at: row.revokedAt?.toISOString() ?? null,
    former_secrets_end_at: row.formerSecretsEndAt?.toISOString() ?? null,
    requests_per_minute: row.requestsPerMinute,
    max_concurrency: row.maxConcurrency,
    tokens_per_minute: row.tokensPerMinute,
    monthly_token_limit: row.monthlyTokenLimit,
    store_requests: row.storeRequests,
    cache_responses: row.cacheResponses,
    confined: row.confined,
    models: row.models,
  };
}
