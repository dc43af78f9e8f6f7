import { and, eq } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { type Audit, systemAuthor } from '#core/audit/audit.ts';
import type { Claimed } from './claims.ts';
import { type EndpointRow, giveUpPending, originOf, recordEndpoint } from './endpoint.ts';
import type { Raising } from './raise.ts';
import { alertDeliveries, webhookEndpoints } from './schema.ts';

/** Times of retries. */

const firstWaitMs = 5000;
const growth = 4;
const waitMsMax = 6 * 3_600_000;
const jitter = 0.2;

/** Most attempts of one delivery: about a day passes between the first and the last. */
const triesMax = 11;

/**
 * Returns the milliseconds from a failed attempt to the next: 5 s, 20 s, 80 s, … up to 6 hours, plus or minus a fifth.
 * @param tries attempts made so far; @param random from 0 up to 1
 * @returns null after the last attempt
 */
function waitAfter(tries: number, random = Math.random()): number | null {
  if (tries >= triesMax) return null;
  const wait = Math.min(waitMsMax, firstWaitMs * growth ** (tries - 1));
  return Math.round(wait * (1 - jitter + 2 * jitter * random));
}

/** Records the result of an attempt, with its consequences for the endpoint. */

export interface Outcome {
  readonly status: number | null;
  /** Error code; null if delivered. */
  readonly error: string | null;
  readonly retryAfterMs: number | null;
  /** True if the receiver caused the failure. */
  readonly isReceivers: boolean;
  /** True if another attempt cannot succeed. */
  readonly isLast: boolean;
}

export interface OutcomeOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly raising: Raising;
}

/** An endpoint is disabled after this long without a delivery, and at least this many failed attempts. */
const failingMsMax = 3 * 86_400_000;
const failuresMin = 12;
const goneStatus = 410;

/**
 * Records the outcome of an attempt; does nothing if the delivery was claimed again, replayed or deleted in the
 * meantime.
 */
export async function noteOutcome(options: OutcomeOptions, claimed: Claimed, outcome: Outcome): Promise<void> {
  const { db, clock } = options;
  await db.orm.transaction(async (tx) => {
    const now = new Date(clock.now());
    // The endpoint is locked before the delivery, in the same order as everywhere.
    const endpoint = await lockEndpoint(tx, claimed.delivery.endpointId);
    const isOurs = and(
      eq(alertDeliveries.id, claimed.delivery.id),
      eq(alertDeliveries.claim, claimed.delivery.claim),
      eq(alertDeliveries.status, 'pending'),
    );
    const [row] = await tx
      .update(alertDeliveries)
      .set(stateAfter(claimed, outcome, now))
      .where(isOurs)
      .returning();
    if (row === undefined || endpoint === null) return;
    // A result of the previous URL says nothing about the new one.
    if (endpoint.url !== claimed.endpoint?.url) return;
    if (outcome.error === null) await noteArrival(tx, endpoint);
    else if (outcome.isReceivers) await noteFailure(options, tx, { endpoint, outcome, now });
  });
}

async function lockEndpoint(tx: Transaction, id: string | null): Promise<EndpointRow | null> {
  if (id === null) return null;
  const [row] = await tx.select().from(webhookEndpoints).where(eq(webhookEndpoints.id, id)).for('update');
  return row ?? null;
}

function stateAfter({ delivery, event }: Claimed, outcome: Outcome, now: Date) {
  const tries = delivery.tries + 1;
  const common = {
    attempts: delivery.attempts + 1,
    tries,
    lastAttemptAt: now,
    lastStatus: outcome.status,
    lastError: outcome.error,
  };
  if (outcome.error === null) return { ...common, status: 'delivered', nextAttemptAt: null } as const;
  // A test is sent once, because a person watches its result.
  const isOnce = outcome.isLast || event.type === 'webhook.test' || tries >= triesMax;
  const waitMs = isOnce ? null : waitAfter(tries);
  if (waitMs === null) return { ...common, status: 'failed', nextAttemptAt: null } as const;
  const nextMs = now.getTime() + Math.max(waitMs, outcome.retryAfterMs ?? 0);
  return { ...common, status: 'pending', nextAttemptAt: new Date(nextMs) } as const;
}

async function noteArrival(tx: Transaction, { id, failures }: EndpointRow): Promise<void> {
  if (failures === 0) return;
  await tx.update(webhookEndpoints).set({ failures: 0, failingSince: null }).where(eq(webhookEndpoints.id, id));
}

const disabledTexts = {
  gone: 'a webhook was disabled, because its receiver returned 410 (permanently removed); it gets no more alerts',
  failing:
    'a webhook was disabled, because no alert was delivered for three days; fix the receiver, then enable the webhook',
} as const;

interface Failed {
  readonly endpoint: EndpointRow;
  readonly outcome: Outcome;
  readonly now: Date;
}

async function noteFailure(options: OutcomeOptions, tx: Transaction, { endpoint, outcome, now }: Failed) {
  const failingSince = endpoint.failingSince ?? now;
  const failures = endpoint.failures + 1;
  const isOld = now.getTime() - failingSince.getTime() >= failingMsMax && failures >= failuresMin;
  const reason = outcome.status === goneStatus ? 'gone' : isOld ? 'failing' : null;
  const isEnded = reason !== null && endpoint.enabled;
  const [after] = await tx
    .update(webhookEndpoints)
    .set({ failures, failingSince, ...(isEnded && { enabled: false, disabledReason: reason }) })
    .where(eq(webhookEndpoints.id, endpoint.id))
    .returning();
  if (!isEnded || after === undefined) return;
  await giveUpPending({ tx }, endpoint.id);
  await recordEndpoint({ tx, audit: options.audit, now }, 'disabled', { before: endpoint, after }, systemAuthor);
  const { organizationId } = endpoint;
  const webhook = formatId('wh', endpoint.id);
  await options.raising.raiseIn(tx, {
    organizationId,
    type: 'webhook.disabled',
    data: { webhook_id: webhook, origin: originOf(endpoint.url), reason },
  });
  options.log.warn({ webhook, reason }, disabledTexts[reason]);
}
