import type { Clock } from '#base/clock.ts';
import { type Config, readSigner, settingsInCommon } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { engineFingerprints } from '#core/catalog/catalog.ts';
import {
  type Agreement,
  compareMs,
  createAgreement,
  createConnectionCheck,
  differenceText,
  fingerprint,
} from '#core/gateways/gateways.ts';
import type { ContainerHosts } from './engines.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';

/** Publishes and compares what all gateways of one database must have in common, and reports differences. */

export interface AgreementParts {
  readonly config: Config;
  readonly foundation: Pick<Foundation, 'accounts' | 'alerts' | 'coordination' | 'secrets'>;
  readonly gateway: Pick<Gateway, 'engineFiles'>;
  readonly hosts: ContainerHosts;
  readonly workingDirectory: string;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

const hourMs = 3_600_000;
const alertMs = 60_000;
const connectionsMs = 60_000;
const toldMax = 20;

export function createAgreementPart(parts: AgreementParts): { readonly agreement: Agreement; readonly part: Part } {
  const { config, foundation, gateway, clock, log } = parts;
  const { gateways } = foundation.coordination;
  const settings = settingsInCommon(config);
  const { statementKeyFile } = config.storage;
  const statementKey =
    statementKeyFile === null ? 'none' : readSigner(statementKeyFile, 'HEADGATE_STATEMENT_KEY_FILE').keyId;
  gateways.publishes('engine file', () => ({
    ...engineFingerprints(gateway.engineFiles.engines(), parts.workingDirectory),
    'hosts.yaml': parts.hosts.areHostsNamed ? fingerprint(JSON.stringify(parts.hosts)) : 'none',
  }));
  gateways.publishes('setting', () => settings);
  gateways.publishes('key', () => ({ platform: foundation.secrets.fingerprint(), statements: statementKey }));
  const agreement = createAgreement({ gateways, clock, log, rolloutMs: config.process.rolloutMs });
  const { poolMax, reportsPoolMax } = config.database;
  const checkConnections = createConnectionCheck({ db: parts.db, gateways, pooled: poolMax + reportsPoolMax, log });
  const part: Part = {
    name: 'agreement of gateways',
    jobs: [
      { name: 'compare gateways', everyMs: compareMs, where: 'every', run: () => agreement.compare() },
      { name: 'report gateways that differ', everyMs: alertMs, where: 'one', run: () => raise(parts, agreement) },
      { name: 'check connections', everyMs: connectionsMs, where: 'every', run: checkConnections },
    ],
    start: async () => {
      await agreement.compare();
      await checkConnections();
    },
  };
  return { agreement, part };
}

/** Alerts the platform's own organization of overdue differences, at most once an hour for the same differences. */
async function raise({ foundation: { accounts, alerts }, clock }: AgreementParts, agreement: Agreement): Promise<void> {
  const late = agreement.differences().filter(({ isOverdue }) => isOverdue);
  const platform = late.length === 0 ? null : await accounts.readPlatformOrganization();
  if (platform === null) return;
  const texts = late.map(differenceText);
  const names = late.map(({ kind, name }) => `${kind} ${name}`).join(' ');
  await alerts.raise({
    organizationId: platform.id,
    type: 'gateways.differ',
    data: { count: texts.length, differences: texts.slice(0, toldMax) },
    once: `gateways.differ ${fingerprint(names)} ${Math.floor(clock.now() / hourMs)}`,
  });
}
