import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  ask,
  engineDefinition,
  isAlive,
  mustAcquire,
  newFolder,
  readStarts,
  startFleet,
  type TestFleet,
} from '#test/fleet/test-fleet.ts';

const gatewayProgram = new URL('../../fixtures/gateway.ts', import.meta.url).pathname;
const quickStart = new URL('../../fixtures/quick-start.ts', import.meta.url).pathname;
const until = (check: () => void) => vi.waitFor(check, { timeout: 300_000, interval: 10 });

let folder: string;
let next: TestFleet | null;
let gateway: ChildProcess | null;

beforeEach(() => {
  folder = newFolder();
  next = null;
  gateway = null;
});
afterEach(async () => {
  await next?.close();
  gateway?.kill('SIGKILL');
  for (const pid of readStarts(join(folder, 'starts'))) if (isAlive(pid)) process.kill(pid, 'SIGKILL');
  rmSync(folder, { recursive: true, force: true });
});

/** Runs a gateway until its engine is ready, and kills it with -9. */
async function killedGateway(args: string[] = []): Promise<{ enginePid: number; replicaId: string }> {
  const words = ['--import', quickStart, gatewayProgram, folder, JSON.stringify(args)];
  const started = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  gateway = started;
  let said = '';
  started.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
  await until(() => expect(said).toContain('\n'));
  started.kill('SIGKILL');
  await once(started, 'exit');
  const [enginePid = 0] = readStarts(join(folder, 'starts'));
  return { enginePid, replicaId: said.trim().replace('ready ', '') };
}

async function startNext(...engines: Parameters<typeof startFleet>[0]): Promise<TestFleet> {
  next = await startFleet(engines, { folder, policy: { backoffFirstMs: 20 } });
  return next;
}

describe('a restart after a gateway was killed', () => {
  it('does not kill a process that only has the pid of a former engine', async () => {
    const { enginePid } = await killedGateway();
    const foreign = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], {
      stdio: 'ignore',
      detached: true,
    });
    const foreignPid = foreign.pid ?? 0;
    const running = join(folder, 'data', 'engines', 'running');
    const [name = ''] = readdirSync(running);
    const record = JSON.parse(readFileSync(join(running, name), 'utf8')) as object;
    writeFileSync(join(running, name), JSON.stringify({ ...record, pid: foreignPid }));
    const { fleet } = await startNext(engineDefinition());
    await mustAcquire(fleet);
    expect(isAlive(foreignPid)).toBe(true);
    // The real one lost its record, and is found by its mark; elsewhere than on Linux there is no cheap way to look.
    const canLook = process.platform === 'linux';
    await until(() => expect(isAlive(enginePid)).toBe(!canLook));
    foreign.kill('SIGKILL');
  });

  it('adopts the running engine instead of starting it twice', async () => {
    const { enginePid, replicaId } = await killedGateway();
    expect(isAlive(enginePid)).toBe(true);
    const { fleet, starts } = await startNext(engineDefinition());
    await until(() => expect(fleet.status('fixture')).toBe('ready'));
    const lease = await mustAcquire(fleet);
    expect(lease.replica.id).toBe(replicaId);
    expect(await ask(lease.replica, '/health')).toBe('');
    expect(starts()).toEqual([enginePid]);
    lease.release();
    await fleet.close();
    expect(isAlive(enginePid)).toBe(false);
  });

  it('restarts an adopted engine that exits', async () => {
    const { enginePid } = await killedGateway();
    const { fleet, starts } = await startNext(engineDefinition());
    await until(() => expect(fleet.status('fixture')).toBe('ready'));
    process.kill(enginePid, 'SIGKILL');
    await until(() => expect(starts()).toHaveLength(2));
    expect(await mustAcquire(fleet)).toBeDefined();
  });

  it('stops an engine whose file changed, then starts the new one', async () => {
    const { enginePid } = await killedGateway();
    const { fleet, starts } = await startNext(engineDefinition({ env: { CHANGED: '1' } }));
    await mustAcquire(fleet);
    expect(isAlive(enginePid)).toBe(false);
    expect(starts()).toHaveLength(2);
  });

  it('stops an engine that is disabled in its file', async () => {
    const { enginePid } = await killedGateway();
    await startNext(engineDefinition({}, { enabled: false }));
    await until(() => expect(isAlive(enginePid)).toBe(false));
  });

  it('ends the child processes of a dead engine', async () => {
    // Elsewhere there is no cheap way to find it.
    if (process.platform !== 'linux') return;
    const file = join(folder, 'grandchild');
    const { enginePid } = await killedGateway(['--grandchild', file]);
    process.kill(enginePid, 'SIGKILL');
    const grandchild = Number(readFileSync(file, 'utf8'));
    await until(() => expect(isAlive(enginePid)).toBe(false));
    expect(isAlive(grandchild)).toBe(true);
    await startNext(engineDefinition({ args: ['--grandchild', file] }));
    await until(() => expect(isAlive(grandchild)).toBe(false));
  });

  it('removes stale sockets and records, and ignores unreadable records', async () => {
    const engines = join(folder, 'data', 'engines');
    mkdirSync(join(engines, 'running'), { recursive: true });
    mkdirSync(join(engines, 's'));
    writeFileSync(join(engines, 'running', 'x.json'), '{"pid":1}');
    writeFileSync(join(engines, 'running', 'y.json'), 'not json');
    writeFileSync(join(engines, 's', 'stale.sock'), '');
    await startNext(engineDefinition());
    expect(readdirSync(join(engines, 'running'))).toEqual([]);
    expect(existsSync(join(engines, 's', 'stale.sock'))).toBe(false);
  });

  it('finds the engine in its own session, out of reach of terminal signals', async () => {
    const { enginePid } = await killedGateway();
    if (process.platform !== 'linux') return;
    const stat = readFileSync(`/proc/${enginePid}/stat`, 'latin1');
    const [, , group, session, terminal] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    expect([group, session, terminal]).toEqual([String(enginePid), String(enginePid), '0']);
  });
});
