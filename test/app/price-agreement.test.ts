import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type Body, eventually, externalFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { createTestDatabase, type TestDatabase, withServer } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';

/** Gateways of one database, each with engine files of its own. */

const adminKey = 'sk-test-admin-0123456789abcdef0123456789abcdef';

let redis: TestRedis;
let database: TestDatabase;
let gateways: TestGateway[] = [];
const folders: string[] = [];

beforeAll(async () => {
  redis = await startRedis();
});
beforeEach(async () => {
  database = await createTestDatabase();
  gateways = [];
  return async () => {
    await Promise.all(gateways.map((gateway) => gateway.stop()));
    await database.drop();
  };
});
afterAll(async () => {
  await redis.stop();
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** The file of a model that nobody serves, with an input price. */
const priced = (usd: string, lines: readonly string[] = []): string =>
  externalFile('chat', 'http://127.0.0.1:9', {
    priced: false,
    lines: [`pricing: { input_per_million: ${usd}, output_per_million: 1 }`, ...lines],
  });

function folderWith(file: string): string {
  const folder = writeEngines({ chat: file });
  folders.push(folder);
  return folder;
}

async function start(enginesDir: string, more: Readonly<Record<string, string>> = {}): Promise<TestGateway> {
  const env = { HEADGATE_BOOTSTRAP_KEY: adminKey, ...more };
  const gateway = await startGateway({ enginesDir, env, databaseUrl: database.url, redisUrl: redis.url });
  gateways.push(gateway);
  return gateway;
}

async function stop(gateway: TestGateway): Promise<void> {
  gateways = gateways.filter((one) => one !== gateway);
  await gateway.stop();
}

/** The price that a gateway bills for a million tokens of input. */
async function priceAt(gateway: TestGateway): Promise<string> {
  const body: Body = await (await gateway.request('/v1/pricing', { key: adminKey })).json();
  return body.data[0].input_per_million;
}

const reload = async (gateway: TestGateway): Promise<number> =>
  (await gateway.request('/v1/admin/engines/reload', { method: 'POST', key: adminKey })).status;

/** Waits until both gateways have read what the other has written: each reads once a second. */
const settled = async (usd: string): Promise<void> => {
  for (const gateway of gateways) await eventually(async () => (await priceAt(gateway)) === usd);
};

const versions = async (gateway: TestGateway): Promise<string[]> =>
  (
    await gateway.db.sql<{ price: string }[]>`
      select input_per_mtok_micro_usd::text as price from price_versions where model_id = 'chat' order by effective_from`
  ).map(({ price }) => price);

const listed = async (gateway: TestGateway): Promise<Body> =>
  (await gateway.request('/v1/admin/engines', { key: adminKey })).json();

describe('gateways with different settings or prices', () => {
  it('are listed with values and gateways, counted in the metrics, and logged again when they agree', async () => {
    const folder = folderWith(priced('1'));
    const one = await start(folderWith(priced('1')), { HEADGATE_METRICS_PORT: '0', HEADGATE_STORE_DAYS: '7' });
    expect((await listed(one)).differences).toEqual([]);
    const two = await start(folder, { HEADGATE_STORE_DAYS: '8' });
    writeFileSync(join(folder, 'chat.yaml'), priced('2'));
    await reload(two);
    const differing = await listed(two);
    expect(differing.differences.map(({ kind, name, overdue }: Body) => [kind, name, overdue])).toEqual([
      ['engine file', 'chat', false],
      ['price', 'chat', false],
      ['setting', 'HEADGATE_STORE_DAYS', false],
    ]);
    const [, price, setting] = differing.differences;
    expect(price.values.map(({ value, gateways: those }: Body) => [value, those.length])).toEqual([
      ['input 1, cached 1, output 1', 1],
      ['input 2, cached 2, output 1', 1],
    ]);
    expect(setting.values.map(({ value }: Body) => value)).toEqual(['7', '8']);
    expect(differing.pending_prices).toEqual(['chat']);
    const counted = async (kind: string): Promise<string | undefined> => {
      const text = await (await fetch(`${one.metricsUrl}/metrics`)).text();
      return new RegExp(`^headgate_gateways_differences\\{kind="${kind}"\\} (\\d+)$`, 'm').exec(text)?.[1];
    };
    await eventually(async () => (await counted('price')) === '1');
    expect([await counted('setting'), await counted('key')]).toEqual(['1', '0']);
    await stop(two);
    await eventually(async () => (await counted('price')) === '0');
    expect((await listed(one)).differences).toEqual([]);
    const logged = one.logLines.map((line) => String(JSON.parse(line).msg));
    expect(logged).toContain('the gateways of this database have different configurations, as during a rollout');
    expect(logged).toContain('the gateways of this database have the same configuration again');
  });
});

describe('gateways that differ for longer than HEADGATE_ROLLOUT_SECONDS', () => {
  it('are counted as overdue in the metrics, and not before', async () => {
    const startWith = (days: string, rolloutSeconds: string): Promise<TestGateway> =>
      start(folderWith(priced('1')), {
        HEADGATE_METRICS_PORT: '0',
        HEADGATE_STORE_DAYS: days,
        HEADGATE_ROLLOUT_SECONDS: rolloutSeconds,
      });
    const patient = await startWith('7', '86400');
    const strict = await startWith('8', '1');
    const counted = async ({ metricsUrl }: TestGateway, name: string): Promise<string | undefined> => {
      const text = await (await fetch(`${metricsUrl}/metrics`)).text();
      return new RegExp(`^${name}\\{kind="setting"\\} (\\d+)$`, 'm').exec(text)?.[1];
    };
    await eventually(async () => (await counted(strict, 'headgate_gateways_differences_overdue')) === '1');
    await eventually(async () => (await counted(patient, 'headgate_gateways_differences')) === '1');
    expect(await counted(patient, 'headgate_gateways_differences_overdue')).toBe('0');
  });
});

describe('gateways whose pools exceed the connections of PostgreSQL', () => {
  it('log a warning when the second one starts, and none when the first starts', async () => {
    let allowed = 0;
    await withServer(database.url, async (sql) => {
      const [row] = await sql<{ allowed: number }[]>`
        select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as allowed`;
      allowed = row?.allowed ?? 0;
    });
    const env = { HEADGATE_DATABASE_POOL: String(Math.ceil(allowed / 2)) };
    const warnings = ({ logLines }: TestGateway): Body[] =>
      logLines.map((line): Body => JSON.parse(line)).filter(({ msg }) => /allows fewer connections/.test(msg));
    const first = await start(folderWith(priced('1')), env);
    expect(warnings(first)).toEqual([]);
    const second = await start(folderWith(priced('1')), env);
    expect(warnings(second)).toMatchObject([{ gateways: 2, allowed }]);
  });
});

describe('a changed price', () => {
  it('applies on no gateway while one has the old file, and on all once the last has the new file', async () => {
    const [first, second] = [folderWith(priced('1')), folderWith(priced('1'))];
    const one = await start(first);
    const two = await start(second);
    writeFileSync(join(first, 'chat.yaml'), priced('2'));
    // Only the first folder has the new price: reading both again changes nothing for anybody.
    expect(await reload(one)).toBe(200);
    expect([await priceAt(one), await priceAt(two)]).toEqual(['1', '1']);
    writeFileSync(join(second, 'chat.yaml'), priced('2'));
    expect(await reload(two)).toBe(200);
    await settled('2');
    expect(await versions(one)).toEqual(['1000000', '2000000']);
  });

  it('is not undone by a gateway that starts with the old file', async () => {
    const current = folderWith(priced('2'));
    const one = await start(current);
    const late = await start(folderWith(priced('1')));
    expect([await priceAt(one), await priceAt(late)]).toEqual(['2', '2']);
    await stop(one);
    const again = await start(current);
    expect([await priceAt(again), await priceAt(late)]).toEqual(['2', '2']);
    expect(await versions(again)).toEqual(['2000000']);
  });

  it('applies once the gateway with the other file has been gone for longer than a rollout', async () => {
    const one = await start(folderWith(priced('1')));
    const two = await start(folderWith(priced('3')), { HEADGATE_ROLLOUT_SECONDS: '1' });
    expect(await priceAt(two)).toBe('1');
    await stop(one);
    await eventually(async () => (await priceAt(two)) === '3');
  });

  it('applies at once on a single gateway, also when it returns to a former price', async () => {
    const folder = folderWith(priced('1'));
    const one = await start(folder);
    for (const usd of ['2', '1']) {
      writeFileSync(join(folder, 'chat.yaml'), priced(usd));
      expect(await reload(one)).toBe(200);
      expect(await priceAt(one)).toBe(usd);
    }
    await stop(one);
    writeFileSync(join(folder, 'chat.yaml'), priced('2'));
    expect(await priceAt(await start(folder))).toBe('2');
  });

  it('does not wait for gateways whose files differ in something else, or lack the model', async () => {
    const folder = folderWith(priced('1'));
    const one = await start(folder);
    await start(folderWith(priced('2', ['aliases: [other]'])));
    const three = writeEngines({});
    folders.push(three);
    await start(three);
    writeFileSync(join(folder, 'chat.yaml'), priced('2'));
    expect(await reload(one)).toBe(200);
    expect(await priceAt(one)).toBe('2');
  });

  it('is in the audit log with old and new prices and the file, except a first price', async () => {
    const folder = folderWith(priced('1'));
    const one = await start(folder);
    writeFileSync(join(folder, 'chat.yaml'), priced('1.5'));
    await reload(one);
    const log: Body = await (await one.request('/v1/audit?action=price.changed', { key: adminKey })).json();
    expect(log.data).toMatchObject([
      {
        target_type: 'model',
        target_id: 'chat',
        before: { tier: 'default', usd_per_million: 'input 1, cached 1, output 1' },
        after: {
          tier: 'default',
          usd_per_million: 'input 1.5, cached 1.5, output 1',
          file: expect.stringMatching(/chat\.yaml$/),
        },
      },
    ]);
  });
});
