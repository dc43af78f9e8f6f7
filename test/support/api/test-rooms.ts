import {} from '@hono/node-server';
import {} from 'node:os';
import {} from 'node:path';
import { type BillingStore } from '#app/books.ts';
import { auditWithAlerts } from '#app/alerts.ts';
import { createOrganizationDirectory } from '#app/organization-directory.ts';
import type { Clock } from '#base/clock.ts';
import { type Db } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import {} from '#base/redis/throttle.ts';
import type { Mailer } from '#base/mail.ts';
import { createAccounts, createLetters } from '#core/accounts/accounts.ts';
import { createClusters } from '#core/clusters/clusters.ts';
import { nodeRuns, readAppliedSpans, runsUnderWay } from '#core/runs/runs.ts';
import { createCatalog } from '#core/catalog/catalog.ts';
import { createDoors, createExposures } from '#core/web-addresses/web-addresses.ts';
import { type CostBudgetsOptions, createCostBudgets } from '#core/cost-budgets/cost-budgets.ts';
import { createCosts } from '#core/costs/costs.ts';
import { readReplicaGpus } from '#core/fleet/fleet.ts';
import { type AlertsOptions, createAlerts, createRaising } from '#core/alerts/alerts.ts';
import { createAudit, createAuditTrail } from '#core/audit/audit.ts';
import { createHoldReview } from '#core/admission/admission.ts';
import { type OperatorCommandsOptions } from '#core/fleet/operator-commands.ts';
import { createKeys, createMembers, createServiceAccountSetup, createOrganizations } from '#core/keys/keys.ts';
import { createHistory, createMetering, createQuarantineReview } from '#core/metering/metering.ts';
import { createContents, createReceipts } from '#core/stored-requests/stored-requests.ts';
import { createStacks, type StacksOptions } from '#core/stacks/stacks.ts';
import { createRunsWing } from '#app/runs.ts';
import { createSecrets } from '#core/secrets/secrets.ts';
import { createBudgetCache, createBudgets } from '#core/budgets/budgets.ts';
import { createImports } from '#core/imports/imports.ts';
import { createProjectRateLimits, createRateLimitCache } from '#core/rate-limits/rate-limits.ts';
import { createBatches } from '#core/batches/batches.ts';
import type { Reconciler } from '#core/reconcile/reconcile.ts';
import { createFiles } from '#core/files/files.ts';
import { createWallet, createWalletOpening } from '#core/wallet/wallet.ts';
import { type EngineOperations } from '#edge/api/api.ts';
import {} from '#edge/http/hourly-limits.ts';
import { type Authenticator } from '#edge/http/http.ts';
import {} from '#test/fleet/test-fleet.ts';
import {} from '#test/database.ts';

/** The operators' view of engines and their operations, in the place of a fleet. */
export type ScriptedOperations = Omit<EngineOperations, 'folder' | 'samples'> &
  Partial<Pick<EngineOperations, 'folder' | 'samples'>> &
  Pick<OperatorCommandsOptions['fleet'], 'command'> &
  Pick<OperatorCommandsOptions, 'reload'>;

export interface TestApiOptions {
  /** Host names of the gateway. */
  readonly ownHosts?: readonly string[];
  readonly keyPrefix?: string;
  readonly maxActiveKeys?: number;
  readonly databaseUrl?: string;
  readonly bodyStallTimeoutMs?: number;
  /** The limit of one organization. */
  readonly filesBytesMax?: number;
  /** Keys for the secrets of clusters; absent: a file in the data folder. */
  readonly platformKeys?: readonly Buffer[];
  readonly nodeSilenceMs?: number;
  readonly operations?: ScriptedOperations;
  /** Absent: there is no such route. */
  readonly reconciler?: Reconciler;
  /** Finds out who calls, in the place of the one that knows only keys. */
  readonly authenticator?: Authenticator;
  /** Where packages are fetched from, in the place of the internet. */
  readonly downloads?: StacksOptions['downloads'];
  /** Where webhooks go, in the place of the internet. */
  readonly webhooks?: Partial<Pick<AlertsOptions, 'outbound' | 'allowedHosts' | 'endpointsMax' | 'timeoutMs'>>;
  readonly mailer?: Mailer;
}

const limits = { keyPrefix: 'sk-hg-', maxActiveKeys: 5 };
/** No gateway of this kind applies anything. */
const runsConfig = {
  backupPassphrase: null,
  terraformBin: '/nonexistent/terraform',
  runsDir: null,
  providerMirror: null,
  driftHours: null,

  allowUnsandboxedRuns: false,
  containerRuns: null,
  localRuns: {
    egress: 'cluster',
    required: [],
    memoryBytes: 536_870_912,
    milliCpus: 1000,
    diskBytes: 268_435_456,
    user: { uid: 65_532, gid: 65_532 },
  } as const,
  stateBytesMax: 67_108_864,
  runsAtOnce: 1,
  runMs: 60_000,
  web: null,
};

export interface RoomOptions extends TestApiOptions {
  readonly dataDir: string;
}

/** The real rooms of one gateway, over a database. */
export function createRooms(db: Db, place: BillingStore, clock: Clock, options: RoomOptions) {
  const log = createLog('silent');
  const raising = createRaising({ db, clock });
  const audit = auditWithAlerts(createAudit({ clock }), raising);
  const accounts = createAccounts({ db, clock, log, audit });
  const keys = createKeys({ db, clock, log, audit, accounts, ...limits, ...options });
  const wallet = createWallet({ db, clock, audit });
  accounts.onOpening(createWalletOpening(wallet, 10_000_000_000_000n));
  const organizations = createOrganizations({ db, accounts, keys });
  const members = createMembers({ db, accounts, keys });
  const serviceAccountSetup = createServiceAccountSetup({ db, accounts, keys });
  const metering = createMetering({ db, ...place, clock, log, wallet, staleMs: 300_000, spoolAfterMs: 60_000 });
  const history = createHistory({ db, wallet, connections: 2, waitMsMax: 15_000 });
  const quarantine = createQuarantineReview({ db, clock, wallet, audit });
  const holds = createHoldReview({ db, audit, orphanedHolds: null });
  const contents = createContents({
    db,
    clock,
    log,
    audit,
    during: (organizationId, run) => history.during(organizationId, run),
    ageMaxMs: 86_400_000,
    bodyBytesMax: 1_048_576,
  });
  const ageMaxMs = 30 * 86_400_000;
  const files = createFiles({
    db,
    clock,
    audit,
    ageMaxMs,
    organizationBytesMax: options.filesBytesMax ?? 1_073_741_824,
  });
  const batches = createBatches({ db, clock, audit, files, fileAgeMaxMs: ageMaxMs });
  const auditTrail = createAuditTrail({ db });
  const costs = createCosts({ db, audit, log, readStackSpans: () => readAppliedSpans(db) });
  const secrets = createSecrets({
    db,
    log,
    keys: options.platformKeys ?? null,
    dataDir: options.dataDir,
    backupPassphrase: null,
  });
  const letters = createLetters({ mailer: options.mailer ?? null, publicUrl: null });
  const webhooks = { allowedHosts: [], endpointsMax: 10, ...options.webhooks };
  const alerts = createAlerts({ db, clock, log, audit, accounts, secrets, letters, raising, ...webhooks });
  const { nodeSilenceMs = null } = options;
  const clusters = createClusters({
    db,
    clock,
    log,
    audit,
    accounts,
    costs,
    secrets,
    runsUnderWay,
    nodeRuns,
    nodeSilenceMs,
    raiseIn: (tx, notice) => raising.raiseIn(tx, notice),
  });
  const { downloads = {} } = options;
  const stacks = createStacks({ db, audit, clock, log, downloads });
  const { ownHosts = [] } = options;
  const platform = { keys: null, nodeSilenceMs, ...runsConfig, ownHosts };
  const parts = {
    config: { platform },
    docker: null,
    clusters,
    stacks,
    secrets,
    accounts,
    keys,
    alerts,
    audit,
    db,
    clock,
    log,
    gatewayDir: options.dataDir,
    holder: uuidv7(),
    identity: { clusterEngineSecret: 'secret of the engines of clusters' },
  };
  const raiseIn: CostBudgetsOptions['raiseIn'] = (tx, alert) => raising.raiseIn(tx, alert);
  const billing = {
    costs,
    costBudgets: createCostBudgets({ db, clock, log, audit, costs, raiseIn }),
    directory: createOrganizationDirectory(accounts),
    catalog: createCatalog({ db, clock, engines: [] }),
    readReplicaGpus: (span: { readonly fromMs: number; readonly toMs: number }) => readReplicaGpus(db, span),
  };
  const runs = createRunsWing(parts).runs;
  const sources = {
    declaredPorts: () => Promise.resolve([]),
    clusters: () => Promise.resolve([]),
    sshPorts: () => Promise.resolve([]),
    privateKey: () => Promise.resolve(null),
    standing: () => Promise.resolve(null),
  };
  const budgets = createBudgets({
    db,
    clock,
    audit,
    spent: (...question) => metering.spending.spentOf(...question),
    cache: createBudgetCache({ db, clock, log }),
    onChanged: () => Promise.resolve(),
  });
  return {
    exposures: createExposures({
      db,
      clock,
      audit,
      log,
      sources,
      isOn: false,
      ownHosts,
      doors: createDoors({ ownPorts: [], stores: [], clock }),
    }),
    billing,
    costs,
    clusters,
    stacks,
    runs,
    secrets,
    letters,
    alerts,
    audit,
    auditTrail,
    holds,
    accounts,
    organizations,
    members,
    serviceAccountSetup,
    keys,
    wallet,
    budgets,
    imports: createImports({ db, accounts, keys, budgets }),
    rateLimits: createProjectRateLimits({
      db,
      clock,
      audit,
      cache: createRateLimitCache({ db, log }),
      onChanged: () => Promise.resolve(),
    }),
    metering,
    history,
    quarantine,
    contents,
    receipts: createReceipts({ db }),
    files,
    batches,
  };
}
