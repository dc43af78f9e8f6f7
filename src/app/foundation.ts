import type { Clock } from '#base/clock.ts';
import type { AlertsConfig, KeysConfig, SignInConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { createMailer } from '#base/mail.ts';
import type { Outbound } from '#base/net/net.ts';
import { type Accounts, createAccounts, createLetters, type Letters } from '#core/accounts/accounts.ts';
import { type Alerts, createRaising } from '#core/alerts/alerts.ts';
import { type Audit, type AuditTrail, createAudit, createAuditTrail } from '#core/audit/audit.ts';
import { type Backups, createBackups, readEveryMs } from '#core/backups/backups.ts';
import {
  changesPollMs,
  createKeys,
  createMembers,
  createOrganizations,
  createServiceAccountSetup,
  type Keys,
  type Members,
  type Organizations,
  type ServiceAccountSetup,
} from '#core/keys/keys.ts';
import { createSecrets, type Secrets } from '#core/secrets/secrets.ts';
import { createSessions, type Sessions } from '#core/sessions/sessions.ts';
import { auditWithAlerts, createAlertsWing } from './alerts.ts';
import { type Coordination, createCoordination, type SharedStore } from './coordination.ts';
import type { Part } from './lifecycle.ts';

/** The wing that all others use: accounts and keys, the audit, alerts, and the gateways of the database. */
export interface Foundation {
  readonly audit: Audit;
  readonly auditTrail: AuditTrail;
  readonly accounts: Accounts;
  readonly keys: Keys;
  readonly organizations: Organizations;
  readonly members: Members;
  readonly serviceAccountSetup: ServiceAccountSetup;
  readonly sessions: Sessions;
  readonly letters: Letters;
  readonly secrets: Secrets;
  readonly alerts: Alerts;
  readonly backups: Backups;
  readonly coordination: Coordination;
  readonly parts: {
    readonly alerts: Part;
    readonly sharedStore: Part;
    readonly gateways: Part;
    readonly keyUses: Part;
    readonly keys: Part;
    readonly backups: Part;
  };
}

export interface FoundationOptions {
  readonly settings: KeysConfig;
  readonly signIn: SignInConfig;
  readonly alerts: AlertsConfig;
  /** Keys that encrypt secrets; null: keys of a file in the data folder. */
  readonly platformKeys: readonly Buffer[] | null;
  /** Seals copies of the platform keys for backups. */
  readonly backupPassphrase: string | null;
  /** Connections for webhooks; absent: the internet. */
  readonly outbound?: Outbound;
  /** Milliseconds for which loaded keys and projects are used while PostgreSQL is unavailable. */
  readonly staleMs: number;
  readonly shared: SharedStore;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly dataDir: string;
  /** The folder of this gateway in the data folder. */
  readonly gatewayDir: string;
  /** Number of this gateway among the workers that share the gateway folder. */
  readonly slot: number;
}

const keyUsesMs = 5000;
const heldKeysMs = 3_600_000;
const usesNotStored =
  'this gateway stops, and could not store when API keys were last used; the portal shows earlier times';

function lettersOf({ signIn: { mail, publicUrl }, log }: FoundationOptions): Letters {
  return createLetters({ mailer: mail === null ? null : createMailer({ ...mail, log }), publicUrl });
}

export function createFoundation(options: FoundationOptions): Foundation {
  const { settings, staleMs, shared, db, clock, log } = options;
  const raising = createRaising({ db, clock });
  const audit = auditWithAlerts(createAudit({ clock }), raising);
  const { maxServiceAccounts } = settings;
  const accounts = createAccounts({ db, clock, log, audit, staleMs, guesses: shared, maxServiceAccounts });
  const sessions = createSessions({ db, clock, audit, accounts, guesses: shared });
  accounts.onAccessEnd((tx, end) => sessions.endAccessIn(tx, end));
  const { prefix: keyPrefix, maxActive: maxActiveKeys } = settings;
  const keys = createKeys({ db, clock, log, audit, accounts, keyPrefix, maxActiveKeys, staleMs });
  const coordination = createCoordination({ ...options, ...shared, keys });
  const letters = lettersOf(options);
  const { platformKeys, backupPassphrase, dataDir } = options;
  const secrets = createSecrets({ db, log, keys: platformKeys, backupPassphrase, dataDir });
  const backups = createBackups({ db, clock });
  const rooms = { ...options, audit, accounts, keys, secrets, letters, raising };
  const { alerts, part: alertsPart } = createAlertsWing({ ...rooms, settings: options.alerts });
  return {
    audit,
    auditTrail: createAuditTrail({ db }),
    accounts,
    keys,
    organizations: createOrganizations({ db, accounts, keys }),
    members: createMembers({ db, accounts, keys }),
    serviceAccountSetup: createServiceAccountSetup({ db, accounts, keys }),
    sessions,
    letters,
    secrets,
    alerts,
    backups,
    coordination,
    parts: {
      alerts: alertsPart,
      sharedStore: { name: 'Redis', stop: () => shared.store?.close() },
      gateways: coordination.part,
      keyUses: {
        name: 'last uses of keys',
        jobs: [
          { name: 'flush last uses of keys', everyMs: keyUsesMs, where: 'every', run: () => keys.flush() },
          {
            name: 'revoke held keys that nobody uses',
            everyMs: heldKeysMs,
            where: 'one',
            run: () => keys.endUnusedHeld(),
          },
        ],
        // Last uses are informational: they must not keep a gateway from stopping while PostgreSQL is unavailable.
        stop: () => keys.flush().catch((error: unknown) => log.warn({ err: error }, usesNotStored)),
      },
      keys: {
        name: 'keys',
        jobs: [
          {
            name: 'changes of keys and organizations',
            everyMs: changesPollMs,
            where: 'every',
            run: () => keys.lookForChanges(),
          },
        ],
        start: () => keys.start(),
      },
      backups: backupsPart(backups, log),
    },
  };
}

function backupsPart(backups: Backups, log: Log): Part {
  return {
    name: 'backups',
    jobs: [{ name: 'read the newest backup', everyMs: readEveryMs, where: 'every', run: () => backups.read() }],
    // The result is only a metric, and the job reads it again.
    start: () =>
      backups
        .read()
        .catch((error: unknown) =>
          log.warn(
            { err: error },
            'the age of the newest backup could not be read from PostgreSQL; a job retries every minute',
          ),
        ),
  };
}
