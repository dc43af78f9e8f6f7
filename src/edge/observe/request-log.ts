import { formatId, type IdPrefix } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { formatUsd } from '#base/money.ts';
import type { RequestSummary } from '#edge/inference/inference.ts';
import { clientsWord } from './clients-word.ts';

/** What the line of a request says beyond its summary. */
export interface LineExtras {
  readonly traceId: string | null;
  /** Why it failed, for failures of our side. */
  readonly cause: unknown;
}

/** As the API shows it, so that one can be looked up by the other. */
export function idOf(prefix: IdPrefix, id: string | null): string | null {
  return id === null ? null : formatId(prefix, id);
}

const rounded = (ms: number): number => Math.round(ms * 10) / 10;

/** Logs one wide line for a request. It has no prompt, no answer and no secret: of a key only its id. */
export function logRequest(log: Log, summary: RequestSummary, { traceId, cause }: LineExtras): void {
  // A stream that had begun fails under status 200.
  const isFailure = summary.status >= 500 || (summary.outcome === 'failed' && summary.status === 200);
  if (!log.isLevelEnabled(isFailure ? 'warn' : 'info')) return;
  const { costPicoUsd, queuedMs, firstByteMs, totalMs, addedMs } = summary;
  // Written out: a copy of all but some members is slow, and this is paid by every request.
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
    param: clientsWord(summary.param),
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
