import { uuidTimeMs } from '#base/id.ts';
import type { EngineRequests } from '#core/fleet/fleet.ts';
import type { Outcome } from '#edge/inference/answer/answer.ts';
import type { Call, InferenceRequest } from '#edge/inference/call/call.ts';
import { countedMax } from './counted-max.ts';

interface UnbilledParts {
  readonly engineRequests: EngineRequests;
}

/**
 * Notes an attempt that another replica repeats: the first engine may have counted it, and the request's record has
 * only the second attempt. An attempt that never reached an engine is not noted.
 * @param startedMs milliseconds since the Unix epoch
 */
export function noteRetried(
  { engineRequests }: UnbilledParts,
  call: Call,
  request: InferenceRequest,
  { outcome, startedMs }: { readonly outcome: Outcome; readonly startedMs: number },
): void {
  const { held } = call;
  const { fields, model } = request;
  if (outcome.unreachable || held.lease === null) return;
  const { inputTokens, outputTokens } = outcome.usage;
  engineRequests.note({
    kind: 'retry',
    model: model.id,
    replicaId: held.lease.replica.id,
    startedMs,
    promptTokens: inputTokens * fields.choices,
    completionTokens: outputTokens,
    uncounted: outcome.usageSource !== 'engine',
    uncountedMax: countedMax(call, request),
  });
}

/** Notes a part that was ended before its engine reported its count. */
export function noteCutOff({ engineRequests }: UnbilledParts, call: Call, request: InferenceRequest): void {
  const { requestId, held } = call;
  if (held.lease === null) return;
  engineRequests.note({
    kind: 'undelivered',
    model: request.model.id,
    replicaId: held.lease.replica.id,
    startedMs: uuidTimeMs(requestId),
    promptTokens: 0,
    completionTokens: 0,
    uncounted: true,
    uncountedMax: countedMax(call, request),
  });
}
