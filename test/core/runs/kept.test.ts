import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { formatId } from '#base/id.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import type { FoundRunner, Run, Runner, Runs } from '#core/runs/runs.ts';
import { useRuns } from './support.ts';

/** Resources and outputs of a run are kept in the end. */

const bench = useRuns();
const terraform = { path: '', product: 'Terraform' as const, version: '' };
const found = (runner: Runner) => (): Promise<FoundRunner> => Promise.resolve({ runner, terraform, problem: null });
const ended = async (runs: Runs, version: string, more: object = {}): Promise<Run> =>
  bench.ended(runs, await bench.apply(runs, version, more));

/** A provisioner's command, after which Terraform still waits for what it does in the background. */
const behind = (command: string): string =>
  `resource "terraform_data" "b" {\n provisioner "local-exec" {\n  command = "(sleep 1; ${command}) & sleep 0.1"\n }\n}\n`;

const foreign = JSON.stringify({ version: 4, serial: 99, lineage: 'another', outputs: {}, resources: [] });
const leavesForeign = behind(
  `rm terraform.tfstate; echo '${foreign.replaceAll('"', String.raw`\"`)}' > terraform.tfstate`,
);

describe('the outputs of a run', () => {
  it('are recorded when the phase that reads them was killed', async () => {
    const { runner } = bench;
    const killing: Runner = {
      ...runner,
      async start(runId, cwd, phase) {
        await runner.start(runId, cwd, phase);
        if (phase.name === 'output') await runner.kill(runId, phase.name);
      },
    };
    const runs = bench.gateway({ findRunner: found(killing) });
    const main =
      'resource "terraform_data" "a" {\n input = "made"\n}\noutput "x" {\n value = terraform_data.a.output\n}\noutput "y" {\n value = "hidden"\n sensitive = true\n}\noutput "web_port" {\n value = 8080\n}\n';
    const run = await ended(runs, bench.stack(main));
    expect(run).toMatchObject({
      status: 'APPLIED',
      outputs: { x: { sensitive: false, value: 'made' }, y: { sensitive: true } },
      web: { port: 8080 },
    });
    expect(JSON.stringify(run)).not.toContain('hidden');
  });

  it('are recorded when the run was canceled while they were read', async () => {
    const { runner } = bench;
    const gate = Promise.withResolvers<void>();
    const canceling: Runner = {
      ...runner,
      async start(runId, cwd, phase) {
        if (phase.name !== 'output') return runner.start(runId, cwd, phase);
        await runs.cancel(runId, systemAuthor);
        await runner.start(runId, cwd, { ...phase, args: ['output', '-no-such'] });
        gate.resolve();
      },
    };
    const runs = bench.gateway({ findRunner: found(canceling) });
    const run = await bench.apply(runs, bench.stack('output "x" {\n value = "made"\n}\n'));
    await gate.promise;
    expect(await bench.ended(runs, run)).toMatchObject({ status: 'APPLIED', outputs: { x: { value: 'made' } } });
  });
});

describe('a state that cannot be saved', () => {
  const stateOf = (run: Run): string => join(bench.runsDir, run.id, 'work/m/terraform.tfstate');
  /** Files that are left beside the state and the lock file. */
  const secretsOf = (run: Run): string[] =>
    readdirSync(join(bench.runsDir, run.id, 'work'), { recursive: true, encoding: 'utf8' }).filter(
      (path) => !['m', 'm/terraform.tfstate', 'm/.terraform.lock.hcl'].includes(path),
    );

  it('stays in a private folder when it is too large, until a later gateway saves it', async () => {
    const runs = bench.gateway({ stateBytesMax: 200, hasFolders: () => true });
    const run = await ended(runs, bench.stack('resource "terraform_data" "a" {}\n'));
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'STATE_SAVE_FAILED' });
    expect(run.failureMessage).toContain('more than 200 bytes');
    expect(run.failureMessage).toContain('HEADGATE_RUNS_STATE_MIB');
    await runs.loop.close();
    expect(existsSync(stateOf(run))).toBe(true);
    expect(statSync(join(bench.runsDir, run.id, 'work')).mode & 0o077).toBe(0);
    expect(secretsOf(run)).toEqual([]);
    expect(await bench.db.sql`select 1 from stack_states`).toHaveLength(0);
    const request = { clusterId: run.clusterId, stackId: run.stackId };
    const refusal = { kind: 'state_not_saved', runId: run.id };
    const version = bench.stack('resource "terraform_data" "b" {}\n');
    await expect(bench.apply(runs, version, request)).rejects.toThrow('state_not_saved');
    expect(await runs.retry(run.id, systemAuthor)).toEqual(refusal);
    expect(await runs.destroy(run.id, systemAuthor)).toEqual(refusal);
    const next = bench.gateway({ hasFolders: () => true });
    await bench.leavesNothing();
    expect(await bench.db.sql`select resources from stack_states`).toEqual([{ resources: 1 }]);
    await expect.poll(() => bench.db.sql`select 1 from runs where left_state`).toHaveLength(0);
    expect(await ended(next, version, request)).toMatchObject({ status: 'APPLIED' });
  });

  it('fails the runs that wait behind its run, and none of another installation', async () => {
    const runs = bench.gateway({ stateBytesMax: 200 });
    const version = bench.stack('resource "terraform_data" "a" {}\n');
    const first = await bench.apply(runs, version);
    const same = { clusterId: first.clusterId, stackId: first.stackId };
    const waiting = await bench.apply(runs, version, same);
    const other = await bench.apply(runs, bench.stack('output "x" {\n value = "other"\n}\n'), {
      clusterId: first.clusterId,
    });
    expect(await bench.ended(runs, first)).toMatchObject({ failureCode: 'STATE_SAVE_FAILED' });
    const end = await bench.ended(runs, waiting);
    expect(end).toMatchObject({ status: 'FAILED', failureCode: 'STATE_NOT_SAVED', phase: null });
    expect(end.failureMessage).toContain(formatId('run', first.id));
    expect(end.failureMessage).toContain('HEADGATE_RUNS_STATE_MIB');
    expect(await bench.ended(runs, other)).not.toMatchObject({ failureCode: 'STATE_NOT_SAVED' });
    expect(await runs.forget(first.id, systemAuthor)).toMatchObject({ kind: 'changed' });
    expect(await runs.retry(waiting.id, systemAuthor)).toMatchObject({ kind: 'created' });
  });

  it('stays without the secrets that the run has moved, and links are not followed', async () => {
    const victim = mkdtempSync('/tmp/headgate-victim-');
    for (const name of ['id', 'plan', 'variables.json']) writeFileSync(join(victim, name), 'theirs');
    try {
      const runs = bench.gateway({ stateBytesMax: 200, hasFolders: () => true });
      const moves = behind(
        `mkdir -p x/y; cp -r .platform x/y/p; mv .platform p2; ln -s ${victim} .platform; chmod 0 x`,
      );
      const run = await ended(runs, bench.stack(moves));
      expect(run).toMatchObject({ status: 'FAILED', failureCode: 'STATE_SAVE_FAILED' });
      await runs.loop.close();
      expect(existsSync(stateOf(run))).toBe(true);
      expect(secretsOf(run)).toEqual([]);
      expect(readdirSync(victim)).toEqual(['id', 'plan', 'variables.json']);
    } finally {
      rmSync(victim, { recursive: true });
    }
  });

  it('stays in its folder when its lineage is different, until the run is forgotten', async () => {
    const first = bench.gateway();
    const version = bench.stack('resource "terraform_data" "a" {}\n');
    const clusterId = (await ended(first, version)).clusterId;
    const other = bench.stack(leavesForeign);
    const run = await ended(first, other, { clusterId, stackId: version });
    expect(run).toMatchObject({ status: 'FAILED', failureCode: 'STATE_SAVE_FAILED' });
    await first.loop.close();
    expect(secretsOf(run)).toEqual([]);
    const second = bench.gateway({ hasFolders: () => true });
    await ended(second, bench.stack(''));
    expect(existsSync(stateOf(run))).toBe(true);
    await second.loop.close();
    expect(await second.forget(run.id, systemAuthor)).toMatchObject({ kind: 'changed' });
    bench.gateway({ hasFolders: () => true });
    await bench.leavesNothing();
    expect(await bench.db.sql`select 1 from stack_states where installation_id = ${run.installationId}`).toHaveLength(
      0,
    );
  });
});
