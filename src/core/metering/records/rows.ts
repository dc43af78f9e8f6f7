import type { Sql } from 'postgres';
import type { UsageSource } from '#core/metering/meters/meters.ts';
import type { OutcomeKind, UsageRecord } from './record.ts';

/** A row of usage with names instead of codes, as the driver reads it. */
export interface RecordRow {
  readonly id: string;
  readonly organization_id: string;
  readonly project_id: string;
  readonly key_id: string;
  readonly price_version_id: string;
  readonly model: string;
  readonly endpoint: string;
  readonly stream: boolean;
  readonly service_tier: UsageRecord['serviceTier'] | null;
  readonly status: number;
  readonly outcome: OutcomeKind;
  readonly reason: string | null;
  readonly cache_hit: boolean;
  readonly input_tokens: number;
  readonly input_cached_tokens: number;
  readonly input_cache_write_tokens: number | null;
  readonly output_tokens: number;
  readonly output_reasoning_tokens: number;
  readonly usage_source: UsageSource;
  readonly cost: string;
  readonly written_off: string | null;
  readonly queued_ms: number;
  readonly first_byte_ms: number | null;
  readonly total_ms: number;
  readonly client_request_id: string | null;
  readonly choices: number | null;
  readonly fallback_for: string | null;
  readonly end_user: string | null;
}

const nameOf = (code: string): string => `(select name from usage_names where code = r.${code}) as ${code}`;
const idOf = (code: string): string => `(select id::text from usage_ids where code = r.${code}) as ${code}_id`;

/** Select list of a `RecordRow` over a row `r` of usage. */
const columns = `r.id::text, ${idOf('organization')}, ${idOf('project')}, ${idOf('key')}, ${idOf('price_version')}, ${nameOf('model')},
  ${nameOf('endpoint')}, r.stream, r.service_tier, r.status, r.outcome::text, r.reason, r.cache_hit,
  r.input_tokens, r.input_cached_tokens, r.input_cache_write_tokens, r.output_tokens, r.output_reasoning_tokens, r.usage_source::text,
  r.cost::text, r.written_off::text, r.queued_ms, r.first_byte_ms, r.total_ms, r.client_request_id, r.choices, r.end_user,
  ${nameOf('fallback_for')}`;

/** A row with its packed facts. */
export interface DetailedRow extends RecordRow {
  readonly facts: Buffer | null;
}

export const recordColumns = (sql: Sql) => sql.unsafe(columns);

/** Converts a row to a record. */
export function toRecord(row: RecordRow): UsageRecord {
  return {
    id: row.id,
    organizationId: row.organization_id,
    projectId: row.project_id,
    keyId: row.key_id,
    model: row.model,
    endpoint: row.endpoint,
    stream: row.stream,
    serviceTier: row.service_tier ?? 'default',
    status: row.status,
    outcome: row.outcome,
    reason: row.reason,
    cacheHit: row.cache_hit,
    usage: {
      inputTokens: row.input_tokens,
      cachedTokens: row.input_cached_tokens,
      cacheWriteTokens: row.input_cache_write_tokens ?? 0,
      outputTokens: row.output_tokens,
      reasoningTokens: row.output_reasoning_tokens,
    },
    usageSource: row.usage_source,
    costPicoUsd: BigInt(row.cost),
    writtenOffPicoUsd: BigInt(row.written_off ?? 0),
    priceVersionId: row.price_version_id,
    queuedMs: row.queued_ms,
    firstByteMs: row.first_byte_ms,
    totalMs: row.total_ms,
    clientRequestId: row.client_request_id,
    ...(row.choices !== null && { choices: row.choices }),
    ...(row.fallback_for !== null && { fallbackFor: row.fallback_for }),
    ...(row.end_user !== null && { namedUser: row.end_user }),
  };
}
