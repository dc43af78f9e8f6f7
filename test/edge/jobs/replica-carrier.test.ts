import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import { createAudit } from '#core/audit/audit.ts';
import { createCosts } from '#core/costs/costs.ts';
import { type HostReport, readGpuRuns } from '#core/fleet/fleet.ts';
import { createReplicaCarrier, type ReplicaCarrier } from '#edge/jobs/jobs.ts';
import { createTestDatabase } from '#test/database.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

const minute = 60_000;
const hour = 60 * minute;

interface Row {
  readonly gpus?: readonly string[];
  readonly host?: string;
  readonly model?: string;
  readonly startedMs: number;
  readonly readyMs?: number;
  readonly endedMs?: number;
  readonly ended?: 'clean' | 'unclean';
  readonly reason?: string;
  readonly scrapedMs?: number;
}

interface Interval {
  readonly id: string;
  readonly gpus: number;
  readonly started: number;
  readonly ended: number | null;
  readonly estimated: boolean;
  readonly profile: string;
  readonly organization: string;
}

const first = { id: uuidv7(), name: 'First' };
const named = { id: uuidv7(), name: 'Named' };
const hosts: HostReport[] = [];
const engines = new Map<string, ReturnType<typeof engineDefinition>>();
const logLines: string[] = [];

let db: Db;
let drop: () => Promise<void>;
let nowMs: number;

beforeAll(async () => {
  const database = await createTestDatabase();
  db = connectDb(database.url, { poolMax: 8 });
  drop = async () => {
    await db.close();
    await database.drop();
  };
});
afterAll(() => drop());
beforeEach(async () => {
  nowMs = Date.now();
  logLines.length = 0;
  engines.clear();
  hosts.splice(0, hosts.length, {
    name: 'gpu1',
    pools: [],
    reachable: true,
    gpus: ['a', 'b'].map((id) => ({ id, memoryBytes: null, profile: 'NVIDIA H100' })),
  });
  await db.sql`truncate replica_runs, usage_allocations, usage_intervals, usage_snapshots, rate_cards`;
});

/** A gateway's. */
function carrier(): ReplicaCarrier {
  const log = createLog('warn', { write: (line: string) => void logLines.push(line) });
  return createReplicaCarrier({
    readRuns: (wanted) => readGpuRuns(db, wanted),
    costs: createCosts({ db, audit: createAudit({ clock: systemClock }), log }),
    findEngine: (id) => engines.get(id),
    hosts: () => hosts,
    organizations: {
      find: async (id) => (id === named.id ? named : null),
      first: async () => first,
    },
    clock: { now: () => nowMs, monotonicMs: () => performance.now() },
    log,
  });
}

async function write(row: Row, id: string = randomUUID()): Promise<string> {
  const { gpus = ['a'], host = 'gpu1', model = 'llama', ended = null, reason = null } = row;
  const [started, ready, end, scraped] = [row.startedMs, row.readyMs, row.endedMs, row.scrapedMs].map((ms) =>
    ms === undefined ? null : new Date(ms).toISOString(),
  );
  await db.sql`
    insert into replica_runs (id, scope, model, replica, driver, host, gpus, spec_hash, started_at, ready_at, ended_at,
      ended, end_reason, scraped_at)
    values (${id}, 'containers', ${model}, ${`r-${id}`}, 'docker', ${host}, ${JSON.stringify(gpus)}::text::jsonb, 'hash',
      ${started ?? null}::text::timestamptz, ${ready ?? null}::text::timestamptz, ${end ?? null}::text::timestamptz,
      ${ended}, ${reason}, ${scraped ?? null}::text::timestamptz)
    on conflict (id) do update set ready_at = excluded.ready_at, ended_at = excluded.ended_at, ended = excluded.ended,
      end_reason = excluded.end_reason, scraped_at = excluded.scraped_at`;
  return id;
}

async function intervals(): Promise<Interval[]> {
  const rows = await db.sql`
    select i.node_id, i.gpus, i.started_ms::text, i.ended_ms::text, i.estimated, s.hardware_profile, s.organization_id
    from usage_intervals i join usage_snapshots s on s.id = i.snapshot_id order by i.started_ms`;
  return rows.map((row) => ({
    id: row['node_id'],
    gpus: row['gpus'],
    started: Number(row['started_ms']),
    ended: row['ended_ms'] === null ? null : Number(row['ended_ms']),
    estimated: row['estimated'],
    profile: row['hardware_profile'],
    organization: row['organization_id'],
  }));
}

describe('the usage intervals of replicas', () => {
  it('omit replicas without GPUs', async () => {
    await write({ startedMs: nowMs - hour, gpus: [] });
    expect(await carrier().carry()).toBe(0);
    expect(await intervals()).toEqual([]);
  });

  it('contain one interval per replica, once, for any number of gateways and passes', async () => {
    const startedMs = nowMs - hour;
    const id = await write({ startedMs, gpus: ['a', 'b'] });
    const [one, other] = [carrier(), carrier()];
    const both = await Promise.all([one.carry(), other.carry()]);
    expect(both[0] + both[1]).toBe(1);
    await write({ startedMs, readyMs: startedMs + minute }, id);
    expect([await one.carry(), await other.carry()]).toEqual([1, 0]);
    await write({ startedMs, readyMs: startedMs + minute, endedMs: nowMs, ended: 'clean' }, id);
    expect([await other.carry(), await one.carry(), await carrier().carry()]).toEqual([1, 0, 0]);
    const profile = 'NVIDIA H100';
    const interval = { id, gpus: 2, started: startedMs, ended: nowMs, estimated: false, profile };
    expect(await intervals()).toEqual([{ ...interval, organization: first.id }]);
  });

  it('have the part of the card that a slice is, and the profile of its card', async () => {
    const gpus = [{ id: 'MIG-1', memoryBytes: null, profile: 'NVIDIA H100 MIG 3g.40gb' }];
    hosts.splice(0, 1, { name: 'gpu1', pools: [], reachable: true, gpus });
    const id = await write({ startedMs: nowMs - hour, gpus: ['MIG-1'] });
    await db.sql`update replica_runs set gpu_share = 12`;
    expect(await carrier().carry()).toBe(1);
    expect(await intervals()).toMatchObject([{ id, gpus: 1, profile: 'NVIDIA H100' }]);
    expect([...(await db.sql`select gpu_share from usage_intervals`)]).toEqual([{ gpu_share: 12 }]);
  });

  it('contain all replicas after a start, and those that ended during a pause of a running gateway', async () => {
    const old = nowMs - 200 * 24 * hour;
    await write({ startedMs: old, endedMs: old + hour, ended: 'clean' });
    const open = await write({ startedMs: nowMs - 10 * hour });
    const one = carrier();
    expect(await one.carry()).toBe(2);
    // Half a day later, since the report came late.
    await write({ startedMs: nowMs - 10 * hour, endedMs: nowMs - 9 * hour, ended: 'clean' }, open);
    nowMs += 12 * hour;
    expect(await one.carry()).toBe(1);
    // Begun, ended and written late altogether: found within a day.
    await write({ startedMs: nowMs - 5 * hour, endedMs: nowMs - 4 * hour, ended: 'clean' });
    expect(await one.carry()).toBe(0);
    nowMs += 12 * hour;
    expect(await one.carry()).toBe(1);
    expect((await intervals()).map(({ ended }) => ended !== null)).toEqual([true, true, true]);
  });

  it('begin when the replica got its GPUs, also when that is known later', async () => {
    const [startedMs, heldMs] = [nowMs - minute, nowMs - hour];
    const id = await write({ startedMs });
    const one = carrier();
    await one.carry();
    // The engine answers now, and says since when it has been there.
    await db.sql`
      update replica_runs set held_at = ${new Date(heldMs).toISOString()}::text::timestamptz,
        started_at = ${new Date(nowMs).toISOString()}::text::timestamptz where id = ${id}`;
    expect([await one.carry(), await one.carry(), await carrier().carry()]).toEqual([1, 0, 0]);
    expect(await intervals()).toMatchObject([{ id, started: heldMs, ended: null }]);
  });

  it('end where they began when a clock was set back in between', async () => {
    const startedMs = nowMs - hour;
    const id = await write({ startedMs, endedMs: startedMs - minute, ended: 'clean' });
    expect(await carrier().carry()).toBe(1);
    expect((await intervals()).filter((one) => one.id === id && one.ended !== one.started)).toEqual([]);
  });

  it('end when the replica was last seen while its host is unreachable, and reopen when it is back', async () => {
    const startedMs = nowMs - 2 * hour;
    const id = await write({ startedMs, scrapedMs: nowMs - hour });
    const one = carrier();
    hosts.splice(0, hosts.length, { name: 'gpu1', pools: [], reachable: false, gpus: [] });
    engines.set('llama', engineDefinition({}, { id: 'llama', hardwareProfile: 'h100' }));
    await one.carry();
    expect(await intervals()).toMatchObject([{ id, ended: nowMs - hour, estimated: true }]);
    await write({ startedMs, scrapedMs: nowMs }, id);
    await one.carry();
    expect(await intervals()).toMatchObject([{ id, ended: null, estimated: false }]);
  });

  it('are complete in the end when a pass failed half-way', async () => {
    for (let i = 0; i < 1001; i += 1) await write({ startedMs: nowMs - hour + i });
    const one = carrier();
    await db.sql.unsafe(
      `alter table usage_intervals add constraint broken check (started_ms <> ${nowMs - hour + 1000})`,
    );
    await expect(one.carry()).rejects.toThrow('usage_intervals');
    await db.sql.unsafe('alter table usage_intervals drop constraint broken');
    await one.carry();
    expect(await intervals()).toHaveLength(1001);
    expect(await one.carry()).toBe(0);
  });
});

describe('an unobserved end', () => {
  const crashed = { ended: 'unclean', reason: 'crashed' } as const;
  const vanished = { ended: 'unclean', reason: 'vanished' } as const;
  const idle = { ended: 'clean', reason: 'idle' } as const;
  it.each([
    { is: 'where its counters were read last', how: crashed, scraped: -2 * hour, ended: -2 * hour, estimated: true },
    { is: 'where it was missed, read just before', how: vanished, scraped: -minute, ended: 0, estimated: true },
    { is: 'none where somebody saw it', how: crashed, scraped: -minute, ended: 0, estimated: false },
    { is: 'none where its counters were read at its stop', how: idle, scraped: -minute, ended: 0, estimated: false },
  ])('is $is', async ({ how, scraped, ended, estimated }) => {
    await write({ startedMs: nowMs - 3 * hour, endedMs: nowMs, scrapedMs: nowMs + scraped, ...how });
    await carrier().carry();
    expect(await intervals()).toMatchObject([{ ended: nowMs + ended, estimated }]);
  });

  it('is estimated for a replica that is no longer read, and withdrawn when it is read again', async () => {
    const startedMs = nowMs - 3 * hour;
    const id = await write({ startedMs, scrapedMs: nowMs - hour });
    const one = carrier();
    await one.carry();
    expect(await intervals()).toMatchObject([{ ended: nowMs - hour, estimated: true }]);
    await write({ startedMs, scrapedMs: nowMs }, id);
    await one.carry();
    expect(await intervals()).toMatchObject([{ ended: null, estimated: false }]);
    await write({ startedMs, scrapedMs: nowMs, endedMs: nowMs + minute, ended: 'clean' }, id);
    await one.carry();
    expect(await intervals()).toMatchObject([{ ended: nowMs + minute, estimated: false }]);
  });
});

describe('the hardware profile and organization of an interval', () => {
  it('come from the engine file, and do not change later', async () => {
    const file = { id: 'llama', hardwareProfile: 'h100-sxm', organizationId: named.id };
    engines.set('llama', engineDefinition({}, file));
    await write({ startedMs: nowMs - hour });
    await carrier().carry();
    engines.set('llama', engineDefinition({}, { ...file, hardwareProfile: 'other', organizationId: null }));
    await carrier().carry();
    expect(await intervals()).toMatchObject([{ profile: 'h100-sxm', organization: named.id }]);
  });

  it('fall back to the first organization, with a warning, when the file names an unknown one', async () => {
    engines.set('llama', engineDefinition({}, { id: 'llama', organizationId: uuidv7() }));
    await write({ startedMs: nowMs - hour });
    const one = carrier();
    await one.carry();
    await one.carry();
    expect(await intervals()).toMatchObject([{ organization: first.id }]);
    expect(logLines.filter((line) => line.includes('names an organization that does not exist'))).toHaveLength(1);
  });

  it('wait for the host to report its GPU, and then become "default"', async () => {
    hosts.length = 0;
    await write({ startedMs: nowMs - minute });
    const one = carrier();
    expect(await one.carry()).toBe(0);
    nowMs += hour;
    expect(await one.carry()).toBe(1);
    expect(await intervals()).toMatchObject([{ profile: 'default' }]);
  });
});
