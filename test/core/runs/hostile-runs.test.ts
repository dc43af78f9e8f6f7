import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import type { FoundRunner, Run, Runner, Runs } from '#core/runs/runs.ts';
import { runnerSearch, useRuns } from './support.ts';

/** Faults of modules, machines and clocks: whatever happens, a run ends and its cluster is free. */

const bench = useRuns();

const terraform = { path: '', product: 'Terraform' as const, version: '' };
const found = (runner: Runner) => (): Promise<FoundRunner> => Promise.resolve({ runner, terraform, problem: null });
const nothing = (): Promise<FoundRunner> => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' });

/** A provisioner's command, after which Terraform still waits for what it does in the background. */
const behind = (command: string): string =>
  `resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "(sleep 1; ${command}) & sleep 0.1"\n }\n}\n`;

/** A runner whose `apply` has printed these bytes in front of what it printed. */
function printing(bytes: Buffer): Runner {
  const { runner } = bench;
  return {
    ...runner,
    async readLog(runId, phase, offset) {
      if (phase !== 'apply') return runner.readLog(runId, phase, offset);
      const own = await runner.readLog(runId, phase, Math.max(0, offset - bytes.length));
      return Buffer.concat([bytes.subarray(offset), own]).subarray(0, 262_144);
    },
  };
}

const ended = async (runs: Runs, version: string, more: object = {}): Promise<Run> =>
  bench.ended(runs, await bench.apply(runs, version, more));

describe('a module', () => {
  it('ends its run as APPLIED when its outputs contain NUL characters', async () => {
    const runs = bench.gateway();
    const run = await ended(runs, bench.stack('output "x" {\n value = { "a\\u0000b" = ["c\\u0000d"] }\n}\n'));
    expect(run).toMatchObject({ status: 'APPLIED', outputs: { x: { value: { ab: ['cd'] } } } });
  });

  it('ends its run with STATE_SAVE_FAILED when its state is too large', async () => {
    const runs = bench.gateway();
    const run = await ended(runs, bench.stack(behind('rm terraform.tfstate; truncate -s 70M terraform.tfstate')));
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'STATE_SAVE_FAILED' });
    expect(run.failureMessage).toContain('more than 67108864 bytes');
  });

  it('ends its run as APPLIED when other files are too large', async () => {
    const runs = bench.gateway();
    const run = await ended(runs, bench.stack(behind('truncate -s 2M .terraform.lock.hcl')));
    expect(run).toMatchObject({ status: 'APPLIED' });
  });

  it('ends its run as APPLIED when log lines have invalid times, types and counts', async () => {
    const lines = [
      { '@timestamp': '+275760-09-13T00:00:00Z', '@message': 'late', type: 'log' },
      { '@timestamp': '-271821-04-20T00:00:00Z', '@message': 'early', type: 'log' },
      { '@message': 'typed', type: `x\u0000${'y'.repeat(50_000)}` },
      { '@message': 'counted', changes: { add: 1e15, change: 0, remove: 0, operation: 'apply' } },
    ];
    const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('');
    const runs = bench.gateway({ findRunner: found(printing(Buffer.from(text))) });
    const run = await bench.apply(runs, bench.stack(''));
    expect((await bench.ended(runs, run)).status).toBe('APPLIED');
    const logged = await bench.lines(runs, run);
    const odd = logged.filter(({ message }) => ['late', 'early', 'typed', 'counted'].includes(message));
    expect(odd.map(({ type }) => type)).toEqual(['log', 'log', 'log', 'log']);
    for (const { atMs } of odd) expect(Math.abs(Date.now() - atMs)).toBeLessThan(600_000);
  });

  it('cannot fill the database with very short lines', async () => {
    const runs = bench.gateway({ findRunner: found(printing(Buffer.from('y\n'.repeat(60_000)))) });
    const run = await bench.apply(runs, bench.stack(''));
    const { logLines, status } = await bench.ended(runs, run);
    expect(status).toBe('APPLIED');
    const logged = await bench.lines(runs, run);
    expect(logged).toHaveLength(logLines);
    expect(logLines).toBeLessThanOrEqual(50_001);
    expect(logged.at(-1)).toMatchObject({ type: 'truncated' });
  });

  it('cannot fill the database with outputs', async () => {
    const runs = bench.gateway();
    const main =
      'locals { k = join("", [for i in range(1024) : "0123456789"]) }\noutput "big" { value = [for i in range(60) : local.k] }\noutput "small" { value = 1 }\n';
    const run = await ended(runs, bench.stack(main));
    expect(run).toMatchObject({ status: 'APPLIED', outputs: { small: { sensitive: false, value: 1 } } });
    expect(run.outputs?.['big']).toEqual({ sensitive: false });
  });

  it('keeps the executable bit of the files in its package', async () => {
    const runs = bench.gateway();
    const main = 'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "./say.sh"\n }\n}\n';
    const files = { 'say.sh': '#!/bin/sh\necho said it\n' };
    const run = await bench.apply(runs, bench.stack(main, { files, executable: ['say.sh'] }));
    expect((await bench.ended(runs, run)).failureMessage).toBeNull();
    expect((await bench.lines(runs, run)).map(({ message }) => message)).toContain('said it');
  });
});

describe('an organization with many clusters', () => {
  it('does not delay other organizations until all of its runs have ended', async () => {
    const runs = bench.gateway({ atOnceMax: 2 });
    const main = 'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "sleep 2"\n }\n}\n';
    const version = bench.stack(main);
    const organizationId = uuidv7();
    const many: Run[] = [];
    for (let count = 0; count < 4; count += 1) many.push(await bench.apply(runs, version, { organizationId }));
    const other = await bench.apply(runs, version);
    const ends = await Promise.all([...many, other].map((run) => bench.ended(runs, run)));
    const starts = ends.map(({ startedAtMs }) => startedAtMs ?? 0);
    expect(starts.slice(2, 4).filter((start) => start > (starts[4] ?? 0)).length).toBeGreaterThanOrEqual(1);
  });
});

describe('a full disk', () => {
  it('fails a run with INTERRUPTED when the exit code of a phase could not be written', async () => {
    const { runner } = bench;
    const late: Runner = {
      ...runner,
      async observe(runId, phase) {
        const state = await runner.observe(runId, phase);
        if (phase === 'plan' && state.kind === 'ended') {
          writeFileSync(join(bench.runsDir, runId, 'phase-plan.code'), '');
          return runner.observe(runId, phase);
        }
        return state;
      },
    };
    const runs = bench.gateway({ findRunner: found(late) });
    expect(await ended(runs, bench.stack(''))).toMatchObject({ status: 'FAILED', failureCode: 'INTERRUPTED' });
  });

  it('fails a run with INTERRUPTED when its phase could not start', async () => {
    const { runner } = bench;
    const full: Runner = {
      ...runner,
      start(runId, cwd, phase) {
        writeFileSync(join(bench.runsDir, runId, `phase-${phase.name}.pid`), '');
        return runner.start(runId, cwd, phase);
      },
    };
    const runs = bench.gateway({ findRunner: found(full) });
    expect(await ended(runs, bench.stack(''))).toMatchObject({ status: 'FAILED', failureCode: 'INTERRUPTED' });
  });

  it('fails a run with RUNNER_UNAVAILABLE when its folder cannot be created', async () => {
    const full: Runner = {
      ...bench.runner,
      prepare: () => Promise.reject(Object.assign(new Error('ENOSPC: no space left on device'), { code: 'ENOSPC' })),
    };
    const runs = bench.gateway({ findRunner: found(full) });
    const run = await ended(runs, bench.stack(''));
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'RUNNER_UNAVAILABLE' });
    expect(run.failureMessage).toContain('ENOSPC');
  });
});

describe('an unexpected error', () => {
  it('fails the run with INTERRUPTED after its last try, and the state is saved', async () => {
    const { runner } = bench;
    const lapse = () => bench.db.sql`update runs set lease_until = clock_timestamp() where lease_until is not null`;
    let isLapsed = false;
    const odd: Runner = {
      ...runner,
      removeFile() {
        // Its lease lapses soon after, and not in a minute; that of no other run later.
        if (!isLapsed) setTimeout(() => void lapse().execute(), 1000);
        isLapsed = true;
        return Promise.reject(new Error('odd'));
      },
    };
    const runs = bench.gateway({ findRunner: found(odd), triesMax: 2, hasFolders: () => true });
    const run = await bench.apply(runs, bench.stack('resource "terraform_data" "a" {}\n'));
    const end = await bench.ended(runs, run);
    expect(end).toMatchObject({ status: 'FAILED', failureCode: 'INTERRUPTED' });
    expect(end.failureMessage).toContain('could not continue the run');
    await bench.leavesNothing();
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 1 }]);
  });
});

describe('the folder of runs', () => {
  afterEach(() => rmSync(join(bench.runsDir, 'lost+found'), { recursive: true, force: true }));

  it('can contain other folders', async () => {
    mkdirSync(join(bench.runsDir, 'lost+found'));
    const runs = bench.gateway();
    expect((await ended(runs, bench.stack(''))).status).toBe('APPLIED');
  });

  it('hides the output of phases from other users of the machine', async () => {
    const runs = bench.gateway();
    const main =
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "echo on; sleep 2"\n }\n}\n';
    const run = await bench.apply(runs, bench.stack(main));
    await bench.prints(runs, run, 'on');
    const folder = join(bench.runsDir, run.id);
    const open = readdirSync(folder).filter(
      (name) => name.endsWith('.log') && (statSync(join(folder, name)).mode & 0o077) !== 0,
    );
    expect(open).toEqual([]);
    await bench.ended(runs, run);
  });
});

describe('a gateway that freezes', () => {
  it('does not change the folder of a run that another gateway has adopted', async () => {
    const asleep = Promise.withResolvers<void>();
    const wake = Promise.withResolvers<void>();
    const version = bench.stack(
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "echo begun; sleep 3"\n }\n}\n',
    );
    const packageOf = bench.sources.stackPackage;
    const sleeping = {
      ...bench.sources,
      async stackPackage(id: string) {
        const stack = await packageOf(id);
        asleep.resolve();
        await wake.promise;
        return stack;
      },
    };
    const first = bench.gateway({ sources: sleeping });
    const run = await bench.apply(first, version);
    await asleep.promise;
    await bench.db.sql`update runs set lease_until = clock_timestamp() - interval '1 second' where id = ${run.id}`;
    const second = bench.gateway();
    await bench.prints(second, run, 'begun');
    wake.resolve();
    expect(await bench.ended(second, run)).toMatchObject({ status: 'APPLIED' });
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 1 }]);
  });
});

describe('gateways with different clocks', () => {
  it('keep the order of the runs of a cluster', async () => {
    const ahead = bench.gateway({ findRunner: nothing, clock: { ...systemClock, now: () => Date.now() + 3_600_000 } });
    const right = bench.gateway({ findRunner: nothing });
    const clusterId = uuidv7();
    const version = bench.stack('');
    const asked = [await bench.apply(ahead, version, { clusterId }), await bench.apply(right, version, { clusterId })];
    const list = {
      clusterIds: null,
      clusterId,
      stackName: null,
      statuses: null,
      userId: null,
      keyId: null,
      fromMs: null,
      toMs: null,
      page: 1,
      limit: 10,
    };
    expect((await right.list(list)).runs.map(({ id }) => id)).toEqual(asked.map(({ id }) => id).toReversed());
    const working = bench.gateway({ atOnceMax: 1 });
    const [one, two] = await Promise.all(asked.map((run) => bench.ended(working, run)));
    expect(two?.startedAtMs ?? 0).toBeGreaterThanOrEqual(one?.endedAtMs ?? Number.POSITIVE_INFINITY);
  });
});

describe('a long database outage', () => {
  it('does not fail the runs of gateways on this machine', async () => {
    const first = bench.gateway();
    const main =
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "echo begun; sleep 2"\n }\n}\n';
    const run = await bench.apply(first, bench.stack(main));
    await bench.prints(first, run, 'begun');
    await first.loop.close();
    await bench.db.sql`update runs set lease_until = clock_timestamp() - interval '1 day' where id = ${run.id}`;
    const second = bench.gateway();
    expect(await bench.ended(second, run)).toMatchObject({ status: 'APPLIED' });
  });

  it('does not fail the runs of other machines at once', async () => {
    const away = bench.gateway({ findRunner: found({ ...bench.runner, place: 'another machine' }) });
    const main =
      'resource "terraform_data" "a" {\n provisioner "local-exec" {\n  command = "echo begun; sleep 2"\n }\n}\n';
    const run = await bench.apply(away, bench.stack(main));
    await bench.prints(away, run, 'begun');
    await away.loop.close();
    await bench.db.sql`update runs set lease_until = clock_timestamp() - interval '1 day' where id = ${run.id}`;
    const here = bench.gateway();
    expect((await ended(here, bench.stack(''))).status).toBe('APPLIED');
    expect(await here.find(run.id)).toMatchObject({ status: 'APPLYING' });
  });
});

describe('a gateway without Terraform', () => {
  it('uses Terraform that is installed later', async () => {
    const { runner } = bench;
    let isInstalled = false;
    const look = (): Promise<FoundRunner> => (isInstalled ? found(runner)() : nothing());
    const runs = bench.gateway({ findRunner: look, searchAgainMs: 0 });
    expect(await runs.problem()).toBe('nothing');
    isInstalled = true;
    expect(await runs.problem()).toBeNull();
    expect((await ended(runs, bench.stack(''))).status).toBe('APPLIED');
  });

  it('reports that the folder of runs cannot be created', async () => {
    const { findRunner } = await import('#core/runs/runs.ts');
    const file = join(dirname(bench.runsDir), 'a-file');
    writeFileSync(file, '');
    const result = await findRunner({ ...runnerSearch, runsDir: join(file, 'runs') });
    expect(result.problem).toContain('ENOTDIR');
  });
});
