import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listSpooled, spoolFoldersOf } from '#base/spool.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';

/** Gateways that share one data folder, as the copies of one service with one volume do. */

let cluster: Cluster;
let proxy: DatabaseProxy;
const dataDir = mkdtempSync(join(tmpdir(), 'hg-one-folder-'));
const own = { HEADGATE_DATA_DIR: dataDir };

beforeAll(async () => {
  cluster = await startCluster({ count: 0, env: { LOG_LEVEL: 'info' } });
  proxy = await startDatabaseProxy(cluster.database.url);
});
afterAll(async () => {
  await cluster.stop();
  await proxy.close();
  rmSync(dataDir, { recursive: true, force: true });
});

const idIn = (folder: string): string => readFileSync(join(dataDir, folder, 'gateway-id'), 'utf8').trim();

async function spooledFiles(): Promise<string[]> {
  const [database = ''] = readdirSync(join(dataDir, 'spool'));
  return (await Promise.all(spoolFoldersOf(dataDir, database).map(listSpooled))).flat();
}

describe('three gateways on one data folder', () => {
  it('start side by side, each in its own folder, and reuse it after a restart', async () => {
    for (let index = 0; index < 2; index += 1) await cluster.start(own);
    await cluster.start({ ...own, DATABASE_URL: proxy.url, HEADGATE_SPOOL_AFTER_MS: '100' });
    for (const which of [0, 1, 2]) expect((await cluster.chat(which, adminKey)).status).toBe(200);
    const ids = [idIn('.'), idIn('gateways/1'), idIn('gateways/2')];
    const rows = await cluster.sql<{ id: string }[]>`select place_id::text as id from gateways`;
    expect(rows.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
    await cluster.gateways[1]?.end('SIGKILL');
    expect((await cluster.chat(cluster.gateways.indexOf(await cluster.start(own)), adminKey)).status).toBe(200);
    expect(readdirSync(join(dataDir, 'gateways')).toSorted()).toEqual(['1', '2']);
  });

  it('share the platform key', async () => {
    const webhook = { url: 'https://example.com/hook', events: ['budget.exceeded'] };
    const answer = await cluster.ask(2, '/v1/webhooks', { body: webhook });
    expect([answer.status, await answer.text()]).toEqual([201, expect.anything()]);
    expect(readdirSync(dataDir)).toContain('platform.key');
    expect(readdirSync(join(dataDir, 'gateways/2'))).not.toContain('platform.key');
  });

  it("post usage from a killed gateway's spool once, and only after it has ended", async () => {
    const owner = await cluster.organization('1');
    const { secret } = await cluster.key({}, owner.key);
    expect((await cluster.chat(2, secret)).status).toBe(200);
    proxy.refuse();
    const answer = await cluster.chat(2, secret, { max_tokens: 7 });
    const id = answer.headers.get('x-request-id') ?? '';
    expect([answer.status, await answer.text()]).toEqual([200, expect.anything()]);
    const [file = ''] = await spooledFiles();
    expect(file).toContain('/gateways/2/spool/');
    const count = async (): Promise<number> => (await cluster.sql`select from usage_records where id = ${id}`).length;
    expect(await count()).toBe(0);
    await cluster.gateways[2]?.end('SIGKILL');
    await eventually(async () => (await count()) === 1);
    await eventually(async () => (await spooledFiles()).length === 0);
    proxy.restore();
    await cluster.start(own);
    expect(await count()).toBe(1);
    await eventually(async () => {
      const wallet = (await (await cluster.ask(0, '/v1/wallet', { key: owner.key })).json()) as Wallet;
      const records = (await (await cluster.ask(0, '/v1/usage/requests', { key: owner.key })).json()) as Records;
      const spent = records.data.reduce((sum, { cost }) => sum + Number(cost), 0);
      return (
        records.data.length === 2 && wallet.held === '0' && (1 - spent).toFixed(9) === Number(wallet.balance).toFixed(9)
      );
    });
  });
});

interface Wallet {
  readonly balance: string;
  readonly held: string;
}

interface Records {
  readonly data: readonly { readonly cost: string }[];
}
