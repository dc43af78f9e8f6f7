import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Clock, systemClock } from '#base/clock.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { findRunner, type FoundRunner, type Run, type Runs } from '#core/runs/runs.ts';
import { runnerSearch, useRuns } from './support.ts';

/** Runs that were given up with their machine, and are heard of again when a later one has begun or ended. */

const bench = useRuns();
/** A second machine. */
let elsewhere: { dir: string; found: FoundRunner };

beforeAll(async () => {
  const dir = await mkdtemp('/tmp/headgate-elsewhere-');
  await chmod(dir, 0o711);
  elsewhere = { dir, found: await findRunner({ ...runnerSearch, runsDir: join(dir, 'runs') }) };
});
afterAll(() => rm(elsewhere.dir, { recursive: true, force: true }));

const fastClock: Clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() * 20 };
const gatewayElsewhere = (): Runs =>
  bench.gateway({ clock: fastClock, findRunner: () => Promise.resolve(elsewhere.found) });

const resource = (name: string): string => `resource "terraform_data" "${name}" {\n  input = "${name}"\n}\n`;
/** Makes so many resources one after another, and goes on for longer than any test. */
function unending(made: number): string {
  const names = Array.from({ length: made }, (_, index) => `late_${index}`);
  const steps = [...names, 'end'].map((name, index) => {
    const command = name === 'end' ? 'echo made; sleep 3600' : 'sleep 0.1';
    const after = index === 0 ? 'kept' : (names[index - 1] ?? '');
    return `resource "terraform_data" "${name}" {
      depends_on = [terraform_data.${after}]
      provisioner "local-exec" {
        command = "${command}"
      }
    }\n`;
  });
  return resource('kept') + steps.join('');
}
const waiting = `${resource('kept')}resource "terraform_data" "later" {
  provisioner "local-exec" {
    command = "echo waits; until [ -e go ]; do sleep 0.1; done"
  }
}\n`;

interface Lost {
  readonly run: Run;
  readonly same: { readonly clusterId: string; readonly stackId: string };
  /** The gateway that gave it up. */
  readonly second: Runs;
  readonly work: string;
}

/** A run that lost its gateway and machine in mid-apply, over a state that is on record. */
async function loseRun(made: number): Promise<Lost> {
  const first = bench.gateway();
  const base = await bench.ended(first, await bench.apply(first, bench.stack(resource('kept'))));
  expect(base.status).toBe('APPLIED');
  const same = { clusterId: base.clusterId, stackId: base.stackId };
  const run = await bench.apply(first, bench.stack(unending(made)), same);
  await bench.prints(first, run, 'made');
  await first.loop.close();
  await bench.db.sql`update runs set lease_until = lease_until - interval '16 minutes' where id = ${run.id}`;
  const second = gatewayElsewhere();
  expect(await bench.ended(second, run)).toMatchObject({ status: 'FAILED', failureCode: 'INTERRUPTED' });
  return { run, same, second, work: join(bench.runsDir, run.id, 'work/m') };
}

async function lastSerial(): Promise<{ readonly runId: string; readonly serial: number } | undefined> {
  const [row] = await bench.db.sql<{ runId: string; serial: number }[]>`
    select run_id as "runId", serial::int as serial from stack_states order by serial desc limit 1`;
  return row;
}
const serialIn = async (work: string): Promise<number> =>
  z.object({ serial: z.int() }).parse(JSON.parse(await readFile(join(work, 'terraform.tfstate'), 'utf8'))).serial;
/** Until a gateway of the first machine has seen to what the run has left. */
async function isSeenTo(work: string): Promise<void> {
  await expect.poll(() => existsSync(join(work, '.platform/variables.json'))).toBe(false);
}

async function destroys(runs: Runs, run: Run): Promise<Run> {
  const result = await runs.destroy(run.id, systemAuthor);
  if (result.kind !== 'created') throw new Error(result.kind);
  return bench.ended(runs, result.run);
}

describe('the state of a lost run whose machine is back', () => {
  it.each([1, 12])('does not replace the state of a later run: with %i resources', async (made) => {
    const { run, same, second, work } = await loseRun(made);
    const version = bench.stack(resource('kept') + resource('later'));
    const later = await bench.ended(second, await bench.apply(second, version, same));
    expect(later.status).toBe('APPLIED');
    bench.gateway({ hasFolders: () => true });
    await isSeenTo(work);
    // The later run's resources are on record, the lost one's stay where they are, and nobody waits for that.
    expect(await readFile(join(work, 'terraform.tfstate'), 'utf8')).toContain('late_0');
    expect(await lastSerial()).toMatchObject({ runId: later.id });
    expect(await destroys(second, run)).toMatchObject({ status: 'DESTROYED', changes: { remove: 2 } });
  });

  it('is deleted only when its run is forgotten, and the later run keeps its own state', async () => {
    const { run, same, second, work } = await loseRun(1);
    expect(await second.find(run.id)).toMatchObject({ isOvertaken: false });
    const version = bench.stack(resource('kept') + resource('later'));
    const later = await bench.ended(second, await bench.apply(second, version, same));
    const first = bench.gateway({ hasFolders: () => true });
    await isSeenTo(work);
    await first.loop.close();
    expect(existsSync(work)).toBe(true);
    const states = await bench.db.sql`select serial from stack_states`;
    expect(await second.forget(run.id, systemAuthor)).toMatchObject({
      kind: 'changed',
      run: { isOvertaken: true, isForgotten: true },
    });
    bench.gateway({ hasFolders: () => true });
    await expect.poll(() => existsSync(work)).toBe(false);
    expect(await bench.db.sql`select serial from stack_states`).toEqual(states);
    expect(await second.find(later.id)).toMatchObject({ status: 'APPLIED', isOvertaken: false, isForgotten: false });
    expect(await destroys(second, later)).toMatchObject({ status: 'DESTROYED', changes: { remove: 2 } });
    // The state of the last of them is all that is known.
    expect(await second.forget(later.id, systemAuthor)).toMatchObject({ kind: 'changed' });
    expect(await lastSerial()).toBeUndefined();
  });

  it('is not saved while a later run is running', async () => {
    const { run, same, second, work } = await loseRun(1);
    const later = await bench.apply(second, bench.stack(waiting), same);
    await bench.prints(second, later, 'waits');
    bench.gateway({ hasFolders: () => true });
    await isSeenTo(work);
    expect((await lastSerial())?.runId).not.toBe(run.id);
    expect(await serialIn(work)).toBeGreaterThan((await lastSerial())?.serial ?? 0);
    await writeFile(join(elsewhere.dir, 'runs', later.id, 'work/m/go'), '');
    expect(await bench.ended(second, later)).toMatchObject({ status: 'APPLIED' });
    expect(await lastSerial()).toMatchObject({ runId: later.id });
    expect(await destroys(second, later)).toMatchObject({ status: 'DESTROYED', changes: { remove: 2 } });
  });

  it('is saved when no later run has begun', async () => {
    const { run, second, work } = await loseRun(1);
    bench.gateway({ hasFolders: () => true });
    await expect.poll(() => existsSync(work)).toBe(false);
    expect(await lastSerial()).toMatchObject({ runId: run.id });
    expect(await destroys(second, run)).toMatchObject({ status: 'DESTROYED' });
  });
});
