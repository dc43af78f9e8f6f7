import { describe, expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createRuns, type Run, type Runs, type RunStatus } from '#core/runs/runs.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { useStacks } from './stacks-bench.ts';

/** Versions of stacks are there while a run may need them, and no longer. */

const { api, ask, keys, upload } = useStacks();
const clusterOwner = uuidv7();

/** Runs that are written and never run: the test sets their outcome. */
function runsOf(): Runs {
  const { db, stacks } = api();
  return createRuns({
    db,
    clock: systemClock,
    audit: createAudit({ clock: systemClock }),
    log: createLog('silent'),
    sealer: {
      mark: () => Promise.resolve(null),
      seal: (bytes) => Promise.resolve(bytes),
      open: (bytes) => Promise.resolve(bytes),
    },
    holder: uuidv7(),
    raiseIn: () => Promise.resolve(),
    findRunner: () => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' }),
    sources: {
      stackPackage: () => Promise.resolve(null),
      pinStackVersion: (tx, id) => stacks.pinIn(tx, id),
      unpinStackVersion: (tx, id) => stacks.unpinIn(tx, id),
      holdCluster: () => Promise.resolve(clusterOwner),
      privateKey: () => Promise.resolve(null),
      cluster: (id) => {
        const cluster = {
          id,
          publicId: id,
          name: 'one',
          organizationId: clusterOwner,
          publicDomain: null,
          engineApiKey: 'key-of-the-engines',
          organizationStatus: 'active' as const,
          nodes: [],
        };
        return Promise.resolve(cluster);
      },
    },
  });
}

async function becomes({ id }: Run, status: RunStatus, more: object = {}): Promise<void> {
  const { db } = api();
  await db.sql`update runs set ${db.sql({ status, ended_at: new Date().toISOString(), ...more })} where id = ${id}`;
}

/** Pushes a version, and applies it. */
async function applied(runs: Runs, name: string, clusterId: string, text: string): Promise<Run> {
  const { body } = await upload(packOf({ 'n.txt': text }), { name }, keys.mine);
  const [row] = await api().db.sql`
    select v.id, v.stack_id from stack_versions v join stacks s on s.id = v.stack_id
    where s.name = ${name} and v.sha256 = ${body.version.sha256} order by v.number desc limit 1`;
  const ids = { stackId: String(row?.['stack_id']), stackVersionId: String(row?.['id']), stackName: name };
  const rest = {
    stackVersion: 1,
    declared: [],
    origin: 'api' as const,
    node: '',
    access: 'public' as const,
    inputs: {},
    author: systemAuthor,
  };
  const result = await runs.apply({ clusterId, organizationId: clusterOwner, ...ids, ...rest });
  if (result.kind !== 'created') throw new Error(result.kind);
  await api().db.sql`update runs set status = 'SUPERSEDED' where cluster_id = ${clusterId} and status = 'APPLIED'`;
  await becomes(result.run, 'APPLIED');
  return result.run;
}

async function numbersOf(name: string): Promise<number[]> {
  const rows = await api().db.sql<{ number: number }[]>`
    select number from stack_versions v join stacks s on s.id = v.stack_id where s.name = ${name} order by number`;
  return rows.map(({ number }) => number);
}

const packagesOf = async (name: string): Promise<number> =>
  (
    await api().db.sql`
      select distinct p.sha256 from stack_packages p join stack_versions v on v.sha256 = p.sha256
      join stacks s on s.id = v.stack_id where s.name = ${name}`
  ).length;

async function destroyed(runs: Runs, run: Run): Promise<void> {
  const result = await runs.destroy(run.id, systemAuthor);
  if (result.kind !== 'created') throw new Error(result.kind);
  await becomes(result.run, 'DESTROYED');
}

describe('versions of an applied stack', () => {
  it('stay until their resources are destroyed: after twenty updates the latest five stay', async () => {
    const runs = runsOf();
    const clusterId = uuidv7();
    let last: Run | null = null;
    for (let number = 1; number <= 20; number += 1) {
      last = await applied(runs, 'often', clusterId, String(number));
    }
    await runs.releaseVersions();
    expect(await numbersOf('often')).toHaveLength(20);
    if (last !== null) await destroyed(runs, last);
    expect(await runs.releaseVersions()).toBe(21);
    expect(await runs.releaseVersions()).toBe(0);
    expect(await numbersOf('often')).toEqual([16, 17, 18, 19, 20]);
    expect(await packagesOf('often')).toBe(5);
    expect((await ask('/v1/stacks/often', { key: keys.mine, method: 'DELETE' })).status).toBe(204);
    expect(await numbersOf('often')).toEqual([]);
  });

  it('are deleted when the run is forgotten, together with a deleted stack', async () => {
    const runs = runsOf();
    const run = await applied(runs, 'forgotten', uuidv7(), 'x');
    expect((await ask('/v1/stacks/forgotten', { key: keys.mine, method: 'DELETE' })).status).toBe(204);
    expect(await numbersOf('forgotten')).toEqual([1]);
    expect(await runs.forget(run.id, systemAuthor)).toMatchObject({ kind: 'changed' });
    expect(await numbersOf('forgotten')).toEqual([]);
    expect(await runs.destroy(run.id, systemAuthor)).toEqual({ kind: 'stack_gone' });
  });

  it('stay while another cluster has resources, or a state was not saved', async () => {
    const runs = runsOf();
    const [one, two] = [uuidv7(), uuidv7()];
    const first = await applied(runs, 'shared', one, 'x');
    const unsaved = await applied(runs, 'shared', one, 'x');
    await becomes(unsaved, 'FAILED', { failure_code: 'STATE_SAVE_FAILED' });
    await applied(runs, 'shared', two, 'x');
    await destroyed(runs, first);
    await ask('/v1/stacks/shared', { key: keys.mine, method: 'DELETE' });
    expect(await runs.releaseVersions()).toBe(2);
    expect(await numbersOf('shared')).toEqual([1]);
  });

  it('are deleted with the logs of runs that created nothing', async () => {
    const runs = runsOf();
    const failed = await applied(runs, 'failing', uuidv7(), 'x');
    await becomes(failed, 'FAILED', { failure_code: 'PLAN_FAILED', prepared: true });
    await ask('/v1/stacks/failing', { key: keys.mine, method: 'DELETE' });
    await runs.releaseVersions();
    expect(await numbersOf('failing')).toEqual([1]);
    await becomes(failed, 'FAILED', { ended_at: new Date(Date.now() - 91 * 86_400_000).toISOString() });
    await runs.releaseVersions();
    expect(await numbersOf('failing')).toEqual([]);
  });

  it('are deleted at once for runs that never started, so push and cancel fill no storage', async () => {
    const runs = runsOf();
    for (let number = 1; number <= 8; number += 1) {
      const run = await applied(runs, 'canceled', uuidv7(), String(number));
      await becomes(run, number % 2 === 0 ? 'CANCELED' : 'FAILED');
    }
    expect(await numbersOf('canceled')).toHaveLength(8);
    expect(await runs.releaseVersions()).toBe(8);
    expect(await numbersOf('canceled')).toEqual([4, 5, 6, 7, 8]);
    expect(await packagesOf('canceled')).toBe(5);
  });

  it('are limited in number while runs hold them', async () => {
    const runs = runsOf();
    const clusterId = uuidv7();
    for (let number = 1; number <= 50; number += 1) await applied(runs, 'held', clusterId, String(number));
    const more = (): ReturnType<typeof upload> => upload(packOf({ 'n.txt': 'one more' }), { name: 'held' }, keys.mine);
    const refused = await more();
    expect(refused.status).toBe(409);
    expect(refused.body.error.message).toContain('limit of 50 versions in use by runs');
    expect(await numbersOf('held')).toHaveLength(50);
    await api().db.sql`update runs set status = 'DESTROYED' where cluster_id = ${clusterId}`;
    expect(await runs.releaseVersions()).toBe(50);
    expect((await more()).status).toBe(200);
    expect(await numbersOf('held')).toEqual([47, 48, 49, 50, 51]);
  });

  it('are present or deleted, and counted once, during a concurrent destroy', async () => {
    const runs = runsOf();
    for (let round = 0; round < 8; round += 1) {
      const name = `racing-${round}`;
      const run = await applied(runs, name, uuidv7(), 'x');
      await destroyed(runs, run);
      await ask(`/v1/stacks/${name}`, { key: keys.mine, method: 'DELETE' });
      const [result] = await Promise.all([
        runs.destroy(run.id, systemAuthor),
        runs.releaseVersions(),
        runs.releaseVersions(),
        runs.forget(run.id, systemAuthor),
      ]);
      expect(['created', 'stack_gone']).toContain(result.kind);
      expect(await numbersOf(name)).toEqual(result.kind === 'created' ? [1] : []);
      const pins = await api().db.sql<{ pins: number }[]>`
        select pins from stack_versions v join stacks s on s.id = v.stack_id where s.name = ${name}`;
      expect(pins).toEqual(result.kind === 'created' ? [{ pins: 1 }] : []);
    }
  });
});
