import { afterEach, describe, expect, it, vi } from 'vitest';
import { createLog } from '#base/log.ts';
import { type Job, startJobs } from '#edge/jobs/jobs.ts';

const until = (check: () => void) => vi.waitFor(check, { timeout: 300_000, interval: 5 });
const open: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of open.splice(0)) await close();
});

describe('a job', () => {
  function run(job: Partial<Job>, takeLease = (): Promise<boolean> => Promise.resolve(false)) {
    const lines: string[] = [];
    const log = createLog('debug', { write: (line: string) => void lines.push(line) });
    const all: Job = { name: 'work', everyMs: 5, where: 'every', run: () => Promise.resolve(), ...job };
    const jobs = startJobs([all], { log, takeLease });
    open.push(() => jobs.stop());
    return { jobs, lines };
  }

  it.each([
    ['rejects', () => Promise.reject(new Error('no luck'))],
    [
      'throws',
      () => {
        throw new Error('no luck');
      },
    ],
  ])('is logged with its name and runs again when it %s', async (_how, fail) => {
    const { lines } = run({ run: fail });
    await until(() => expect(lines.length).toBeGreaterThan(2));
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({ job: 'work', err: { message: 'no luck' } });
  });

  it('of one gateway does not run while its lease cannot be read', async () => {
    const ran = vi.fn<() => Promise<void>>(() => Promise.resolve());
    const { lines } = run({ where: 'one', run: ran }, () => Promise.reject(new Error('Postgres is away')));
    await until(() => expect(lines.length).toBeGreaterThan(2));
    expect(ran).not.toHaveBeenCalled();
  });

  it('of one gateway forgets its figures once another gateway holds its lease, and not while the lease cannot be read', async () => {
    let lease = (): Promise<boolean> => Promise.resolve(true);
    let figure: number | null = null;
    const { lines } = run(
      { where: 'one', run: async () => void (figure = 1), forget: () => void (figure = null) },
      () => lease(),
    );
    await until(() => expect(figure).toBe(1));
    lease = () => Promise.reject(new Error('Postgres is away'));
    await until(() => expect(lines.length).toBeGreaterThan(1));
    expect(figure).toBe(1);
    lease = () => Promise.resolve(false);
    await until(() => expect(figure).toBeNull());
  });

  it('does not start again while it runs, and a stop waits for its end', async () => {
    const gate = Promise.withResolvers<void>();
    open.push(() => Promise.resolve(gate.resolve()));
    const ran = vi.fn<() => Promise<void>>(() => gate.promise);
    const ticked = vi.fn<() => Promise<void>>(() => Promise.resolve());
    const { jobs } = run({ run: ran });
    run({ run: ticked });
    await until(() => expect(ticked.mock.calls.length).toBeGreaterThan(3));
    expect(ran).toHaveBeenCalledTimes(1);
    let stopped = false;
    const stopping = jobs.stop().then(() => (stopped = true));
    await new Promise((resolve) => setImmediate(resolve));
    expect(stopped).toBe(false);
    gate.resolve();
    await stopping;
  });
});
