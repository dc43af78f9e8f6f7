import type { Clock } from '#base/clock.ts';
import type { BatchesConfig, Config, DatabaseConfig } from '#base/config/config.ts';
import { connectDb, type Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { organizationIdsSql, projectOwnersSql } from '#core/accounts/accounts.ts';
import type { Admission, HoldReview } from '#core/admission/admission.ts';
import type { Audit } from '#core/audit/audit.ts';
import { type Batches, createBatches } from '#core/batches/batches.ts';
import type { Budgets, BudgetWatch } from '#core/budgets/budgets.ts';
import {
  type Catalog,
  createEngineReload,
  type EngineDefinition,
  type EngineFileProblem,
  type EngineFilesResult,
  type EngineFolder,
  type EngineReload,
  type ReadFile,
} from '#core/catalog/catalog.ts';
import { createFiles, type Files } from '#core/files/files.ts';
import {
  createEngineRequests,
  type EngineRequests,
  type Fleet,
  type FleetIdentity,
  type ImageStore,
} from '#core/fleet/fleet.ts';
import { keyOwnersSql } from '#core/keys/keys.ts';
import {
  createHistory,
  createMetering,
  createQuarantineReview,
  type History,
  type KnownIds,
  type Metering,
  type MeteringOptions,
  nothingUsed,
  type QuarantineReview,
} from '#core/metering/metering.ts';
import { createEngineClient, type EngineClient } from '#core/engine-client/engine-client.ts';
import type { ProjectRateLimits } from '#core/rate-limits/rate-limits.ts';
import { createReconciler, type Reconciler, type ReconcilerOptions } from '#core/reconcile/reconcile.ts';
import { type CacheSalts, createCacheSalts, createRouting, type Routing } from '#core/routing/routing.ts';
import { createWallet, createWalletOpening, type Wallet } from '#core/wallet/wallet.ts';
import { createAdmission } from './admission.ts';
import type { BillingStore } from './books.ts';
import { openBounds } from './bounds.ts';
import { createBudgetAlerts } from './budget-alerts.ts';
import type { SharedStore } from './coordination.ts';
import { type ContainerHosts, createEngines, type WorkerSlot } from './engines.ts';
import type { Foundation } from './foundation.ts';
import type { Part } from './lifecycle.ts';
import { createPrices } from './prices.ts';
import { createRetention, type RetentionRooms } from './retention.ts';

interface FilesParts {
  readonly settings: BatchesConfig;
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
}

/** Files and batches of organizations. Each is deleted after some time. */
interface OpenedFiles {
  readonly files: Files;
  readonly batches: Batches;
  readonly part: Part;
}

const cleaningMs = 60_000;

function openFiles({ settings, db, clock, audit }: FilesParts): OpenedFiles {
  const { fileAgeMaxMs, filesBytesMax } = settings;
  const files = createFiles({ db, clock, audit, ageMaxMs: fileAgeMaxMs, organizationBytesMax: filesBytesMax });
  const batches = createBatches({ db, clock, audit, files, fileAgeMaxMs });
  const part: Part = {
    name: 'files',
    jobs: [
      { name: 'delete old files', everyMs: cleaningMs, where: 'one', run: () => files.deleteOld() },
      { name: 'delete old batches', everyMs: cleaningMs, where: 'one', run: () => batches.deleteOld() },
    ],
  };
  return { files, batches, part };
}

interface HistoryParts {
  readonly config: { readonly database: DatabaseConfig };
  readonly databaseUrl: string;
  readonly clock: Clock;
  readonly audit: Audit;
}

/** Opens the history that callers read. Reports have connections of their own, so that requests never wait for them. */
function openHistory(parts: HistoryParts): { readonly history: History; readonly part: Part } {
  const { config, databaseUrl, clock, audit } = parts;
  const { reportsPoolMax: poolMax, reportTimeoutMs } = config.database;
  const limits = { lockTimeoutMs: null, statementTimeoutMs: reportTimeoutMs, idleInTransactionTimeoutMs: 60_000 };
  const db = connectDb(databaseUrl, { purpose: 'reports', poolMax, limits });
  const wallet = createWallet({ db, clock, audit });
  const history = createHistory({ db, wallet, connections: poolMax, waitMsMax: reportTimeoutMs });
  return { history, part: { name: 'reports', stop: () => db.close() } };
}

/** Queries for the ids under which usage may be recorded. */
const knownIds: KnownIds = {
  organizations: organizationIdsSql,
  keys: keyOwnersSql,
  projects: projectOwnersSql,
};

/** The wing that serves models: catalog and engines, limits and budgets, metering and wallet. */
export interface Gateway extends RetentionRooms {
  readonly files: Files;
  readonly batches: Batches;
  readonly wallet: Wallet;
  readonly budgets: Budgets;
  /** Reads budgets and limits of projects again. */
  readonly loadBounds: () => Promise<void>;
  readonly budgetWatch: BudgetWatch;
  readonly rateLimits: ProjectRateLimits;
  readonly metering: Metering;
  readonly history: History;
  readonly quarantine: QuarantineReview;
  readonly holds: HoldReview;
  readonly admission: Admission;
  readonly catalog: Catalog;
  readonly fleet: Fleet;
  readonly images: ImageStore;
  /** True if engines were adopted and can be started. */
  readonly fleetRuns: () => boolean;
  readonly engineFiles: EngineReload;
  readonly engineRequests: EngineRequests;
  readonly reconciler: Reconciler;
  readonly routing: Routing;
  readonly cacheSalts: CacheSalts;
  readonly engineClient: EngineClient;
  readonly parts: {
    readonly bounds: Part;
    readonly budgetAlerts: Part;
    readonly admission: Part;
    readonly retention: Part;
    readonly files: Part;
    readonly claims: Part;
    readonly metering: Part;
    readonly history: Part;
    readonly catalog: Part;
    readonly engineClient: Part;
    readonly engineRequests: Part;
    readonly engines: Part;
  };
}

/** The engines folder as it was read, and the places where its engines run. */
export interface EngineFiles {
  readonly engines: readonly EngineDefinition[];
  readonly files: readonly ReadFile[];
  /** The folder with the files of `engines`. */
  readonly engineFolder: EngineFolder;
  /** Hosts on which containers may run. */
  readonly hosts: ContainerHosts;
  /** Working directory of engine processes: the folder that holds the engines folder. */
  readonly workingDirectory: string;
}

export interface GatewayOptions extends EngineFiles, BillingStore, Pick<MeteringOptions, 'onCommit'> {
  /** Problems of engines that runs declare, which are left out of `engines`. */
  readonly leftOut: readonly EngineFileProblem[];
  /** Adds the engines that runs declare now to those of files. */
  readonly addRunEngines: (files: readonly ReadFile[]) => Promise<EngineFilesResult>;
  readonly config: Pick<
    Config,
    | 'process'
    | 'database'
    | 'limits'
    | 'docker'
    | 'engines'
    | 'upstream'
    | 'cache'
    | 'storage'
    | 'batches'
    | 'environment'
  >;
  readonly foundation: Foundation;
  readonly shared: SharedStore;
  readonly identity: FleetIdentity;
  readonly slot: WorkerSlot;
  readonly db: Db;
  readonly databaseUrl: string;
  readonly clock: Clock;
  readonly log: Log;
  readonly gatewayDir: string;
}

/** Credit of the first organization: 10 USD, so that the first request can be paid. */
const firstCreditPicoUsd = 10_000_000_000_000n;
const idleSocketMs = 4000;
const maxHeaderBytes = 65_536;
const partitionsMs = 3_600_000;
const refusalsMs = 1000;
const takeOverMs = 10_000;
const engineRequestsMs = 1000;
/** Milliseconds that a stop waits for records that must still be written. */
const closeTimeoutMs = 10_000;

export function createGateway(options: GatewayOptions): Gateway {
  const { config, foundation, shared, identity, db, clock, log, engines, engineFolder: folder } = options;
  const { audit, accounts, keys, coordination, secrets } = foundation;
  const { gateways } = coordination;
  const { leaseMs, rolloutMs, staleMs } = { ...config.process, ...config.database };
  const wallet = createWallet({ db, clock, audit });
  accounts.onOpening(createWalletOpening(wallet, firstCreditPicoUsd));
  const metering = createMetering({ ...options, ...config.database, wallet, ids: knownIds });
  const past = openHistory({ ...options, audit });
  const common = { shared, db, clock, log, coordination, audit };
  const bounds = openBounds({ db, clock, log, audit, metering }, coordination);
  const budgetAlerts = createBudgetAlerts({ db, clock, log, foundation, metering, cache: bounds.budgets.cache });
  const holds = createAdmission({ ...common, leaseMs, staleMs, keys, wallet, metering, ...bounds.books });
  settleUnspooled(metering, holds.admission);
  const { catalog, part: prices } = createPrices({ db, clock, engines, foundation, rolloutMs });
  const engineClient = createEngineClient({
    ...config.upstream,
    idleSocketMs,
    maxHeaderBytes,
    onSinkError: (error) =>
      log.error({ err: error }, 'an error in the gateway interrupted the answer of an engine; the request failed'),
  });
  const settings = { settings: config.engines, docker: config.docker, environment: config.environment };
  const engineRequests = createEngineRequests({ db, clock, log });
  const { fleet, images } = createEngines({ ...options, ...settings, catalog, gateways, engineClient, engineRequests });
  const routing = createRouting({ fleet, clock, log, flexQueueMax: config.engines.flexQueueMax });
  const kept = { cacheBounds: config.cache, storage: config.storage, secrets, leaseMs };
  const retention = createRetention({ ...kept, ...common, metering, history: past.history });
  const enginesLife = createEnginesLife(fleet, routing);
  const files = openFiles({ settings: config.batches, ...common });
  return {
    files: files.files,
    batches: files.batches,
    wallet,
    budgets: bounds.budgets,
    loadBounds: bounds.load,
    budgetWatch: budgetAlerts.watch,
    rateLimits: bounds.rateLimits,
    metering,
    history: past.history,
    quarantine: createQuarantineReview({ db, clock, wallet, audit }),
    admission: holds.admission,
    holds: holds.holds,
    catalog,
    fleet,
    images,
    fleetRuns: enginesLife.runs,
    engineRequests,
    reconciler: openReconciler({ ...options, engineRequests, metering, fleet, gateways }, catalog),
    engineFiles: createEngineReload({ ...options, folder, catalog, fleet, gateways }),
    routing,
    cacheSalts: createCacheSalts(identity.cacheSecret),
    engineClient,
    ...retention.rooms,
    parts: {
      bounds: bounds.part,
      budgetAlerts: budgetAlerts.part,
      admission: holds.part,
      retention: retention.part,
      files: files.part,
      claims: retention.claims,
      metering: meteringPart(metering, options),
      history: past.part,
      catalog: prices,
      engineClient: { name: 'connections to engines', stop: () => engineClient.close() },
      engineRequests: engineRequestsPart(engineRequests),
      engines: enginesLife.part,
    },
  };
}

/** Settles requests in admission when their spooled records are in the books, or never will be. */
function settleUnspooled(metering: Metering, admission: Pick<Admission, 'settleReplayed'>): void {
  metering.onUnspooled((records, isBooked) => {
    for (const record of records) {
      const { organizationId, keyId, id } = record;
      admission.settleReplayed(organizationId, keyId, id, isBooked ? metering.booked(record) : nothingUsed);
    }
  });
}

type ComparedParts = Omit<ReconcilerOptions, 'limits' | 'contextLengthOf' | 'bases'> & Pick<GatewayOptions, 'config'>;

function openReconciler({ config, ...parts }: ComparedParts, catalog: Catalog): Reconciler {
  const contextLengthOf = (model: string): number | null => catalog.find(model)?.contextLength ?? null;
  return createReconciler({ ...parts, limits: config.limits, contextLengthOf, bases: () => catalog.bases() });
}

function meteringPart(metering: Metering, { books, adoptOrphaned }: BillingStore): Part {
  let isStarted = false;
  const adopt = async (): Promise<void> => {
    if (!isStarted) return;
    await adoptOrphaned();
    metering.replaySpool();
  };
  return {
    name: 'books of usage',
    jobs: [
      { name: 'flush refusals', everyMs: refusalsMs, where: 'every', run: () => metering.flushRefusals() },
      { name: 'adopt usage of stopped gateways', everyMs: takeOverMs, where: 'every', run: adopt },
      { name: 'make partitions', everyMs: partitionsMs, where: 'one', run: () => metering.ensurePartitions() },
      { name: 'pack partitions', everyMs: partitionsMs, where: 'one', run: () => metering.packPartitions() },
    ],
    async start() {
      await adoptOrphaned();
      await metering.start();
      isStarted = true;
    },
    async stop() {
      await metering.close(closeTimeoutMs);
      await books.close();
    },
  };
}

function engineRequestsPart(engineRequests: EngineRequests): Part {
  const run = (): Promise<void> => engineRequests.flush();
  return {
    name: 'own requests to engines',
    jobs: [{ name: 'flush own requests to engines', everyMs: engineRequestsMs, where: 'every', run }],
    stop: run,
  };
}

function createEnginesLife(fleet: Fleet, routing: Routing): { readonly part: Part; readonly runs: () => boolean } {
  let runs = false;
  const part: Part = {
    name: 'engines',
    async start() {
      await fleet.start();
      runs = true;
    },
    async stop() {
      runs = false;
      routing.close();
      await fleet.close();
    },
  };
  return { part, runs: () => runs };
}
