import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { idOf, verified } from '#test/alerts/receiver.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { batchEnd, batchWhen, flexPricing, line, outputOf, startBatch } from '#test/inference/batch-bench.ts';
import { type Body } from '#test/inference/inference-gateway.ts';
import { engineFile, type GatewayProcess, givenKey, type Home, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const platformKey = randomBytes(32).toString('base64');
const chat = engineFile('chat').replace(/^pricing:.*$/m, flexPricing);
const tokens = 10;
/** Within what a batch takes of a key's requests per minute: the first are answered, the others take a while. */
const [quick, lines] = [3, 12];

/** Asks a gateway as its platform admin does. */
async function clientOf(gateway: GatewayProcess) {
  const url = await gateway.url();
  const request = (path: string, { body, key = givenKey, method }: Body = {}): Promise<Response> =>
    fetch(new URL(path, url), {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const json = async (path: string, body?: object): Promise<Body> => (await request(path, { body })).json();
  return { url, key: givenKey, request, json } as never as Parameters<typeof startBatch>[0] & { json: typeof json };
}

interface Old {
  readonly home: Home;
  readonly env: Readonly<Record<string, string>>;
  readonly gateway: GatewayProcess;
  readonly databaseUrl: string;
  readonly batchId: string;
  readonly webhook: { readonly id: string; readonly secret: string };
  readonly keySecret: string;
  readonly file: string;
}

/** A gateway that goes on, with a batch and an alert that have not ended, and a backup of it. */
async function oldWith(receiver: LocalReceiver): Promise<Old> {
  const [home, databaseUrl] = [processes.home({ chat }), await processes.database()];
  const env = {
    HEADGATE_BOOTSTRAP_KEY: givenKey,
    HEADGATE_PLATFORM_KEY: platformKey,
    HEADGATE_WEBHOOK_HOSTS: receiver.host,
  };
  const gateway = processes.run({ home, databaseUrl, env });
  const client = await clientOf(gateway);
  const webhook = await client.json('/v1/webhooks', { url: receiver.url, events: ['api_key.created'] });
  receiver.status = 500;
  const { secret: keySecret } = await client.json('/v1/keys', { name: 'told' });
  await expect.poll(() => receiver.got.length).toBe(1);
  await client.json('/v1/budgets', { scope: { type: 'user', id: null }, amount: '5', period: 'monthly' });
  const asked = Array.from({ length: lines }, (_, n) => {
    const standin = { output_tokens: tokens, tpot_ms: n < quick ? 1 : 400 };
    return line(n, { body: { max_tokens: tokens, standin } });
  });
  const { id } = await startBatch(client, asked.join('\n'));
  await batchWhen(client, id, ({ request_counts: counts }) => counts.completed >= quick);
  const file = join(home.dir, 'a.backup');
  const made = await runCli(['backup', file], { env: { DATABASE_URL: databaseUrl, HEADGATE_DATA_DIR: home.dataDir } });
  expect(made).toMatchObject({
    code: 0,
    stderr: expect.stringMatching(/^headgate: the platform key [0-9a-f]{16} is not in the backup\. .*\n$/),
  });
  return { home, env, gateway, databaseUrl, batchId: id, webhook, keySecret, file };
}

async function withReceiver(run: (receiver: LocalReceiver) => Promise<void>): Promise<void> {
  const receiver = await startLocalReceiver();
  try {
    await run(receiver);
  } finally {
    await receiver.close();
  }
}

async function fleetSecretOf(url: string): Promise<unknown> {
  const db = connectDb(url, { poolMax: 1, purpose: 'test' });
  try {
    return (await db.sql`select secret from fleet_secrets where purpose = 'replicas'`)[0];
  } finally {
    await db.close();
  }
}

async function rowsOf(url: string): Promise<number> {
  const db = connectDb(url, { poolMax: 1, purpose: 'test' });
  try {
    const [row] = await db.sql`select count(*)::int as rows from usage_requests`;
    return row?.['rows'] ?? 0;
  } finally {
    await db.close();
  }
}

it('ends pending work in a restored copy with --pending end, so that requests and alerts run only in the original', () =>
  withReceiver(async (receiver) => {
    const old = await oldWith(receiver);
    const [home, databaseUrl] = [processes.home({ chat }), await processes.database()];
    const env = { DATABASE_URL: databaseUrl, HEADGATE_DATA_DIR: home.dataDir };
    const restore = (...words: string[]) => runCli(['restore', old.file, '--replace', ...words], { env });
    const refused = await restore();
    expect(refused).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('1 batches, 1 alerts') });
    expect(await restore('--pending', 'both')).toMatchObject({ code: 2 });
    expect(await rowsOf(databaseUrl)).toBe(0);
    expect(await restore('--pending', 'end')).toMatchObject({ code: 0 });

    const db = connectDb(databaseUrl, { poolMax: 1, purpose: 'test' });
    // As if the time had come at which what did not arrive is tried again.
    await db.sql`update alert_deliveries set next_attempt_at = now() where next_attempt_at is not null`;
    await db.close();
    const before = await rowsOf(databaseUrl);
    const copy = await clientOf(processes.run({ home, databaseUrl, env: old.env }));
    const ended = await batchEnd(copy, old.batchId);
    expect(ended.status).toBe('cancelled');
    const { completed } = ended.request_counts;
    expect(await outputOf(copy, ended.output_file_id)).toHaveLength(completed);
    expect(await outputOf(copy, ended.error_file_id)).toHaveLength(lines - completed);
    expect(await rowsOf(databaseUrl)).toBe(before);
    expect((await copy.json(`/v1/webhooks/${old.webhook.id}`)).enabled).toBe(false);

    // Containers that it would find are the other's.
    expect(await fleetSecretOf(databaseUrl)).toEqual({ secret: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(await fleetSecretOf(databaseUrl)).not.toEqual(await fleetSecretOf(old.databaseUrl));

    const first = await clientOf(old.gateway);
    const batch = await batchEnd(first, old.batchId);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: lines } });
    const { totals } = await first.json('/v1/usage/summary?from=2026-01-01');
    expect(totals.output_tokens).toBe(lines * tokens);
    receiver.status = 204;
    await expect.poll(() => receiver.got.length).toBeGreaterThan(1);
    expect(new Set(receiver.got.map(idOf)).size).toBe(1);
  }));

it('continues pending work in a restored copy with --pending resume; the backup has no secret in plain text', () =>
  withReceiver(async (receiver) => {
    const old = await oldWith(receiver);
    old.gateway.signal('SIGKILL', 'group');
    await old.gateway.exited;
    const text = gunzipSync(readFileSync(old.file)).toString('latin1');
    for (const secret of [old.webhook.secret, old.keySecret, givenKey]) {
      expect(text.includes(secret)).toBe(false);
      const bare = Buffer.from(secret.replace(/^\w+[_-]/, ''));
      expect(text.includes(bare.toString('hex'))).toBe(false);
    }
    const [home, databaseUrl] = [processes.home({ chat }), await processes.database()];
    const env = { DATABASE_URL: databaseUrl, HEADGATE_DATA_DIR: home.dataDir };
    const restored = await runCli(['restore', old.file, '--replace', '--pending', 'resume'], { env });
    expect(restored).toMatchObject({ code: 0 });
    const db = connectDb(databaseUrl, { poolMax: 1, purpose: 'test' });
    await db.sql`update alert_deliveries set next_attempt_at = now() where status = 'pending'`;
    await db.close();
    receiver.status = 204;
    const before = receiver.got.length;
    const client = await clientOf(processes.run({ home, databaseUrl, env: old.env }));
    const batch = await batchEnd(client, old.batchId);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: lines, completed: lines, failed: 0 } });
    const output = await outputOf(client, batch.output_file_id);
    expect(new Set(output.map(({ custom_id: id }) => id)).size).toBe(lines);
    const { totals } = await client.json('/v1/usage/summary?from=2026-01-01');
    expect(totals.output_tokens).toBe(lines * tokens);
    await expect.poll(() => receiver.got.length).toBe(before + 1);
    const got = receiver.got.at(-1);
    if (got === undefined) throw new Error('nothing was told');
    expect(verified(old.webhook.secret, got)).toMatchObject({ data: { name: 'told' } });
    expect(await fleetSecretOf(databaseUrl)).toEqual(await fleetSecretOf(old.databaseUrl));
    expect((await client.json('/v1/budgets')).data).toMatchObject([{ amount: '5', mode: 'hard' }]);
    expect(await runCli(['verify-books'], { env })).toMatchObject({ code: 0 });
  }));
