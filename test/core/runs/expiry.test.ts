import { describe, expect, it } from 'vitest';
import { systemAuthor } from '#core/audit/audit.ts';
import {
  countExpiringRuns,
  endExpiries,
  type FoundRunner,
  type Run,
  type RunNotice,
  type Runs,
  type Sealer,
} from '#core/runs/runs.ts';
import { useRuns } from './support.ts';

/** The end of what runs have applied. Time passes by moving the end of the apply into the past. */

const bench = useRuns();
const resource = 'resource "terraform_data" "a" {}\n';
const [hour, day] = [3600, 86_400];
const nothing = (): Promise<FoundRunner> => Promise.resolve({ runner: null, terraform: null, problem: 'nothing' });

function useNotices() {
  const raised: RunNotice[] = [];
  const raiseIn = (_: unknown, notice: RunNotice): Promise<void> => {
    if (notice.type === 'run.expiring') raised.push(notice);
    return Promise.resolve();
  };
  return { raised, gateway: () => bench.gateway({ raiseIn }) };
}

const past = (seconds: number) => bench.db.sql`
  update runs set ended_at = ended_at - make_interval(secs => ${seconds}), expires_at = expires_at - make_interval(secs => ${seconds}),
    expiry_tried_at = expiry_tried_at - make_interval(secs => ${seconds})`;
const all = async (runs: Runs, { clusterId }: Run): Promise<readonly Run[]> => {
  const filter = {
    clusterIds: null,
    stackName: null,
    statuses: null,
    userId: null,
    keyId: null,
    fromMs: null,
    toMs: null,
  };
  return (await runs.list({ ...filter, clusterId, page: 1, limit: 100 })).runs;
};
const statuses = async (runs: Runs, run: Run): Promise<unknown[]> =>
  (await all(runs, run)).map(({ operation, status, origin }) => `${operation} ${status} ${origin}`);

/** Announces and destroys, as the jobs do. */
async function expire(runs: Runs): Promise<number> {
  await runs.notify();
  return runs.destroyExpired();
}

async function applied(runs: Runs, expiresAfter: number, main = resource): Promise<Run> {
  return bench.ended(runs, await bench.apply(runs, bench.stack(main), { expiresAfter }));
}

describe('an applied run that expires', () => {
  it('is announced once and destroyed once, whichever gateways work on it', async () => {
    const { raised, gateway } = useNotices();
    const gateways = [gateway(), gateway(), gateway()];
    const [runs = gateway()] = gateways;
    const run = await applied(runs, 4 * day);
    expect(run).toMatchObject({ status: 'APPLIED', expiresAfter: 4 * day });
    expect(run.expiresAtMs).toBe((run.endedAtMs ?? 0) + 4 * day * 1000);
    await past(3 * day - 60);
    for (const one of gateways) await one.notify();
    expect(raised).toEqual([]);
    await past(120);
    await Promise.all(gateways.map((one) => one.notify()));
    const expiresAt = (await runs.find(run.id))?.expiresAtMs ?? 0;
    expect(raised).toMatchObject([
      { organizationId: run.clusterId, data: { expires_at: new Date(expiresAt).toISOString() } },
    ]);
    await Promise.all(gateways.map((one) => one.destroyExpired()));
    expect(await statuses(runs, run)).toEqual(['apply APPLIED api']);
    await past(day);
    const requested = await Promise.all(gateways.map((one) => one.destroyExpired()));
    expect(requested.reduce((sum, one) => sum + one)).toBeGreaterThan(0);
    const [destroy = run] = await all(runs, run);
    await bench.ended(runs, destroy);
    await past(2 * day);
    for (const one of gateways) await one.destroyExpired();
    expect(await statuses(runs, run)).toEqual(['destroy DESTROYED expiry', 'apply SUPERSEDED api']);
    expect((await runs.find(run.id))?.expiresAtMs).toBeNull();
    expect(raised).toHaveLength(1);
  });

  it('is announced after three quarters of a short life', async () => {
    const { raised, gateway } = useNotices();
    const runs = gateway();
    await applied(runs, 4 * hour);
    await past(3 * hour - 60);
    await runs.notify();
    expect(raised).toEqual([]);
    await past(61);
    await runs.notify();
    expect(raised).toHaveLength(1);
  });

  it('waits for other runs of the stack, and lives as long as the newest apply says', async () => {
    const runs = bench.gateway();
    const run = await applied(runs, hour);
    await runs.loop.close();
    const idle = bench.gateway({ findRunner: nothing });
    const same = { clusterId: run.clusterId, stackId: run.stackId };
    const waiting = await bench.apply(idle, run.stackVersionId, same);
    await past(2 * hour);
    expect(await expire(idle)).toBe(0);
    expect(await idle.expire(run.id)).toEqual({ kind: 'wrong_status', status: 'APPLIED' });
    const next = bench.gateway();
    await bench.ended(next, waiting);
    await past(2 * hour);
    expect(await expire(next)).toBe(0);
    expect(await statuses(next, run)).toEqual(['apply APPLIED api', 'apply SUPERSEDED api']);
  });

  it('has the same life when it is retried after a failure', async () => {
    const runs = bench.gateway();
    const failing = bench.stack('resource "terraform_data" "a" {\n  input = file("missing")\n}\n');
    const run = await bench.ended(runs, await bench.apply(runs, failing, { expiresAfter: hour }));
    expect(run).toMatchObject({ status: 'FAILED', expiresAfter: hour, expiresAtMs: null });
    await past(2 * hour);
    expect([await runs.destroyExpired(), await runs.notify()]).toEqual([0, 1]);
    const retried = await runs.retry(run.id, systemAuthor);
    expect(retried).toMatchObject({ kind: 'created', run: { expiresAfter: hour } });
  });

  it('is destroyed after a failed apply over it', async () => {
    const runs = bench.gateway();
    const run = await applied(runs, hour);
    const failing = bench.stack(`${resource}output "x" {\n  value = file("missing")\n}\n`);
    const same = { clusterId: run.clusterId, stackId: run.stackId };
    await bench.ended(runs, await bench.apply(runs, failing, same));
    await past(2 * hour);
    expect(await expire(runs)).toBe(1);
    const [destroy = run] = await all(runs, run);
    expect((await bench.ended(runs, destroy)).status).toBe('DESTROYED');
  });

  it('is tried again a day after its destroy failed, and not after somebody destroyed it', async () => {
    const runs = bench.gateway();
    const stuck = `resource "terraform_data" "a" {
      provisioner "local-exec" {
        when    = destroy
        command = "false"
      }
    }\n`;
    const run = await applied(runs, hour, stuck);
    await past(2 * hour);
    for (const _ of [1, 2]) {
      expect(await expire(runs)).toBe(1);
      const [destroy = run] = await all(runs, run);
      expect(await bench.ended(runs, destroy)).toMatchObject({ status: 'FAILED', origin: 'expiry' });
      expect(await expire(runs)).toBe(0);
      await past(day + 60);
    }
    const other = await applied(runs, hour);
    const destroyed = await runs.destroy(other.id, systemAuthor);
    if (destroyed.kind !== 'created') throw new Error(destroyed.kind);
    await bench.ended(runs, destroyed.run);
    await past(2 * hour);
    await expire(runs);
    expect(await statuses(runs, other)).toEqual(['destroy DESTROYED api', 'apply SUPERSEDED api']);
  });

  it('begins its life when its confirmed plan is applied, and a plan that waits never expires', async () => {
    const runs = bench.gateway();
    const run = await bench.apply(runs, bench.stack(resource), { expiresAfter: hour, mode: 'confirm' });
    await bench.becomes(runs, run, 'PLANNED');
    await bench.db
      .sql`update runs set created_at = created_at - interval '2 hours', planned_at = planned_at - interval '2 hours'`;
    expect(await expire(runs)).toBe(0);
    await runs.confirm(run.id, systemAuthor);
    const done = await bench.ended(runs, run);
    expect(done).toMatchObject({ status: 'APPLIED', expiresAtMs: (done.endedAtMs ?? 0) + hour * 1000 });
    expect(await expire(runs)).toBe(0);
  });

  it('is destroyed for a suspended organization, and kept on an archived cluster', async () => {
    const { raised, gateway } = useNotices();
    const runs = gateway();
    const [run, archived] = [await applied(runs, hour), await applied(runs, hour)];
    bench.suspend(run.clusterId);
    bench.endCluster(archived.clusterId);
    await past(2 * hour);
    await runs.notify();
    expect(raised).toMatchObject([{ organizationId: run.clusterId }]);
    for (const _ of [1, 2]) await runs.destroyExpired();
    expect(await statuses(runs, archived)).toEqual(['apply APPLIED api']);
    const [destroy = run] = await all(runs, run);
    expect((await bench.ended(runs, destroy)).status).toBe('DESTROYED');
  });
});

describe('a restored copy of a database', () => {
  it('destroys nothing and reports no run that ended before', async () => {
    const { raised, gateway } = useNotices();
    const runs = gateway();
    const run = await applied(runs, hour);
    await past(2 * hour);
    expect(await countExpiringRuns(bench.db.sql)).toBe(1);
    await endExpiries(bench.db.sql);
    expect(await countExpiringRuns(bench.db.sql)).toBe(0);
    expect([await runs.notify(), await runs.destroyExpired(), raised]).toEqual([0, 0, []]);
    expect(await statuses(runs, run)).toEqual(['apply APPLIED api']);
  });
});

describe('the expiry of a run', () => {
  it('is moved and removed, and announced again, until the run is being destroyed', async () => {
    const { raised, gateway } = useNotices();
    const runs = gateway();
    const run = await applied(runs, hour);
    await past(hour - 60);
    await runs.notify();
    const author = systemAuthor;
    const expiresAtMs = Date.now() + 2 * day * 1000;
    const moved = await runs.changeExpiry({ runId: run.id, expiresAtMs, author });
    expect(moved).toMatchObject({ kind: 'changed', run: { expiresAtMs, expiresAfter: null } });
    await past(2 * hour);
    expect([await runs.destroyExpired(), await runs.notify(), raised.length]).toEqual([0, 0, 1]);
    await past(36 * hour);
    expect([await runs.destroyExpired(), await runs.notify(), raised.length]).toEqual([0, 1, 2]);
    expect(await runs.changeExpiry({ runId: run.id, expiresAtMs: null, author })).toMatchObject({
      kind: 'changed',
      run: { expiresAtMs: null },
    });
    await past(10 * day);
    expect(await expire(runs)).toBe(0);
    const late = { runId: run.id, expiresAtMs: Date.now() - 1000, author };
    await expect(runs.changeExpiry(late)).rejects.toThrow('must be in the future');
    await runs.loop.close();
    const idle = bench.gateway({ findRunner: nothing });
    await idle.destroy(run.id, author);
    expect(await idle.changeExpiry({ runId: run.id, expiresAtMs: null, author })).toEqual({ kind: 'being_destroyed' });
  });
});

describe('runs that expire at the same time', () => {
  const full = (clusterId: string) => bench.db.sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, access, status,
      inputs, created_at)
    select gen_random_uuid(), (array_agg(id))[1], ${clusterId}, ${clusterId}, gen_random_uuid(), 'apply', 'public', 'PENDING', '', now()
    from installations, generate_series(1, 10) group by generate_series`;

  it('are destroyed although the destroy of one cannot be requested', async () => {
    const runs = bench.gateway();
    const [broken, run] = [await applied(runs, hour), await applied(runs, hour)];
    await bench.db.sql`update runs set inputs = '\\x00' where id = ${broken.id}`;
    await past(2 * hour);
    expect(await expire(runs)).toBe(1);
    expect(await statuses(runs, broken)).toEqual(['apply APPLIED api']);
    const [destroy = run] = await all(runs, run);
    expect(await bench.ended(runs, destroy)).toMatchObject({ status: 'DESTROYED', origin: 'expiry' });
  });

  it('are destroyed although more runs than one query reads wait for a full queue', async () => {
    const runs = bench.gateway();
    const [busy, run] = [await applied(runs, hour), await applied(runs, hour)];
    await runs.loop.close();
    const sealer: Sealer = {
      mark: () => Promise.resolve(null),
      seal: (bytes) => Promise.resolve(bytes),
      open: (sealed) => Promise.resolve(sealed),
    };
    const idle = bench.gateway({ findRunner: nothing, sealer });
    await full(busy.clusterId);
    await bench.db.sql`
      with made as (
        insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
        select gen_random_uuid(), ${busy.clusterId}, gen_random_uuid(), 'a-stack', '', now() from generate_series(1, 60) returning id)
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, access, status,
        inputs, expires_after, created_at, ended_at)
      select ('00000000-0000-7000-8000-' || substr(made.id::text, 25))::uuid, made.id, r.cluster_id, r.organization_id, r.stack_version_id, 'apply', 'public', 'APPLIED',
        r.inputs, r.expires_after, r.created_at, r.ended_at from made, runs r where r.id = ${busy.id}`;
    await past(2 * hour);
    expect(await expire(idle)).toBe(1);
    expect(await statuses(idle, run)).toEqual(['destroy PENDING expiry', 'apply APPLIED api']);
  });
});

describe('what comes before the destroy of an expired run', () => {
  it('is its notice, also after an outage over that time', async () => {
    const { raised, gateway } = useNotices();
    const runs = gateway();
    await applied(runs, hour);
    await past(2 * hour);
    expect([await runs.destroyExpired(), raised.length]).toEqual([0, 0]);
    expect([await expire(runs), raised.length]).toEqual([1, 1]);
  });

  it.each(['plan', 'confirm'] as const)(
    'can still be a change of the expiry while a destroy with mode %s waits',
    async (mode) => {
      const runs = bench.gateway();
      const run = await applied(runs, hour);
      await runs.loop.close();
      const idle = bench.gateway({ findRunner: nothing });
      await idle.destroy(run.id, systemAuthor, 'api', mode);
      const later = { runId: run.id, expiresAtMs: Date.now() + day * 1000, author: systemAuthor };
      expect(await idle.changeExpiry(later)).toMatchObject({
        kind: 'changed',
        run: { expiresAtMs: later.expiresAtMs },
      });
    },
  );
});

describe('a run that waits for its confirmation', () => {
  it('fails with TIMEOUT if nobody confirms its plan within a day, and its plan is deleted', async () => {
    const first = bench.gateway();
    const run = await bench.apply(first, bench.stack(resource), { mode: 'confirm' });
    await bench.becomes(first, run, 'PLANNED');
    await bench.leavesNothing();
    await first.loop.close();
    await bench.db.sql`update runs set planned_at = planned_at - interval '25 hours'`;
    // A gateway that starts looks at once, and others within a minute.
    const second = bench.gateway();
    expect(await bench.ended(second, run)).toMatchObject({ status: 'FAILED', failureCode: 'TIMEOUT' });
    const plans = () => bench.db.sql`select 1 from run_plans where plan is not null`;
    await expect.poll(plans).toEqual([]);
  });
});
