import type { Settlement } from '#core/admission/admission.ts';
import { nothingUsed, type UsageRecord, usedBy } from '#core/metering/metering.ts';
import { chargedBefore, type Outcome, unrecordedCharge } from '#edge/inference/answer/answer.ts';
import { type Call, hasRecord } from '#edge/inference/call/call.ts';
import type { PathParts } from '#edge/inference/engine/engine.ts';
import { recordOf, statusOf, summaryOf } from './call-end.ts';
import { releaseWatermark } from './counter-watermark.ts';

type FinishParts = Pick<
  PathParts,
  'admission' | 'metering' | 'tokenWatermarks' | 'clock' | 'observer' | 'settleTimeoutMs' | 'shares'
>;

/**
 * Ends a request, whatever its outcome; runs exactly once. An admitted request is recorded and its hold is released
 * before the last bytes are sent: every response that a client saw complete is billed.
 * @returns the outcome that the client gets
 */
export async function finish(parts: FinishParts, call: Call, outcome: Outcome): Promise<Outcome> {
  const { found, held, trace } = call;
  held.lease?.release();
  const now = { monotonicMs: parts.clock.monotonicMs(), sinceEpochMs: parts.clock.now() };
  const record = found.request !== null && hasRecord(found) ? recordOf(call, found.request, outcome, now) : null;
  held.flexLease?.done(record === null ? 0 : usedBy(record).tokens);
  const reported = record === null ? outcome : await settle(parts, call, outcome, record);
  if (record === null) countRefusal(parts, call, outcome);
  else if (found.storing !== null && reported.error === null) await found.storing.keep?.();
  held.leave?.();
  const status = statusOf(call, reported);
  answer(call, reported);
  holdUnread(parts, call);
  const summary = summaryOf(call, { reported, status, record }, parts.clock.monotonicMs());
  parts.observer.ended(summary, trace, reported.error?.cause);
  return reported;
}

function answer({ answer: client, found }: Call, { kind, error, last }: Outcome): void {
  if (client.clientLeft) return;
  if (error !== null) client.error(error);
  else if (kind !== 'completed') client.cut();
  else if (found.request?.fields.stream === true && typeof last === 'string') client.endStream(last);
  else client.json(200, last);
}

/** Fewer bytes fit into the kernel's socket buffer, and take no memory of this process. */
const unreadBytesMin = 65_536;

/**
 * Counts unread bytes of an ended answer in the key's share of memory. No other limit counts them, and they may be
 * many.
 */
function holdUnread({ shares }: FinishParts, { answer: client, found, held }: Call): void {
  const { answerPlace } = held;
  if (answerPlace !== null) client.onTaken(() => answerPlace.end());
  const bytes = client.unreadBytes;
  if (bytes < unreadBytesMin || found.caller === null) return;
  const hold = shares.hold(found.caller.key.id);
  hold.add(bytes);
  client.onTaken(() => hold.release());
}

function countRefusal({ metering }: FinishParts, call: Call, { error }: Outcome): void {
  const { requestId, found, endpoint, clientRequestId } = call;
  if (error === null || found.caller === null) return;
  const { key, project } = found.caller;
  metering.countRefusal({
    id: requestId,
    organizationId: key.organizationId,
    keyId: key.id,
    projectId: project.id,
    model: found.model?.id ?? '',
    endpoint: endpoint.path,
    status: error.status,
    code: error.code,
    param: error.param,
    message: error.message,
    clientRequestId,
    endUser: found.request?.endUser?.name ?? null,
  });
}

/**
 * Writes the record. The hold ends when the record is durable, also if the client stopped waiting before that.
 * @returns the outcome for the client: the given one, or an error if it was not recorded in time
 */
function settle(parts: FinishParts, call: Call, outcome: Outcome, record: UsageRecord): Promise<Outcome> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(unrecordedCharge(outcome)), parts.settleTimeoutMs);
    const settled = (how: 'settle' | 'spooled', used: Settlement, reported: Outcome): void => {
      clearTimeout(late);
      if (call.found.grant !== null) parts.admission[how](call.requestId, used);
      releaseWatermark(parts, call);
      resolve(reported);
    };
    const durable = parts.metering.settle(record);
    if (call.found.reuse !== null) call.found.reuse.durable = durable;
    durable.then(
      (where) => {
        // The hold of a spooled record stands for its charge until PostgreSQL has the record.
        if (where === 'spooled') return settled('spooled', usedBy(record), outcome);
        const used = parts.metering.booked(record);
        settled('settle', used, isChargedElsewhere(call, record, used) ? chargedBefore() : outcome);
      },
      () => settled('settle', nothingUsed, unrecordedCharge(outcome)),
    );
  });
}

/** True if another gateway ran the same request and charged for its answer. Repetitions get that answer. */
function isChargedElsewhere(
  { terms, found: { reuse } }: Call,
  { costPicoUsd }: UsageRecord,
  used: Settlement,
): boolean {
  const isKept = (reuse?.packed ?? null) !== null;
  return terms.isWholeOrFree && isKept && costPicoUsd > 0n && used.chargedPicoUsd === 0n;
}
