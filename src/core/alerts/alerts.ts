import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { internet, type Outbound } from '#base/net/net.ts';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { createDelivering, type Delivering } from './deliver.ts';
import { createDeliveries, type Deliveries } from './deliveries.ts';
import { createEndpoints, type Endpoints } from './endpoints.ts';
import type { Raising } from './raise.ts';
import { resealEndpoints } from './reseal.ts';

export type { Delivery } from './deliveries.ts';
export type { Endpoint, EndpointRef } from './endpoint.ts';
export type { EndpointWithSecret } from './endpoints.ts';
export { type Alert, alertKinds, type AlertType, alertTypes, chosenTypes, mailedTypes } from './kinds.ts';
export { createRaising, type Raising } from './raise.ts';
export { countOtherKeysWebhooks } from './reseal.ts';
export { countPendingAlerts, silenceAlerts } from './restored.ts';

/** Sends alerts to organizations: other rooms raise them, and they go to webhooks and by email. */
export interface Alerts extends Raising, Delivering {
  readonly endpoints: Endpoints;
  readonly deliveries: Deliveries;
  /** Encrypts secrets again that an older platform key encrypted, with the key in use. */
  reseal(): Promise<void>;
  /** Deletes old events and their deliveries. */
  deleteOld(): Promise<void>;
}

export interface AlertsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Pick<Accounts, 'lockOrganization' | 'readAlertPeople' | 'readAlertReader'>;
  readonly secrets: Secrets;
  readonly letters: Pick<Letters, 'areSent' | 'sendAlert'>;
  /** Raises alerts; audited changes raise alerts through this object too. */
  readonly raising: Raising;
  /** Most endpoints of one organization; 0: webhooks are off. */
  readonly endpointsMax: number;
  /** Hosts beyond the internet that the operator allows. */
  readonly allowedHosts: readonly string[];
  /** Network access; the internet if absent. */
  readonly outbound?: Outbound;
  /** Milliseconds for one attempt; 15 seconds if absent. */
  readonly timeoutMs?: number;
}

export function createAlerts(options: AlertsOptions): Alerts {
  const { db, clock, raising, allowedHosts, outbound = internet, timeoutMs = 15_000 } = options;
  const rule = { allowedHosts };
  return {
    ...raising,
    ...createDelivering({ ...options, sending: { ...rule, outbound, timeoutMs } }),
    endpoints: createEndpoints({ ...options, rule }),
    deliveries: createDeliveries({ db, clock }),
    reseal: () => resealEndpoints(options),
    deleteOld: () => deleteOldEvents(db, clock.now()),
  };
}

/** Milliseconds that events and their deliveries are kept. */
const eventsKeptMs = 30 * 86_400_000;

const deletedAtOnce = 1000;

/** Deletes older events, except those with pending deliveries. */
async function deleteOldEvents({ sql }: Db, nowMs: number): Promise<void> {
  const before = new Date(nowMs - eventsKeptMs).toISOString();
  for (;;) {
    const { count } = await sql`
      delete from alert_events where id in (
        select id from alert_events e
        where created_at < ${before}::timestamptz and addressed_at is not null
          and not exists (select 1 from alert_deliveries d where d.event_id = e.id and d.status = 'pending')
        order by id limit ${deletedAtOnce})`;
    if (count < deletedAtOnce) return;
  }
}
