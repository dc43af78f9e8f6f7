import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Body, eventually, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { clientOf, engineFile, givenKey, useProcesses } from '#test/programs/gateway-process.ts';
import { enoughOfTheHour, reconcile } from '#test/reconcile/mixed-traffic.ts';

/** Requests that read texts, and are cut off: the most that they may come to is reported, and no more is explained. */

const embedding = standinFile('embed', { taskType: 'embedding' });
const texts = (count: number): string[] => Array.from({ length: count }, (_, at) => `a text of a few words, ${at}`);
const explanationOf = (line: Body, kind: string): Body => line.explanations.find((one: Body) => one.kind === kind);

describe('an engine killed during a request with texts', () => {
  const bench = useInference(async () => {
    await enoughOfTheHour();
    return { engines: { embed: embedding } };
  });
  const ask = (fields: object) => bench.post('/v1/embeddings', { model: 'embed', ...fields });

  /** Id of a process, other than one, that has a request. */
  const pidWithRequest = (not = 0): Promise<number> =>
    eventually(async () => {
      const folder = join(bench.gateway.dataDir, 'engines', 'running');
      const records: Body[] = readdirSync(folder).map((name) => JSON.parse(readFileSync(join(folder, name), 'utf8')));
      const { data }: Body = await (await bench.gateway.request('/v1/admin/engines')).json();
      const isBusy = data[0].replicas.some(({ id, running }: Body) => running > 0 && records[0]?.replicaId === id);
      return records.length === 1 && records[0].pid !== not && isBusy && Number(records[0].pid);
    });

  it('explains at most as many prompt tokens as the request has bytes', async () => {
    expect((await ask({ input: texts(3) })).status).toBe(200);
    await eventually(async () => (await reconcile(bench)).data[0]?.engines?.prompt_tokens > 0);
    const input = texts(20);
    const slow = ask({ input, standin: { ttft_ms: 60_000 } });
    const answered = slow.then(() => null);
    // Where the request had not reached the first one yet, the replica that is started in its place gets it.
    for (let pid: number | null = await pidWithRequest(); pid !== null;) {
      process.kill(pid, 'SIGKILL');
      pid = await Promise.race([answered, pidWithRequest(pid)]);
    }
    await (await slow).text();
    const found = await eventually(async () => {
      const now = await reconcile(bench);
      const kinds = now.data.flatMap(({ explanations }: Body) => explanations.map(({ kind }: Body) => kind));
      return !kinds.includes('running') && kinds.includes('replica_ended') && now;
    });
    expect(found, JSON.stringify(found)).toMatchObject({ balanced: true, unexplained: 0 });
    const [line] = found.data;
    const cutOff = ['unsure', 'uncounted'].flatMap((kind) => explanationOf(line, kind) ?? []);
    expect(cutOff.length).toBeGreaterThan(0);
    const bytes = Buffer.byteLength(JSON.stringify({ model: 'embed', input, standin: { ttft_ms: 60_000 } }));
    for (const { count, prompt_tokens: tokens, completion_tokens: none } of cutOff) {
      expect([tokens, none]).toEqual([count * (bytes + 512), 0]);
    }
    const most = cutOff.reduce((sum, { prompt_tokens: tokens }) => sum + Number(tokens), 0);
    // Probes of the last second may be noted meanwhile.
    const beyondMost = most + 64 - Number(line.difference.prompt_tokens);
    const { sql } = bench.gateway.db;
    await sql`update replica_hours h set prompt_tokens = h.prompt_tokens + ${beyondMost} from replica_runs r
      where r.id = h.run_id and r.ended = 'unclean'`;
    const beyond = await reconcile(bench);
    expect(beyond).toMatchObject({ balanced: false, unexplained: 1 });
    expect(beyond.data[0].problem).toMatch(/the engines counted \d+ prompt tokens more/);
  });
});

describe('a gateway killed during a request with texts', () => {
  const processes = useProcesses();

  it('explains at most the tokens that were running, per engine', async () => {
    await enoughOfTheHour();
    const file = (id: string): string =>
      engineFile(id, { flags: ['--runner', 'pooling', '--convert', 'embed'] }).replace('type: chat', 'type: embedding');
    const home = processes.home({ embed: file('embed'), other: file('other') });
    const databaseUrl = await processes.database();
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };
    const first = processes.run({ home, databaseUrl, env });
    const url = await first.url();
    const client = clientOf(url);
    const headers = { authorization: `Bearer ${givenKey}`, 'content-type': 'application/json' };
    const post = (body: object): Promise<Response> =>
      fetch(new URL('/v1/embeddings', url), { method: 'POST', headers, body: JSON.stringify(body) });
    for (const model of ['embed', 'other']) expect((await post({ model, input: texts(3) })).status).toBe(200);
    const input = texts(2000);
    const body = { model: 'embed', input, standin: { ttft_ms: 60_000 } };
    const slow = post(body).catch(() => null);
    await eventually(async () => {
      const { data }: Body = await client.get('/v1/admin/engines');
      return data.some(({ replicas }: Body) => replicas.some((one: Body) => one.running > 0));
    });
    first.signal('SIGKILL');
    await first.exited;
    await slow;
    const second = processes.run({ home, databaseUrl, env });
    const next = clientOf(await second.url());
    const found = await eventually(async () => {
      const answer = await next.get('/v1/admin/reconcile');
      return (
        answer.data.length === 2 && answer.data.every((line: Body) => explanationOf(line, 'gateway_ended')) && answer
      );
    });
    expect(found, JSON.stringify(found)).toMatchObject({ balanced: true });
    const tokens = Buffer.byteLength(JSON.stringify(body)) + 512;
    const bounds = found.data.map((line: Body) => explanationOf(line, 'gateway_ended').prompt_tokens);
    // The mark is at most twice what there was, and each part may have been sent twice; beside it a few of our own.
    expect(bounds).toEqual([2 * 2 * tokens + 4 * 8192, 2 * 16_384 + 4 * 8192]);
    second.signal('SIGTERM');
    await second.exited;
  });
});
