import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import postgres from 'postgres';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, chatBody, chatPath, eventually, writeEngines } from '#test/inference/inference-gateway.ts';
import { engineFile, engineRecords, isAlive } from '#test/programs/gateway-process.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { freePort, freePorts } from '#test/free-port.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';
import { runMark } from '#test/guardian.ts';

/** `HEADGATE_WORKERS=3`: one start, three gateways on one port, one process of each engine for all. */

const repository = new URL('../../../', import.meta.url).pathname;
const adminKey = 'sk-test-admin-0123456789abcdef0123456789abcdef';
const workers = 3;

let database: TestDatabase;
let redis: TestRedis;
let sql: postgres.Sql;
let enginesDir: string;
let dataDir: string;
/** For those that are not to meet the others. */
let otherDir: string;
let metricsPort: number;
let main: ChildProcess;
let output = '';
let url = '';

function run(env: Readonly<Record<string, string>>): ChildProcess {
  const child = spawn(process.execPath, ['src/programs/start.js'], {
    cwd: repository,
    env: {
      PATH: process.env['PATH'],
      HOME: process.env['HOME'],
      ...runMark(),
      PORT: '0',
      DATABASE_URL: database.url,
      HEADGATE_DATA_DIR: dataDir,
      HEADGATE_ENGINES_DIR: enginesDir,
      HEADGATE_BOOTSTRAP_KEY: adminKey,
      HEADGATE_MAX_ACTIVE_KEYS: '100',
      HEADGATE_DATABASE_POOL: '4',
      HEADGATE_SPOOL_AFTER_MS: '60000',
      ...env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return child;
}

beforeAll(async () => {
  database = await createTestDatabase();
  redis = await startRedis();
  sql = postgres(database.url, { max: 2, onnotice: () => undefined });
  enginesDir = writeEngines({ chat: engineFile('chat', { flags: ['--max-num-seqs', '2000'] }) });
  dataDir = mkdtempSync(join(tmpdir(), 'hg-workers-'));
  otherDir = mkdtempSync(join(tmpdir(), 'hg-workers-'));
  metricsPort = await freePorts(workers);
  main = run({ REDIS_URL: redis.url, HEADGATE_WORKERS: String(workers), HEADGATE_METRICS_PORT: String(metricsPort) });
  for (const stream of [main.stdout, main.stderr]) stream?.on('data', (bytes: Buffer) => (output += bytes.toString()));
  url = await eventually(async () => {
    if (main.exitCode !== null) throw new Error(output);
    return /^Headgate listens on (\S+)$/m.exec(output)?.[1] ?? null;
  });
});
afterAll(async () => {
  if (main.exitCode === null && main.signalCode === null) {
    main.kill('SIGKILL');
    await once(main, 'exit');
  }
  for (const { pid } of engineRecords(dataDir)) killQuietly(pid);
  await sql.end();
  await database.drop();
  await redis.stop();
  for (const folder of [enginesDir, dataDir, otherDir]) rmSync(folder, { recursive: true, force: true });
});

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}

/** Pids of the workers: the children of the first process that run the program. */
function workerPids(): number[] {
  const children = readFileSync(`/proc/${main.pid}/task/${main.pid}/children`, 'utf8');
  return children.trim().split(' ').filter(Boolean).map(Number);
}

const headers = (key: string) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' });

async function ask(path: string, body: object | null = null, key = adminKey): Promise<Response> {
  const init = body === null ? {} : { method: 'POST', body: JSON.stringify(body) };
  return fetch(new URL(path, url), { ...init, headers: { ...headers(key), connection: 'close' } });
}

async function newKey(limits: object): Promise<{ id: string; secret: string }> {
  const answer = await ask('/v1/keys', { name: 'test', requests_per_minute: null, max_concurrency: null, ...limits });
  if (!answer.ok) throw new Error(await answer.text());
  const made: Body = await answer.json();
  return made;
}

/** Statuses of many requests at once. */
async function burst(count: number, key: string): Promise<Map<number, number>> {
  const statuses = await Promise.all(
    Array.from({ length: count }, async () => {
      const answer = await ask(chatPath, chatBody({ max_tokens: 2 }), key);
      await answer.arrayBuffer();
      return answer.status;
    }),
  );
  return new Map([...Map.groupBy(statuses, (status) => status)].map(([status, all]) => [status, all.length]));
}

/** Checks that an engine is so for every worker: connections of their own come to all of them. */
async function everywhere(id: string, check: (engine: Body) => boolean): Promise<boolean> {
  const answers = await Promise.all(Array.from({ length: 4 * workers }, () => ask(`/v1/admin/engines/${id}`)));
  const engines: Body[] = await Promise.all(answers.map((answer) => answer.json()));
  return engines.every((engine) => check(engine));
}

async function liveGateways(): Promise<number> {
  const rows = await sql`select 1 from gateways where last_seen_at > now() - interval '15 s'`;
  return rows.length;
}

describe('several workers', () => {
  it('are rejected without REDIS_URL', async () => {
    const child = run({ HEADGATE_WORKERS: '2' });
    let text = '';
    child.stderr?.on('data', (bytes: Buffer) => (text += bytes.toString()));
    const [code] = await once(child, 'exit');
    expect(code).toBe(1);
    expect(text).toMatch(/^REDIS_URL: is missing; several workers \(HEADGATE_WORKERS\) need Redis/);
  });

  it('print the reason once when they cannot start, and all end', async () => {
    const child = run({
      HEADGATE_WORKERS: '2',
      REDIS_URL: `redis://127.0.0.1:${await freePort()}`,
      HEADGATE_DATA_DIR: otherDir,
      HEADGATE_START_WAIT_SECONDS: '0',
    });
    let text = '';
    child.stderr?.on('data', (bytes: Buffer) => (text += bytes.toString()));
    const [code] = await once(child, 'exit');
    expect(code).toBe(1);
    expect(text.match(/^REDIS_URL: Redis cannot be used/gm)).toHaveLength(1);
  });

  it('are separate gateways behind one port, with one process of an engine', async () => {
    expect(await liveGateways()).toBe(workers);
    const { secret } = await newKey({});
    expect(await burst(30, secret)).toEqual(new Map([[200, 30]]));
    expect(engineRecords(dataDir).map(({ engineId }) => engineId)).toEqual(['chat']);
    const replicas = new Set<string>();
    for (let index = 0; index < 6; index += 1) {
      const engine: Body = await (await ask('/v1/admin/engines/chat')).json();
      expect(engine.state).toBe('ready');
      for (const { id } of engine.replicas) replicas.add(id);
    }
    expect(replicas.size).toBe(1);
  });

  it('enforce a limit together exactly', async () => {
    const { secret } = await newKey({ requests_per_minute: 40 });
    expect(await burst(120, secret)).toEqual(
      new Map([
        [200, 40],
        [429, 80],
      ]),
    );
  });

  it('run one engine of a group at a time, on every worker, and answer all requests', async () => {
    const lines = ['group: { name: pair }', 'min_up_seconds: 0'];
    for (const id of ['left', 'right']) writeFileSync(join(enginesDir, `${id}.yaml`), engineFile(id, { lines }));
    main.kill('SIGHUP');
    await eventually(() => everywhere('right', ({ state }) => state === 'stopped'));
    const { secret } = await newKey({});
    const together = new Set<string>();
    const watch = setInterval(() => {
      const there = engineRecords(dataDir).filter(({ engineId, pid }) => engineId !== 'chat' && isAlive(pid));
      if (there.length > 1) together.add(there.map(({ engineId }) => engineId).join(' '));
    }, 20);
    for (let turn = 0; turn < 2; turn += 1) {
      const answers = Array.from({ length: 18 }, async (_, index) => {
        const model = index % 2 === 0 ? 'left' : 'right';
        const answer = await ask(chatPath, chatBody({ model, max_tokens: 2 }), secret);
        return `${answer.status} ${answer.ok ? '' : await answer.text()}`;
      });
      expect(new Set(await Promise.all(answers))).toEqual(new Set(['200 ']));
    }
    clearInterval(watch);
    expect([...together]).toEqual([]);
    for (const id of ['left', 'right'])
      expect(await everywhere(id, (engine) => engine.last_failure === null)).toBe(true);
  });

  it('apply a command on all workers before it is answered', async () => {
    for (let turn = 0; turn < 2; turn += 1) {
      await ask('/v1/admin/engines/left/stop', {});
      expect(await everywhere('left', ({ state }) => state === 'held')).toBe(true);
      await ask('/v1/admin/engines/left/reset', {});
      expect(await everywhere('left', ({ held }) => !held)).toBe(true);
      const answers = Array.from({ length: 9 }, () => ask(chatPath, chatBody({ model: 'left', max_tokens: 2 })));
      expect(new Set((await Promise.all(answers)).map(({ status }) => status))).toEqual(new Set([200]));
    }
  });

  it('have their own metrics, each on its port', async () => {
    for (let index = 0; index < workers; index += 1) {
      const answer = await fetch(`http://127.0.0.1:${metricsPort + index}/metrics`);
      expect(await answer.text()).toContain('headgate_');
    }
  });

  it('reload the files on SIGHUP to the first process', async () => {
    writeFileSync(join(enginesDir, 'more.yaml'), engineFile('more'));
    main.kill('SIGHUP');
    await eventually(() => everywhere('more', ({ state }) => state === 'stopped'));
    expect((await ask(chatPath, chatBody({ model: 'more' }))).status).toBe(200);
  });

  it('are replaced when they die, and limit and engine remain', async () => {
    const [before] = engineRecords(dataDir).filter(({ engineId }) => engineId === 'chat');
    for (const victim of workerPids().slice(0, 2)) {
      process.kill(victim, 'SIGKILL');
      await eventually(async () => {
        const pids = workerPids();
        return pids.length === workers && !pids.includes(victim) && (await liveGateways()) === workers;
      });
      // Until none of them has taken Redis for silent, as one does that gets no processor: then it admits its part.
      await eventually(async () => {
        const { secret } = await newKey({ requests_per_minute: 20 });
        const counts = await burst(60, secret);
        expect(counts.get(200) ?? 0).toBeLessThanOrEqual(20);
        return counts.get(200) === 20 && counts.get(429) === 40;
      });
    }
    expect(engineRecords(dataDir).filter(({ engineId }) => engineId === 'chat')).toEqual([before]);
  });

  it('start and stop an engine by a command to any worker', async () => {
    await eventually(async () => {
      await ask('/v1/admin/engines/chat/stop', {});
      return engineRecords(dataDir).every(({ engineId }) => engineId !== 'chat');
    });
    expect((await ask('/v1/admin/engines/chat/start', {})).status).toBe(202);
    await eventually(() => everywhere('chat', ({ state }) => state === 'ready'));
    const { secret } = await newKey({});
    expect(await burst(20, secret)).toEqual(new Map([[200, 20]]));
  });

  it('end in order on SIGTERM, and leave no engine', async () => {
    const stream = await ask(chatPath, chatBody({ stream: true, max_tokens: 20 }));
    const { pid } = engineRecords(dataDir).find(({ engineId }) => engineId === 'chat') ?? { pid: 0 };
    const ended = once(main, 'exit');
    main.kill('SIGTERM');
    expect(await stream.text()).toMatch(/data: \[DONE\]\n\n$/);
    expect(await ended).toEqual([0, null]);
    expect(engineRecords(dataDir)).toEqual([]);
    expect(isAlive(pid)).toBe(false);
    expect(await liveGateways()).toBe(0);
  });

  it('are not replaced indefinitely after repeated crashes: all end with a message', async () => {
    main = run({ REDIS_URL: redis.url, HEADGATE_WORKERS: '4', HEADGATE_DATA_DIR: otherDir });
    let text = '';
    for (const stream of [main.stdout, main.stderr]) stream?.on('data', (bytes: Buffer) => (text += bytes.toString()));
    const ended = once(main, 'exit');
    await eventually(async () => /^Headgate listens on/m.test(text) || main.exitCode !== null);
    const killed = new Set<number>();
    await eventually(async () => {
      if (main.exitCode !== null) return true;
      for (const pid of workerPids().filter((one) => !killed.has(one))) {
        // The last ones are ended by the first process.
        if (killed.size === 11) continue;
        killed.add(pid);
        killQuietly(pid);
      }
      return false;
    });
    expect(await ended).toEqual([1, null]);
    expect(killed.size).toBe(11);
    expect(text).toContain('too many gateways crashed within a minute; all are stopped');
  });
});
