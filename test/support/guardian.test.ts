import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { listProcesses, ProcessTree, type Seen } from './process-tree.ts';

const repository = new URL('../../', import.meta.url).pathname;

function commandOf({ pid }: Seen): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ');
  } catch {
    return '';
  }
}

// Elsewhere than on Linux nothing is watched.
describe('an interrupted npm test', { tags: 'linux' }, () => {
  it.each([
    ['Ctrl-C, twice', 'SIGINT', 'group', 2],
    ['SIGTERM to npm', 'SIGTERM', 'npm', 1],
  ] as const)('leaves no process running: %s', async (_, signal, target, times) => {
    const words = ['test', '--', '--project', 'house', 'test/programs/stopping.test.ts'];
    const run = spawn('npm', words, { cwd: repository, detached: true, stdio: 'ignore' });
    const pid = run.pid ?? 0;
    const tree = new ProcessTree(pid, randomUUID());
    const seen = new Map<string, Seen>();
    const look = (): readonly Seen[] => {
      const now = tree.look();
      for (const one of now) seen.set(`${one.pid} ${one.startedAt}`, one);
      return now;
    };
    // In the middle of it: a gateway runs, and the PostgreSQL of the run.
    await expect.poll(() => look().some((one) => commandOf(one).includes('src/programs/start.js'))).toBe(true);
    expect([...seen.values()].some(({ name }) => name === 'postgres')).toBe(true);
    for (let count = 0; count < times; count += 1) {
      process.kill(target === 'group' ? -pid : pid, signal);
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    const left = (): readonly string[] => {
      look();
      return listProcesses()
        .filter((one) => seen.has(`${one.pid} ${one.startedAt}`))
        .map(commandOf);
    };
    await expect.poll(left).toEqual([]);
  });
});
