import { formatId, type IdPrefix } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { formatUsd } from '#base/money.ts';
import type { RequestSummary } from '#edge/inference/inference.ts';
import { shortenForLog } from './shorten-for-log.ts';

/** Fields of a request's log line that its summary does not have. */
export interface LineExtras {
  readonly traceId: string | null;
  /** Cause of a failure on the server's side. */
  readonly cause: unknown;
}

/** Formats an id as the API shows it, so that log lines and API answers can be matched. */
export function idOf(prefix: IdPrefix, id: string | null): string | null {
  return id === null ? null : formatId(prefix, id);
}

const rounded = (ms: number): number => Math.round(ms * 10) / 10;

/** Logs one line per request with all fields. Never logs a prompt, answer or secret; a key appears only by its id. */
export function logRequest(log: Log, summary: RequestSummary, { traceId, cause }: LineExtras): void {
  // A stream that fails after its start has status 200.
  const isFailure = summary.status >= 500 || (summary.outcome === 'failed' && summary.status === 200);
  if (!log.isLevelEnabled(isFailure ? 'warn' : 'info')) return;
  const { costPicoUsd, queuedMs, firstByteMs, totalMs, addedMs } = summary;
  // Lists the fields explicitly: copying an object without some members is slow, and this runs for every request.
  const fields = {
    requestId: summary.requestId,
    clientRequestId: summary.clientRequestId,
    traceId,
    route: summary.route,
    model: summary.model,
    fallbackFor: summary.fallbackFor,
    keyId: idOf('key', summary.keyId),
    organizationId: idOf('org', summary.organizationId),
    projectId: idOf('proj', summary.projectId),
    status: summary.status,
    code: summary.code,
    param: shortenForLog(summary.param),
    reason: summary.reason,
    outcome: summary.outcome,
    stream: summary.stream,
    inputTokens: summary.inputTokens,
    cachedTokens: summary.cachedTokens,
    outputTokens: summary.outputTokens,
    cache: summary.cache,
    cold: summary.cold,
    replicaId: summary.replicaId,
    retries: summary.retries,
    abortedByClient: summary.abortedByClient,
    costUsd: formatUsd(costPicoUsd),
    queuedMs: rounded(queuedMs),
    firstByteMs: firstByteMs === null ? null : rounded(firstByteMs),
    totalMs: rounded(totalMs),
    addedMs: addedMs === null ? null : rounded(addedMs),
  };
  if (!isFailure) log.info(fields, 'request');
  else if (cause === undefined) log.warn(fields, 'request failed');
  else log.warn({ ...fields, err: cause }, 'request failed');
}
