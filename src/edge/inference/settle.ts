import type { Settlement } from '#core/admission/admission.ts';
import { nothingUsed, type UsageRecord, usedBy } from '#core/metering/metering.ts';
import { recordOf, statusOf, summaryOf } from './call-end.ts';
import { type Call, isBooked } from './call.ts';
import { chargedBefore, type Outcome, unbooked } from './outcome.ts';
import type { PathParts } from './path-parts.ts';
import { leaveUnderWay } from './under-way.ts';

type FinishParts = Pick<
  PathParts,
  'admission' | 'metering' | 'underWay' | 'clock' | 'observer' | 'settleTimeoutMs' | 'shares'
>;

/**
 * The end of every request, however it ended; runs exactly once. What was admitted is written to the books first and
 * given back, and only then do the last bytes leave: a response that a client saw complete is always a billed one.
 * @returns the outcome that the client gets
 */
export async function finish(parts: FinishParts, call: Call, outcome: Outcome): Promise<Outcome> {
  const { found, held, trace } = call;
  held.lease?.release();
  const now = { monotonicMs: parts.clock.monotonicMs(), sinceEpochMs: parts.clock.now() };
  const record = found.request !== null && isBooked(found) ? recordOf(call, found.request, outcome, now) : null;
  held.flexLease?.done(record === null ? 0 : usedBy(record).tokens);
  const reported = record === null ? outcome : await settle(parts, call, outcome, record);
  if (record === null) countRefusal(parts, call, outcome);
  held.leave?.();
  const status = statusOf(call, reported);
  answer(call, reported);
  holdUnread(parts, call);
  const summary = summaryOf(call, { reported, status, record }, parts.clock.monotonicMs());
  parts.observer.ended(summary, trace, reported.error?.cause);
  return reported;
}

function answer({ answer: client, found }: Call, { kind, error, last }: Outcome): void {
  if (client.gone) return;
  if (error !== null) client.error(error);
  else if (kind !== 'completed') client.cut();
  else if (found.request?.fields.stream === true && typeof last === 'string') client.endStream(last);
  else client.json(200, last);
}

/** A kernel's socket buffer takes less without this process keeping it. */
const unreadBytesMin = 65_536;

/** An answer that is over counts against no limit of its key, and may be large: what is not read of it takes a share. */
function holdUnread({ shares }: FinishParts, { answer: client, found, held }: Call): void {
  const { answerPlace } = held;
  if (answerPlace !== null) client.onTaken(() => answerPlace.end());
  const bytes = client.unreadBytes;
  if (bytes < unreadBytesMin || found.caller === null) return;
  const hold = shares.hold(found.caller.key.id);
  hold.add(bytes);
  client.onTaken(() => hold.release());
}

function countRefusal({ metering }: FinishParts, { found }: Call, { error }: Outcome): void {
  if (error === null || found.caller === null) return;
  const { key, project } = found.caller;
  metering.countRefusal({
    organizationId: key.organizationId,
    keyId: key.id,
    projectId: project.id,
    model: found.model?.id ?? '',
    code: error.code,
  });
}

/**
 * Writes the record; the hold is given back when it is durable, even where the client is not made to wait so long.
 * @returns what the client gets: the outcome, or an error where it could not be booked in time
 */
function settle(parts: FinishParts, call: Call, outcome: Outcome, record: UsageRecord): Promise<Outcome> {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(unbooked(outcome)), parts.settleTimeoutMs);
    const settled = (how: 'settle' | 'spooled', used: Settlement, reported: Outcome): void => {
      clearTimeout(late);
      if (call.found.grant !== null) parts.admission[how](call.requestId, used);
      leaveUnderWay(parts, call);
      resolve(reported);
    };
    const durable = parts.metering.settle(record);
    if (call.found.reuse !== null) call.found.reuse.durable = durable;
    durable.then(
      (where) => {
        // The hold of what is spooled stands for its charge until it is booked.
        if (where === 'spooled') return settled('spooled', usedBy(record), outcome);
        const used = parts.metering.booked(record);
        settled('settle', used, isChargedElsewhere(call, record, used) ? chargedBefore() : outcome);
      },
      () => settled('settle', nothingUsed, unbooked(outcome)),
    );
  });
}

/** Another gateway had the same request, and its answer was charged: that one is given, whoever asks again. */
function isChargedElsewhere(
  { terms, found: { reuse } }: Call,
  { costPicoUsd }: UsageRecord,
  used: Settlement,
): boolean {
  const isKept = (reuse?.packed ?? null) !== null;
  return terms.isWholeOrFree && isKept && costPicoUsd > 0n && used.chargedPicoUsd === 0n;
}
