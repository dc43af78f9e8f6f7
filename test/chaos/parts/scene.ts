import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { createPostgresReader, type Judge } from '../proxy/postgres-reader.ts';
import { FaultProxy } from '../proxy/fault-proxy.ts';
import { type InferenceKey, openKey, openOrganization, type Organization } from './api.ts';
import { type Books, readBooks } from './books.ts';
import type { Where } from './client.ts';
import { type ChaosEngine, type Counted, engineFlags, readJournal, startEngine } from './engine.ts';
import { type ChaosGateway, createGateway } from './gateway.ts';
import { type ChaosPostgres, type PostgresTemplate, startPostgres } from './postgres.ts';
import { randomOf } from './random.ts';
import { type ChaosRedis, startChaosRedis } from './redis.ts';
import { mountSmallDisk } from './small-disk.ts';
import type { Tidy } from './tidy.ts';
import { repository } from '../../programs/gateway-process.ts';

/** All that a row needs: gateways as processes, a PostgreSQL, a Redis and an engine, with proxies in between. */
export interface Scene {
  /** The one that holds the books; another one after a failover. */
  postgres: ChaosPostgres;
  readonly databaseProxy: FaultProxy;
  /** What becomes of the database's answers; everything passes until a row says otherwise. */
  judge: Judge;
  /** @throws Error in a scene without Redis */
  readonly redis: ChaosRedis;
  readonly redisProxy: FaultProxy;
  readonly gateways: readonly ChaosGateway[];
  /** Of those that live. */
  where(): Where[];
  /** @throws Error in a scene whose gateways run the engine themselves */
  readonly engine: ChaosEngine;
  counted(): ReadonlyMap<string, Counted>;
  books(): Promise<Books>;
  organization(usd: string): Promise<Organization>;
  /** A key of an organization of its own. @param limits over those of a key without any */
  key(usd: string, limits?: object): Promise<InferenceKey>;
  keyOf(organization: Organization, limits?: object): Promise<InferenceKey>;
}

export interface SceneOptions {
  /** Of several in one row. */
  readonly name?: string;
  /** Sizes of disks of their own, in MiB. */
  readonly disks?: { readonly gateways: number; readonly postgres: number };
  /** With more than one there is a Redis. */
  readonly gateways?: number;
  readonly redis?: boolean;
  /** Who runs the engine: this program, once for all, or the gateway itself. */
  readonly engine?: 'shared' | 'own';
  /** Of an engine that the gateway runs. */
  readonly replicas?: number;
  /** How gateways come to PostgreSQL: through the proxy, or past it by its unix socket. */
  readonly database?: 'proxy' | 'socket';
  readonly env?: Readonly<Record<string, string>>;
  /** The host name by which gateways know PostgreSQL. */
  readonly databaseHost?: string;
  /** What the command of gateways begins with. */
  readonly wrapper?: readonly string[];
  /** Not started yet. */
  readonly asleep?: boolean;
}

export interface SceneParts {
  /** A folder of the row's own. */
  readonly dir: string;
  readonly seed: number;
  readonly template: PostgresTemplate;
  readonly tidy: Tidy;
}

const commonLines = (id: string): string[] => [
  'version: 1',
  `id: ${id}`,
  `name: The ${id}`,
  `hugging_face_id: test/${id}`,
  'task_type: chat',
  'context_length: 8192',
  'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }',
  'kind: vllm',
];

const sharedFile = (url: string): string => [...commonLines('chat'), 'driver: external', `url: ${url}`, ''].join('\n');

function ownFile(journal: string, replicas: number): string {
  const program = join(repository, 'engines/standin/main.ts');
  const command = ['node', program, '--uds', '{socket}', '--journal', journal, ...engineFlags];
  const lines = [
    'driver: process',
    `command: ${JSON.stringify(command)}`,
    `replicas: { min: ${replicas}, max: ${replicas} }`,
  ];
  return [...commonLines('chat'), ...lines, ''].join('\n');
}

/** Starts everything. Whatever it has started is undone by `tidy`, also when it fails midway. */
export async function openScene(parts: SceneParts, options: SceneOptions = {}): Promise<Scene> {
  const { tidy } = parts;
  const dir = makeDir(parts.dir, options.name ?? 'scene');
  const { gateways: count = 1, redis: hasRedis = count > 1, engine: whose = 'shared' } = options;
  const journal = join(dir, 'journal');
  const postgresDir = makeDir(dir, 'postgres');
  const { disks } = options;
  if (disks !== undefined) tidy.add(mountSmallDisk(postgresDir, disks.postgres));
  const postgres = await startPostgres(parts.template, postgresDir);
  tidy.add(() => postgres.close());
  const serving = { postgres };
  const judging: { judge: Judge } = { judge: () => 'pass' };
  const databaseProxy = await proxyTo(parts, postgres.port, () =>
    createPostgresReader((answered) => judging.judge(answered)),
  );
  const shared = hasRedis ? await openRedis(parts, dir) : null;
  const engine = whose === 'shared' ? await startEngine(journal) : null;
  if (engine !== null) tidy.add(() => engine.close());
  const place = {
    databaseUrl: databaseUrlOf(options, postgres, databaseProxy),
    engines: { chat: engine === null ? ownFile(journal, options.replicas ?? 1) : sharedFile(engine.url) },
    env: { ...(shared !== null && { REDIS_URL: `redis://127.0.0.1:${shared.proxy.port}` }), ...options.env },
    ...(options.wrapper !== undefined && { wrapper: options.wrapper }),
  };
  const gateways = Array.from({ length: count }, (_, index) => {
    const gatewayDir = makeDir(dir, `gateway-${index}`);
    if (disks !== undefined) tidy.add(mountSmallDisk(gatewayDir, disks.gateways));
    return createGateway({ ...place, dir: gatewayDir, index });
  });
  for (const gateway of gateways) tidy.add(() => gateway.close());
  if (options.asleep !== true) for (const gateway of gateways) await gateway.start();
  const first = (): string => gateways.find(({ lives }) => lives)?.url ?? '';
  return {
    get postgres() {
      return serving.postgres;
    },
    set postgres(other) {
      serving.postgres = other;
    },
    databaseProxy,
    get judge() {
      return judging.judge;
    },
    set judge(judge) {
      judging.judge = judge;
    },
    get redis() {
      return there(shared, 'Redis').redis;
    },
    get redisProxy() {
      return there(shared, 'Redis').proxy;
    },
    gateways,
    where: () => gateways.filter(({ lives }) => lives).map(({ index, pid, url }) => ({ gateway: index, pid, url })),
    get engine() {
      return there(engine, 'engine of its own');
    },
    counted: () => readJournal(journal),
    books: () => readBooks(serving.postgres.sql),
    organization: (usd) => openOrganization(first(), usd),
    async key(usd, limits = {}) {
      return openKey(first(), await openOrganization(first(), usd), limits);
    },
    keyOf: (organization, limits = {}) => openKey(first(), organization, limits),
  };
}

function there<T>(value: T | null, name: string): T {
  if (value === null) throw new Error(`this scene has no ${name}`);
  return value;
}

function databaseUrlOf(options: SceneOptions, postgres: ChaosPostgres, proxy: FaultProxy): string {
  if (options.database === 'socket') return postgres.socketUrl;
  const url = new URL(postgres.url);
  url.hostname = options.databaseHost ?? '127.0.0.1';
  url.port = String(proxy.port);
  return url.href;
}

async function openRedis(parts: SceneParts, dir: string): Promise<{ redis: ChaosRedis; proxy: FaultProxy }> {
  const redis = await startChaosRedis(makeDir(dir, 'redis'));
  parts.tidy.add(() => redis.close());
  return { redis, proxy: await proxyTo(parts, redis.port) };
}

async function proxyTo(
  { seed, tidy }: SceneParts,
  port: number,
  newReader?: ConstructorParameters<typeof FaultProxy>[0]['newReader'],
): Promise<FaultProxy> {
  const random = randomOf(seed, 'network');
  const proxy = await new FaultProxy({ port, random, ...(newReader !== undefined && { newReader }) }).listen();
  tidy.add(() => proxy.close());
  return proxy;
}

/** Which everybody may pass: PostgreSQL runs as another user. */
function makeDir(dir: string, name: string): string {
  const made = join(dir, name);
  mkdirSync(made);
  chmodSync(made, 0o711);
  return made;
}
