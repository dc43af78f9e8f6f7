import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { startRedis } from '#test/redis.ts';
import {
  clientOf,
  ended,
  engineFile,
  engineRecords,
  givenKey,
  onlyEngine,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const bootstrap = { HEADGATE_BOOTSTRAP_KEY: givenKey };

describe('the queue for a cold engine', () => {
  it('is bounded: returns 503 with Retry-After when it is full, and answers the requests in it', async () => {
    const home = processes.home({ chat: engineFile('chat', { flags: ['--start-delay-ms', '3000'] }) });
    const env = { ...bootstrap, HEADGATE_START_QUEUE_MAX: '3' };
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
    const client = clientOf(await gateway.url());
    const answers = await Promise.all(Array.from({ length: 8 }, () => client.chat({})));
    const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b);
    expect(statuses).toEqual([200, 200, 200, 503, 503, 503, 503, 503]);
    for (const refused of answers.filter(({ status }) => status === 503)) {
      expect(refused.headers.get('retry-after')).toMatch(/^[1-9]\d*$/);
      expect(await refused.json()).toMatchObject({ error: { code: 'upstream_error', message: /waiting/ } });
    }
    expect(engineRecords(home.dataDir)).toHaveLength(1);
    expect(gateway.output.stdout.split('"started an engine"')).toHaveLength(2);
  });
});

describe('a start without models', () => {
  it('prints one line with the engines folder, and serves a model added there after SIGHUP', async () => {
    const home = processes.home({});
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env: bootstrap });
    const client = clientOf(await gateway.url());
    const [line] = await gateway.printed(/^No models yet: .*$/m);
    expect(line).toContain(`there is no engine file in ${home.enginesDir};`);
    home.writeEngine('chat', engineFile('chat'));
    gateway.signal('SIGHUP');
    await eventually(async () => (await client.chat({})).status === 200);
  });
});

describe('an idle engine', () => {
  it('stops after its idle_seconds, and the next request starts it cold', async () => {
    const home = processes.home({ chat: engineFile('chat', { lines: ['idle_seconds: 3'] }) });
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env: bootstrap });
    const client = clientOf(await gateway.url());
    const cold = await client.chat({});
    expect([cold.status, cold.headers.get('x-headgate-start')]).toEqual([200, 'cold']);
    const first = onlyEngine(home.dataDir);
    const warm = await client.chat({});
    expect([warm.status, warm.headers.get('x-headgate-start')]).toEqual([200, 'warm']);
    await ended(first.pid);
    await eventually(async () => (await client.get('/v1/models/chat')).status === 'cold');
    // The status says cold a moment before the note of its process is deleted.
    await eventually(() => Promise.resolve(engineRecords(home.dataDir).length === 0));
    const again = await client.chat({});
    expect([again.status, again.headers.get('x-headgate-start')]).toEqual([200, 'cold']);
    expect(onlyEngine(home.dataDir).pid).not.toBe(first.pid);
  });

  it('keeps running during a request longer than idle_seconds', async () => {
    const home = processes.home({ chat: engineFile('chat', { lines: ['idle_seconds: 1'] }) });
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env: bootstrap });
    const client = clientOf(await gateway.url());
    const standin = { tpot_ms: 20, output_tokens: 120, finish: 'length' };
    const answer = await client.chat({ max_tokens: 120, standin });
    expect(await answer.json()).toMatchObject({ usage: { completion_tokens: 120 } });
    expect(gateway.output.stdout.split('"started an engine"')).toHaveLength(2);
  });
});

describe('the environment of an engine', () => {
  it('contains the variables of its file, and no secrets of the gateway', async () => {
    const lines = ['env:', '  OWN_TOKEN: "${TOKEN_OF_THE_ENGINE}"', '  PLAIN: "as written"'];
    const home = processes.home({ chat: engineFile('chat', { lines }) });
    const redis = await startRedis();
    onTestFinished(() => redis.stop());
    const secrets = { FOO_API_KEY: 'secret-foo', AWS_SECRET_ACCESS_KEY: 'secret-aws', VLLM_API_KEY: 'secret-vllm' };
    const env = {
      ...bootstrap,
      ...secrets,
      HEADGATE_BOOTSTRAP_PASSWORD: 'secret-password',
      REDIS_URL: redis.url,
      TOKEN_OF_THE_ENGINE: 'token-that-it-may-have',
    };
    const databaseUrl = await processes.database();
    const gateway = processes.run({ home, databaseUrl, env });
    expect((await clientOf(await gateway.url()).chat({})).status).toBe(200);
    const text = readFileSync(`/proc/${onlyEngine(home.dataDir).pid}/environ`, 'utf8');
    const found = text.split('\0').filter((line) => line !== '');
    expect(found).toContain('OWN_TOKEN=token-that-it-may-have');
    expect(found).toContain('PLAIN=as written');
    expect(text).not.toMatch(/secret-|REDIS_URL|DATABASE_URL|HEADGATE_BOOTSTRAP|TOKEN_OF_THE_ENGINE/);
    expect(text).not.toContain(givenKey);
    expect(text).not.toContain(databaseUrl);
  });
});
