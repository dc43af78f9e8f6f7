import type { Clock } from '#base/clock.ts';
import type { AlertsConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import { formatId } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import type { Outbound } from '#base/net/net.ts';
import type { Accounts, Letters } from '#core/accounts/accounts.ts';
import { type Alert, type Alerts, createAlerts, type Raising } from '#core/alerts/alerts.ts';
import { type Actor, type Audit, type AuditEntry, keyIdOf, userIdOf } from '#core/audit/audit.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import type { ExpiringKey, Keys } from '#core/keys/keys.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import type { Part } from './lifecycle.ts';

/** Connects the sources of alerts to their delivery. */

/** Changes of keys that raise an alert. The audit action and the alert type have the same name. */
const toldActions = ['api_key.created', 'api_key.rotated', 'api_key.revoked', 'api_key.reported'] as const;

/** Wraps the audit: some entries also raise an alert, in the same transaction. */
export function auditWithAlerts(audit: Audit, raising: Raising): Audit {
  return {
    async record(tx, entry) {
      await audit.record(tx, entry);
      const alert = alertOf(entry);
      if (alert !== null) await raising.raiseIn(tx, alert);
    },
  };
}

function alertOf({ organizationId, action, targetId, after, author }: AuditEntry): Alert | null {
  const type = toldActions.find((each) => each === action);
  if (type === undefined || after === null) return null;
  const text = (field: string): string => {
    const value = after[field];
    return typeof value === 'string' ? value : '';
  };
  const { expires_at: expiresAt, service_account_id: account } = after;
  const data = {
    key_id: targetId,
    name: text('name'),
    prefix: text('prefix'),
    last4: text('last4'),
    scope: text('scope'),
    project_id: text('project_id'),
    service_account_id: typeof account === 'string' ? account : null,
    expires_at: typeof expiresAt === 'string' ? Math.floor(Date.parse(expiresAt) / 1000) : null,
    by: byOf(author.actor),
  };
  return { organizationId, type, data };
}

function byOf(actor: Actor): { user_id: string | null; key_id: string | null } | null {
  const [userId, keyId] = [userIdOf(actor), keyIdOf(actor)];
  if (userId === null && keyId === null) return null;
  return {
    user_id: userId === null ? null : formatId('user', userId),
    key_id: keyId === null ? null : formatId('key', keyId),
  };
}

export interface AlertsParts {
  readonly settings: AlertsConfig;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  readonly accounts: Accounts;
  readonly keys: Pick<Keys, 'notifyExpiring'>;
  readonly secrets: Secrets;
  readonly letters: Letters;
  readonly raising: Raising;
  /** Connections for webhooks; absent: the internet. */
  readonly outbound?: Outbound;
}

const deliverMs = 1000;
const resealMs = 60_000;
const cleaningMs = 600_000;
const expiringMs = 600_000;
const closeGraceMs = 5000;

/** Milliseconds before its expiry from which a key raises an alert. */
const soonMs = 7 * 86_400_000;

export function createAlertsWing(parts: AlertsParts): { readonly alerts: Alerts; readonly part: Part } {
  const { settings, keys, log } = parts;
  const { webhooksMax: endpointsMax, webhookHosts: allowedHosts } = settings;
  const alerts = createAlerts({ ...parts, endpointsMax, allowedHosts });
  const part: Part = {
    name: 'alerts',
    jobs: [
      { name: 'deliver alerts', everyMs: deliverMs, where: 'every', run: () => alerts.deliver() },
      {
        name: 'encrypt webhook secrets with the current platform key',
        everyMs: resealMs,
        where: 'every',
        run: () => alerts.reseal(),
      },
      { name: 'delete old alerts', everyMs: cleaningMs, where: 'one', run: () => alerts.deleteOld() },
      {
        name: 'tell of keys that expire soon',
        everyMs: expiringMs,
        where: 'one',
        run: () => tellOfExpiring(keys, alerts),
      },
    ],
    stop: () =>
      alerts
        .close(closeGraceMs)
        .catch((error: unknown) =>
          log.warn(
            { err: error },
            'the gateway stopped while it sent alerts; they are sent again, and receivers may get them twice',
          ),
        ),
  };
  return { alerts, part };
}

/** Raises one alert per key and expiry time, however often this runs. */
export function tellOfExpiring(keys: Pick<Keys, 'notifyExpiring'>, raising: Raising): Promise<void> {
  return keys.notifyExpiring(soonMs, (tx, key) => raising.raiseIn(tx, expiringAlert(key)));
}

function expiringAlert(key: ExpiringKey): Alert {
  const id = formatId('key', key.id);
  const expiresAt = Math.floor(key.expiresAtMs / 1000);
  return {
    organizationId: key.organizationId,
    type: 'api_key.expiring',
    data: {
      key_id: id,
      name: key.name,
      prefix: key.prefix,
      last4: key.last4,
      scope: key.scope,
      project_id: formatId('proj', key.projectId),
      service_account_id: key.serviceAccountId === null ? null : formatId('svc_acct', key.serviceAccountId),
      expires_at: expiresAt,
      by: null,
    },
    once: `api_key.expiring ${id} ${expiresAt}`,
  };
}

export interface EngineAlertsParts {
  readonly fleet: Pick<Fleet, 'list'>;
  readonly accounts: Pick<Accounts, 'readPlatformOrganization'>;
  readonly raising: Raising;
  readonly clock: Clock;
}

/** True from the first failure on: without another request for the engine, `failed` may never follow. */
const isFailure = (phase: string): boolean => phase === 'failed' || phase === 'retrying';

const enginesMs = 5000;
const hourMs = 3_600_000;

/** Alerts the platform's own organization of failed engines: each engine at most once an hour, despite restarts. */
export function createEngineAlertsPart({ fleet, accounts, raising, clock }: EngineAlertsParts): Part {
  const notifiedMs = new Map<string, number>();
  const run = async (): Promise<void> => {
    const nowMs = clock.now();
    const isDue = (engineId: string): boolean =>
      nowMs - (notifiedMs.get(engineId) ?? Number.NEGATIVE_INFINITY) >= hourMs;
    const failed = fleet.list().filter(({ engineId, phase }) => isFailure(phase) && isDue(engineId));
    const platform = failed.length === 0 ? null : await accounts.readPlatformOrganization();
    if (platform === null) return;
    for (const { engineId, cause } of failed) {
      await raising.raise({
        organizationId: platform.id,
        type: 'engine.failed',
        data: { engine: engineId, cause },
        // A gateway that has not reported the engine itself reports it once per hour of the clock.
        once: `engine.failed ${engineId} ${Math.floor(nowMs / hourMs)}`,
      });
      notifiedMs.set(engineId, nowMs);
    }
  };
  return {
    name: 'alerts of engines',
    jobs: [{ name: 'tell of failed engines', everyMs: enginesMs, where: 'one', run }],
  };
}
