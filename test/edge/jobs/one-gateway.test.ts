import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Sql } from 'postgres';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createLeases } from '#base/database/advisory-leases.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';

const runnerProgram = new URL('./fixtures/job-runner.ts', import.meta.url).pathname;
const quickStart = new URL('../../core/fleet/fixtures/quick-start.ts', import.meta.url).pathname;
const until = (check: () => void | Promise<void>) => vi.waitFor(check, { timeout: 300_000, interval: 10 });

let database: TestDatabase;
let db: Db;
const open: (() => Promise<unknown>)[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
  await db.close();
  await database.drop();
});

interface Runner {
  /** How often it has said something. */
  said(text: string): number;
  /** Resolves when it has said something this often from now on. */
  says(text: string, times?: number): Promise<void>;
  signal(name: NodeJS.Signals): void;
  readonly exited: Promise<unknown>;
}

function startRunner(idleMs = 60_000): Runner {
  const child = spawn(process.execPath, ['--import', quickStart, runnerProgram, database.url, String(idleMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let lines: string[] = [];
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    const parts = `${rest}${text}`.split('\n');
    rest = parts.pop() ?? '';
    lines = [...lines, ...parts];
  });
  const exited = once(child, 'exit');
  open.push(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const said = (text: string): number => lines.filter((line) => line === text).length;
  return {
    said,
    async says(text, times = 1) {
      const before = said(text);
      await until(() => expect(said(text)).toBeGreaterThanOrEqual(before + times));
    },
    signal: (name) => void child.kill(name),
    exited,
  };
}

/** Runs of the runners do not end from now on, until the returned function is called. */
async function holdRuns(): Promise<() => Promise<void>> {
  const session = db.session();
  await session`select pg_advisory_lock(hashtext('runsWait'))`;
  const release = (): Promise<void> => session.end();
  open.push(release);
  return release;
}

describe('a job of one gateway', () => {
  it('runs next on another gateway when its gateway is killed during a run', async () => {
    const release = await holdRuns();
    const first = startRunner();
    await first.says('began');
    const second = startRunner();
    await second.says('refused', 3);
    expect(second.said('began')).toBe(0);
    first.signal('SIGKILL');
    await first.exited;
    await until(() => expect(second.said('began')).toBe(1));
    await release();
    await second.says('ended', 3);
  });

  it('stays on the same gateway', async () => {
    const first = startRunner();
    await first.says('ended', 3);
    const second = startRunner();
    await second.says('refused', 5);
    await first.says('ended', 3);
    expect([second.said('began'), first.said('refused')]).toEqual([0, 0]);
  });

  it('renews its lease during a long run', async () => {
    await holdRuns();
    const first = startRunner();
    await first.says('began');
    await first.says('holds', 5);
    expect([first.said('began'), first.said('ended')]).toEqual([1, 0]);
  });

  it('moves to another gateway when the first is frozen, and the first then knows that it lost the lease', async () => {
    const first = startRunner(300);
    await first.says('ended');
    const second = startRunner(300);
    await second.says('refused');
    first.signal('SIGSTOP');
    await second.says('ended', 2);
    first.signal('SIGCONT');
    await first.says('refused', 2);
    expect(second.said('refused')).toBeGreaterThan(0);
  });

  it('runs again after PostgreSQL has closed all connections', async () => {
    const first = startRunner();
    await first.says('ended');
    await db.sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid()`;
    await first.says('ended', 2);
    expect(first.said('refused')).toBe(0);
  });

  it('moves to another gateway as soon as its lease is released', async () => {
    const leases = createLeases({ db });
    expect(await leases.take('work')).toBe(true);
    const other = startRunner();
    await other.says('refused');
    await leases.close();
    await other.says('ended');
    expect(await leases.take('work')).toBe(false);
    await leases.close();
  });

  it("leaves other jobs' leases and the pool's connections to others", async () => {
    const first = createLeases({ db });
    const second = createLeases({ db });
    open.push(
      () => first.close(),
      () => second.close(),
    );
    expect(await Promise.all([first.take('one'), second.take('another')])).toEqual([true, true]);
    expect(await Promise.all([second.take('one'), first.take('another')])).toEqual([false, false]);
    const rows = await heldBy(db.sql);
    expect(rows).toHaveLength(2);
    const [{ pid }] = await db.sql<[{ pid: number }]>`select pg_backend_pid() as pid`;
    expect(rows).not.toContain(pid);
  });
});

async function heldBy(sql: Sql): Promise<readonly number[]> {
  const rows = await sql<{ pid: number }[]>`select pid from pg_locks where locktype = 'advisory' and granted
    and database = (select oid from pg_database where datname = current_database())`;
  return rows.map(({ pid }) => pid);
}
