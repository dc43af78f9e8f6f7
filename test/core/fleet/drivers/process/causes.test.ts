import { chmodSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createLog } from '#base/log.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import { createProcessDriver } from '#core/fleet/drivers/process/process.ts';
import type { Fleet } from '#core/fleet/fleet.ts';
import { engineDefinition, mustAcquire, newFolder, startFleet, type TestFleet } from '../../test-fleet.ts';

/** What operators are told of processes that fail, and of those that run. */

let folder: string;
let town: TestFleet | null = null;

beforeEach(() => {
  folder = newFolder();
});
afterEach(async () => {
  await town?.close();
  town = null;
  rmSync(folder, { recursive: true, force: true });
});

async function start(engine: EngineDefinition, env: NodeJS.ProcessEnv = process.env): Promise<Fleet> {
  town = await startFleet([engine], { folder, env });
  return town.fleet;
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

describe('the cause of a start that failed', () => {
  it('is what the program said on stderr, whatever it printed last', async () => {
    expect(await failure(shell('echo the hat is wrong >&2; echo loading; echo bye; exit 1'))).toBe('the hat is wrong');
  });

  it('names a program that is not installed, without all the folders where it was looked for', async () => {
    const detail = await failure(engineDefinition({ command: ['no-such-engine', '{socket}'] }), { PATH: '/nowhere' });
    expect(detail).toBe('no-such-engine is not on the PATH of the gateway');
  });

  it('names a program that is not where the file says, and one that may not be started', async () => {
    const path = join(folder, 'engine');
    expect(await failure(engineDefinition({ command: [path, '{socket}'] }))).toBe(`there is no program ${path}`);
    await town?.close();
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, 'no program');
    chmodSync(path, 0o600);
    const detail = await failure(engineDefinition({ command: [path, '{socket}'] }));
    expect(detail).toBe(`${path} may not be started by the user that runs the gateway`);
  });

  it('says what is wrong with the files of the gateway itself', async () => {
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

  it('names the variable that refers to one that is not set', async () => {
    expect(await failure(engineDefinition({ env: { TOKEN: '${HEADGATE_TEST_NOT_SET}' } }))).toBe(
      'TOKEN refers to a variable that is not set where the gateway runs',
    );
  });
});

describe('a file that was changed and read again', () => {
  it('is not refused, nor shown, with the failure of the one before', async () => {
    town = await startFleet([engineDefinition({ args: ['--exit', '1'] })], { folder, policy: { crashesMax: 1 } });
    const { fleet } = town;
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: false, refusal: { code: 'start_failed' } });
    expect(fleet.list()).toMatchObject([{ phase: 'failed', cause: expect.stringMatching(/ended unexpectedly/) }]);
    fleet.reload([engineDefinition()]);
    expect(fleet.list()).toMatchObject([
      { phase: 'stopped', status: 'cold', cause: null, causeDetail: null, retryAtMs: null },
    ]);
    expect(await fleet.acquire('fixture', {})).toMatchObject({ ok: true });
  });

  it('is not shown with the refusal of the one before', async () => {
    town = await startFleet([engineDefinition()], { folder });
    const { fleet } = town;
    (await mustAcquire(fleet)).release();
    fleet.reload([engineDefinition({ args: ['--exit', '1'] })]);
    await vi.waitFor(() => expect(fleet.list()[0]?.rollout?.state).toBe('refused'), { timeout: 120_000 });
    fleet.reload([engineDefinition({ args: ['--delay', '1'] })]);
    expect(fleet.list()[0]?.rollout).toBeNull();
    await vi.waitFor(() => expect(fleet.list()[0]?.rollout?.state).toBe('checking'), { timeout: 120_000 });
  });
});

describe('the log of a process', () => {
  const chatty = `
    i=0
    while [ $i -lt 40 ]; do
      echo '(APIServer pid=1) INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'
      i=$((i+1))
      [ $((i % 20)) -eq 0 ] && echo "line $i" && echo "trouble $i" >&2
    done
    exec node ${new URL('../../fixtures/engine.ts', import.meta.url).pathname} "$0"`;

  it('has both streams, and no probes that were answered well', async () => {
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

  it('goes on with what comes on stderr when the gateway that kept it is gone', async () => {
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
    await vi.waitFor(async () => expect(await read()).toEqual(['first']), { timeout: 120_000 });
    process.kill(record.pid, 'SIGUSR1');
    await vi.waitFor(async () => expect(await read()).toEqual(['first', 'second']), { timeout: 120_000 });
    await next.stop('r', { fence, graceMs: 100 });
    await vi.waitFor(async () => expect((await next.observe(2n)).replicas).toMatchObject([{ state: 'exited' }]), {
      timeout: 120_000,
    });
    await next.close();
  });
});
