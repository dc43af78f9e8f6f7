import { formatId } from '#base/id.ts';
import type { Organization, OrganizationStatus, Scope } from '#core/accounts/accounts.ts';
import type { AuditView } from '#core/audit/audit.ts';
import type { apiKeys } from './schema.ts';

export type KeyStatus = 'active' | 'revoked' | 'expired';

/** Limits of a key per minute, at once and per month; null is unlimited, numbers are 1 or more. */
export interface KeyLimits {
  readonly requestsPerMinute: number | null;
  readonly maxConcurrency: number | null;
  readonly tokensPerMinute: number | null;
  readonly monthlyTokenLimit: number | null;
}

export interface KeyToggles {
  readonly storeRequests: boolean;
  readonly cacheResponses: boolean;
  /** Reaction to tools that an engine does not serve; null is the setting of the engine's file. */
  readonly unservedTools: 'reject' | 'drop' | null;
  /** True if requests name their end user in the header that HEADGATE_END_USER_HEADER names. */
  readonly endUserFromHeader: boolean;
  /** True if the key works in its own project only. Null: only while the project has a hard budget. */
  readonly confined: boolean | null;
}

/** A key as it is stored, without the secret and its hash. Ids are UUIDs. */
export interface KeyRecord extends KeyLimits, KeyToggles {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  /** User who created the key and whom it acts for; null for a key of a service account. */
  readonly userId: string | null;
  /** Service account that the key acts for; null for a key of a user. */
  readonly serviceAccountId: string | null;
  readonly name: string;
  readonly prefix: string;
  readonly last4: string;
  readonly scope: Scope;
  /** True if the gateway itself calls with the key for its user, and nobody has the secret. */
  readonly held: boolean;
  readonly createdAtMs: number;
  readonly expiresAtMs: number | null;
  readonly lastUsedAtMs: number | null;
  readonly revokedAtMs: number | null;
  /** Time of the last rotation; null if the key still has its first secret. */
  readonly rotatedAtMs: number | null;
  /** Time at which the key's last former secret ends; null if the key has no former secrets. */
  readonly formerSecretsEndAtMs: number | null;
  /** Ids of allowed models; null allows all models of the organization. */
  readonly models: readonly string[] | null;
}

/** A key of a caller, with the settings of its organization that apply to it. */
export interface ApiKey extends KeyRecord {
  /** True if the key's user is a platform administrator. The key's scope is independent of this. */
  readonly platformAdmin: boolean;
  /** True if the caller sees all projects of the organization; false if only the public ones. */
  readonly seesAllProjects: boolean;
  readonly organizationStatus: OrganizationStatus;
  /** Ids of the models that both the key and its organization allow. Null: all. */
  readonly usableModels: ReadonlySet<string> | null;
  /** SHA-256 of the secret that the caller sent. Null if the gateway itself calls with the key. */
  readonly secretHash: Buffer | null;
  /** End of the secret that the caller sent, if it is a former one; null for the current secret. */
  readonly secretEndsAtMs: number | null;
}

/** Returns the models that both lists allow; null, as a list or as the result, allows all. */
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
  {
    platformAdmin,
    seesAllProjects,
    secretHash,
    secretEndsAtMs,
  }: Pick<ApiKey, 'platformAdmin' | 'seesAllProjects' | 'secretHash' | 'secretEndsAtMs'>,
): ApiKey {
  return {
    ...record,
    platformAdmin,
    seesAllProjects,
    secretHash,
    secretEndsAtMs,
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
    unservedTools: row.unservedTools,
    endUserFromHeader: row.endUserFromHeader,
    confined: row.confined,
    models: row.models,
  };
}

/** @param nowMs milliseconds since the Unix epoch; a revoked key stays "revoked" past its expiry */
export function keyStatus(key: Pick<KeyRecord, 'expiresAtMs' | 'revokedAtMs'>, nowMs: number): KeyStatus {
  if (key.revokedAtMs !== null) return 'revoked';
  return key.expiresAtMs !== null && key.expiresAtMs <= nowMs ? 'expired' : 'active';
}

/** Returns the fields of a key that the audit log stores. */
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
    unserved_tools: row.unservedTools,
    end_user_from_header: row.endUserFromHeader,
    confined: row.confined,
    models: row.models,
  };
}
