import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { createPostgresReader, type Judge } from '../proxy/postgres-reader.ts';
import { FaultProxy, type Reader } from '../proxy/fault-proxy.ts';
import { type InferenceKey, openKey, openOrganization, type Organization } from './api.ts';
import { type Books, readBooks } from './books.ts';
import type { Where } from './client.ts';
import { type ChaosEngine, type Counted, engineFlags, readJournal, startEngine } from './engine.ts';
import { type ChaosGateway, createGateway } from './gateway.ts';
import { type ChaosPostgres, type PostgresTemplate, startPostgres } from './postgres.ts';
import { randomOf } from '#test/random.ts';
import { type ChaosRedis, startChaosRedis } from './redis.ts';
import { mountSmallDisk } from './small-disk.ts';
import type { Tidy } from './tidy.ts';
import { repository } from '#test/programs/gateway-process.ts';

/** All that a row needs: gateways as processes, a PostgreSQL, a Redis and an engine, with proxies in between. */
export interface Scene {
  /** The one that holds the books; another one after a failover. */
  postgres: ChaosPostgres;
  readonly databaseProxy: FaultProxy;
  /** The rule for the database's answers; everything passes until a row sets another. */
  set judge(judge: Judge);
  /** @throws Error in a scene without Redis */
  readonly redis: ChaosRedis;
  readonly redisProxy: FaultProxy;
  readonly gateways: readonly ChaosGateway[];
  /** Places of the gateways that live. */
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
  /** Name of the scene, when a row has several. */
  readonly name?: string;
  /** Sizes of disks of their own, in MiB. */
  readonly disks?: { readonly gateways: number; readonly postgres: number };
  /** With more than one there is a Redis. */
  readonly gateways?: number;
  readonly redis?: boolean;
  /** The parent of the engine: this program, once for all, or the gateway itself. */
  readonly engine?: 'shared' | 'own';
  /** Number of replicas of an engine that the gateway runs. */
  readonly replicas?: number;
  /** Tokens that the chat template of the shared engine adds to each conversation. */
  readonly templateTokens?: number;
  /** Returns files for the folder of engine files by name, in addition to `chat` or in its place. */
  readonly files?: (journal: string) => Readonly<Record<string, string>>;
  /** How gateways come to PostgreSQL: through the proxy, or past it by its unix socket. */
  readonly database?: 'proxy' | 'socket';
  readonly env?: Readonly<Record<string, string>>;
  /** The host name by which gateways know PostgreSQL. */
  readonly databaseHost?: string;
  /** Not started yet. */
  readonly asleep?: boolean;
  /** All gateways have one data folder, as the copies of a container with one volume do. */
  readonly sharesFolder?: boolean;
}

export interface SceneParts {
  /** A folder of the row's own. */
  readonly dir: string;
  readonly seed: number;
  readonly template: PostgresTemplate;
  readonly tidy: Tidy;
  /** Told what each gateway has printed, at the end. */
  readonly onOutput: (name: string, text: string) => void;
}

const commonLines = (id: string): string[] => [
  'version: 1',
  `id: ${id}`,
  `name: The ${id}`,
  `hugging_face_id: test/${id}`,
  'task_type: chat',
  'context_length: 8192',
  'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40, flex_multiplier: 1 }',
  'kind: vllm',
];

const sharedFile = (url: string): string => [...commonLines('chat'), 'driver: external', `url: ${url}`, ''].join('\n');

function ownFile(journal: string, replicas: number): string {
  const program = join(repository, 'engines/standin/standin.js');
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
  const place: Place = { ...parts, dir: makeDir(parts.dir, options.name ?? 'scene') };
  const { gateways: count = 1, engine: whose = 'shared' } = options;
  const journal = join(place.dir, 'journal');
  const shared = (options.redis ?? count > 1) ? await openRedis(place) : null;
  const engine = whose === 'shared' ? await openEngine(place, journal, options) : null;
  const opened = { ...(await openPostgres(place, options)), shared, engine, journal };
  return new OpenScene(opened, await openGateways(place, options, opened));
}

/** With the scene's own folder. */
type Place = SceneParts;

interface Shared {
  readonly redis: ChaosRedis;
  readonly proxy: FaultProxy;
}

interface Opened {
  readonly postgres: ChaosPostgres;
  readonly databaseProxy: FaultProxy;
  /** Asked of every answer of the database. */
  readonly judging: { judge: Judge };
  readonly shared: Shared | null;
  readonly engine: ChaosEngine | null;
  readonly journal: string;
}

class OpenScene implements Scene {
  readonly #opened: Opened;
  readonly gateways: readonly ChaosGateway[];
  readonly databaseProxy: FaultProxy;
  postgres: ChaosPostgres;

  constructor(opened: Opened, gateways: readonly ChaosGateway[]) {
    this.#opened = opened;
    this.gateways = gateways;
    this.databaseProxy = opened.databaseProxy;
    this.postgres = opened.postgres;
  }

  set judge(judge: Judge) {
    this.#opened.judging.judge = judge;
  }

  get redis(): ChaosRedis {
    return there(this.#opened.shared, 'Redis').redis;
  }

  get redisProxy(): FaultProxy {
    return there(this.#opened.shared, 'Redis').proxy;
  }

  get engine(): ChaosEngine {
    return there(this.#opened.engine, 'engine of its own');
  }

  get #url(): string {
    return this.gateways.find(({ lives }) => lives)?.url ?? '';
  }

  where(): Where[] {
    const living = this.gateways.filter(({ lives }) => lives);
    return living.map(({ index, pid, url }) => ({ gateway: index, pid, url }));
  }

  counted(): ReadonlyMap<string, Counted> {
    return readJournal(this.#opened.journal);
  }

  books(): Promise<Books> {
    return readBooks(this.postgres.sql);
  }

  organization(usd: string): Promise<Organization> {
    return openOrganization(this.#url, usd);
  }

  async key(usd: string, limits: object = {}): Promise<InferenceKey> {
    return openKey(this.#url, await openOrganization(this.#url, usd), limits);
  }

  keyOf(organization: Organization, limits: object = {}): Promise<InferenceKey> {
    return openKey(this.#url, organization, limits);
  }
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

async function openPostgres(
  place: Place,
  { disks }: SceneOptions,
): Promise<Pick<Opened, 'postgres' | 'databaseProxy' | 'judging'>> {
  const { dir, tidy, template } = place;
  const postgresDir = makeDir(dir, 'postgres');
  if (disks !== undefined) tidy.add(mountSmallDisk(postgresDir, disks.postgres));
  const postgres = await startPostgres(template, postgresDir);
  tidy.add(() => postgres.close());
  const judging: Opened['judging'] = { judge: () => 'pass' };
  const newReader = (): Reader => createPostgresReader((answered) => judging.judge(answered));
  return { postgres, judging, databaseProxy: await proxyTo(place, postgres.port, newReader) };
}

async function openRedis(place: Place): Promise<Shared> {
  const redis = await startChaosRedis(makeDir(place.dir, 'redis'));
  place.tidy.add(() => redis.close());
  return { redis, proxy: await proxyTo(place, redis.port) };
}

async function openEngine({ tidy }: Place, journal: string, options: SceneOptions): Promise<ChaosEngine> {
  const flags = ['--preamble-tokens', String(options.templateTokens ?? 0)];
  const engine = await startEngine({ id: 'chat', journal, flags });
  tidy.add(() => engine.close());
  return engine;
}

async function openGateways(place: Place, options: SceneOptions, opened: Opened): Promise<ChaosGateway[]> {
  const { dir, tidy, onOutput } = place;
  const { disks, replicas = 1 } = options;
  const { postgres, databaseProxy, engine, journal, shared } = opened;
  const common = {
    databaseUrl: databaseUrlOf(options, postgres, databaseProxy),
    engines: {
      chat: engine === null ? ownFile(journal, replicas) : sharedFile(engine.url),
      ...options.files?.(journal),
    },
    env: { ...(shared !== null && { REDIS_URL: `redis://127.0.0.1:${shared.proxy.port}` }), ...options.env },
  };
  const gateways: ChaosGateway[] = [];
  for (let index = 0; index < (options.gateways ?? 1); index += 1) {
    const name = `gateway-${index}`;
    const first = gateways[0];
    const gatewayDir = options.sharesFolder === true && first !== undefined ? first.home.dir : makeDir(dir, name);
    if (disks !== undefined) tidy.add(mountSmallDisk(gatewayDir, disks.gateways));
    const gateway = createGateway({ ...common, dir: gatewayDir, index });
    tidy.add(() => gateway.close());
    tidy.add(() => onOutput(`${options.name ?? 'scene'}-${name}.log`, gateway.output()));
    gateways.push(gateway);
  }
  if (options.asleep !== true) for (const gateway of gateways) await gateway.start();
  return gateways;
}

async function proxyTo({ seed, tidy }: SceneParts, port: number, newReader?: () => Reader): Promise<FaultProxy> {
  const random = randomOf(seed, 'network');
  const proxy = await new FaultProxy({ port, random, ...(newReader !== undefined && { newReader }) }).listen();
  tidy.add(() => proxy.close());
  return proxy;
}

/** Makes a folder that everybody may enter: PostgreSQL runs as another user. */
function makeDir(dir: string, name: string): string {
  const made = join(dir, name);
  mkdirSync(made);
  chmodSync(made, 0o711);
  return made;
}
