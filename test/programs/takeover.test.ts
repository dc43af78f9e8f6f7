import { describe, expect, it } from 'vitest';
import { eventually, framesOf, readMetric } from '#test/inference/inference-gateway.ts';
import {
  clientOf,
  ended,
  engineFile,
  engineRecords,
  type GatewayProcess,
  givenKey,
  isAlive,
  onlyEngine,
  postgresPid,
  readFrames,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };

async function kill(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGKILL');
  expect(await gateway.exited).toEqual({ code: null, signal: 'SIGKILL' });
}

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
}

describe('a start after kill -9 of the gateway', () => {
  it('adopts engine and PostgreSQL, starts nothing twice, and stops both at its end', async () => {
    const home = processes.home();
    const first = processes.run({ home, databaseUrl: null, env });
    const firstClient = clientOf(await first.url());
    const answered = await firstClient.chat({});
    const text = await answered.text();
    expect(JSON.parse(text)).toMatchObject({ object: 'chat.completion' });
    const engine = onlyEngine(home.dataDir);
    const postgres = await postgresPid(home.dataDir);
    await kill(first);
    expect([engine.pid, postgres].map(isAlive)).toEqual([true, true]);

    const second = processes.run({ home, databaseUrl: null, env });
    const client = clientOf(await second.url());
    const again = await client.chat({});
    expect(again.status).toBe(200);
    expect(again.headers.get('x-headgate-start')).toMatch(/^(?:warm|cold)$/);
    expect(onlyEngine(home.dataDir)).toEqual(engine);
    expect(await postgresPid(home.dataDir)).toBe(postgres);
    // A complete answer is in the ledger, once.
    await client.recordOf(answered);
    await client.recordOf(again);
    expect((await client.get('/v1/usage/requests')).data).toHaveLength(2);
    expect((await client.get('/v1/usage/summary?from=2026-01-01')).totals).toMatchObject({ num_model_requests: 2 });
    await stop(second);
    expect([engine.pid, postgres].filter(isAlive)).toEqual([]);
  });

  it('stops an engine whose file has changed, and one that is disabled', async () => {
    const home = processes.home({ chat: engineFile('chat'), other: engineFile('other') });
    const databaseUrl = await processes.database();
    const first = processes.run({ home, databaseUrl, env });
    const client = clientOf(await first.url());
    await Promise.all([client.chat({}), client.chat({ model: 'other' })]);
    const olds = engineRecords(home.dataDir);
    expect(olds).toHaveLength(2);
    await kill(first);

    home.writeEngine('chat', engineFile('chat', { flags: ['--max-num-seqs', '4'] }));
    home.writeEngine('other', engineFile('other', { lines: ['enabled: false'] }));
    const second = processes.run({ home, databaseUrl, env });
    const next = clientOf(await second.url());
    await Promise.all(olds.map(({ pid }) => ended(pid)));
    const answer = await next.chat({});
    expect(answer.status).toBe(200);
    expect(answer.headers.get('x-headgate-start')).toBe('cold');
    expect(olds.map(({ pid }) => pid)).not.toContain(onlyEngine(home.dataDir).pid);
    await stop(second);
  });

  it('bills nothing for the stream that was cut, and the engine ends its work', async () => {
    const home = processes.home();
    const databaseUrl = await processes.database();
    const first = processes.run({ home, databaseUrl, env });
    const answer = await clientOf(await first.url()).chat({ stream: true, max_tokens: 4000, standin: { tpot_ms: 10 } });
    const stream = await readFrames(answer, 3);
    await kill(first);
    await expect(stream.rest()).rejects.toThrow('terminated');
    const { socketPath } = onlyEngine(home.dataDir);
    await eventually(async () => (await readMetric(socketPath, 'vllm:num_requests_running')) === 0);
    const second = processes.run({ home, databaseUrl, env });
    const client = clientOf(await second.url());
    expect(await client.get('/v1/wallet')).toMatchObject({ balance: '10', held: '0' });
    expect((await client.get('/v1/usage/requests')).data).toEqual([]);
    expect((await client.chat({})).status).toBe(200);
    await stop(second);
  });
});

describe('a killed engine', () => {
  it('restarts when it was idle, and the next request is answered', async () => {
    const home = processes.home();
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
    const client = clientOf(await gateway.url());
    await client.chat({});
    const old = onlyEngine(home.dataDir);
    process.kill(-old.pid, 'SIGKILL');
    await gateway.printed(/"msg":"an engine exited unexpectedly"/);
    expect((await client.chat({})).status).toBe(200);
    expect(onlyEngine(home.dataDir).pid).not.toBe(old.pid);
    expect(isAlive(old.pid)).toBe(false);
    await stop(gateway);
  });

  it('ends its stream with an error frame and [DONE], billed; the next request is answered', async () => {
    const home = processes.home();
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
    const client = clientOf(await gateway.url());
    const answer = await client.chat({ stream: true, max_tokens: 4000, standin: { tpot_ms: 10, output_tokens: 4000 } });
    const stream = await readFrames(answer, 5);
    process.kill(-onlyEngine(home.dataDir).pid, 'SIGKILL');
    const frames = framesOf(await stream.rest());
    expect(frames.at(-1)).toBe('[DONE]');
    expect(frames.at(-2)).toMatchObject({ error: { code: 'upstream_error' } });
    const seen = frames.filter((frame) => frame.choices?.[0]?.delta?.content).length;
    const record = await client.recordOf(answer);
    expect(record).toMatchObject({ outcome: 'failed', usage_source: 'last_seen' });
    expect(record.output_tokens).toBeGreaterThanOrEqual(seen);
    expect((await client.chat({})).status).toBe(200);
    await stop(gateway);
  });
});
