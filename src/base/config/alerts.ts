import { section } from './section.ts';
import { list, whole } from './values.ts';

/** Variables of notifications to organizations. */

export interface AlertsConfig {
  /** Webhooks per organization; 0 allows none. */
  readonly webhooksMax: number;
  /** `host` or `host:port` that webhooks may be sent to beyond the internet, by plain HTTP too. */
  readonly webhookHosts: readonly string[];
}

const hostPattern = /^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(?::[1-9]\d{0,4})?$/;

const hosts = list
  .transform((values) => values.map((value) => value.toLowerCase()))
  .refine(
    (values) => values.every((value) => hostPattern.test(value)),
    'must be hosts such as hooks.internal or 10.0.0.5:8080, separated by commas',
  );

export const alerts = section(
  { HEADGATE_MAX_WEBHOOKS: whole(0, 1000, 10), HEADGATE_WEBHOOK_HOSTS: hosts.default([]) },
  (read): AlertsConfig => ({
    webhooksMax: read.HEADGATE_MAX_WEBHOOKS,
    webhookHosts: read.HEADGATE_WEBHOOK_HOSTS,
  }),
);
