import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, it } from 'vitest';
import { chapterLines, paste, rotateChapter } from '#test/chapter-lines.ts';
import { createTestDatabase } from '#test/database.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis } from '#test/redis.ts';

/** Figures of a gateway: 1 while Redis answers it. */
async function redisUp({ metricsUrl }: TestGateway): Promise<string | undefined> {
  const text = await (await fetch(`${metricsUrl}/metrics`)).text();
  return /^headgate_store_up\{store="redis"\} (\d)/m.exec(text)?.[1];
}

const [add = '', remove = ''] = chapterLines(rotateChapter, 'Redis password');

/** Creates a folder of a clone that has a URL of Redis in compose/secrets. */
function cloneWith(url: string): { readonly clone: string; readonly file: string } {
  const clone = mkdtempSync(join(tmpdir(), 'hg-clone-'));
  const file = join(clone, 'compose/secrets/redis_url');
  mkdirSync(join(clone, 'compose/secrets'), { recursive: true });
  writeFileSync(file, `${url}\n`);
  return { clone, file };
}

it("accepts the old and the new Redis password during the change by the chapter's commands", async () => {
  const redis = await startRedis();
  const { port } = new URL(redis.url);
  const admin = new Redis(redis.url);
  await admin.call('ACL', 'SETUSER', 'default', 'resetpass', '>old p@ssword');
  const oldUrl = `redis://:old%20p%40ssword@127.0.0.1:${port}`;
  const { clone, file } = cloneWith(oldUrl);
  const database = await createTestDatabase();
  const env = { REDIS_URL_FILE: file, HEADGATE_METRICS_PORT: '0', HEADGATE_BOOTSTRAP_KEY: `sk-hg-${'k'.repeat(40)}` };
  const start = () => startGateway({ databaseUrl: database.url, env });
  const chat = async (gateway: TestGateway): Promise<number> => {
    const messages = [{ role: 'user', content: 'Hello' }];
    const body = { model: 'standin-chat', messages, max_tokens: 4 };
    return (await gateway.request('/v1/chat/completions', { body })).status;
  };
  const old = await start();
  await paste(add, clone);
  const fresh = await start();
  for (const gateway of [old, fresh]) expect([await chat(gateway), await redisUp(gateway)]).toEqual([200, '1']);
  await old.stop();
  await paste(remove, clone);
  expect([await chat(fresh), await redisUp(fresh)]).toEqual([200, '1']);
  const late = new Redis(oldUrl, { lazyConnect: true, retryStrategy: null });
  late.on('error', () => undefined);
  await expect(late.connect().then(() => late.ping())).rejects.toThrow(/WRONGPASS|closed/);
  late.disconnect();
  await fresh.stop();
  admin.disconnect();
  await redis.stop();
  await database.drop();
  rmSync(clone, { recursive: true });
});

it('keeps the current Redis URL, and its only copy, when Redis rejects the change', async () => {
  const redis = await startRedis();
  const admin = new Redis(redis.url);
  const { port } = new URL(redis.url);
  await admin.call('ACL', 'SETUSER', 'reader', 'on', '>right', '~*', '+@read');
  for (const [refused, why] of [
    ['redis://:wrong@127.0.0.1:1', 'Could not connect'],
    [`redis://reader:right@127.0.0.1:${port}`, 'NOPERM'],
  ] as const) {
    const { clone, file } = cloneWith(refused);
    await expect(paste(add, clone)).rejects.toThrow(why);
    expect(readFileSync(file, 'utf8')).toBe(`${refused}\n`);
    writeFileSync(file, 'redis://:changed@127.0.0.1\n');
    await expect(paste(add, clone)).rejects.toThrow('cannot overwrite existing file');
    expect(readFileSync(`${file}.old`, 'utf8')).toBe(`${refused}\n`);
    rmSync(clone, { recursive: true });
  }
  admin.disconnect();
  await redis.stop();
});
