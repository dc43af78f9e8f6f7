import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { eventually } from '#test/inference/inference-gateway.ts';
import { findRedisServer, startServer, type TestRedis } from '#test/redis.ts';

const slots = 16_384;

/** A Redis cluster of three nodes, each with a third of the slots. */
export async function startRedisCluster(): Promise<TestRedis> {
  const program = findRedisServer();
  if (program === null) throw new Error('this suite needs a Redis server');
  const folder = mkdtempSync(join(tmpdir(), 'hg-cluster-'));
  const nodes: TestRedis[] = [];
  for (const name of ['a', 'b', 'c']) {
    nodes.push(
      await startServer(program, ['--cluster-enabled', 'yes', '--dir', folder, '--cluster-config-file', name]),
    );
  }
  const clients = nodes.map(({ url }) => new Redis(url));
  const size = Math.ceil(slots / nodes.length);
  for (const [index, client] of clients.entries()) {
    const last = Math.min(slots, (index + 1) * size) - 1;
    await client.call('CLUSTER', 'ADDSLOTSRANGE', String(index * size), String(last));
    await client.call('CLUSTER', 'MEET', '127.0.0.1', String(new URL(nodes[0]?.url ?? '').port));
  }
  for (const client of clients) {
    await eventually(async () => {
      const info = String(await client.call('CLUSTER', 'INFO'));
      return info.includes('cluster_state:ok') && info.includes('cluster_known_nodes:3');
    });
    client.disconnect();
  }
  return {
    url: `${nodes[0]?.url}?cluster=1`,
    pid: nodes[0]?.pid ?? null,
    async flush() {
      await Promise.all(nodes.map((node) => node.flush()));
    },
    async stop() {
      await Promise.all(nodes.map((node) => node.stop()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
