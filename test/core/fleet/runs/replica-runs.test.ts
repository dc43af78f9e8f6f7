import { createServer, type Server } from 'node:http';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { closeServer } from '#base/net/listen.ts';
import { createLog } from '#base/log.ts';
import { readGpuRuns } from '#core/fleet/fleet.ts';
import { createReplicaRuns, type FollowedReplica, type ReplicaRuns } from '#core/fleet/runs/runs.ts';
import { readEngine } from '#core/fleet/serving/serving.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

/** An engine's metrics, and the runs that a leader keeps of it. */
const counters = { prompt: 0, generation: 0, running: 0, process: '100.5', answers: true };
let engine: Server;
let port = 0;
let database: TestDatabase;
let db: Db;
let scope = '';
let scopes = 0;

beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
  engine = createServer((_, answer) => {
    if (!counters.answers) {
      answer.destroy();
      return;
    }
    answer.end(
      [
        `vllm:num_requests_running{engine="0"} ${counters.running}.0`,
        'vllm:num_requests_waiting{engine="0"} 0.0',
        `vllm:prompt_tokens_total{engine="0",model_name="m"} ${counters.prompt}.0`,
        `vllm:prompt_tokens_total{engine="1",model_name="m"} 1.0`,
        `vllm:generation_tokens_total{engine="0",model_name="m"} ${counters.generation}.0`,
        `vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 2.0`,
        `vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 3.0`,
        `process_start_time_seconds ${counters.process}`,
        '',
      ].join('\n'),
    );
  });
  await new Promise<void>((resolve) => {
    engine.listen(0, '127.0.0.1', resolve);
  });
  const address = engine.address();
  port = typeof address === 'object' && address !== null ? address.port : 0;
});
afterAll(async () => {
  await closeServer(engine);
  await db.close();
  await database.drop();
});
beforeEach(() => {
  scopes += 1;
  scope = `scope ${scopes}`;
  Object.assign(counters, { prompt: 10, generation: 20, running: 0, process: '100.5', answers: true });
});

const openRuns = (): ReplicaRuns =>
  createReplicaRuns({ db, scope, clock: systemClock, log: createLog('silent'), everyMs: 600_000 });

function replicaOf(id: string, over: Partial<FollowedReplica['found']> = {}): FollowedReplica {
  const endpoint = { socketPath: null, host: '127.0.0.1', port, tls: false, basePath: '' };
  const replica = { id, engineId: 'm', endpoint, upstreamModel: null, headerLines: '', forcedUsage: true };
  return {
    found: {
      replica: { ...replica, kind: 'vllm' },
      specHash: 'h',
      placement: { host: 'here', gpuIds: ['GPU-1'] },
      epoch: 1n,
      state: 'running',
      progress: null,
      health: 'probe',
      exit: null,
      ...over,
    },
    driver: 'docker',
    gpuShare: 28,
    image: 'vllm/vllm-openai:v0.32.0',
    isReady: true,
    leaves: null,
  };
}

const stopped = { stopRequested: true, exitCode: 0, signal: null, startErrorCode: null, oomKilled: false, logTail: '' };
const away = new Set<string>();

interface RunRow {
  readonly id: string;
  readonly [name: string]: unknown;
}

const rows = () => db.sql<RunRow[]>`select * from replica_runs where scope = ${scope} order by started_at, ended_at`;

/** Follows until the rows are as they should be. */
async function follow(
  runs: ReplicaRuns,
  replicas: readonly FollowedReplica[],
  isDone: (rows: readonly RunRow[]) => boolean,
): Promise<readonly RunRow[]> {
  for (;;) {
    runs.follow(replicas, away);
    await runs.readNow();
    const found = await rows();
    if (isDone(found)) return found;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const isRead = (found: readonly RunRow[]): boolean => found.some((row) => row['prompt_tokens_last'] !== null);

describe('the run of a replica started here', () => {
  it('exists from the start, with counters summed over all cores and finish reasons', async () => {
    const runs = openRuns();
    runs.starting('r1');
    const [row] = await follow(runs, [replicaOf('r1')], isRead);
    expect(row).toMatchObject({
      model: 'm',
      replica: 'r1',
      driver: 'docker',
      host: 'here',
      gpus: ['GPU-1'],
      image: 'vllm/vllm-openai:v0.32.0',
      ended_at: null,
      process_started_at: '100.5',
    });
    expect(row?.['ready_at']).not.toBeNull();
    const numbers = ['prompt_tokens_first', 'prompt_tokens_last', 'generation_tokens_last', 'requests_last'];
    expect(numbers.map((name) => Number(row?.[name]))).toEqual([0, 11, 20, 5]);
  });

  it('ends clean when the counters were read after the last request', async () => {
    const runs = openRuns();
    runs.starting('r1');
    await follow(runs, [replicaOf('r1')], isRead);
    runs.follow([{ ...replicaOf('r1'), leaves: 'idle' }], away);
    counters.generation = 25;
    await runs.lastReading(replicaOf('r1').found.replica);
    const ended = { ...replicaOf('r1', { state: 'exited', exit: stopped }), leaves: 'idle' };
    const [row] = await follow(runs, [ended], ([one]) => one?.['ended_at'] !== null);
    expect(row).toMatchObject({ ended: 'clean', end_reason: 'idle', exit_code: 0 });
    expect(Number(row?.['generation_tokens_last'])).toBe(25);
  });

  it('ends clean when a later reading overtook the last one', async () => {
    const runs = openRuns();
    runs.starting('r1');
    await follow(runs, [replicaOf('r1')], isRead);
    runs.follow([{ ...replicaOf('r1'), leaves: 'idle' }], away);
    const { replica } = replicaOf('r1').found;
    const reading = await readEngine(replica);
    const last = runs.lastReading(replica);
    runs.take('r1', reading, systemClock.monotonicMs());
    await last;
    const ended = { ...replicaOf('r1', { state: 'exited', exit: stopped }), leaves: 'idle' };
    const [row] = await follow(runs, [ended], ([one]) => one?.['ended_at'] !== null);
    expect(row).toMatchObject({ ended: 'clean', end_reason: 'idle' });
  });

  it.each([
    ['had a request at its last reading', { running: 1 }, stopped, 'idle'],
    ['could not be read any more', { answers: false }, stopped, 'idle'],
    ['was not asked to end', {}, { ...stopped, stopRequested: false, exitCode: 3 }, 'crashed'],
  ])('ends unclean when the replica %s', async (_, now, exit, reason) => {
    const runs = openRuns();
    runs.starting('r1');
    await follow(runs, [replicaOf('r1')], isRead);
    Object.assign(counters, now);
    runs.follow([{ ...replicaOf('r1'), leaves: 'idle' }], away);
    if (reason === 'idle') await runs.lastReading(replicaOf('r1').found.replica);
    const ended = replicaOf('r1', { state: 'exited', exit });
    const [row] = await follow(runs, [ended], ([one]) => one?.['ended_at'] !== null);
    expect(row).toMatchObject({ ended: 'unclean', exit_code: exit.exitCode });
    expect(row?.['end_reason']).toBe(reason);
  });
});

describe('the run of a discovered replica', () => {
  it('begins with the counters that the engine had before', async () => {
    const [row] = await follow(openRuns(), [replicaOf('r1')], isRead);
    expect([row?.['prompt_tokens_first'], row?.['generation_tokens_first']].map(Number)).toEqual([11, 20]);
  });

  it('has its GPUs since the process start when the starting gateway was killed before recording it', async () => {
    const hourAgo = Math.floor(Date.now() / 1000) - 3600;
    counters.process = String(hourAgo);
    const placement = { host: scope, gpuIds: ['GPU-1'] };
    const [row] = await follow(openRuns(), [replicaOf('r1', { placement })], isRead);
    expect(Date.parse(String(row?.['held_at']))).toBe(hourAgo * 1000);
    const wanted = { endedSinceMs: 0, ids: [], after: null, limit: 1000 };
    const heldFrom = async (): Promise<number | undefined> =>
      (await readGpuRuns(db, wanted)).find(({ id }) => id === row?.id)?.startedMs;
    expect(await heldFrom()).toBe(hourAgo * 1000);
    // Another run had the same GPU until half an hour ago: the clock of the host is behind.
    const endedAt = new Date((hourAgo + 1800) * 1000);
    await db.sql`
      insert into replica_runs (id, scope, model, replica, driver, host, gpus, spec_hash, started_at, ended_at, ended)
      values (gen_random_uuid(), ${scope}, 'm', 'before', 'docker', ${scope}, '["GPU-0", "GPU-1"]', 'h',
        ${new Date((hourAgo - 60) * 1000).toISOString()}::text::timestamptz, ${endedAt.toISOString()}::text::timestamptz, 'clean')`;
    expect(await heldFrom()).toBe(endedAt.getTime());
  });

  it.each([
    ['1970', () => '100.5'],
    ['the future', () => String(Date.now() / 1000 + 3600)],
    ['no number', () => 'NaN'],
  ])('has its GPUs since discovery when the process start time is %s', async (_, said) => {
    counters.process = said();
    const [row] = await follow(openRuns(), [replicaOf('r1')], isRead);
    const all = await readGpuRuns(db, { endedSinceMs: 0, ids: [], after: null, limit: 1000 });
    const found = all.find(({ id }) => id === row?.id);
    expect(found?.startedMs).toBeGreaterThan(Date.now() - 600_000);
    expect(found?.startedMs).toBeLessThanOrEqual(Date.now());
  });

  it('continues under another leader', async () => {
    const first = openRuns();
    first.starting('r1');
    const [before] = await follow(first, [replicaOf('r1')], isRead);
    await first.close();
    counters.generation = 30;
    const found = await follow(
      openRuns(),
      [replicaOf('r1')],
      ([row]) => Number(row?.['generation_tokens_last']) === 30,
    );
    expect(found).toHaveLength(1);
    expect(found[0]?.id).toBe(before?.id);
    expect(Number(found[0]?.['generation_tokens_first'])).toBe(0);
  });

  it('ends unclean when the replica has vanished before the next leader', async () => {
    const first = openRuns();
    first.starting('r1');
    await follow(first, [replicaOf('r1')], isRead);
    await first.close();
    const [row] = await follow(openRuns(), [], ([one]) => one?.['ended_at'] !== null);
    expect(row).toMatchObject({ ended: 'unclean', end_reason: 'vanished' });
  });

  it.each([
    ['a replica', 'r1', 'GPU-1'],
    ['a GPU, by its UUID', 'r2', 'GPU-5e7c5fc4-0b8d-4f0c-9c3a-2f1d6f0a77b1'],
  ])('counts %s once when its host is renamed', async (_what, id, gpu) => {
    const beganMs = Math.floor(Date.now() / 1000) * 1000 - 3 * 3_600_000;
    counters.process = String(beganMs / 1000);
    const first = openRuns();
    first.starting('r1');
    await follow(first, [replicaOf('r1', { placement: { host: 'gpu1', gpuIds: [gpu] } })], isRead);
    await first.close();
    await db.sql`update replica_runs set started_at = ${new Date(beganMs).toISOString()}::text::timestamptz
      where scope = ${scope}`;
    const second = openRuns();
    for (;;) {
      // At the first look the host does not answer under its new name.
      second.follow([], new Set(['gpu-one']));
      await second.readNow();
      if ((await rows())[0]?.['ended_at'] !== null) break;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const renamed = replicaOf(id, { placement: { host: 'gpu-one', gpuIds: [gpu] } });
    const found = await follow(
      second,
      [renamed],
      (all) => all.length === 2 && all.every((row) => row['prompt_tokens_last'] !== null),
    );
    await second.close();
    const ids = new Set(found.map((row) => row.id));
    const all = await readGpuRuns(db, { endedSinceMs: 0, ids: [], after: null, limit: 1000 });
    const [old, next] = all.filter((run) => ids.has(run.id)).toSorted((a, b) => a.startedMs - b.startedMs);
    expect([old?.startedMs, next?.host]).toEqual([beganMs, 'gpu-one']);
    expect(next?.startedMs).toBe(old?.endedMs);
  });

  it('stays open while its host is unreachable', async () => {
    const runs = openRuns();
    await follow(runs, [replicaOf('r1')], isRead);
    runs.follow([], new Set(['here']));
    await runs.readNow();
    expect((await rows())[0]).toMatchObject({ ended_at: null });
  });
});

describe('a reset of the counters', () => {
  it.each([
    ['fall', { generation: 3 }],
    ['are of another process', { process: '200.5' }],
  ])('ends the run and begins the next one when counters %s', async (_, now) => {
    const runs = openRuns();
    await follow(runs, [replicaOf('r1')], isRead);
    Object.assign(counters, now);
    const found = await follow(runs, [replicaOf('r1')], (all) => all.length === 2 && all[1]?.['scraped_at'] !== null);
    expect(found[0]).toMatchObject({ ended: 'unclean', end_reason: 'restarted' });
    expect(found[1]).toMatchObject({ ended_at: null, replica: 'r1' });
    expect(Number(found[1]?.['generation_tokens_first'])).toBe(0);
  });
});

it('runs of another scope stay unchanged', async () => {
  await follow(openRuns(), [replicaOf('r1')], isRead);
  const former = scope;
  scope = `${scope} other`;
  await follow(openRuns(), [replicaOf('r2')], isRead);
  const open = await db.sql`select 1 from replica_runs where scope = ${former} and ended_at is null`;
  expect(open).toHaveLength(1);
});
