import { noUsage, type UsageRecord } from '#core/metering/metering.ts';
import type { Call } from './call.ts';
import type { Outcome } from './engine-relay.ts';
import type { RequestSummary } from './observer.ts';

/** What is only known at the end of a request. */
export interface CallEnd {
  /** As the client was told of it. */
  readonly reported: Outcome;
  readonly status: number;
  /** Null where nothing is written to the books. */
  readonly record: UsageRecord | null;
  readonly totalMs: number;
}

interface Who {
  readonly keyId: string | null;
  readonly organizationId: string | null;
  readonly projectId: string | null;
}

const nobody: Who = { keyId: null, organizationId: null, projectId: null };

function whoOf({ caller }: Call): Who {
  if (caller === null) return nobody;
  return { keyId: caller.key.id, organizationId: caller.key.organizationId, projectId: caller.project.id };
}

/** Puts together what observers are told of a request that has ended. */
export function summarize(call: Call, { reported, status, record, totalMs }: CallEnd): RequestSummary {
  const { lease } = call;
  const who = whoOf(call);
  const usage = record === null ? noUsage : record.usage;
  return {
    requestId: call.requestId,
    clientRequestId: call.clientRequestId,
    route: call.endpoint.path,
    model: call.model === null ? null : call.model.id,
    keyId: who.keyId,
    organizationId: who.organizationId,
    projectId: who.projectId,
    status,
    code: reported.error === null ? null : reported.error.code,
    outcome: reported.kind,
    stream: call.fields?.stream === true,
    inputTokens: usage.inputTokens,
    cachedTokens: usage.cachedTokens,
    outputTokens: usage.outputTokens,
    costPicoUsd: record === null ? 0n : record.costPicoUsd,
    cache: cacheOf(call),
    cold: lease?.cold === true,
    queuedMs: call.queuedMs,
    firstByteMs: call.firstByteMs,
    totalMs,
    addedMs: addedMs(call, totalMs),
    replicaId: lease === null ? null : lease.replica.id,
    retries: call.retries,
    abortedByClient: reported.kind === 'aborted',
  };
}

function cacheOf({ cacheHit, reuse }: Call): RequestSummary['cache'] {
  if (cacheHit) return 'hit';
  return reuse === null || reuse.cacheEntry === null ? 'off' : 'miss';
}

function addedMs({ engineMs, bodyMs, queuedMs, waitedForOther }: Call, totalMs: number): number | null {
  // How long another request took is not known here.
  if (engineMs === null || waitedForOther) return null;
  return Math.max(0, totalMs - engineMs - bodyMs - queuedMs);
}
