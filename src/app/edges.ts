import { setTimeout as pause } from 'node:timers/promises';
import { Hono } from 'hono';
import type { Clock } from '#base/clock.ts';
import { type Config, type HttpConfig, readSigner } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { PICO_PER_MICRO } from '#base/money.ts';
import { createOperatorCommands, createUnusedStorage, readReplicaGpus } from '#core/fleet/fleet.ts';
import type { Agreement } from '#core/gateways/gateways.ts';
import { createImports } from '#core/imports/imports.ts';
import { holdsSecret } from '#core/keys/keys.ts';
import { createAborter } from '#core/engine-client/engine-client.ts';
import { absentOf, type ApiOptions, createApi } from '#edge/api/api.ts';
import {
  createHeldKeys,
  createHttpGuards,
  createOnBehalf,
  createShowLimits,
  type HeldKeys,
  type HttpEnv,
  installFallbacks,
  type OnBehalf,
} from '#edge/http/http.ts';
import {
  createEngineTextLog,
  createInference,
  type Inference,
  type InferenceParts,
} from '#edge/inference/inference.ts';
import { type Observe, refreshEveryMs, type Watching } from '#edge/observe/observe.ts';
import { createWeb } from '#edge/web-addresses/web-addresses.ts';
import { createBatchesParts } from './batches.ts';
import type { SharedStore } from './coordination.ts';
import { createEngineOperations } from './engine-operations.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';
import type { Platform } from './platform.ts';
import { createPortalPart } from './portal.ts';
import { createHttpServer, type HttpServer } from './server.ts';
import type { Upkeep } from './upkeep.ts';

/** The listeners of a gateway, and the parts behind them that clients reach. */
export interface Edges {
  /** Returns `http://host:port` of the listener, with the port in use. */
  readonly url: () => string;
  /** Returns `http://host:port` of the listener for metrics; null where there is none. */
  readonly metricsUrl: () => string | null;
  /** Adds the routes of all parts; must be called once, before requests are served. */
  readonly mount: (parts: readonly Part[]) => void;
  readonly parts: {
    readonly listener: Part;
    readonly metrics: Part;
    readonly health: Part;
    readonly inference: Part;
    readonly api: Part;
    /** Web addresses of runs. */
    readonly web: Part;
    readonly portal: Part;
    readonly requests: Part;
    readonly batches: Part;
    readonly endOfBatches: Part;
  };
}

export interface EdgesOptions {
  readonly config: Config;
  readonly foundation: Foundation;
  readonly gateway: Gateway;
  readonly platform: Platform;
  readonly shared: SharedStore;
  readonly observe: Observe;
  readonly agreement: Agreement;
  readonly upkeep: Pick<Upkeep, 'figures'>;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

export function createEdges(options: EdgesOptions): Edges {
  const { config, foundation, gateway, shared, observe, log } = options;
  const guards = createHttpGuards({
    ...foundation,
    ...config.limits,
    ...shared,
    budgetCache: gateway.budgets.cache,
    wrongKeysPerMinute: config.keys.wrongPerMinute,
    trustedProxies: config.http.trustedProxies,
  });
  const showLimits = createShowLimits(gateway.admission, options.clock);
  const common = { ...options, guards: { ...guards, showLimits } };
  const heldKeys = createHeldKeys(foundation);
  const inference = createInferenceEdge(common, heldKeys);
  const batches = createBatchesParts({ ...options, inference, heldKeys });
  const watching = watch(options, inference);
  const onBehalf = createOnBehalf();
  const api = apiPart({ ...common, onBehalf, requests: inference });
  const app = new Hono<HttpEnv>();
  // Requests for inference and health are counted and logged differently from all others.
  app.route('/', inference.requests);
  app.route('/', watching.routes);
  app.use(observe.otherRequests);
  installFallbacks(app, log, absentOf);
  const server = createHttpServer(config.http, app, inference);
  return {
    url: () => server.url(),
    metricsUrl: () => watching.server.url(),
    mount(parts) {
      for (const { routes } of parts) if (routes !== undefined) app.route('/', routes);
    },
    parts: {
      listener: listenerPart(server),
      metrics: { name: 'metrics', start: () => watching.server.listen(), stop: () => watching.server.close() },
      health: {
        name: 'health',
        jobs: [
          {
            name: 'probe stores and count engines',
            everyMs: refreshEveryMs,
            where: 'every',
            run: () => watching.refresh(),
          },
        ],
        start: () => watching.refresh(),
      },
      inference: inferencePart(inference, foundation),
      api,
      web: webPart(common),
      batches: batches.asking,
      endOfBatches: batches.end,
      portal: createPortalPart({ ...common, inference, heldKeys, ...onBehalf.asking(api.routes, log) }),
      requests: requestsPart(config.http, server, inference, watching),
    },
  };
}

function requestsPart(settings: HttpConfig, server: HttpServer, inference: Inference, { health }: Watching): Part {
  return {
    name: 'requests',
    start() {
      health.enter('serving');
      server.open();
    },
    async stop(forceStop) {
      health.enter('draining');
      server.drain();
      // After this pause, load balancers send no more requests here.
      await pause(settings.drainMs, undefined, { signal: forceStop }).catch(() => undefined);
      const closed = server.close();
      const drained = inference.drain(settings.shutdownTimeoutMs);
      await Promise.race([drained, aborted(forceStop).then(() => inference.drain(0))]);
      server.cut();
      await closed;
    },
  };
}

interface GuardedOptions extends EdgesOptions {
  readonly guards: ReturnType<typeof createHttpGuards> & { readonly showLimits: ReturnType<typeof createShowLimits> };
}

function createInferenceEdge(options: GuardedOptions, heldKeys: HeldKeys): Inference {
  const { config, foundation, gateway, guards, observe, clock, log } = options;
  const { engineClient: client } = gateway;
  return createInference({
    ...gateway,
    ...guards,
    budgets: countedBudgets(gateway),
    tokenWatermarks: foundation.coordination.gateways.tokenWatermarks,
    authenticator: heldKeys.authenticator(guards.authenticator),
    observer: observe.requests,
    client,
    aborter: createAborter({ client, clock }),
    clock,
    log,
    limits: config.limits,
    endUserHeader: config.keys.endUserHeader,
    settleTimeoutMs: config.limits.settleTimeoutMs,
    answerStallTimeoutMs: config.http.answerStallTimeoutMs,
    onEngineText: config.upstream.logsText ? createEngineTextLog(log) : null,
  });
}

/** Returns the budget functions that requests use besides admission. */
function countedBudgets({ budgets: { cache }, budgetWatch }: Gateway): InferenceParts['budgets'] {
  return {
    countsUsers: (organizationId) => cache.countsUsers(organizationId),
    countsUser: (organizationId, user) => cache.countsUser(organizationId, user),
    refused: (budget) => budgetWatch.refused(budget),
  };
}

/** Starts and stops the listener. Nothing is left to close when requests were stopped before. */
function listenerPart(server: HttpServer): Part {
  return {
    name: 'listener',
    start: () => server.listen(),
    async stop() {
      const closed = server.close();
      server.cut();
      await closed;
    },
  };
}

function inferencePart(inference: Inference, { keys }: Foundation): Part {
  let off: readonly (() => void)[] = [];
  return {
    name: 'inference',
    routes: inference.lists,
    start() {
      off = [
        keys.onRevoked((keyId) => inference.revoked(keyId)),
        keys.onSecretEnded((end) => inference.secretEnded(end)),
        keys.onOrganizationStopped((stop) => inference.organizationStopped(stop)),
      ];
    },
    stop() {
      inference.close();
      for (const end of off) end();
    },
  };
}

interface ApiPartOptions extends GuardedOptions {
  readonly onBehalf: OnBehalf;
  readonly requests: Inference;
}

function apiPart(options: ApiPartOptions): Part & { readonly routes: Hono<HttpEnv> } {
  const { config, foundation, gateway, platform, guards, onBehalf, agreement, requests, db, clock, log } = options;
  const operations = createEngineOperations({ gateway, coordination: foundation.coordination, agreement, log });
  const heldPicoUsd = async (organizationId: string): Promise<bigint> =>
    (await gateway.admission.heldMicroUsd(organizationId)) * PICO_PER_MICRO;
  const { audit } = foundation;
  const commands = createOperatorCommands({ db, audit, fleet: gateway.fleet, reload: () => operations.reload() });
  const storage = createUnusedStorage({
    db,
    audit,
    ...gateway,
    env: config.environment,
    definitions: () => operations.definitions(),
  });
  const keyFile = config.storage.statementKeyFile;
  const signer = keyFile === null ? null : readSigner(keyFile, 'HEADGATE_STATEMENT_KEY_FILE');
  const { announceAddresses } = platform;
  const { spending } = gateway.metering;
  const spentOf: ApiOptions['spentOf'] = (organizationId, spans) => spending.spentOf(organizationId, spans);
  const imports = createImports({ db, ...foundation, budgets: gateway.budgets });
  const own = { announceAddresses, spentOf, imports, engines: { operations, commands, storage, requests } };
  const rooms = { ...foundation, ...gateway, ...platform.rooms, ...guards, ...own };
  const known = {
    authenticator: onBehalf.authenticator(guards.authenticator),
    hourlyLimits: onBehalf.forWireAlone(guards.hourlyLimits, guards.countPage),
  };
  const billing = {
    costs: platform.rooms.costs,
    costBudgets: platform.rooms.costBudgets,
    directory: platform.directory,
    catalog: gateway.catalog,
    readReplicaGpus: (span: { readonly fromMs: number; readonly toMs: number }) =>
      gateway.history.during(null, (reports) => readReplicaGpus(reports, span)),
  };
  return {
    name: 'API',
    routes: createApi({
      ...rooms,
      ...known,
      billing,
      signer,
      heldPicoUsd,
      limits: config.limits,
      readsEndUsers: config.keys.endUserHeader !== null,
      clock,
      log,
    }),
  };
}

/**
 * Milliseconds between checks of visitors: unlike changes of keys, gateways get no message when a user leaves an
 * organization or is no longer a platform administrator.
 */
const visitorsEveryMs = 5000;
/** Milliseconds between checks of sessions: one query for all with open connections; none if there are none. */
const sessionsEveryMs = 500;

/** Serves web addresses of runs on a listener of their own. Without that listener the part does nothing. */
function webPart({ config, foundation: { keys, sessions }, platform, guards, clock, log }: GuardedOptions): Part {
  const name = 'web addresses of runs';
  const { exposures } = platform.rooms;
  const address = config.platform.web;
  if (address === null) return { name };
  const web = createWeb({
    address,
    exposures,
    keys: {
      holdsKey: holdsSecret,
      isImported: (secret) => keys.isImported(secret),
      hasImported: () => keys.hasImported(),
    },
    addressOf: guards.addressOf,
    wrongEntrances: guards.wrongEntrances,
    wholeAddressOf: guards.wholeAddressOf,
    clock,
    log,
    headersTimeoutMs: config.http.headersTimeoutMs,
    answerStallTimeoutMs: config.http.answerStallTimeoutMs,
    bodyStallMs: config.limits.bodyStallTimeoutMs,
    firstByteMs: config.upstream.firstByteTimeoutMs,
  });
  exposures.onCut((exposure) => web.cut(exposure));
  const endSignedOut = async (): Promise<void> => {
    const ids = web.sessionIds();
    if (ids.length === 0) return;
    const lasting = await sessions.lasting(ids);
    const ended = new Set(ids.filter((id) => !lasting.has(id)));
    if (ended.size > 0) web.cutHeldBy(({ sessionId }) => sessionId !== null && ended.has(sessionId));
  };
  let off: readonly (() => void)[] = [];
  return {
    name,
    jobs: [
      {
        name: 'visitors of web addresses',
        everyMs: visitorsEveryMs,
        where: 'every',
        run: () => web.closeUnauthorized(),
      },
      { name: 'sessions at web addresses', everyMs: sessionsEveryMs, where: 'every', run: endSignedOut },
    ],
    async start() {
      off = [
        keys.onRevoked((keyId) => web.cutHeldBy((holder) => holder.keyId === keyId)),
        keys.onOrganizationStopped(({ organizationId }) =>
          web.cutHeldBy((holder) => holder.organizationId === organizationId),
        ),
      ];
      await web.listen();
      log.info({ url: web.url() }, 'serving web addresses of runs, for the proxy that has their certificates');
    },
    async stop() {
      for (const end of off) end();
      await web.close();
    },
  };
}

function watch(
  { config, foundation, gateway, shared: { store }, observe, agreement, upkeep, db }: EdgesOptions,
  inference: Inference,
): Watching {
  const { fleet, metering, fleetRuns } = gateway;
  return observe.watch({
    address: config.metrics,
    answerStallTimeoutMs: config.http.answerStallTimeoutMs,
    fleet,
    metering,
    agreement,
    backups: foundation.backups,
    upkeep,
    fleetRuns,
    inFlight: () => inference.inFlight,
    staleMs: config.database.staleMs,
    askDatabase: () => db.sql`select 1`,
    isDatabaseOlder: () => foundation.coordination.gateways.isDatabaseOlder,
    askRedis: store === null ? null : () => store.check(),
  });
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
