import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import postgres from 'postgres';
import { afterEach, expect, it } from 'vitest';
import { parseClientConfig } from '#base/config/read-config.ts';
import { runCli } from '#edge/cli/cli.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { clientOf, givenKey, useProcesses } from '#test/programs/gateway-process.ts';
import { startDatabaseProxy } from '#test/database-proxy.ts';
import { startRedis } from '#test/redis.ts';

/** Holds of a request whose usage was on a disk that is lost: an operator gives them back. */

const processes = useProcesses();
const undo: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).toReversed()) await step();
});

interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Runs `headgate` with these words. */
async function headgate(url: string, ...args: readonly string[]): Promise<Said> {
  const said = { out: '', err: '' };
  const config = parseClientConfig({ HEADGATE_URL: url, HEADGATE_API_KEY: givenKey });
  const code = await runCli({
    args,
    readConfig: () => config,
    out: (text) => void (said.out += text),
    err: (text) => void (said.err += text),
  });
  return { code, ...said };
}

/** Checks whether Redis knows of a request that it is on a disk. */
async function isSpooled(url: string, requestId: string): Promise<boolean> {
  const client = new Redis(url);
  try {
    const [holds = ''] = await client.keys('*:holds');
    return (await client.hget(holds, `${requestId}:s`)) === '1';
  } finally {
    client.disconnect();
  }
}

it('lists and releases a hold with a lost spool, but not while its gateway lives or after its charge', async () => {
  const redis = await startRedis();
  undo.push(() => redis.stop());
  const databaseUrl = await processes.database();
  const sql = postgres(databaseUrl, { max: 1, onnotice: () => undefined });
  undo.push(() => sql.end());
  const proxy = await startDatabaseProxy(databaseUrl);
  undo.push(() => proxy.close());
  const env = {
    HEADGATE_BOOTSTRAP_KEY: givenKey,
    REDIS_URL: redis.url,
    HEADGATE_SPOOL_AFTER_MS: '50',
    HEADGATE_LEASE_SECONDS: '6',
  };
  const home = processes.home();
  const lost = processes.run({ home, databaseUrl: proxy.url, env });
  const lostUrl = await lost.url();
  const staying = processes.run({ home: processes.home(), databaseUrl, env });
  const url = await staying.url();
  const held = async (): Promise<string> => (await clientOf(url).get('/v1/wallet')).held;

  // Once with the books, so that the key and the wallet are known.
  expect((await clientOf(lostUrl).chat({ max_tokens: 2 })).status).toBe(200);
  await eventually(async () => (await held()) === '0');
  proxy.refuse();
  // A busy machine may not hear from Redis in time: with both away the gateway answers 503 for a moment.
  const answer = await eventually(async () => {
    const one = await clientOf(lostUrl).chat({ max_tokens: 8 });
    return one.status === 503 ? null : one;
  });
  expect(answer.status).toBe(200);
  const id = answer.headers.get('x-request-id') ?? '';
  // Less than before is held once the answer is on disk: what it costs.
  await eventually(() => isSpooled(redis.url, id));
  const amount = await held();
  expect(await headgate(url, 'holds', 'ls')).toEqual({ code: 0, out: 'no holds left by stopped gateways\n', err: '' });
  const running = await headgate(url, 'holds', 'release', id, '--reason', 'the disk is gone');
  expect(running).toMatchObject({
    code: 1,
    err: expect.stringMatching(/^headgate: The gateway of this request is running/),
  });

  lost.signal('SIGKILL');
  await lost.exited;
  rmSync(join(home.dataDir, 'spool'), { recursive: true });
  await sql`update gateways set last_seen_at = now() - interval '1 hour' where last_seen_at < now() - interval '1 s'`;
  const listed = await eventually(async () => {
    const { out } = await headgate(url, 'holds', 'ls');
    return out.includes(id) ? out : null;
  });
  expect(listed).toMatch(new RegExp(`^${id} +org_\\w+ +${amount} +yes +`, 'm'));
  expect(await headgate(url, 'holds', 'release', id)).toMatchObject({
    code: 2,
    err: expect.stringContaining('--reason'),
  });
  expect(await headgate(url, 'holds', 'release', id, '--reason', 'the disk is gone')).toEqual({
    code: 0,
    out: `${id}: released $${amount}\n`,
    err: '',
  });
  expect(await held()).toBe('0');
  const [noted] = await sql`select action, target_id, before, after from audit_log where action = 'hold.released'`;
  expect(noted).toMatchObject({
    target_id: id,
    before: { spooled: true },
    after: { reason: 'the disk is gone' },
  });
  const again = await headgate(url, 'holds', 'release', id, '--reason', 'once more');
  expect(again).toMatchObject({ code: 1, err: expect.stringContaining('"headgate holds ls" lists') });
  const stranger: Body = await clientOf(url, 'sk-hg-nobody').get('/v1/admin/holds');
  expect(stranger.error.code).toBe('unauthorized');
});
