import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId } from '#base/id.ts';
import { isLate } from '#base/is-late.ts';
import type { Log } from '#base/log.ts';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { type ClaimBounds, claimDue, type Claimed } from './claims.ts';
import { secretsOf } from './endpoint.ts';
import { fanOut } from './fan-out.ts';
import { letterOf } from './letter.ts';
import { noteOutcome, type Outcome, type OutcomeOptions } from './outcome.ts';
import { signatureHeaders } from './secret.ts';
import { type Sending, sendWebhook } from './send.ts';

/** Sends due deliveries. A killed gateway's deliveries are sent again: at least once, with the same id. */

export interface DeliveringOptions extends OutcomeOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly accounts: Pick<Accounts, 'readAlertPeople' | 'readAlertReader'>;
  readonly secrets: Pick<Secrets, 'open'>;
  readonly letters: Pick<Letters, 'areSent' | 'sendAlert'>;
  readonly sending: Sending;
}

export interface Delivering {
  /** Claims due deliveries and starts to send them. Resolves when all of them have started. */
  deliver(): Promise<void>;
  /** Waits for deliveries under way. */
  settled(): Promise<void>;
  /** Starts no more deliveries, waits at most `graceMs` for those under way, and then leaves them to be sent again. */
  close(graceMs: number): Promise<void>;
}

const bounds: ClaimBounds = { ofEndpointMax: 4, ofOrganizationMax: 10, totalMax: 100, mailsMax: 4 };
/** Milliseconds of a lease beyond the timeout of an attempt, for writing the result. */
const leaseBeyondMs = 45_000;

const counted = (keys: readonly (string | null)[]): ReadonlyMap<string, number> => {
  const counts = new Map<string, number>();
  for (const key of keys) if (key !== null) counts.set(key, (counts.get(key) ?? 0) + 1);
  return counts;
};

export function createDelivering(options: DeliveringOptions): Delivering {
  const { db, clock, log, accounts, letters, sending } = options;
  const underWay = new Map<Claimed, Promise<void>>();
  const closing = new AbortController();
  let delivering: Promise<void> | null = null;
  let isAskedAgain = false;
  let isEnding = false;

  /** Creates deliveries for new events. A failure here does not delay deliveries that exist already. */
  async function addressAll(): Promise<void> {
    try {
      while (await fanOut({ db, clock, accounts, isMailed: letters.areSent }));
    } catch (error) {
      log.warn({ err: error }, 'new alerts are late: their recipients could not be read; a job retries');
    }
  }

  async function deliverDue(): Promise<void> {
    await addressAll();
    while (!isEnding) {
      isAskedAgain = false;
      const claimed = await claimDue(db, underWayOf([...underWay.keys()]), bounds, {
        nowMs: clock.now(),
        leaseMs: sending.timeoutMs + leaseBeyondMs,
      });
      for (const one of claimed) begin(one);
      // A delivery that ended in the meantime has made room.
      if (claimed.length === 0 && !isAskedAgain) return;
    }
  }

  function deliver(): Promise<void> {
    if (isEnding) return Promise.resolve();
    isAskedAgain = true;
    delivering ??= deliverDue().finally(() => {
      delivering = null;
    });
    return delivering;
  }

  function begin(claimed: Claimed): void {
    const ended = sendOne(options, claimed, closing.signal)
      .catch((error: unknown) =>
        log.warn({ err: error }, 'the outcome of an alert delivery could not be stored; the alert is sent again'),
      )
      .finally(() => {
        underWay.delete(claimed);
        deliver().catch((error: unknown) =>
          log.warn({ err: error }, 'pending alerts could not be read; a job retries'),
        );
      });
    underWay.set(claimed, ended);
  }

  return {
    deliver,
    async settled() {
      while (underWay.size > 0 || delivering !== null) await Promise.all([...underWay.values(), delivering]);
    },
    async close(graceMs) {
      isEnding = true;
      // Deliveries that are claimed already still start.
      await delivering?.catch(() => undefined);
      await isLate(Promise.all(underWay.values()), graceMs);
      closing.abort();
      await Promise.all(underWay.values());
    },
  };
}

function underWayOf(claimed: readonly Claimed[]) {
  const webhooks = claimed.filter(({ delivery }) => delivery.endpointId !== null);
  return {
    ofEndpoints: counted(webhooks.map(({ delivery }) => delivery.endpointId)),
    ofOrganizations: counted(webhooks.map(({ delivery }) => delivery.organizationId)),
    total: webhooks.length,
    mails: claimed.length - webhooks.length,
  };
}

async function sendOne(options: DeliveringOptions, claimed: Claimed, closing: AbortSignal): Promise<void> {
  const { delivery, endpoint } = claimed;
  // The endpoint was deleted after the claim.
  if (delivery.endpointId !== null && endpoint === null) return;
  const outcome = endpoint === null ? await mail(options, claimed) : await post(options, claimed, closing);
  if (outcome !== null) await noteOutcome(options, claimed, outcome);
}

const arrived: Outcome = { status: null, error: null, retryAfterMs: null, isReceivers: false, isLast: false };

/** Returns null if the gateway stops: the delivery is sent again. */
async function post(options: DeliveringOptions, { event, endpoint }: Claimed, closing: AbortSignal) {
  if (endpoint === null) return null;
  const { clock, secrets, sending, log } = options;
  const atMs = clock.now();
  let signing: readonly string[];
  try {
    signing = secretsOf(secrets, endpoint, atMs);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    log.error(
      { webhook: formatId('wh', endpoint.id), trouble: error.message },
      'an alert was not sent, because the signing secret of its webhook cannot be decrypted; restore the platform key, or rotate the secret',
    );
    return { ...arrived, error: 'secret' };
  }
  const body = JSON.stringify({
    type: event.type,
    timestamp: event.createdAt.toISOString(),
    organization_id: formatId('org', event.organizationId),
    data: event.data,
  });
  const headers = signatureHeaders({ id: formatId('evt', event.id), atMs, body, secrets: signing });
  const sent = await sendWebhook({ url: endpoint.url, headers, body }, sending, closing);
  return closing.aborted && sent.error !== null ? null : { ...sent, isReceivers: true, isLast: false };
}

async function mail({ accounts, letters }: DeliveringOptions, { delivery, event }: Claimed): Promise<Outcome> {
  const { userId, organizationId } = delivery;
  const reader = userId === null ? null : await accounts.readAlertReader(organizationId, userId);
  if (reader === null) return { ...arrived, error: 'recipient', isLast: true };
  const { email, organizationName } = reader;
  const letter = letterOf({ type: event.type, data: event.data, organizationName });
  try {
    await letters.sendAlert({ email, ...letter, atMs: event.createdAt.getTime() });
    return arrived;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return { ...arrived, error: 'mail' };
  }
}
