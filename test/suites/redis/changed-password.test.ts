import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { chapterLines, paste, rotateChapter } from '../../support/chapter-lines.ts';
import { createTestDatabase } from '../../support/database.ts';
import { startGateway, type TestGateway } from '../../support/gateway.ts';
import { startRedis } from '../../support/redis.ts';

/** Figures of a gateway: 1 while Redis answers it. */
async function redisUp({ metricsUrl }: TestGateway): Promise<string | undefined> {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text();
  return /^headgate_store_up\{store="redis"\} (\d)/m.exec(text)?.[1];
}

it('serves by the old and the new password of Redis while they change, by the lines of the chapter', async () => {
  const clone = mkdtempSync(join(tmpdir(), 'hg-clone-'));
  const file = join(clone, 'compose/secrets/redis_url');
  mkdirSync(join(clone, 'compose/secrets'), { recursive: true });
  const redis = await startRedis();
  const { port } = new URL(redis.url);
  const admin = new Redis(redis.url);
  await admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>old-password');
  writeFileSync(file, `redis://:old-password@127.0.0.1:${port}\n`);
  const database = await createTestDatabase();
  const env = { REDIS_URL_FILE: file, HEADGATE_METRICS_PORT: '0', HEADGATE_BOOTSTRAP_KEY: `sk-hg-${'k'.repeat(40)}` };
  const start = () => startGateway({ databaseUrl: database.url, env });
  const chat = async (gateway: TestGateway): Promise<number> => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const body = { model: 'standin-chat', messages, max_tokens: 4 };
    return (await gateway.request('/v1/chat/completions', { body })).status;
  };
  const [add = '', remove = ''] = chapterLines(rotateChapter, 'Redis password').map((lines) =>
    lines
      .replaceAll('redis.example.com -p 6379', `127.0.0.1 -p ${port}`)
      .replaceAll('redis.example.com:6379', `127.0.0.1:${port}`),
  );

  const old = await start();
  await paste(add, clone);
  const fresh = await start();
  for (const gateway of [old, fresh]) expect([await chat(gateway), await redisUp(gateway)]).toEqual([200, '1']);
  await old.stop();
  await paste(remove, clone);
  expect([await chat(fresh), await redisUp(fresh)]).toEqual([200, '1']);
  const late = new Redis(`redis://:old-password@127.0.0.1:${port}`, { lazyConnect: true, retryStrategy: null });
  late.on('error', () => undefined);
  await expect(late.connect().then(() => late.ping())).rejects.toThrow(/WRONGPASS|closed/);
  late.disconnect();
  await fresh.stop();
  admin.disconnect();
  await redis.stop();
  await database.drop();
  rmSync(clone, { recursive: true });
});
