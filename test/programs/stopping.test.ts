import { once } from 'node:events';
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, watch } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import postgres from 'postgres';
import { describe, expect, it } from 'vitest';
import { type Body, eventually, framesOf } from '#test/inference/inference-gateway.ts';
import { startGateway } from '#test/gateway.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { freePort } from '#test/free-port.ts';
import {
  clientOf,
  engineFile,
  engineRecords,
  type GatewayProcess,
  givenKey,
  isAlive,
  onlyEngine,
  postgresPid,
  readFrames,
  repository,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };
const cleanExit = { code: 0, signal: null };

/** A stream of so many tokens that takes a hundredth of a second for each. */
const streamOf = (tokens: number): object => ({
  stream: true,
  max_tokens: tokens,
  standin: { tpot_ms: 10, output_tokens: tokens, finish: 'length' },
});

/** The usage record of a request, read from another gateway on the same books. */
async function recordLater(databaseUrl: string, answer: Response): Promise<Body> {
  const gateway = await startGateway({ databaseUrl, env });
  try {
    return await clientOf(gateway.url).get(`/v1/usage/requests/${answer.headers.get('x-request-id') ?? ''}`);
  } finally {
    await gateway.stop();
  }
}

/** The processes that a terminal's Ctrl-C would reach. */
function groupMembers(leader: number): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return pids.filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      // "<pid> (<name>) <state> <parent> <group> …"
      return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]) === leader;
    } catch {
      return false;
    }
  });
}

const stopping = (gateway: GatewayProcess): Promise<unknown> => gateway.printed(/"msg":"stopping"/);

describe('a gateway with HEADGATE_DRAIN_SECONDS', () => {
  it('returns 503 draining at /readyz, and answers with Connection: close, before it closes its port', async () => {
    const home = processes.home();
    const drain = { HEADGATE_DRAIN_SECONDS: '600' };
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env: { ...env, ...drain } });
    const url = await gateway.url();
    const client = clientOf(url);
    await client.chat({});
    const before = await fetch(`${url}/readyz`);
    expect([before.status, before.headers.get('connection')]).toEqual([200, 'keep-alive']);
    const running = client.chat({ standin: { ttft_ms: 2000 } });
    await eventually(async () => (await client.get('/v1/admin/engines')).data[0].queue.running === 1);

    gateway.signal('SIGTERM');
    await stopping(gateway);
    const ready = await fetch(`${url}/readyz`);
    expect([ready.status, await ready.json()]).toEqual([503, { status: 'not_ready', not_ready: ['draining'] }]);
    for (const answer of [await running, await client.chat({}), await client.chat({ stream: true })]) {
      expect([answer.status, answer.headers.get('connection')]).toEqual([200, 'close']);
      expect(await answer.text()).not.toBe('');
    }
    const healthy = await fetch(`${url}/healthz`);
    expect([healthy.status, healthy.headers.get('connection')]).toEqual([200, 'close']);
    await new Promise((resolve) => setTimeout(resolve, 1100));
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual(cleanExit);
  });

  it('closes its port after that time', async () => {
    const drain = { HEADGATE_DRAIN_SECONDS: '1' };
    const gateway = processes.run({
      home: processes.home(),
      databaseUrl: await processes.database(),
      env: { ...env, ...drain },
    });
    const url = await gateway.url();
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual(cleanExit);
    const ask = () => fetch(`${url}/healthz`).then(String, ({ message }: Error) => message);
    await expect.poll(ask).toBe('fetch failed');
  });
});

describe('a stop signal', () => {
  it.each([
    ['SIGINT to the process group, as a terminal does', 'SIGINT', 'group'],
    ['SIGTERM to the process only', 'SIGTERM', 'process'],
  ] as const)(
    '%s: finishes a running stream and a JSON request, waits for no idle connection, then stops engines and PostgreSQL',
    async (_, name, target) => {
      const home = processes.home();
      await addPostgres(home);
      const gateway = processes.run({ home, databaseUrl: null, env });
      const url = await gateway.url();
      const client = clientOf(url);
      const answer = await client.chat(streamOf(300));
      const stream = await readFrames(answer, 3);
      const pids = [onlyEngine(home.dataDir).pid, await postgresPid(home.dataDir)];
      // fetch keeps the connection of this one.
      await client.get('/v1/wallet');
      const pending = client.chat({ max_tokens: 200, standin: { tpot_ms: 10, output_tokens: 200, finish: 'length' } });
      await eventually(async () => {
        const { data }: Body = await client.get('/v1/admin/engines');
        return data.some(({ queue }: Body) => queue.running > 1);
      });

      gateway.signal(name, target);
      await stopping(gateway);
      const ask = () => fetch(`${url}/v1/pricing`).then(String, ({ message }: Error) => message);
      await expect.poll(ask).toBe('fetch failed');
      const frames = framesOf(await stream.rest());
      expect(frames.at(-1)).toBe('[DONE]');
      expect(frames.at(-2).choices[0].finish_reason).toBe('length');
      expect((await pending).status).toBe(200);
      expect(await (await pending).json()).toMatchObject({ usage: { completion_tokens: 200 } });
      expect(await gateway.exited).toEqual(cleanExit);
      expect(pids.filter(isAlive)).toEqual([]);
      expect(engineRecords(home.dataDir)).toEqual([]);
      expect(gateway.output.stderr).toBe('');
    },
  );

  it('ends requests after HEADGATE_SHUTDOWN_SECONDS with an error frame and [DONE], charged to the last token', async () => {
    const home = processes.home();
    const databaseUrl = await processes.database();
    const gateway = processes.run({ home, databaseUrl, env: { ...env, HEADGATE_SHUTDOWN_SECONDS: '1' } });
    const answer = await clientOf(await gateway.url()).chat(streamOf(6000));
    const stream = await readFrames(answer, 3);
    const engine = onlyEngine(home.dataDir);
    gateway.signal('SIGTERM');
    const frames = framesOf(await stream.rest());
    expect(frames.at(-1)).toBe('[DONE]');
    expect(frames.at(-2)).toMatchObject({ error: { code: 'upstream_error', message: /stopping/ } });
    expect(await gateway.exited).toEqual(cleanExit);
    expect(isAlive(engine.pid)).toBe(false);
    const record = await recordLater(databaseUrl, answer);
    expect(record).toMatchObject({ outcome: 'ended', usage_source: 'engine', stream: true });
    expect(record.output_tokens).toBeGreaterThanOrEqual(3);
    expect(record.output_tokens).toBeLessThan(6000);
  });

  it('twice ends running requests at once, and still stops engines and PostgreSQL', async () => {
    const home = processes.home();
    await addPostgres(home);
    const gateway = processes.run({ home, databaseUrl: null, env: { ...env, HEADGATE_SHUTDOWN_SECONDS: '3600' } });
    const answer = await clientOf(await gateway.url()).chat(streamOf(6000));
    const stream = await readFrames(answer, 3);
    const pids = [onlyEngine(home.dataDir).pid, await postgresPid(home.dataDir)];
    gateway.signal('SIGINT', 'group');
    await stopping(gateway);
    // Two of one moment are the same key press, which npm passes on as well: sent until it counts as another one.
    const again = setInterval(() => gateway.signal('SIGINT', 'group'), 200);
    await gateway.printed(/"msg":"stopping immediately"/);
    clearInterval(again);
    expect(framesOf(await stream.rest()).at(-2)).toMatchObject({ error: { code: 'upstream_error' } });
    expect(await gateway.exited).toEqual(cleanExit);
    expect(pids.filter(isAlive)).toEqual([]);
  });

  it('three times ends the process at once; the next start adopts what still runs', async () => {
    const home = processes.home({ chat: engineFile('chat', { flags: ['--ignore-sigterm'] }) });
    const databaseUrl = await processes.database();
    const gateway = processes.run({ home, databaseUrl, env });
    await (await clientOf(await gateway.url()).chat({})).text();
    const engine = onlyEngine(home.dataDir);
    const again = setInterval(() => gateway.signal('SIGINT', 'group'), 200);
    expect(await gateway.exited).toEqual({ code: 130, signal: null });
    clearInterval(again);
    expect(isAlive(engine.pid)).toBe(true);
    const next = processes.run({ home, databaseUrl, env });
    expect((await clientOf(await next.url()).chat({})).status).toBe(200);
    expect(onlyEngine(home.dataDir)).toEqual(engine);
  });

  it('with "npm start", which forwards it again, counts once and lets a running stream finish', async () => {
    const home = processes.home();
    const command = ['npm', 'start', '--loglevel=error'];
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env, command, cwd: repository });
    const answer = await clientOf(await gateway.url()).chat(streamOf(150));
    const stream = await readFrames(answer, 3);
    const engine = onlyEngine(home.dataDir);
    gateway.signal('SIGINT', 'group');
    const frames = framesOf(await stream.rest());
    expect(frames.at(-1)).toBe('[DONE]');
    expect(frames.at(-2).choices[0].finish_reason).toBe('length');
    await gateway.exited;
    expect(isAlive(engine.pid)).toBe(false);
    expect(gateway.output.stdout).toContain('"msg":"stopping"');
    expect(gateway.output.stdout).not.toContain('at once');
  });

  it('sent only to npm, as supervisors do, stops the gateway too', async () => {
    const command = ['npm', 'start', '--loglevel=error'];
    const home = processes.home();
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env, command, cwd: repository });
    const answer = await clientOf(await gateway.url()).chat(streamOf(150));
    const stream = await readFrames(answer, 3);
    const engine = onlyEngine(home.dataDir);
    gateway.signal('SIGTERM');
    expect(framesOf(await stream.rest()).at(-1)).toBe('[DONE]');
    await gateway.exited;
    expect(isAlive(engine.pid)).toBe(false);
    expect(gateway.output.stdout).toContain('"msg":"stopping"');
  });

  it('while an engine starts returns 503 to waiting requests, and stops that engine', async () => {
    const home = processes.home({ chat: engineFile('chat', { flags: ['--start-delay-ms', '600000'] }) });
    const hasty = { ...env, HEADGATE_SHUTDOWN_SECONDS: '1' };
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env: hasty });
    const pending = clientOf(await gateway.url()).chat({});
    await gateway.printed(/"started an engine"/);
    const engine = onlyEngine(home.dataDir);
    gateway.signal('SIGTERM');
    expect((await pending).status).toBe(503);
    expect(await gateway.exited).toEqual(cleanExit);
    expect(isAlive(engine.pid)).toBe(false);
  });

  it('during the first start leaves nothing running, and the next start is a first start', async () => {
    const home = processes.home();
    mkdirSync(home.dataDir);
    const watcher = watch(home.dataDir);
    const first = processes.run({ home, databaseUrl: null });
    // The lock comes, and with it the setting up of PostgreSQL.
    await once(watcher, 'change');
    watcher.close();
    first.signal('SIGINT', 'group');
    expect(await first.exited).toEqual(cleanExit);
    await expect(postgresPid(home.dataDir)).rejects.toThrow('PostgreSQL is not running');
    const second = processes.run({ home, databaseUrl: null });
    await second.printed(/^ {2}sk-hg-\S+$/m);
  });

  it('while PostgreSQL is being set up is not reported as a failure of PostgreSQL', async () => {
    const home = processes.home();
    const first = processes.run({ home, databaseUrl: null });
    const folder = join(home.dataDir, 'postgres');
    // initdb writes this file before it begins to fill the database.
    const isAtWork = () =>
      existsSync(folder) && globSync('cluster.new-*/cluster/PG_VERSION', { cwd: folder }).length > 0;
    await eventually(() => Promise.resolve(isAtWork()));
    expect(groupMembers(first.pid)).toEqual([first.pid]);
    first.signal('SIGINT', 'group');
    expect(await first.exited).toEqual(cleanExit);
    expect(first.output.stderr).toBe('');
  });
});

describe('a signal while a start waits for its database', () => {
  it('stops a start whose database does not answer', async () => {
    const silent = createServer((socket) => void socket.on('error', () => undefined));
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    const { port } = silent.address() as AddressInfo;
    const asked = once(silent, 'connection');
    const gateway = processes.run({ home: processes.home(), databaseUrl: `postgres://u:p@127.0.0.1:${port}/d` });
    await asked;
    gateway.signal('SIGINT');
    expect(await gateway.exited).toEqual(cleanExit);
    expect(gateway.output.stderr).toBe('');
    silent.close();
  });

  it('stops a start that waits for migrations of another process', async () => {
    const databaseUrl = await processes.database();
    const sql = postgres(databaseUrl, { max: 2, onnotice: () => undefined });
    const other = await sql.reserve();
    await other`select pg_advisory_lock(hashtext('headgate migrations'))`;
    const gateway = processes.run({ home: processes.home(), databaseUrl });
    const isWaiting = async (): Promise<boolean> =>
      (
        await sql`select from pg_locks where not granted and locktype = 'advisory' and database =
        (select oid from pg_database where datname = current_database())`
      ).length > 0;
    await eventually(isWaiting);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual(cleanExit);
    expect(gateway.output.stderr).toBe('');
    other.release();
    await sql.end();
  });
});

describe('a start with a closed output', () => {
  it('serves requests, and stops cleanly', async () => {
    const home = processes.home();
    const port = await freePort();
    const script = `{ "${process.execPath}" src/programs/start.js; echo "ended with $?" >&2; } | true`;
    const shell = processes.run({
      home,
      databaseUrl: await processes.database(),
      command: ['sh', '-c', script],
      env: { ...env, PORT: String(port) },
    });
    const client = clientOf(`http://127.0.0.1:${port}`);
    // Before it listens nobody answers.
    const answer = await eventually(() => client.chat({}).catch(() => null));
    expect(answer.status).toBe(200);
    await answer.text();
    process.kill(Number(readFileSync(join(home.dataDir, 'gateway.pid'), 'utf8')), 'SIGINT');
    await shell.exited;
    expect(shell.output.stderr).toBe('ended with 0\n');
  });
});
