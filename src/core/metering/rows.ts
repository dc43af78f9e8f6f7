import type { UsageRecord } from './record.ts';
import type { usageRecords } from './schema.ts';

/** What nearly all requests ask; it is written as null. */
export const usualEndpoint = '/v1/chat/completions';

/** A row of the books as the room's callers know it. */
export function toRecord(row: typeof usageRecords.$inferSelect): UsageRecord {
  return {
    id: row.id,
    organizationId: row.organizationId,
    projectId: row.projectId,
    keyId: row.keyId,
    model: row.model,
    endpoint: row.endpoint ?? usualEndpoint,
    stream: row.stream,
    serviceTier: row.serviceTier ?? 'default',
    status: row.status,
    outcome: row.outcome,
    reason: row.reason,
    cacheHit: row.cacheHit,
    usage: {
      inputTokens: row.inputTokens,
      cachedTokens: row.inputCachedTokens,
      outputTokens: row.outputTokens,
      reasoningTokens: row.outputReasoningTokens,
    },
    usageSource: row.usageSource,
    costPicoUsd: row.cost,
    writtenOffPicoUsd: row.writtenOff ?? 0n,
    priceVersionId: row.priceVersionId,
    queuedMs: row.queuedMs,
    firstByteMs: row.firstByteMs,
    totalMs: row.totalMs,
    clientRequestId: row.clientRequestId,
  };
}
