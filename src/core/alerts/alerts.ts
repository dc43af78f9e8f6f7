import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';
import { internet, type Outbound } from '#base/outbound.ts';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import type { Audit } from '#core/audit/audit.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { createDelivering, type Delivering } from './deliver.ts';
import { createDeliveries, type Deliveries } from './deliveries.ts';
import { createEndpoints, type Endpoints } from './endpoints.ts';
import { deleteOldEvents } from './old-events.ts';
import type { Raising } from './raise.ts';
import { resealEndpoints } from './reseal.ts';

export type { Delivery } from './deliveries.ts';
export type { Endpoint, EndpointRef } from './endpoint.ts';
export type { EndpointWithSecret } from './endpoints.ts';
export { type Alert, alertKinds, type AlertType, alertTypes, chosenTypes, mailedTypes } from './kinds.ts';
export { createRaising, type Raising } from './raise.ts';
export { countOtherKeysWebhooks } from './reseal.ts';
export { countPendingAlerts, silenceAlerts } from './restored.ts';

/** What organizations are told without asking: raised by the rooms, sent to webhooks and by mail. */
export interface Alerts extends Raising, Delivering {
  readonly endpoints: Endpoints;
  readonly deliveries: Deliveries;
  /** Encrypts secrets that an older platform key encrypted with the one in use. */
  reseal(): Promise<void>;
  /** Takes away events and deliveries that are old. */
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
  /** What audited changes are raised by, too. */
  readonly raising: Raising;
  /** Of one organization; 0: there are none. */
  readonly endpointsMax: number;
  /** Hosts beyond the internet, as the operator allows them. */
  readonly allowedHosts: readonly string[];
  /** The internet where absent. */
  readonly outbound?: Outbound;
  /** Of one try; 15 seconds where absent. */
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
