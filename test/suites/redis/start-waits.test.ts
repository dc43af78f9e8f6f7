import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { clientOf, type GatewayProcess, givenKey, useProcesses } from '#test/programs/gateway-process.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { freePort } from '#test/free-port.ts';
import { findRedisServer, startServer } from '#test/redis.ts';

/** A start that only lacks a store for a moment. */

const processes = useProcesses();
const undo: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step();
});

const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };
/** The answer to a request, with the text of an error. */
const asked = async (gateway: GatewayProcess): Promise<string> => {
  const answer = await clientOf(await gateway.url()).chat({ max_tokens: 2 });
  return answer.ok ? '200' : `${answer.status} ${await answer.text()}`;
};

it('waits for PostgreSQL to become reachable, and says so', async () => {
  const databaseUrl = await processes.database();
  const proxy = await startDatabaseProxy(databaseUrl);
  undo.push(() => proxy.close());
  proxy.refuse();
  const gateway = processes.run({ home: processes.home(), databaseUrl: proxy.url, env });
  await gateway.printed(/"msg":"the start waits: DATABASE_URL: the database cannot be used \(.*ECONNREFUSED/);
  proxy.restore();
  expect(await asked(gateway)).toBe('200');
});

it('waits for Redis to become reachable, and says so', async () => {
  const port = await freePort();
  const databaseUrl = await processes.database();
  const more = { ...env, REDIS_URL: `redis://127.0.0.1:${port}` };
  const gateway = processes.run({ home: processes.home(), databaseUrl, env: more });
  await gateway.printed(/"msg":"the start waits: REDIS_URL: Redis cannot be used \(.*ECONNREFUSED/);
  const redis = await startServer(findRedisServer() ?? '', [], port);
  undo.push(() => redis.stop());
  expect(await asked(gateway)).toBe('200');
});

it('starts again when Redis becomes unresponsive during the start', async () => {
  const redis = await startServer(findRedisServer() ?? '');
  const signal = (name: 'SIGSTOP' | 'SIGCONT'): boolean => process.kill(redis.pid ?? 0, name);
  undo.push(() => redis.stop());
  const proxy = await watchFor('subscribe', { target: redis.url, onFirst: () => signal('SIGSTOP') });
  undo.push(() => proxy.close());
  const databaseUrl = await processes.database();
  const gateway = processes.run({ home: processes.home(), databaseUrl, env: { ...env, REDIS_URL: proxy.url } });
  await gateway.printed(/"msg":"the start waits: REDIS_URL: /);
  signal('SIGCONT');
  expect(await asked(gateway)).toBe('200');
});

it('ends at once on SIGTERM during the wait', async () => {
  const databaseUrl = `postgres://user:password@127.0.0.1:${await freePort()}/headgate`;
  const gateway = processes.run({ home: processes.home(), databaseUrl, env });
  await gateway.printed(/"msg":"the start waits: /);
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
});

interface Watching {
  readonly url: string;
  close(): Promise<void>;
}

/** A proxy that says when the first command of a name goes through it, and passes it on then. */
async function watchFor(command: string, to: { readonly target: string; onFirst(): void }): Promise<Watching> {
  const sockets = new Set<Socket>();
  let isSeen = false;
  const server: Server = createServer((client) => {
    const store = connect(Number(new URL(to.target).port), '127.0.0.1');
    for (const socket of [client, store]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        store.destroy();
      });
    }
    store.pipe(client);
    client.on('data', (bytes) => {
      if (!isSeen && bytes.toString('latin1').toLowerCase().includes(command)) {
        isSeen = true;
        to.onFirst();
      }
      store.write(bytes);
    });
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const address = server.address();
  return {
    url: `redis://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
