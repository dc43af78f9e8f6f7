import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';
import { endWithUs } from './tidy.ts';
import { within } from './wait.ts';

/** A Redis of a row's own. Where it listens changes with every start: gateways come through a proxy. */
export interface ChaosRedis {
  readonly port: number;
  freeze(): void;
  thaw(): void;
  /** Forgets everything, at once. */
  flush(): Promise<void>;
  /** Writes what it knows to the file from which `restart('snapshot')` begins. */
  save(): Promise<void>;
  kill(): Promise<void>;
  /** Starts one in its place, with nothing or with what was saved last. */
  start(from: 'empty' | 'snapshot'): Promise<void>;
  /** One that follows it. */
  startReplica(): Promise<Replica>;
  close(): Promise<void>;
}

export interface Replica {
  readonly port: number;
  /** Separates this server from now on: later writes to the other one do not reach it. */
  fallBehind(): Promise<void>;
}

const snapshotName = 'snapshot.rdb';

interface Running {
  readonly server: TestRedis;
  readonly left: () => void;
}

export async function startChaosRedis(dir: string): Promise<ChaosRedis> {
  const program = findRedisServer();
  if (program === null) throw new Error('there is no redis-server and no valkey-server on PATH');
  mkdirSync(dir, { recursive: true });
  const launch = async (options: readonly string[]): Promise<Running> => {
    const server = await startServer(program, ['--dir', dir, ...options]);
    return { server, left: endWithUs(server.pid ?? 0) };
  };
  const end = async ({ server, left }: Running): Promise<void> => {
    signal(server, 'SIGCONT');
    await server.stop();
    left();
  };
  const own = ['--dbfilename', snapshotName];
  let main: Running | null = await launch(own);
  const replicas: Running[] = [];
  const running = (): TestRedis => {
    if (main === null) throw new Error('Redis was killed and not started again');
    return main.server;
  };
  return {
    get port() {
      return portOf(running());
    },
    freeze: () => signal(running(), 'SIGSTOP'),
    thaw: () => signal(running(), 'SIGCONT'),
    flush: () => ask(portOf(running()), async (client) => void (await client.flushall())),
    save: () => ask(portOf(running()), async (client) => void (await client.save())),
    async kill() {
      if (main !== null) await end(main);
      main = null;
    },
    async start(from) {
      if (from === 'empty') rmSync(join(dir, snapshotName), { force: true });
      main = await launch(own);
    },
    async startReplica() {
      const leader = portOf(running());
      const replica = await launch(['--dbfilename', 'replica.rdb', '--replicaof', `127.0.0.1 ${leader}`]);
      replicas.push(replica);
      const port = portOf(replica.server);
      await follows(port);
      return {
        port,
        fallBehind: () => ask(port, async (client) => void (await client.call('REPLICAOF', 'NO', 'ONE'))),
      };
    },
    async close() {
      for (const one of replicas) await end(one);
      if (main !== null) await end(main);
    },
  };
}

const portOf = ({ url }: TestRedis): number => Number(new URL(url).port);

function signal({ pid }: TestRedis, name: NodeJS.Signals): void {
  if (pid === null) throw new Error('this Redis is no process');
  process.kill(pid, name);
}

async function ask(port: number, doing: (client: Redis) => Promise<void>): Promise<void> {
  const client = new Redis(port, '127.0.0.1');
  client.on('error', () => undefined);
  try {
    await doing(client);
  } finally {
    client.disconnect();
  }
}

async function follows(port: number): Promise<void> {
  const client = new Redis(port, '127.0.0.1');
  const found = await within(30_000, async () => (await client.info('replication')).includes('master_link_status:up'));
  client.disconnect();
  if (found === null) throw new Error('the replica does not follow');
}
