import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { openBillingStore } from '#app/books.ts';
import {} from '#app/alerts.ts';
import {} from '#app/organization-directory.ts';
import type { Clock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import {} from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createThrottle } from '#base/redis/throttle.ts';
import type {} from '#base/mail.ts';
import { type Accounts } from '#core/accounts/accounts.ts';
import { type Clusters } from '#core/clusters/clusters.ts';
import { type Model } from '#core/catalog/catalog.ts';
import { type CostBudgets } from '#core/cost-budgets/cost-budgets.ts';
import { type Costs } from '#core/costs/costs.ts';
import {} from '#core/fleet/fleet.ts';
import { type Alerts } from '#core/alerts/alerts.ts';
import {} from '#core/admission/admission.ts';
import { createUnusedStorage } from '#core/fleet/unused-storage.ts';
import { createOperatorCommands } from '#core/fleet/operator-commands.ts';
import { type Keys } from '#core/keys/keys.ts';
import { type Contents } from '#core/stored-requests/stored-requests.ts';
import { type Stacks } from '#core/stacks/stacks.ts';
import {} from '#app/runs.ts';
import { type Secrets } from '#core/secrets/secrets.ts';
import { type Batches } from '#core/batches/batches.ts';
import { type Files } from '#core/files/files.ts';
import { createApi } from '#edge/api/api.ts';
import { createHourlyLimits } from '#edge/http/hourly-limits.ts';
import { createHttpGuards } from '#edge/http/http.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { createTestDatabase } from '#test/database.ts';

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

import { createRooms, type RoomOptions, type ScriptedOperations, type TestApiOptions } from './test-rooms.ts';

export type { ScriptedOperations, TestApiOptions } from './test-rooms.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Json;
}

export interface AskOptions {
  readonly method?: string;
  /** Sent as JSON; a string or bytes as they are. */
  readonly body?: unknown;
  /** Null sends none; absent is the admin's. */
  readonly key?: string | null;
  readonly headers?: Readonly<Record<string, string>>;
}

/** The JSON API on a port of its own, over the real rooms and a database of its own, with a clock that tests turn. */
export interface TestApi {
  readonly url: string;
  readonly db: Db;
  readonly keys: Keys;
  readonly accounts: Accounts;
  readonly contents: Contents;
  readonly files: Files;
  readonly batches: Batches;
  readonly costs: Costs;
  readonly clusters: Clusters;
  readonly secrets: Secrets;
  /** Nothing is delivered but when a test says so. */
  readonly alerts: Alerts;
  readonly dataDir: string;
  readonly billing: { readonly costs: Costs; readonly costBudgets: CostBudgets };
  readonly stacks: Stacks;
  /** A management key of a platform admin. */
  readonly admin: string;
  readonly logLines: readonly string[];
  ask(path: string, options?: AskOptions): Promise<Answer>;
  /** A new organization's id and management key. */
  organization(name?: string): Promise<{ id: string; key: string }>;
  turnClock(ms: number): void;
  /** A second gateway's rooms on the same database. */
  secondRooms(other?: Partial<RoomOptions>): Pick<TestApi, 'keys' | 'accounts' | 'clusters' | 'secrets' | 'alerts'>;
  stop(): Promise<void>;
}

const bodies = { bodyBytesMax: 33_554_432, bodiesBytesMax: 268_435_456 };

export function createTurnableClock(): Clock & { turn(ms: number): void } {
  let offsetMs = 0;
  return {
    now: () => Date.now() + offsetMs,
    monotonicMs: () => performance.now() + offsetMs,
    turn(ms) {
      offsetMs += ms;
    },
  };
}

export async function startApi(options: TestApiOptions = {}): Promise<TestApi> {
  const own = options.databaseUrl === undefined ? await createTestDatabase() : null;
  const databaseUrl = options.databaseUrl ?? own?.url ?? '';
  const db = connectDb(databaseUrl, { poolMax: 8 });
  const clock = createTurnableClock();
  const dataDir = await mkdtemp(join(tmpdir(), 'hg-'));
  const place = await openBillingStore({
    db,
    databaseUrl,
    dataDir,
    gatewayDir: dataDir,
    slot: 0,
    slots: 1,
    log: createLog('silent'),
  });
  const rooms = createRooms(db, place, clock, { ...options, dataDir });
  const bootstrap = await rooms.organizations.bootstrap({ email: null, password: null, key: null });
  await rooms.keys.start();
  const logLines: string[] = [];
  const log = createLog('debug', { write: (line: string) => void logLines.push(line) });
  const { bodyStallTimeoutMs = 15_000 } = options;
  const app = createApi({
    readsEndUsers: true,
    ...rooms,
    clock,
    log,
    ...guardsOf(rooms, options),
    signer: null,
    catalog: {
      find: (name) => (name.startsWith('model-') ? modelOf(name) : undefined),
      list: () => ['model-a', 'model-b'].map(modelOf),
      priceVersion: () => Promise.resolve(null),
    },
    announceAddresses: () => Promise.resolve(),
    heldPicoUsd: () => 0n,
    spentOf: (organizationId, spans) => rooms.metering.spending.spentOf(organizationId, spans),
    admission: { heldOfSlot: () => 0n, check: () => ({ ok: false, code: 'billing_unavailable' }) },
    showLimits: () => ({}),
    limits: { bodyStallTimeoutMs, bodyBytesPerSecondMin: 1024 },
    ...(options.reconciler === undefined ? {} : { reconciler: options.reconciler }),
    ...(options.operations === undefined ? {} : { engines: enginesOf(rooms, db, options.operations) }),
  });
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false, autoCleanupIncoming: false });
  const server = createServer((incoming, outgoing) => void listener(incoming, outgoing));
  const url = await listen(server);
  const admin = bootstrap.secret ?? '';

  const ask = async (path: string, asked: AskOptions = {}): Promise<Answer> => {
    const response = await fetch(new URL(path, url), toInit(asked, admin));
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') ?? false;
    return { status: response.status, headers: response.headers, body: isJson ? JSON.parse(text) : text };
  };
  return {
    url,
    db,
    ...rooms,
    dataDir,
    admin,
    logLines,
    ask,
    async organization(name = 'Water Works') {
      const { body } = await ask('/v1/organizations', { body: { name } });
      return { id: body.id, key: body.management_key };
    },
    turnClock: (ms) => clock.turn(ms),
    secondRooms: (other = {}) => createRooms(db, place, clock, { ...options, dataDir, ...other }),
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await rooms.alerts.close(1000);
      await rooms.metering.close(1000);
      await place.books.close();
      await rm(dataDir, { recursive: true });
      await db.close();
      await own?.drop();
    },
  };
}

/** A model of a file that is not there, for what only knows ids. */
function modelOf(id: string): Model {
  const engine = engineDefinition({}, { id });
  return { ...engine, createdAt: 0, engine, version: null, adapter: null };
}

function enginesOf({ audit }: ReturnType<typeof createRooms>, db: Db, scripted: ScriptedOperations) {
  const samples = scripted.samples?.bind(scripted) ?? noSamples;
  const operations = Object.assign(scripted, { samples, folder: scripted.folder ?? noFolder });
  const commands = createOperatorCommands({ db, audit, fleet: operations, reload: () => operations.reload() });
  const images = { storedImages: () => Promise.resolve([]), removeImage: () => Promise.resolve() };
  const definitions = () => operations.definitions();
  const storage = createUnusedStorage({ db, audit, images, env: {}, definitions, fleet: operations });
  const requests = { runningOf: () => [], cancel: () => false };
  return { operations, commands, storage, requests };
}

const noFolder = { textOf: () => Promise.resolve(null), check: () => [] };
const noSamples = () => ({ load: [], gpus: [] });

function guardsOf(rooms: ReturnType<typeof createRooms>, { authenticator }: TestApiOptions) {
  const shared = { store: null, prefix: '' };
  const guards = createHttpGuards({
    ...rooms,
    ...shared,
    budgetCache: rooms.budgets.cache,
    wrongKeysPerMinute: 1000,
    trustedProxies: [],
    ...bodies,
  });
  if (authenticator === undefined) return guards;
  const throttle = (kind: string) => createThrottle({ kind, limit: 1000, windowSeconds: 3600, ...shared });
  const { addressOf } = guards;
  const [callers, scopeRefusals, addresses] = [throttle('a'), throttle('b'), throttle('c')];
  const hourlyLimits = createHourlyLimits({ authenticator, addressOf, callers, scopeRefusals, addresses });
  return { ...guards, authenticator, hourlyLimits };
}

function toInit({ method, body, key, headers }: AskOptions, admin: string): RequestInit {
  const sent = new Headers(headers);
  const secret = key === undefined ? admin : key;
  if (secret !== null && !sent.has('authorization')) sent.set('authorization', `Bearer ${secret}`);
  if (body === undefined) return { method: method ?? 'GET', headers: sent };
  if (!sent.has('content-type')) sent.set('content-type', 'application/json');
  const raw = typeof body === 'string' || body instanceof Uint8Array;
  const payload = raw ? (body as string | Uint8Array<ArrayBuffer>) : JSON.stringify(body);
  return { method: method ?? 'POST', headers: sent, body: payload };
}

function listen(server: Server): Promise<string> {
  return new Promise((resolve) => {
    server.listen({ host: '127.0.0.1', port: 0 }, () => {
      const address = server.address();
      resolve(`http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`);
    });
  });
}

/** The API of a test file: started before its tests, stopped after them. */
export function useApi(options: TestApiOptions = {}): () => TestApi {
  let api: TestApi | null = null;
  beforeAll(async () => {
    api = await startApi(options);
  });
  afterAll(() => api?.stop());
  return () => {
    if (api === null) throw new Error('the API is started before the tests, not while they are collected');
    return api;
  };
}
