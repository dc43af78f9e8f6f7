import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLog } from '#base/log.ts';
import type { Leadership } from '#core/fleet/store/coordination-store.ts';
import { createLeadership, leadershipTimes, type LeadershipTimes } from '#core/fleet/store/leadership.ts';
import { startDatabaseProxy, type DatabaseProxy } from '#test/database-proxy.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

const contenderProgram = new URL('./fixtures/contender.ts', import.meta.url).pathname;
const quickStart = new URL('../fixtures/quick-start.ts', import.meta.url).pathname;
const quick: LeadershipTimes = { ttlMs: 3000, renewMs: 200, pollMs: 100, marginMs: 1000, answerMs: 1000 };
const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 10 });

let database: TestDatabase;
let db: Db;
let scope: string;
const open: (() => Promise<unknown>)[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

interface Contender {
  readonly id: string;
  readonly leadership: Leadership;
  /** True where it led, at every change. */
  readonly changes: boolean[];
}

interface ContenderOptions {
  readonly id?: string;
  readonly live?: () => readonly string[];
  readonly times?: LeadershipTimes;
  readonly through?: Db;
}

const everyone = new Set<string>();

async function contend(options: ContenderOptions = {}): Promise<Contender> {
  const { id = randomUUID(), live, times = quick, through = db } = options;
  everyone.add(id);
  const leadership = createLeadership({
    db: through,
    scope,
    gatewayId: id,
    liveGateways: () => Promise.resolve(live === undefined ? everyone : new Set([...live(), id])),
    clock: systemClock,
    log: createLog('silent'),
    times,
  });
  const changes: boolean[] = [];
  leadership.onChange(() => changes.push(leadership.current() !== null));
  open.push(() => leadership.close());
  await leadership.start();
  return { id, leadership, changes };
}

async function proxied(): Promise<{ proxy: DatabaseProxy; through: Db }> {
  const proxy = await startDatabaseProxy(database.url);
  const through = connectDb(proxy.url, { poolMax: 2 });
  open.push(async () => {
    await through.close();
    await proxy.close();
  });
  return { proxy, through };
}

async function readLease(): Promise<{ gateway_id: string; epoch: string; held: boolean } | undefined> {
  const [row] = await db.sql<{ gateway_id: string; epoch: string; held: boolean }[]>`
    select gateway_id, epoch::text, expires_at > now() as held from fleet_leases where scope = ${scope}`;
  return row;
}

/** A child that stands for the lead, with what it said so far. */
async function spawnContender(
  otherId: string,
  times: LeadershipTimes,
): Promise<{ child: ChildProcess; said: () => string }> {
  const id = randomUUID();
  everyone.add(id);
  const words = [database.url, scope, JSON.stringify([id, otherId]), JSON.stringify(times)];
  const program = ['--import', quickStart, contenderProgram];
  const child = spawn(process.execPath, [...program, ...words], { stdio: ['pipe', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text += part));
  open.push(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  await until(() => expect(text).toMatch(/^leads \d+\n/));
  return { child, said: () => text };
}

describe('the leadership of a scope', () => {
  it('is held by one of many contenders at once', async () => {
    scope = randomUUID();
    const contenders = await Promise.all(Array.from({ length: 8 }, () => contend()));
    const leading = () => contenders.filter(({ leadership }) => leadership.current() !== null);
    await until(() => expect(leading()).toHaveLength(1));
    const [leader] = leading();
    await until(async () => expect(await leader?.leadership.current()?.holds()).toBe(true));
    expect(await readLease()).toMatchObject({ gateway_id: leader?.id, epoch: '1', held: true });
  });

  it('is kept for longer than one lease without a change', async () => {
    scope = randomUUID();
    const first = await contend();
    const second = await contend();
    const epochs: string[] = [];
    const beganAtMs = performance.now();
    await until(async () => {
      epochs.push((await readLease())?.epoch ?? '');
      expect(performance.now() - beganAtMs).toBeGreaterThan(2 * quick.ttlMs);
    });
    expect(new Set(epochs)).toEqual(new Set(['1']));
    expect(first.changes).toEqual([true]);
    expect(second.changes).toEqual([]);
  });

  it('is independent of another scope', async () => {
    scope = randomUUID();
    const first = await contend();
    scope = randomUUID();
    const second = await contend();
    expect([first, second].map(({ leadership }) => leadership.current()?.epoch)).toEqual([1n, 1n]);
  });

  it('passes at once when its holder closes, with a higher epoch', async () => {
    scope = randomUUID();
    const first = await contend({ times: { ...quick, ttlMs: 600_000 } });
    const second = await contend();
    const fence = first.leadership.current();
    await first.leadership.close();
    expect(first.leadership.current()).toBeNull();
    expect(first.changes).toEqual([true, false]);
    await until(() => expect(second.leadership.current()?.epoch).toBe(2n));
    expect(await fence?.holds()).toBe(false);
  });

  it('is taken from a dead gateway before its lease expires', async () => {
    scope = randomUUID();
    const first = await contend({ times: { ...quick, ttlMs: 600_000, renewMs: 600_000 } });
    const fence = first.leadership.current();
    await until(async () => expect(await fence?.holds()).toBe(true));
    const second = await contend({ live: () => [] });
    expect(second.leadership.current()?.epoch).toBe(2n);
    expect(await fence?.holds()).toBe(false);
  });

  it('ends on one gateway before it can begin on another when PostgreSQL is unreachable', async () => {
    scope = randomUUID();
    const { proxy, through } = await proxied();
    const first = await contend({ through });
    const fence = first.leadership.current();
    const second = await contend();
    let endedAtMs = 0;
    first.leadership.onChange(() => (endedAtMs = performance.now()));
    proxy.cut();
    expect(await fence?.holds()).toBe(false);
    await until(() => expect(second.leadership.current()?.epoch).toBe(2n));
    expect(endedAtMs).toBeGreaterThan(0);
    expect(endedAtMs).toBeLessThan(performance.now());
    expect(first.changes).toEqual([true, false]);
    proxy.restore();
    await second.leadership.close();
    await until(() => expect(first.leadership.current()?.epoch).toBe(3n));
    expect(await fence?.holds()).toBe(false);
  });

  it('is kept through an interruption shorter than the lease', async () => {
    scope = randomUUID();
    const { proxy, through } = await proxied();
    const first = await contend({ through, times: { ...quick, ttlMs: 20_000 } });
    const fence = first.leadership.current();
    proxy.cut();
    expect(await fence?.holds()).toBe(false);
    expect(first.leadership.current()).toBe(fence);
    proxy.restore();
    await until(async () => expect(await fence?.holds()).toBe(true));
    expect(first.changes).toEqual([true]);
  });

  it('is held by no gateway while PostgreSQL is unreachable', async () => {
    scope = randomUUID();
    const { proxy, through } = await proxied();
    proxy.cut();
    const alone = await contend({ through });
    expect(alone.leadership.current()).toBeNull();
    proxy.restore();
    await until(() => expect(alone.leadership.current()?.epoch).toBe(1n));
  });
});

describe('a leader in another process', () => {
  it('is replaced within 15 seconds when it is killed', async () => {
    scope = randomUUID();
    const id = randomUUID();
    const { child } = await spawnContender(id, leadershipTimes);
    const { leadership } = await contend({ id, times: leadershipTimes });
    expect(leadership.current()).toBeNull();
    child.kill('SIGKILL');
    await until(() => expect(leadership.current()?.epoch).toBe(2n));
    // Its last lease ends, and then another member polls; a busy machine adds the time of both.
    expect(leadershipTimes.ttlMs + leadershipTimes.pollMs).toBeLessThan(15_000);
    await until(async () => expect(await leadership.current()?.holds()).toBe(true));
  });

  it('loses its fence when it wakes after another gateway took the lead', async () => {
    scope = randomUUID();
    const id = randomUUID();
    const { child, said } = await spawnContender(id, quick);
    child.stdin?.write('before\n');
    await until(() => expect(said()).toContain('before holds 1\n'));
    child.kill('SIGSTOP');
    const { leadership } = await contend({ id, times: { ...quick, ttlMs: 60_000 } });
    await until(() => expect(leadership.current()?.epoch).toBe(2n));
    child.stdin?.write('after\n');
    child.kill('SIGCONT');
    await until(() => expect(said()).toMatch(/after lost (none|1)\n/));
    await until(() => expect(said()).toContain('follows\n'));
    await until(async () => expect(await leadership.current()?.holds()).toBe(true));
    expect(leadership.current()?.epoch).toBe(2n);
  });

  it('leads again with a new epoch when it wakes and no other gateway leads', async () => {
    scope = randomUUID();
    const { child, said } = await spawnContender(randomUUID(), quick);
    child.kill('SIGSTOP');
    await until(async () => expect((await readLease())?.held).toBe(false));
    child.kill('SIGCONT');
    await until(() => expect(said()).toContain('leads 2\n'));
    child.stdin?.write('after\n');
    await until(() => expect(said()).toContain('after lost 2\n'));
  });
});
