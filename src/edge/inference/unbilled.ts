import { uuidTimeMs } from '#base/id.ts';
import type { EngineRequests } from '#core/fleet/fleet.ts';
import { noUsage, type UsageRecord } from '#core/metering/metering.ts';
import type { Call, InferenceRequest } from './call.ts';
import { countedMax } from './counted-max.ts';
import type { Outcome } from './outcome.ts';

interface UnbilledParts {
  readonly engineRequests: EngineRequests;
}

/**
 * Notes an attempt that another replica repeats: its engine may have counted it, and the record of the request has the
 * second one alone. What never reached an engine is not noted.
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

/** Notes what an engine may have counted of a part of a request of which nothing else is billed. */
export function noteUndeliveredPart(
  { engineRequests }: UnbilledParts,
  call: Call,
  request: InferenceRequest,
  outcome: Outcome | null,
): void {
  const { requestId, held } = call;
  const { model } = request;
  if (held.lease === null) return;
  const { inputTokens, outputTokens } = outcome?.usage ?? noUsage;
  engineRequests.note({
    kind: 'undelivered',
    model: model.id,
    replicaId: held.lease.replica.id,
    startedMs: uuidTimeMs(requestId),
    promptTokens: inputTokens,
    completionTokens: outputTokens,
    uncounted: outcome?.usageSource !== 'engine',
    uncountedMax: countedMax(call, request),
  });
}

/** Notes what an engine counted of an answer that could not be given: the record has nothing of it. */
export function noteUndelivered(
  { engineRequests }: UnbilledParts,
  { held, endpoint }: Call,
  { usage }: Outcome,
  record: UsageRecord,
): void {
  const inputTokens = usage.inputTokens - record.usage.inputTokens;
  const outputTokens = usage.outputTokens - record.usage.outputTokens;
  // Before the first token an engine that makes some has counted nothing, whatever it says of the prompt.
  if (held.lease === null || (endpoint.generates ? outputTokens : inputTokens) <= 0) return;
  engineRequests.note({
    kind: 'undelivered',
    model: record.model,
    replicaId: held.lease.replica.id,
    startedMs: uuidTimeMs(record.id),
    promptTokens: inputTokens * (record.choices ?? 1),
    completionTokens: outputTokens,
    uncounted: false,
    uncountedMax: null,
  });
}
