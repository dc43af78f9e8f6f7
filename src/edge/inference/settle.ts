import { AppError } from '#base/errors.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import type { Settlement } from '#core/admission/admission.ts';
import { costOf, noUsage, type UsageRecord } from '#core/metering/metering.ts';
import type { Call, Grant } from './call.ts';
import type { Outcome } from './engine-relay.ts';
import type { PathParts } from './path-parts.ts';
import { summarize } from './summary.ts';

/** Status that a record shows for a client that left before it had one. */
const clientClosedStatus = 499;

const nothingUsed: Settlement = { chargedPicoUsd: 0n, tokens: 0 };

type FinishParts = Pick<PathParts, 'admission' | 'metering' | 'clock' | 'observer' | 'settleTimeoutMs' | 'shares'>;

/**
 * The end of every request, however it ended; runs exactly once. What was admitted is written to the books first and
 * given back, and only then do the last bytes leave: a response that a client saw complete is always a billed one.
 * @returns the end as the client was told of it
 */
export async function finish(parts: FinishParts, call: Call, outcome: Outcome): Promise<Outcome> {
  call.lease?.release();
  call.flexLease?.done(outcome.usage.inputTokens + outcome.usage.outputTokens);
  const isBooked = call.grant !== null || call.cacheHit;
  const record = isBooked ? recordOf(parts, call, outcome) : null;
  let reported = outcome;
  if (record !== null) reported = await settle(parts, call, outcome, record);
  else if (isBooked) giveBack(parts, call, nothingUsed);
  else countRefusal(parts, call, outcome);
  call.leave?.();
  const status = statusOf(call, reported);
  report(call, reported);
  holdUnread(parts, call);
  const totalMs = parts.clock.monotonicMs() - call.startedMs;
  parts.observer.ended(summarize(call, { reported, status, record, totalMs }), call.trace, reported.error?.cause);
  return reported;
}

function report(call: Call, { kind, error, last }: Outcome): void {
  const { answer } = call;
  if (answer.gone) return;
  if (error !== null) answer.error(error);
  else if (kind !== 'completed') answer.cut();
  else if (call.fields?.stream === true && typeof last === 'string') answer.endStream(last);
  else answer.json(200, last);
}

/** What a kernel takes for a client is not counted. */
const unreadBytesMin = 65_536;

/** An answer is no longer bounded by the limits of its key, and may be large: the memory of one that is not read is. */
function holdUnread({ shares }: FinishParts, { answer, answerPlace, caller }: Call): void {
  if (answerPlace !== null) answer.onTaken(() => answerPlace.end());
  const bytes = answer.unreadBytes;
  if (bytes < unreadBytesMin || caller === null) return;
  const hold = shares.hold(caller.key.id);
  hold.add(bytes);
  answer.onTaken(() => hold.release());
}

function countRefusal(parts: FinishParts, call: Call, { error }: Outcome): void {
  if (error === null || call.caller === null) return;
  const { key, project } = call.caller;
  parts.metering.countRefusal({
    organizationId: key.organizationId,
    keyId: key.id,
    projectId: project.id,
    model: call.model?.id ?? '',
    code: error.code,
  });
}

function statusOf(call: Call, { error, kind }: Outcome): number {
  if (call.answer.headSent) return 200;
  if (error !== null) return error.status;
  return kind === 'aborted' ? clientClosedStatus : 200;
}

/** What is billed: nothing before the first token, and nothing for a JSON answer that could not be given. */
function billable(call: Call, outcome: Outcome): Pick<UsageRecord, 'usage' | 'usageSource'> {
  const { kind, usage, usageSource } = outcome;
  const undelivered = kind === 'failed' && call.fields?.stream !== true;
  const nothingMade = kind !== 'completed' && call.endpoint.generates && usage.outputTokens === 0;
  if (undelivered || nothingMade) return { usage: noUsage, usageSource: usageSource === 'engine' ? 'engine' : 'none' };
  return { usage, usageSource };
}

/** In pico-dollars; what the cache answers holds nothing. */
function heldOf(grant: Grant | null): bigint {
  if (grant === null) return 0n;
  return grant.streamHold?.heldPicoUsd ?? grant.heldMicroUsd * PICO_PER_MICRO;
}

function recordOf(parts: FinishParts, call: Call, outcome: Outcome): UsageRecord | null {
  const { caller, fields, model, price } = call;
  if (caller === null || fields === null || model === null || price === null) return null;
  const { usage, usageSource } = billable(call, outcome);
  const heldPicoUsd = heldOf(call.grant);
  const fullPicoUsd = costOf(usage, price);
  const costPicoUsd = fullPicoUsd < heldPicoUsd ? fullPicoUsd : heldPicoUsd;
  return {
    id: call.requestId,
    organizationId: caller.key.organizationId,
    projectId: caller.project.id,
    keyId: caller.key.id,
    model: model.id,
    endpoint: call.endpoint.path,
    stream: fields.stream,
    serviceTier: price.tier,
    status: statusOf(call, outcome),
    outcome: outcome.kind,
    reason: outcome.error?.code ?? null,
    cacheHit: call.cacheHit,
    usage,
    usageSource,
    costPicoUsd,
    writtenOffPicoUsd: fullPicoUsd - costPicoUsd,
    priceVersionId: price.id,
    queuedMs: call.queuedMs,
    firstByteMs: call.firstByteMs,
    totalMs: parts.clock.monotonicMs() - call.startedMs,
    clientRequestId: call.clientRequestId,
  };
}

/**
 * Writes the record; the hold is given back when it is durable, even where the client is not made to wait so long.
 * @returns what the client is told: the outcome, or that it could not be booked in time
 */
function settle(parts: FinishParts, call: Call, outcome: Outcome, record: UsageRecord): Promise<Outcome> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(unbooked(outcome)), parts.settleTimeoutMs);
    const settled = (used: Settlement, reported: Outcome): void => {
      clearTimeout(late);
      giveBack(parts, call, used);
      resolve(reported);
    };
    parts.metering.settle(record).then(
      () => settled(usedBy(record), outcome),
      () => settled(nothingUsed, unbooked(outcome)),
    );
  });
}

function giveBack({ admission }: FinishParts, call: Call, used: Settlement): void {
  if (call.grant !== null) admission.settle(call.requestId, used);
}

function usedBy({ costPicoUsd, usage }: UsageRecord): Settlement {
  return { chargedPicoUsd: costPicoUsd, tokens: usage.inputTokens + usage.outputTokens };
}

const unbooked = (outcome: Outcome): Outcome => ({ ...outcome, kind: 'failed', error: notBooked(), last: '' });

/** The record still waits for the books to come back, and is charged then: this must not say that nothing was. */
function notBooked(): AppError {
  const message = 'The answer is complete, but the books cannot be written at the moment; it is charged when they can.';
  return new AppError('billing_unavailable', { message, headers: { 'retry-after': '2' } });
}
