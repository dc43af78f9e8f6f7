import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createLog } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { oomFiles } from '#core/fleet/drivers/process/oom-kills.ts';
import { createProcessDriver } from '#core/fleet/drivers/process/process.ts';
import { explainExit } from '#core/fleet/drivers/start-failure.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import { engineDefinition, mustAcquire, newFolder, startFleet, type TestFleet } from '#test/fleet/test-fleet.ts';

/** Reports to operators on processes that fail, and on those that run. */

let folder: string;
let started: TestFleet | null = null;

beforeEach(() => {
  folder = newFolder();
});
afterEach(async () => {
  await started?.close();
  started = null;
  rmSync(folder, { recursive: true, force: true });
});

async function start(engine: EngineDefinition, env: NodeJS.ProcessEnv = process.env): Promise<Fleet> {
  started = await startFleet([engine], { folder, env });
  return started.fleet;
}

const shell = (script: string) => engineDefinition({ command: ['sh', '-c', script, '{socket}'] });

async function failure(engine: EngineDefinition, env?: NodeJS.ProcessEnv): Promise<string | null | undefined> {
  const fleet = await start(engine, env);
  expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: false });
  return fleet.list()[0]?.causeDetail;
}

async function linesOf(fleet: Fleet, tailLines: number): Promise<string[]> {
  const lines: string[] = [];
  const request = { tailLines, follow: false, signal: new AbortController().signal };
  for await (const line of fleet.logs('fixture', null, request)) lines.push(line);
  return lines;
}

describe('the cause of a failed start', () => {
  it('is the last line of stderr, even when stdout has later lines', async () => {
    expect(await failure(shell('echo the hat is wrong >&2; echo loading; echo bye; exit 1'))).toBe('the hat is wrong');
  });

  it('names a program that is not installed, without listing the folders of PATH', async () => {
    const detail = await failure(engineDefinition({ command: ['no-such-engine', '{socket}'] }), { PATH: '/nowhere' });
    expect(detail).toBe("no-such-engine is not on the gateway's PATH");
  });

  it('names a program that does not exist at its path or is not executable', async () => {
    const path = join(folder, 'engine');
    expect(await failure(engineDefinition({ command: [path, '{socket}'] }))).toBe(`the program ${path} does not exist`);
    await started?.close();
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, 'no program');
    chmodSync(path, 0o600);
    const detail = await failure(engineDefinition({ command: [path, '{socket}'] }));
    expect(detail).toBe(`the user that runs the gateway may not execute ${path}`);
  });

  it("describes what is wrong with the gateway's own log folder", async () => {
    const fleet = await start(engineDefinition());
    const logs = join(folder, 'data', 'engines', 'logs');
    rmSync(logs, { recursive: true });
    writeFileSync(logs, 'no folder');
    expect(await fleet.acquire('fixture', {})).toMatchObject({
      ok: false,
      refusal: { code: 'start_failed', publicText: expect.stringMatching(/could not be started/) },
    });
    expect(fleet.list()[0]?.causeDetail).toMatch(/^ENOTDIR: .*logs/);
  });

  it('names the variable that refers to an unset variable', async () => {
    expect(await failure(engineDefinition({ env: { TOKEN: '${HEADGATE_TEST_NOT_SET}' } }))).toBe(
      "TOKEN refers to a variable that is not set in the gateway's environment",
    );
  });
});

describe('the exit of a killed process', () => {
  /** Starts one with a count of the kernel's kills, kills it, and says how it ended. */
  async function killed(count: () => number | null, meanwhile: () => void = () => undefined) {
    const options = { dataDir: join(folder, 'data'), workingDirectory: folder, env: process.env };
    const driver = createProcessDriver({ ...options, log: createLog('silent'), countOomKills: count });
    const spec = driver.specOf(shell('exec sleep 600'));
    await driver.open([spec]);
    const fence = { epoch: 1n, holds: () => Promise.resolve(true) };
    await driver.start({ replicaId: 'r', spec, placement: { host: 'local', gpuIds: [] }, fence });
    const record = readFileSync(join(folder, 'data', 'engines', 'running', 'r.json'), 'utf8');
    meanwhile();
    process.kill((JSON.parse(record) as { pid: number }).pid, 'SIGKILL');
    const exit = await vi.waitFor(
      async () => {
        const [found] = (await driver.observe()).replicas;
        if (found?.exit === null || found === undefined) throw new Error('it still runs');
        return found.exit;
      },
      { timeout: 300_000 },
    );
    await driver.close();
    return explainExit(exit);
  }

  it('is attributed to memory when the kernel counted an OOM kill since the start', async () => {
    let kills = 3;
    const cause = await killed(
      () => kills,
      () => (kills += 1),
    );
    expect(cause).toMatchObject({ kind: 'memory', detail: 'the kernel killed it because memory ran out' });
  });

  it('is not attributed to memory when the kernel counted no OOM kill or has no count', async () => {
    for (const kills of [3, null]) {
      expect(await killed(() => kills)).toMatchObject({
        kind: 'killed',
        detail: 'it was killed by SIGKILL',
      });
    }
  });

  it.each([
    ['v2', '0::/system.slice/headgate.service\n', '/sys/fs/cgroup/system.slice/headgate.service/memory.events'],
    ['v2, in a container', '0::/\n', '/sys/fs/cgroup/memory.events'],
    ['v1', '9:cpu,cpuacct:/a\n4:memory:/docker/ab12\n', '/sys/fs/cgroup/memory/docker/ab12/memory.oom_control'],
  ])('reads OOM kills from the control group: cgroup %s', (_, groups, file) => {
    expect(oomFiles(groups)[0]).toBe(file);
    expect(oomFiles('')).toEqual([]);
  });
});

describe('the next start of a failed engine', () => {
  it("sends clients the leader's retry time, and none where only an operator can fix the engine", async () => {
    const policy = { backoffFirstMs: 300 };
    started = await startFleet([engineDefinition({ args: ['--exit', '1'] })], { folder, policy });
    expect(await started.fleet.acquire('fixture', {})).toMatchObject({ ok: false, refusal: { retryAfterSeconds: 1 } });
    await started.close();
    const missing = engineDefinition({ command: ['no-such-engine', '{socket}'] });
    started = await startFleet([missing], { folder: newFolder(), policy });
    for (let tries = 0; tries < 2; tries += 1) {
      expect(await started.fleet.acquire('fixture', {})).toMatchObject({
        ok: false,
        refusal: { retryAfterSeconds: null },
      });
    }
  });

  it('does not come by itself when a restart fails in the same way', async () => {
    const say = 'RuntimeError: CUDA error: no kernel image is available for execution on the device';
    const policy = { backoffFirstMs: 1 };
    started = await startFleet([engineDefinition({ args: ['--say', say, '--exit', '1'] })], { folder, policy });
    for (let tries = 0; tries < 3; tries += 1) {
      expect(await started.fleet.acquire('fixture', {})).toMatchObject({
        ok: false,
        refusal: { publicText: expect.stringMatching(/does not support the GPU/), retryAfterSeconds: null },
      });
    }
    expect(started.starts()).toHaveLength(1);
    expect(started.fleet.list()).toMatchObject([{ phase: 'failed', retryAtMs: null, failures: 1 }]);
    const done = await started.fleet.command('fixture', 'reset');
    await done();
    expect(await started.fleet.acquire('fixture', {})).toMatchObject({ ok: false });
    expect(started.starts()).toHaveLength(2);
  });

  it('has a retry time that is never in the past', async () => {
    const policy = { backoffFirstMs: 1 };
    started = await startFleet([engineDefinition({ args: ['--exit', '1'] })], { folder, policy });
    const { fleet } = started;
    await fleet.acquire('fixture', {});
    await vi.waitFor(
      () => {
        const before = Date.now();
        const [engine] = fleet.list();
        expect(engine).toMatchObject({ phase: 'retrying', failures: 1 });
        expect(engine?.retryAtMs).toBeGreaterThanOrEqual(before);
        // The published time has passed by now.
        expect(engine?.retryAtMs).toBeLessThanOrEqual(Date.now());
      },
      { timeout: 300_000, interval: 10 },
    );
  });
});

describe('a changed engine file after a reload', () => {
  it('neither rejects requests nor shows the failure of the former file', async () => {
    started = await startFleet([engineDefinition({ args: ['--exit', '1'] })], { folder, policy: { crashesMax: 1 } });
    const { fleet } = started;
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: false, refusal: { code: 'start_failed' } });
    expect(fleet.list()).toMatchObject([{ phase: 'failed', cause: expect.stringMatching(/exited unexpectedly/) }]);
    fleet.prepare([engineDefinition()])();
    expect(fleet.list()).toMatchObject([
      { phase: 'stopped', status: 'cold', cause: null, causeDetail: null, retryAtMs: null },
    ]);
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: true });
  });

  it('does not show the refused rollout of the former file', async () => {
    started = await startFleet([engineDefinition()], { folder });
    const { fleet } = started;
    (await mustAcquire(fleet)).release();
    fleet.prepare([engineDefinition({ args: ['--exit', '1'] })])();
    await vi.waitFor(() => expect(fleet.list()[0]?.rollout?.state).toBe('refused'), { timeout: 300_000 });
    fleet.prepare([engineDefinition({ args: ['--delay', '1'] })])();
    expect(fleet.list()[0]?.rollout).toBeNull();
    await vi.waitFor(() => expect(fleet.list()[0]?.rollout?.state).toBe('checking'), { timeout: 300_000 });
  });
});

describe('a process log', () => {
  const chatty = `
    i=0
    while [ $i -lt 40 ]; do
      echo '(APIServer pid=1) INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'
      i=$((i+1))
      [ $((i % 20)) -eq 0 ] && echo "line $i" && echo "trouble $i" >&2
    done
    exec node ${new URL('../../fixtures/engine.ts', import.meta.url).pathname} "$0"`;

  it('has stdout and stderr without successful health probes', async () => {
    const fleet = await start(shell(chatty), {
      ...process.env,
      PATH: `${join(process.execPath, '..')}:${process.env['PATH']}`,
    });
    await mustAcquire(fleet);
    await vi.waitFor(async () => {
      expect((await linesOf(fleet, 100)).toSorted()).toEqual(['line 20', 'line 40', 'trouble 20', 'trouble 40']);
    });
    expect(await linesOf(fleet, 3)).toHaveLength(3);
    expect(await linesOf(fleet, 0)).toEqual([]);
  });

  it('continues with stderr when the gateway that copied it has stopped', async () => {
    const script = `trap 'echo second >&2' USR1; echo first >&2; while :; do sleep 0.05; done`;
    const options = {
      dataDir: join(folder, 'data'),
      workingDirectory: folder,
      env: process.env,
      log: createLog('silent'),
    };
    const engine = shell(script);
    const gone = createProcessDriver({ ...options, sharing: 'first' });
    const spec = gone.specOf(engine);
    await gone.open([spec]);
    const fence = { epoch: 1n, holds: () => Promise.resolve(true) };
    await gone.start({ replicaId: 'r', spec, placement: { host: 'local', gpuIds: [] }, fence });
    await gone.close();
    const path = join(folder, 'data', 'engines', 'running', 'r.json');
    const record = JSON.parse(readFileSync(path, 'utf8')) as { pid: number; keeper: { pid: number } };
    // As if it had been another process.
    writeFileSync(path, JSON.stringify({ ...record, keeper: { ...record.keeper, identity: 'of one that is gone' } }));
    const next = createProcessDriver({ ...options, sharing: 'joining' });
    await next.open([spec]);
    await next.observe(2n);
    const read = async (): Promise<string[]> => {
      const lines: string[] = [];
      const request = { tailLines: 10, follow: false, signal: new AbortController().signal };
      for await (const line of next.logs('r', request)) lines.push(line);
      return lines;
    };
    await vi.waitFor(async () => expect(await read()).toEqual(['first']), { timeout: 300_000 });
    process.kill(record.pid, 'SIGUSR1');
    await vi.waitFor(async () => expect(await read()).toEqual(['first', 'second']), { timeout: 300_000 });
    await next.stop('r', { fence, graceMs: 100 });
    await vi.waitFor(async () => expect((await next.observe(2n)).replicas).toMatchObject([{ state: 'exited' }]), {
      timeout: 300_000,
    });
    await next.close();
  });
});
