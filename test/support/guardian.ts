import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';

/** The variable that marks what a run has started. No gateway knows it: those of its own begin otherwise. */
const runVariable = 'TEST_RUN_ID';

/**
 * For the environment of what is started with one of its own: it is found by that also when whoever started it ended
 * before the guardian saw it.
 */
export function runMark(): Readonly<Record<string, string>> {
  const run = process.env[runVariable];
  return run === undefined ? {} : { [runVariable]: run };
}

/**
 * Starts a process that outlives this one, in a session that no Ctrl-C reaches: where this one ends without having
 * stopped what it started, it does that. Without /proc, elsewhere than on Linux, nothing is watched.
 */
export async function startGuardian(): Promise<{ readonly value: null; stop(): Promise<void> }> {
  if (process.platform !== 'linux') return { value: null, stop: () => Promise.resolve() };
  const run = randomUUID();
  const program = new URL('./guardian-process.ts', import.meta.url).pathname;
  const guardian = spawn(process.execPath, [program, String(process.pid), run], {
    detached: true,
    env: { PATH: process.env['PATH'] },
    stdio: ['pipe', 'pipe', 'ignore'],
  });
  // Only now: the guardian itself does not carry the mark.
  process.env[runVariable] = run;
  await once(guardian.stdout, 'data');
  guardian.unref();
  return {
    value: null,
    async stop() {
      guardian.stdin.end('done\n');
      await once(guardian, 'exit');
    },
  };
}
