import { describe, expect, it } from 'vitest';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { clientOf, givenKey, readFrames, useProcesses } from '#test/programs/gateway-process.ts';
import { enoughOfTheHour, reconcile, reconcileAtRest } from '#test/reconcile/mixed-traffic.ts';

const kindsOf = (found: Body): string[] =>
  found.data.flatMap(({ explanations }: Body) => explanations.map(({ kind }: Body) => kind));

describe('an engine killed during a stream', () => {
  const bench = useInference(async () => {
    await enoughOfTheHour();
    return { engines: { chat: standinFile('chat') } };
  });
  const runs = () => bench.gateway.db.sql<Body[]>`select * from replica_runs order by started_at`;

  it('leaves a difference that its unclean end explains, and no more', async () => {
    const whole = await bench.chat({ stream: true });
    await whole.text();
    await reconcileAtRest(bench);
    const cut = await bench.chat({ stream: true, max_tokens: 200, standin: { die_after: 20, tpot_ms: 5 } });
    await cut.text();
    expect(await bench.recordOf(cut)).toMatchObject({ outcome: 'failed', usage_source: 'last_seen' });
    const [run] = await eventually(async () => {
      const found = await runs();
      return found[0]?.ended_at !== null && found;
    });
    expect(run).toMatchObject({ ended: 'unclean', model: 'chat' });
    const found = await reconcileAtRest(bench);
    expect(found, JSON.stringify(found)).toMatchObject({ balanced: true, unexplained: 0 });
    expect(kindsOf(found)).toEqual(expect.arrayContaining(['replica_ended', 'unsure']));
    const [line] = found.data;
    expect(line.state).toBe('explained');
    const unsure = line.explanations.find(({ kind }: Body) => kind === 'unsure');
    // The context of the model, and the output that was asked for.
    expect(unsure).toMatchObject({ prompt_tokens: 8192 * unsure.count, completion_tokens: 200 * unsure.count });
    const end = line.explanations.find(({ kind }: Body) => kind === 'replica_ended');
    expect(end.completion_tokens).toBeGreaterThan(0);
    expect(line.difference.completion_tokens).toBeGreaterThanOrEqual(-end.completion_tokens);
    // More than was lost: an engine that counted fewer than the books by far.
    const { sql } = bench.gateway.db;
    await sql`update replica_hours h set generation_tokens = h.generation_tokens - 5 from replica_runs r
      where r.id = h.run_id and r.ended = 'unclean'`;
    await sql`update usage_requests set usage_source = 'engine' where usage_source = 'last_seen'`;
    expect(await reconcile(bench)).toMatchObject({ balanced: false });
  });
});

describe('a gateway killed during requests', () => {
  const processes = useProcesses();

  it('explains what only the engine has counted', async () => {
    await enoughOfTheHour();
    const home = processes.home();
    const databaseUrl = await processes.database();
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };
    const first = processes.run({ home, databaseUrl, env });
    const client = clientOf(await first.url());
    await (await client.chat({})).text();
    const stream = await client.chat({
      stream: true,
      max_tokens: 4000,
      standin: { tpot_ms: 2, output_tokens: 4000 },
    });
    await readFrames(stream, 20);
    first.signal('SIGKILL');
    await first.exited;
    const second = processes.run({ home, databaseUrl, env });
    const next = clientOf(await second.url());
    const found = await eventually(async () => {
      const answer = await next.get('/v1/admin/reconcile');
      // The engine's counts since then are read when its run is known again; the ledger is ahead of it until then.
      const isRead = kindsOf(answer).includes('gateway_ended') && answer.data[0].difference.completion_tokens > 0;
      return isRead && answer;
    });
    expect(found, JSON.stringify(found)).toMatchObject({ balanced: true });
    const [line] = found.data;
    expect(line).toMatchObject({ model: 'chat', state: 'explained' });
    const ended = line.explanations.find(({ kind }: Body) => kind === 'gateway_ended');
    // Requests of one at a time, each sent twice at most, and what a replica is tried out with.
    const most = 2 * 16_384 + 4 * 8192;
    expect(ended).toMatchObject({ prompt_tokens: most, completion_tokens: most });
    second.signal('SIGTERM');
    await second.exited;
  });
});
