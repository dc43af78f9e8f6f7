import { readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { FleetOptions } from '#core/fleet/fleet.ts';
import {
  ask,
  engineDefinition,
  isAlive,
  mustAcquire,
  newFolder,
  startFleet,
  type TestFleet,
} from '#test/fleet/test-fleet.ts';

const open: TestFleet[] = [];
const folders: string[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((fleet) => fleet.close()));
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

/** Removed after the test. */
function folderOfTest(): string {
  const folder = newFolder();
  folders.push(folder);
  return folder;
}

async function start(engines: EngineDefinition[], options: Partial<FleetOptions> = {}): Promise<TestFleet> {
  const started = await startFleet(engines, options);
  open.push(started);
  return started;
}

const until = (check: () => void) => vi.waitFor(check, { timeout: 300_000, interval: 10 });

describe('a failed start', () => {
  const causes: [string, string[], RegExp][] = [
    [
      'weights',
      ['--say', 'OSError: nope is not a local folder and is not a valid model identifier', '--exit', '1'],
      /weights of this model were not found/,
    ],
    ['memory', ['--say', 'torch.OutOfMemoryError: CUDA out of memory.', '--exit', '1'], /not enough memory/],
    [
      'port',
      ['--say', 'OSError: [Errno 98] error while attempting to bind on address: address already in use', '--exit', '1'],
      /in use/,
    ],
    ['token', ['--say', 'huggingface_hub.errors.GatedRepoError: 403 Client Error.', '--exit', '1'], /require a token/],
    ['arguments', ['--say', 'vllm: error: unrecognized arguments: --nope', '--exit', '2'], /rejected its settings/],
    ['exit code 0', ['--exit', '0'], /The engine of this model exited\./],
    ['unknown', ['--exit', '7'], /exited unexpectedly/],
  ];
  it.each(causes)('returns start_failed with a public cause: %s', async (_, args, text) => {
    const { fleet, starts } = await start([engineDefinition({ args })]);
    const results = await Promise.all([1, 2, 3].map(() => fleet.acquire('fixture', {})));
    for (const result of results) {
      expect(result).toMatchObject({
        ok: false,
        refusal: { code: 'start_failed', publicText: expect.stringMatching(text) },
      });
    }
    expect(starts()).toHaveLength(1);
    expect(fleet.status('fixture')).toBe('failed');
  });

  const file = fileURLToPath(import.meta.url);
  it.each([
    ['', {}],
    [', with a file among the folders of the PATH', { PATH: `/usr/bin:/bin:${join(file, 'bin')}` }],
  ])('returns start_failed when the program is not installed%s', async (_, env: Record<string, string>) => {
    const { fleet } = await start([engineDefinition({ command: ['headgate-no-such-program', '{socket}'], env })]);
    const result = await fleet.acquire('fixture', {});
    expect(result).toMatchObject({ ok: false, refusal: { publicText: expect.stringMatching(/not installed/) } });
  });

  it('returns start_failed for an unset variable without naming it', async () => {
    const { fleet, starts } = await start([engineDefinition({ env: { TOKEN: '${HEADGATE_TEST_NOT_SET}' } })]);
    const result = await fleet.acquire('fixture', {});
    expect(result).toMatchObject({
      ok: false,
      refusal: { publicText: expect.stringMatching(/A setting .* is missing/) },
    });
    expect(JSON.stringify(result)).not.toContain('HEADGATE_TEST_NOT_SET');
    expect(starts()).toHaveLength(0);
  });

  it('returns start_timeout and ends a program that is not ready in time', async () => {
    const { fleet, starts } = await start([engineDefinition({ args: ['--delay', '60000'], startTimeoutMs: 1500 })]);
    const result = await fleet.acquire('fixture', {});
    expect(result).toMatchObject({ ok: false, refusal: { code: 'start_timeout' } });
    const [pid = 0] = starts();
    await until(() => expect(isAlive(pid)).toBe(false));
  });

  it('is retried only after its backoff, by the next request', async () => {
    const { fleet, starts } = await start([engineDefinition({ args: ['--exit', '1'] })], {
      policy: { backoffFirstMs: 300 },
    });
    await fleet.acquire('fixture', {});
    const early = await fleet.acquire('fixture', {});
    expect(early).toMatchObject({ ok: false, refusal: { retryAfterSeconds: 1 } });
    expect(starts()).toHaveLength(1);
    await vi.waitFor(
      async () => {
        await fleet.acquire('fixture', {});
        expect(starts()).toHaveLength(2);
      },
      { timeout: 300_000, interval: 50 },
    );
  });
});

describe('a rejected request', () => {
  it("returns queue_full when the engine's queue is full", async () => {
    const { fleet } = await start([engineDefinition({ args: ['--delay', '300'] })], { queueMax: 2 });
    const results = await Promise.all([1, 2, 3, 4].map(() => fleet.acquire('fixture', {})));
    expect(results.map((result) => (result.ok ? 'lease' : result.refusal.code))).toEqual([
      'lease',
      'lease',
      'queue_full',
      'queue_full',
    ]);
  });

  it('returns no_other_replica when the only replica is excluded', async () => {
    const { fleet } = await start([engineDefinition()]);
    const lease = await mustAcquire(fleet);
    const exclude = new Set([lease.replica.id]);
    expect(fleet.tryAcquire('fixture', exclude)).toBeNull();
    expect(await fleet.acquire('fixture', { exclude })).toMatchObject({
      ok: false,
      refusal: { code: 'no_other_replica' },
    });
  });

  it('returns shutting_down to waiting and new requests when the gateway shuts down', async () => {
    const { fleet } = await start([engineDefinition({ args: ['--delay', '60000'] })]);
    const waiting = fleet.acquire('fixture', {});
    await until(() => expect(fleet.status('fixture')).toBe('starting'));
    const closed = fleet.close();
    expect(await waiting).toMatchObject({ ok: false, refusal: { code: 'shutting_down' } });
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: false, refusal: { code: 'shutting_down' } });
    await closed;
  });

  it('rejects with the abort reason when its client leaves, while other requests keep waiting', async () => {
    const { fleet } = await start([engineDefinition({ args: ['--delay', '200'] })]);
    const leaving = new AbortController();
    const left = fleet.acquire('fixture', { signal: leaving.signal });
    const stayed = fleet.acquire('fixture', {});
    leaving.abort(new Error('client left'));
    await expect(left).rejects.toThrow('client left');
    expect(await stayed).toMatchObject({ ok: true });
    await expect(fleet.acquire('fixture', { signal: leaving.signal })).rejects.toThrow('client left');
  });

  it('returns taken_away for a disabled engine', async () => {
    const { fleet } = await start([engineDefinition({}, { enabled: false })]);
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: false, refusal: { code: 'taken_away' } });
    expect(fleet.tryAcquire('fixture')).toBeNull();
  });
});

describe('a cold start', () => {
  it('serves 200 waiting requests with one process', async () => {
    const { fleet, starts } = await start([engineDefinition({ args: ['--delay', '200'] })]);
    expect(fleet.status('fixture')).toBe('cold');
    expect(fleet.tryAcquire('fixture')).toBeNull();
    const results = await Promise.all(Array.from({ length: 200 }, () => fleet.acquire('fixture', {})));
    const replicas = new Set(results.map((result) => (result.ok ? result.lease.replica.id : 'refused')));
    expect(replicas.size).toBe(1);
    expect(replicas).not.toContain('refused');
    expect(results.every((result) => result.ok && result.lease.cold)).toBe(true);
    expect(starts()).toHaveLength(1);
    expect(fleet.list()).toMatchObject([{ status: 'ready', leases: 200, waiting: 0, lastStartMs: expect.any(Number) }]);
    for (const result of results) if (result.ok) [1, 2].forEach(() => result.lease.release());
    expect(fleet.list()).toMatchObject([{ leases: 0 }]);
    const warm = fleet.tryAcquire('fixture');
    expect(warm?.cold).toBe(false);
    warm?.release();
  });

  it('listens on a socket in a folder with mode 0700', async () => {
    const { fleet, dataDir } = await start([engineDefinition()]);
    const { replica } = await mustAcquire(fleet);
    expect(replica.endpoint.socketPath?.startsWith(dataDir)).toBe(true);
    expect(statSync(join(dataDir, 'engines', 's')).mode & 0o777).toBe(0o700);
  });

  it('uses a short socket folder when the data folder has a long path', async () => {
    const { fleet } = await start([engineDefinition()], { dataDir: join(folderOfTest(), 'd'.repeat(120)) });
    const { replica } = await mustAcquire(fleet);
    const path = replica.endpoint.socketPath ?? '';
    folders.push(join(path, '..'));
    expect(Buffer.byteLength(path)).toBeLessThanOrEqual(107);
    expect(statSync(join(path, '..')).mode & 0o777).toBe(0o700);
    expect(await ask(replica, '/health')).toBe('');
  });

  it('uses a free port when the command contains {port}', async () => {
    const { fleet } = await start([engineDefinition({ command: ['node', fixtureOf(), '{port}'] })]);
    const { replica } = await mustAcquire(fleet);
    expect(replica.endpoint).toMatchObject({ socketPath: null, host: '127.0.0.1' });
    expect(replica.endpoint.port).toBeGreaterThan(0);
    expect(await ask(replica, '/health')).toBe('');
  });

  it("passes needed variables to the process and none of the gateway's secrets", async () => {
    const env = {
      ...process.env,
      DATABASE_URL: 'postgres://x',
      HEADGATE_BOOTSTRAP_KEY: 'k',
      VLLM_API_KEY: 'v',
      HF_HOME: '/hf',
      MY_TOKEN: 'tok',
    };
    const { fleet } = await start([engineDefinition({ env: { HF_TOKEN: 'x-${MY_TOKEN}' } })], { env });
    const { replica } = await mustAcquire(fleet);
    const seen = JSON.parse((await ask(replica, '/env')) ?? '') as Record<string, string>;
    expect(seen).toMatchObject({ HF_HOME: '/hf', HF_TOKEN: 'x-tok', PATH: process.env['PATH'] });
    for (const name of ['DATABASE_URL', 'HEADGATE_BOOTSTRAP_KEY', 'VLLM_API_KEY', 'MY_TOKEN'])
      expect(seen).not.toHaveProperty(name);
  });
});

function fixtureOf(): string {
  const { driver } = engineDefinition();
  return driver.type === 'process' ? (driver.command[1] ?? '') : '';
}

describe('an engine that exits unexpectedly', () => {
  it.each([0, 3])('is restarted after exit code %i', async (code) => {
    const { fleet, starts } = await start([engineDefinition()], { policy: { backoffFirstMs: 50 } });
    const lease = await mustAcquire(fleet);
    await ask(lease.replica, `/exit?${code}`);
    await until(() => expect(starts()).toHaveLength(2));
    const next = await mustAcquire(fleet);
    expect(next.replica.id).not.toBe(lease.replica.id);
  });

  it('is failed after repeated crashes, and retried after a while', async () => {
    const policy = { backoffFirstMs: 10, backoffMaxMs: 20, crashesMax: 3, failedMs: 400 };
    const { fleet, starts } = await start([engineDefinition()], { policy });
    for (let crash = 0; crash < 3; crash += 1) {
      const { replica } = await mustAcquire(fleet);
      await ask(replica, '/exit?1');
      await until(() => expect(fleet.list()[0]?.replicaIds).not.toContain(replica.id));
    }
    expect(fleet.status('fixture')).toBe('failed');
    expect(await fleet.acquire('fixture', {})).toMatchObject({
      ok: false,
      refusal: { publicText: expect.stringMatching(/exited unexpectedly/) },
    });
    expect(starts()).toHaveLength(3);
    await vi.waitFor(async () => expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: true }), {
      timeout: 300_000,
    });
    expect(starts()).toHaveLength(4);
  });

  it('ends its child processes too', async () => {
    const file = join(folderOfTest(), 'grandchild');
    const { fleet } = await start([engineDefinition({ args: ['--grandchild', file] })], {
      policy: { backoffFirstMs: 60_000 },
    });
    const { replica } = await mustAcquire(fleet);
    const grandchild = Number(await readWhenThere(file));
    expect(isAlive(grandchild)).toBe(true);
    await ask(replica, '/exit?0');
    await until(() => expect(isAlive(grandchild)).toBe(false));
  });

  it('leaves routing when it no longer answers, and is replaced', async () => {
    const policy = { backoffFirstMs: 10, unreachableMs: 200 };
    const { fleet, starts } = await start([engineDefinition()], { policy });
    const { replica } = await mustAcquire(fleet);
    fleet.reportUnreachable(replica.id);
    await ask(replica, '/health');
    expect(fleet.status('fixture')).toBe('ready');
    await ask(replica, '/unhealthy');
    fleet.reportUnreachable(replica.id);
    await until(() => expect(fleet.tryAcquire('fixture')).toBeNull());
    const next = await mustAcquire(fleet);
    expect(next.replica.id).not.toBe(replica.id);
    expect(starts()).toHaveLength(2);
  });
});

async function readWhenThere(file: string): Promise<string> {
  return vi.waitFor(() => readFileSync(file, 'utf8'), { timeout: 300_000 });
}

describe('a stop', () => {
  it('comes after the idle time but not during a lease, and the next request starts the engine cold', async () => {
    const { fleet, starts } = await start([engineDefinition({ idleMs: 200 })]);
    const lease = await mustAcquire(fleet);
    const [pid = 0] = starts();
    await until(() => expect(Date.now() - (fleet.list()[0]?.sinceMs ?? Infinity)).toBeGreaterThan(1000));
    expect(fleet.status('fixture')).toBe('ready');
    lease.release();
    await until(() => expect(fleet.list()[0]?.phase).toBe('stopped'));
    expect(isAlive(pid)).toBe(false);
    expect((await mustAcquire(fleet)).cold).toBe(true);
    expect(starts()).toHaveLength(2);
  });

  it('ends a program that ignores SIGTERM, with its child processes', async () => {
    const file = join(folderOfTest(), 'grandchild');
    const { fleet, starts } = await start([engineDefinition({ args: ['--mute-sigterm', '--grandchild', file] })], {
      stopGraceMs: 300,
    });
    await mustAcquire(fleet).then((lease) => lease.release());
    await fleet.close();
    const pids = [...starts(), Number(await readWhenThere(file))];
    expect(pids).toHaveLength(2);
    // Nobody waits for what an engine started: it got a signal to end, and may take a moment for it.
    await until(() => expect(pids.filter(isAlive)).toEqual([]));
  });

  it('waits for leases up to the drain time, routes nothing new, and leaves no process, record or socket', async () => {
    const { fleet, starts, dataDir } = await start([engineDefinition({ drainMs: 60_000 })]);
    const lease = await mustAcquire(fleet);
    const order: string[] = [];
    const closed = fleet.close().then(() => order.push('closed'));
    await until(() => expect(fleet.list()[0]?.phase).toBe('draining'));
    expect(fleet.tryAcquire('fixture')).toBeNull();
    expect(await ask(lease.replica, '/health')).toBe('');
    order.push('released');
    lease.release();
    await closed;
    expect(order).toEqual(['released', 'closed']);
    expect(starts().filter(isAlive)).toEqual([]);
    expect(readdirSync(join(dataDir, 'engines', 'running'))).toEqual([]);
    expect(readdirSync(join(dataDir, 'engines', 's'))).toEqual([]);
  });

  it('does not wait for a lease longer than the drain time', async () => {
    const { fleet, starts } = await start([engineDefinition({ drainMs: 100 })]);
    await mustAcquire(fleet);
    await fleet.close();
    expect(starts().filter(isAlive)).toEqual([]);
  });
});

describe('an external engine', () => {
  const external = (url: string): EngineDefinition =>
    engineDefinition(
      {},
      {
        driver: {
          type: 'external',
          deployments: [{ name: null, url, upstreamModel: 'their-name', apiKeyEnv: 'FAR_KEY', weight: 1 }],
          findsKind: false,
        },
      },
    );

  it('is ready at once even when unreachable, with its API key and upstream model name', async () => {
    const free = await closedPort();
    const { fleet } = await start([external(`http://127.0.0.1:${free}/base`)], { env: { FAR_KEY: 'secret-1' } });
    expect(fleet.status('fixture')).toBe('ready');
    const lease = fleet.tryAcquire('fixture');
    expect(lease?.replica).toMatchObject({
      endpoint: { socketPath: null, host: '127.0.0.1', port: free, tls: false, basePath: '/base' },
      upstreamModel: 'their-name',
      headerLines: 'Authorization: Bearer secret-1\r\n',
      forcedUsage: false,
    });
    lease?.release();
    fleet.reportUnreachable(lease?.replica.id ?? '');
    const again = fleet.tryAcquire('fixture');
    expect(again?.replica.id).toBe(lease?.replica.id);
    again?.release();
  });

  it('rejects an API key that contains line breaks', async () => {
    await expect(startFleet([external('https://e.example')], { env: { FAR_KEY: 'a\r\nX: b' } })).rejects.toThrow(
      /FAR_KEY/,
    );
  });
});

function closedPort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const address = server.address();
      server.close(() =>
        typeof address === 'object' && address !== null ? resolve(address.port) : reject(new Error('no port')),
      );
    });
  });
}
