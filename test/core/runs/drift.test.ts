import { describe, expect, it } from 'vitest';
import { parseConfig } from '#base/config/read-config.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import {
  endDriftChecks,
  type FoundRunner,
  type Run,
  type RunNotice,
  type Runs,
  type RunsOptions,
} from '#core/runs/runs.ts';
import { useRuns } from './support.ts';

/**
 * Drift checks of applied runs. Time passes by moving rows into the past, and drift appears by changing what a check has
 * counted: the suite `terraform` has resources that drift.
 */

const bench = useRuns();
const resource = 'resource "terraform_data" "a" {}\n';
const nothing = (): Promise<FoundRunner> => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' });
const request = { author: systemAuthor, origin: 'api' } as const;
const gateway = (more: Partial<RunsOptions> = {}): Runs => bench.gateway({ driftHours: 24, ...more });
/** A gateway that runs nothing: its runs stay pending. */
const idleGateway = (): Runs => gateway({ findRunner: nothing });

const past = (hours: number) => bench.db.sql`
  update runs set ended_at = ended_at - make_interval(hours => ${hours}), drift_tried_at = drift_tried_at - make_interval(hours => ${hours})`;
async function list(runs: Runs, clusterId: string | null, isDriftCheck: boolean): Promise<readonly Run[]> {
  const none = {
    clusterIds: null,
    stackName: null,
    statuses: null,
    userId: null,
    keyId: null,
    fromMs: null,
    toMs: null,
  };
  return (await runs.list({ ...none, clusterId, isDriftCheck, page: 1, limit: 100 })).runs;
}
async function applied(runs: Runs, more: object = {}): Promise<Run> {
  return bench.ended(runs, await bench.apply(runs, bench.stack(resource), more));
}
async function check(runs: Runs, { id }: Run): Promise<Run> {
  const result = await runs.checkDrift(id, request);
  if (result.kind !== 'created') throw new Error(result.kind);
  return result.run;
}
/** Checks a run, and lets the check have counted this many changed resources. */
async function checked(runs: Runs, run: Run, changed: number): Promise<Run> {
  const done = await bench.ended(runs, await check(runs, run));
  await bench.db
    .sql`update runs set planned = jsonb_set(planned, '{change}', to_jsonb(${changed}::int)) where id = ${done.id}`;
  return done;
}

describe('a drift check', () => {
  it('compares and changes nothing, and is listed apart from other runs', async () => {
    const runs = gateway();
    const run = await applied(runs);
    const states = () => bench.db.sql`select * from stack_states`;
    const before = await states();
    const pending = await check(runs, run);
    expect(pending).toMatchObject({ mode: 'plan', operation: 'apply', driftOf: run.id, status: 'PENDING' });
    const done = await bench.ended(runs, pending);
    expect(done).toMatchObject({ status: 'PLANNED_AND_FINISHED', planned: { add: 0, change: 0, remove: 0 } });
    expect(await runs.plan(done.id)).toEqual({ resources: [], isTruncated: false });
    const now = await runs.find(run.id);
    expect(now).toMatchObject({ status: 'APPLIED', driftFound: { runId: done.id, changed: 0, deleted: 0 } });
    expect(now?.driftCheckId).toBeNull();
    expect([...(await states())]).toEqual([...before]);
    expect((await list(runs, run.clusterId, false)).map(({ id }) => id)).toEqual([run.id]);
    expect((await list(runs, run.clusterId, true)).map(({ id }) => id)).toEqual([done.id]);
    await bench.leavesNothing();
  });

  it('is the one that is pending already when it is requested again', async () => {
    const runs = gateway();
    const run = await applied(runs);
    await runs.loop.close();
    const idle = idleGateway();
    const requested = await Promise.all([1, 2, 3].map(() => check(idle, run)));
    expect(new Set(requested.map(({ id }) => id)).size).toBe(1);
    expect((await idle.find(run.id))?.driftCheckId).toBe(requested[0]?.id);
  });

  it('is rejected for runs that are not APPLIED, on archived clusters, and for other drift checks', async () => {
    const runs = gateway();
    const run = await applied(runs);
    const done = await bench.ended(runs, await check(runs, run));
    for (const again of [
      runs.checkDrift(done.id, request),
      runs.retry(done.id, systemAuthor),
      runs.destroy(done.id, systemAuthor),
      runs.forget(done.id, systemAuthor),
    ])
      expect(await again).toEqual({ kind: 'drift_check' });
    const destroyed = await runs.destroy(run.id, systemAuthor);
    if (destroyed.kind !== 'created') throw new Error(destroyed.kind);
    await bench.ended(runs, destroyed.run);
    for (const [id, status] of [
      [run.id, 'SUPERSEDED'],
      [destroyed.run.id, 'DESTROYED'],
    ] as const)
      expect(await runs.checkDrift(id, request)).toEqual({ kind: 'wrong_status', status });
    const other = await applied(runs);
    bench.endCluster(other.clusterId);
    expect(await runs.checkDrift(other.id, request)).toEqual({ kind: 'cluster_gone' });
  });

  it('fails without a mark on the applied run, which still has its last result', async () => {
    const runs = gateway();
    const run = await applied(runs);
    const done = await checked(runs, run, 2);
    await runs.loop.close();
    const failing = await check(idleGateway(), run);
    await bench.db.sql`update runs set status = 'FAILED', ended_at = now(), fence = fence + 1 where id = ${failing.id}`;
    expect(await runs.find(run.id)).toMatchObject({
      status: 'APPLIED',
      driftFound: { runId: done.id, changed: 2 },
      driftFailedId: failing.id,
    });
  });

  it('that was lost with its machine has left nothing that a later run could overtake', async () => {
    const runs = gateway();
    const run = await applied(runs);
    await runs.loop.close();
    const lost = await check(idleGateway(), run);
    await bench.db.sql`
      update runs set status = 'FAILED', failure_code = 'INTERRUPTED', ended_at = now(), fence = fence + 1 where id = ${lost.id}`;
    const next = gateway();
    const same = { clusterId: run.clusterId, stackId: run.stackId };
    await bench.ended(next, await bench.apply(next, bench.stack(resource.replace('"a"', '"b"')), same));
    expect(await next.find(lost.id)).toMatchObject({ status: 'FAILED', isOvertaken: false });
  });

  it.each(['apply', 'destroy'] as const)('that is pending is canceled when the %s before it ends', async (kind) => {
    const runs = gateway();
    const run = await applied(runs);
    await runs.loop.close();
    const idle = idleGateway();
    const pending = await check(idle, run);
    const same = { clusterId: run.clusterId, stackId: run.stackId };
    const other =
      kind === 'apply' ? await bench.apply(idle, run.stackVersionId, same) : await idle.destroy(run.id, systemAuthor);
    const { id } = 'kind' in other && other.kind === 'created' ? other.run : (other as Run);
    // The run of a person passes the check, although it was requested later.
    expect(await idle.find(id)).toMatchObject({ queuePosition: 1 });
    expect(await idle.find(pending.id)).toMatchObject({ queuePosition: 2 });
    await idle.loop.close();
    const next = gateway();
    expect((await bench.ended(next, { ...run, id })).status).toBe(kind === 'apply' ? 'APPLIED' : 'DESTROYED');
    expect((await bench.ended(next, pending)).status).toBe('CANCELED');
  });
});

describe('an expired run', () => {
  it('is destroyed although a drift check of it is pending', async () => {
    const runs = gateway();
    const run = await applied(runs, { expiresAfter: 3600 });
    await runs.loop.close();
    const idle = idleGateway();
    await past(2);
    await idle.notify();
    const pending = await check(idle, run);
    expect(await idle.destroyExpired()).toBe(1);
    await idle.loop.close();
    expect((await bench.ended(gateway(), pending)).status).toBe('CANCELED');
  });
});

describe('regular drift checks', () => {
  it('come a period after the apply and after the last check, once, whichever gateways work on it', async () => {
    const gateways = [gateway(), gateway(), gateway()];
    const [runs = gateway()] = gateways;
    const run = await applied(runs);
    const all = (): Promise<number[]> => Promise.all(gateways.map((one) => one.checkDriftOfDue()));
    await past(23);
    expect(await all()).toEqual([0, 0, 0]);
    for (const count of [1, 2]) {
      await past(24);
      expect((await all()).reduce((sum, one) => sum + one)).toBeGreaterThan(0);
      const checks = await list(runs, run.clusterId, true);
      expect(checks).toHaveLength(count);
      expect(await bench.ended(runs, checks[0] ?? run)).toMatchObject({
        status: 'PLANNED_AND_FINISHED',
        origin: 'drift',
        createdByUser: null,
      });
      expect(await all()).toEqual([0, 0, 0]);
    }
    const publicId = `run_${run.id.replaceAll('-', '')}`;
    expect(await bench.db.sql`select from audit_log where after ->> 'drift_check_of' = ${publicId}`).toHaveLength(0);
  });

  it('check no run that is not APPLIED, is not to be checked, or is on an archived cluster', async () => {
    const runs = gateway();
    const [off, archived, canceled] = [await applied(runs), await applied(runs), await applied(runs)];
    await runs.changeDriftCheck({ runId: off.id, checkDrift: false, author: systemAuthor });
    bench.endCluster(archived.clusterId);
    await bench.db.sql`update runs set status = 'CANCELED' where id = ${canceled.id}`;
    await past(48);
    expect(await runs.checkDriftOfDue()).toBe(0);
    await runs.changeDriftCheck({ runId: off.id, checkDrift: true, author: systemAuthor });
    expect(await runs.checkDriftOfDue()).toBe(1);
    const never = bench.gateway({ driftHours: null });
    await past(48);
    expect(await never.checkDriftOfDue()).toBe(0);
  });

  it('wait while the cluster has other runs, and check one run of a cluster at a time', async () => {
    const runs = gateway();
    const run = await applied(runs);
    await applied(runs, { clusterId: run.clusterId, organizationId: run.organizationId });
    await runs.loop.close();
    const idle = idleGateway();
    await past(48);
    expect([await idle.checkDriftOfDue(), await idle.checkDriftOfDue()]).toEqual([1, 0]);
    const [first = run] = await list(idle, run.clusterId, true);
    await idle.cancel(first.id, systemAuthor);
    const waiting = await bench.apply(idle, run.stackVersionId, { clusterId: run.clusterId });
    expect(await idle.checkDriftOfDue()).toBe(0);
    await idle.cancel(waiting.id, systemAuthor);
    expect(await idle.checkDriftOfDue()).toBe(1);
    expect(new Set((await list(idle, run.clusterId, true)).map(({ driftOf }) => driftOf)).size).toBe(2);
  });

  it('check others where one run cannot be checked, which is tried again a period later', async () => {
    const runs = gateway();
    const [broken, run] = [await applied(runs), await applied(runs)];
    await bench.db.sql`update runs set inputs = '\\x00' where id = ${broken.id}`;
    await past(48);
    expect([await runs.checkDriftOfDue(), await list(runs, run.clusterId, true)]).toMatchObject([1, [{}]]);
    await bench.db.sql`update runs set inputs = (select inputs from runs where id = ${run.id}) where id = ${broken.id}`;
    expect(await runs.checkDriftOfDue()).toBe(0);
  });

  it('leave all places of the queue to other runs', async () => {
    const runs = gateway();
    const run = await applied(runs);
    await runs.loop.close();
    const idle = idleGateway();
    await check(idle, run);
    const mine = { clusterId: run.clusterId, organizationId: run.organizationId };
    for (let count = 0; count < 10; count += 1) await bench.apply(idle, bench.stack(resource), mine);
    await expect(bench.apply(idle, bench.stack(resource), mine)).rejects.toThrow('queue_full');
    const other = await idle.checkDrift(run.id, request);
    expect(other.kind).toBe('created');
  });
});

describe('HEADGATE_DRIFT_HOURS', () => {
  it.each([
    [{}, 24],
    [{ HEADGATE_DRIFT_HOURS: '0' }, null],
    [{ HEADGATE_DRIFT_HOURS: '8760' }, 8760],
  ])('of %j is the period of regular checks', (env, hours) => {
    expect(parseConfig(env).platform.driftHours).toBe(hours);
  });

  it.each(['-1', '1.5', '8761', 'daily'])('is rejected as %s', (HEADGATE_DRIFT_HOURS) => {
    expect(() => parseConfig({ HEADGATE_DRIFT_HOURS })).toThrow('HEADGATE_DRIFT_HOURS');
  });
});

describe('the notice of drift', () => {
  it('is sent once until a check finds no drift, and again after that', async () => {
    const raised: RunNotice[] = [];
    const raiseIn = (_: unknown, notice: RunNotice): Promise<void> => Promise.resolve(void raised.push(notice));
    const gateways = [gateway({ raiseIn }), gateway({ raiseIn })];
    const [runs = gateway()] = gateways;
    const run = await applied(runs);
    await runs.notify();
    raised.length = 0;
    const counts: number[] = [];
    for (const changed of [0, 2, 1, 0, 3]) {
      await checked(runs, run, changed);
      await Promise.all(gateways.map((one) => one.notify()));
      counts.push(raised.length);
    }
    expect(counts).toEqual([0, 1, 1, 1, 2]);
    expect(raised).toMatchObject([
      { type: 'run.drifted', organizationId: run.clusterId, data: { stack: 'a-stack', changed: 2, deleted: 0 } },
      { type: 'run.drifted', data: { changed: 3 } },
    ]);
    const failed = await check(runs, run);
    await runs.cancel(failed.id, systemAuthor);
    await bench.ended(runs, failed);
    expect([await runs.notify(), raised.length]).toEqual([0, 2]);
  });

  it('is not sent for a run that was replaced meanwhile', async () => {
    const raised: RunNotice[] = [];
    const runs = gateway({ raiseIn: (_, notice) => Promise.resolve(void raised.push(notice)) });
    const run = await applied(runs);
    await checked(runs, run, 2);
    const same = { clusterId: run.clusterId, stackId: run.stackId };
    await bench.ended(runs, await bench.apply(runs, run.stackVersionId, same));
    await runs.notify();
    expect(raised.map(({ type }) => type)).toEqual(['run.succeeded', 'run.succeeded']);
  });
});

describe('a restored copy of a database', () => {
  it('checks nothing by itself', async () => {
    const runs = gateway();
    await applied(runs);
    await past(48);
    await endDriftChecks(bench.db.sql);
    expect(await runs.checkDriftOfDue()).toBe(0);
  });
});

describe('old drift checks', () => {
  it('are kept while they are the last one that has completed', async () => {
    const runs = gateway();
    const run = await applied(runs);
    const done = await checked(runs, run, 1);
    const failed = await check(runs, run);
    await bench.ended(runs, failed);
    await bench.db.sql`update runs set status = 'FAILED' where id = ${failed.id}`;
    await runs.releaseVersions();
    const later = gateway({ clock: { ...systemClockIn(91), monotonicMs: () => performance.now() } });
    await later.dropOldLogs();
    expect(await runs.find(run.id)).toMatchObject({ driftFound: { runId: done.id }, driftFailedId: failed.id });
  });

  it('are deleted, except the last one of a run', async () => {
    const runs = gateway();
    const run = await applied(runs);
    const [old, last] = [await checked(runs, run, 0), await checked(runs, run, 1)];
    await runs.releaseVersions();
    const clock = { ...systemClockIn(91), monotonicMs: () => performance.now() };
    const later = gateway({ clock });
    await later.dropOldLogs();
    expect([await runs.find(old.id), await runs.find(last.id), await runs.find(run.id)]).toMatchObject([
      null,
      { id: last.id },
      { driftFound: { runId: last.id, changed: 1 } },
    ]);
  });
});

const systemClockIn = (days: number) => ({ now: () => Date.now() + days * 86_400_000 });
