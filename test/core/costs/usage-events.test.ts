import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Transaction } from '#base/database/connect-database.ts';
import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import type { ClusterRef, UsageOutcome } from '#core/costs/costs.ts';
import { at, useCosts } from '#test/costs/support.ts';

const warnings: string[] = [];
const log = createLog('warn', { write: (line) => warnings.push(line) });

const hour = 3_600_000;
const begin = at('2026-03-10');

describe('node events', () => {
  const bench = useCosts({ log });
  const inTransaction = <T>(work: (tx: Transaction) => Promise<T>): Promise<T> => bench.db.orm.transaction(work);
  const newCluster = (): ClusterRef => ({
    id: `cluster_${uuidv7()}`,
    name: 'one',
    organization: bench.organization(),
  });
  const newNode = (): string => `node_${uuidv7()}`;
  const shape = { nodeName: 'node', hardwareProfile: 'h100-8x', gpus: 8 };

  function allocate(cluster: ClusterRef, nodeId: string, atMs: number | null, generation = 1) {
    return inTransaction((tx) => bench.costs.allocate(tx, cluster, [{ ...shape, nodeId, generation, atMs }]));
  }
  function release(cluster: ClusterRef, nodeId: string, atMs: number | null, more: object = {}) {
    const event = { nodeId, generation: 1, atMs, estimated: false, ...more };
    return inTransaction((tx) => bench.costs.release(tx, cluster.id, [event]));
  }
  const kinds = (outcomes: readonly UsageOutcome[]): string[] => outcomes.map(({ kind }) => kind);

  /** Intervals of a node in hours since `begin`: "0–2", open "0–", estimated "0–2?". */
  async function intervalsOf(nodeId: string): Promise<string[]> {
    const rows = await bench.db.sql<{ started: string; ended: string | null; estimated: boolean }[]>`
      select started_ms as started, ended_ms as ended, estimated from usage_intervals
      where node_id = ${nodeId} order by started_ms`;
    const text = (ms: string) => String((Number(ms) - begin) / hour);
    return rows.map(
      ({ started, ended, estimated }) => `${text(started)}–${ended === null ? '' : text(ended)}${estimated ? '?' : ''}`,
    );
  }

  it('are rejected with a time in the future, and leave nothing', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    const ahead = Date.now() + 24 * hour;
    await expect(allocate(cluster, nodeId, ahead)).rejects.toMatchObject({ code: 'invalid_value', param: 'at' });
    await expect(release(cluster, nodeId, ahead)).rejects.toMatchObject({ code: 'invalid_value', param: 'at' });
    expect(await bench.db.sql`select 1 from usage_allocations`).toHaveLength(0);
  });

  it('leave nothing in a transaction that is rolled back', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    const undone = inTransaction(async (tx) => {
      await bench.costs.allocate(tx, cluster, [{ ...shape, nodeId, generation: 1, atMs: begin }]);
      throw new Error('undone');
    });
    await expect(undone).rejects.toThrow('undone');
    expect(await intervalsOf(nodeId)).toEqual([]);
    expect(await bench.db.sql`select 1 from usage_allocations`).toHaveLength(0);
  });

  it('change nothing when they are repeated, and return the recorded times', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    expect(kinds(await allocate(cluster, nodeId, begin))).toEqual(['recorded']);
    expect(await allocate(cluster, nodeId, begin + hour)).toMatchObject([{ kind: 'repeated', allocatedMs: begin }]);
    expect(kinds(await release(cluster, nodeId, begin + 2 * hour))).toEqual(['recorded']);
    expect(await release(cluster, nodeId, begin + 9 * hour)).toMatchObject([
      { kind: 'repeated', allocatedMs: begin, releasedMs: begin + 2 * hour },
    ]);
    expect(await intervalsOf(nodeId)).toEqual(['0–2']);
  });

  it('are recorded once when they arrive at the same time', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => allocate(cluster, nodeId, null)));
    expect(outcomes.flatMap(kinds).filter((kind) => kind === 'recorded')).toHaveLength(1);
    expect(new Set(outcomes.flat().map(({ allocatedMs }) => allocatedMs)).size).toBe(1);
    expect(await intervalsOf(nodeId)).toHaveLength(1);
  });

  it('use the database time by default, in whole milliseconds and in order', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    const [allocated] = await allocate(cluster, nodeId, null);
    const [released] = await release(cluster, nodeId, null);
    const [row] = await bench.db.sql<{ started: string; ended: string; now: string }[]>`
      select started_ms as started, ended_ms as ended, floor(extract(epoch from now()) * 1000) as now
      from usage_intervals where node_id = ${nodeId}`;
    expect(Number(row?.started)).toBe(allocated?.allocatedMs);
    expect(Number(row?.ended)).toBe(released?.releasedMs);
    expect(Number(row?.ended)).toBeLessThanOrEqual(Number(row?.now));
  });

  it('can arrive in reverse order: a release waits for its allocation', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    expect(await release(cluster, nodeId, begin + 3 * hour)).toMatchObject([
      { kind: 'recorded', allocatedMs: null, releasedMs: begin + 3 * hour },
    ]);
    expect(await intervalsOf(nodeId)).toEqual([]);
    await allocate(cluster, nodeId, begin + hour);
    expect(await intervalsOf(nodeId)).toEqual(['1–3']);
  });

  it('count nothing when the release is before the allocation, and log a warning', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    await allocate(cluster, nodeId, begin + 2 * hour);
    await release(cluster, nodeId, begin);
    expect(await intervalsOf(nodeId)).toEqual([]);
    expect(warnings.filter((line) => line.includes(nodeId))).toHaveLength(1);
  });

  it('create a separate interval for a later allocation', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    await allocate(cluster, nodeId, begin, 1);
    await release(cluster, nodeId, begin + hour, { generation: 1 });
    await allocate(cluster, nodeId, begin + 2 * hour, 2);
    expect(await intervalsOf(nodeId)).toEqual(['0–1', '2–']);
  });

  it('replace an estimated release by a reported one, and not the reverse', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    await allocate(cluster, nodeId, begin);
    await release(cluster, nodeId, begin + 2 * hour, { estimated: true });
    expect(await intervalsOf(nodeId)).toEqual(['0–2?']);
    expect(kinds(await release(cluster, nodeId, begin + 5 * hour, { estimated: true }))).toEqual(['repeated']);
    expect(kinds(await release(cluster, nodeId, begin + 4 * hour))).toEqual(['recorded']);
    expect(kinds(await release(cluster, nodeId, begin + 2 * hour, { estimated: true }))).toEqual(['repeated']);
    expect(await intervalsOf(nodeId)).toEqual(['0–4']);
  });

  it('withdraw an estimated release, but not a reported one', async () => {
    const [cluster, nodeId, other] = [newCluster(), newNode(), newNode()];
    await allocate(cluster, nodeId, begin);
    await release(cluster, nodeId, begin + 2 * hour, { estimated: true });
    await allocate(cluster, other, begin);
    await release(cluster, other, begin + 2 * hour);
    const keys = [nodeId, other].map((id) => ({ nodeId: id, generation: 1 }));
    const outcomes = await inTransaction((tx) => bench.costs.withdrawEstimate(tx, cluster.id, keys));
    expect(Object.fromEntries(outcomes.map(({ nodeId: id, kind }) => [id, kind]))).toEqual({
      [nodeId]: 'recorded',
      [other]: 'repeated',
    });
    expect([await intervalsOf(nodeId), await intervalsOf(other)]).toEqual([['0–'], ['0–2']]);
  });

  it('list open allocations page by page, without releases that wait for their allocation', async () => {
    const cluster = newCluster();
    const nodes = [newNode(), newNode(), newNode()];
    for (const nodeId of nodes) await allocate(cluster, nodeId, begin);
    await release(cluster, newNode(), begin);
    await allocate(cluster, newNode(), begin, 2).then(async ([gone]) => {
      await release(cluster, gone?.nodeId ?? '', begin + hour, { generation: 2 });
    });
    const first = await bench.costs.listOpen({ source: 'node', after: null, limit: 2 });
    const rest = await bench.costs.listOpen({ source: 'node', after: first.at(-1) ?? null, limit: 2 });
    expect([...first, ...rest]).toEqual(
      nodes.map((nodeId) => ({ nodeId, generation: 1, clusterId: cluster.id, allocatedMs: begin })),
    );
  });

  it('are written together for many nodes', async () => {
    const cluster = newCluster();
    const keys = Array.from({ length: 1500 }, () => ({ nodeId: newNode(), generation: 1 }));
    const outcomes = await inTransaction((tx) =>
      bench.costs.allocate(
        tx,
        cluster,
        keys.map((key) => ({ ...shape, ...key, atMs: begin })),
      ),
    );
    expect(outcomes.filter(({ kind }) => kind === 'recorded')).toHaveLength(1500);
    expect(await bench.db.sql`select 1 from usage_intervals`).toHaveLength(1500);
    expect(await bench.db.sql`select 1 from usage_snapshots`).toHaveLength(1);
  });

  describe('events of a moved cluster', () => {
    const other = { id: uuidv7(), name: 'Other' };

    /** As `intervalsOf`, with the owner's name in front. */
    async function ownersOf(nodeId: string): Promise<string[]> {
      const rows = await bench.db.sql<{ name: string }[]>`
        select s.organization_name as name from usage_intervals i join usage_snapshots s on s.id = i.snapshot_id
        where i.node_id = ${nodeId} order by i.started_ms`;
      const intervals = await intervalsOf(nodeId);
      return rows.map(({ name }, index) => `${name} ${intervals[index] ?? ''}`);
    }
    function move(cluster: ClusterRef, to: ClusterRef['organization'], atMs: number | null) {
      const change = { clusterId: cluster.id, from: cluster.organization, to, atMs };
      return inTransaction((tx) => bench.costs.moveCluster(tx, change));
    }

    it('continue for the new owner, and a repeated move changes nothing', async () => {
      const [cluster, nodeId] = [newCluster(), newNode()];
      await allocate(cluster, nodeId, begin);
      expect(await move(cluster, other, begin + 2 * hour)).toBe(true);
      expect(await move(cluster, other, begin + 3 * hour)).toBe(false);
      expect(await move(cluster, cluster.organization, begin)).toBe(false);
      expect(await ownersOf(nodeId)).toEqual(['Acme 0–2', 'Other 2–']);
      await release(cluster, nodeId, begin + 5 * hour, { estimated: true });
      expect(await ownersOf(nodeId)).toEqual(['Acme 0–2', 'Other 2–5?']);
    });

    it('follow the order of its moves, also when the database clock stepped back', async () => {
      const [cluster, nodeId] = [newCluster(), newNode()];
      const third = { id: uuidv7(), name: 'Third' };
      await allocate(cluster, nodeId, begin);
      // By a clock that was half a minute ahead.
      await move(cluster, other, Date.now() + 30_000);
      expect(await move({ ...cluster, organization: other }, third, null)).toBe(true);
      expect(await move({ ...cluster, organization: third }, cluster.organization, null)).toBe(true);
      const owners = (await ownersOf(nodeId)).map((text) => text.split(' ')[0]);
      expect(owners).toEqual(['Acme', 'Other', 'Third', 'Acme']);
      expect((await ownersOf(nodeId)).at(-1)).toMatch(/–$/);
    });

    it('count for the owner at their own time when they arrive late', async () => {
      const [cluster, nodeId, late] = [newCluster(), newNode(), newNode()];
      await allocate(cluster, nodeId, begin);
      await move(cluster, other, begin + 4 * hour);
      await release(cluster, nodeId, begin + 3 * hour);
      expect(await ownersOf(nodeId)).toEqual(['Acme 0–3']);
      // By now the cluster is the other's; an event about the time before is not.
      await allocate({ ...cluster, organization: other }, late, begin + hour);
      expect(await ownersOf(late)).toEqual(['Acme 1–4', 'Other 4–']);
    });
  });

  it('cannot overlap for one node in the database', async () => {
    const [cluster, nodeId] = [newCluster(), newNode()];
    await allocate(cluster, nodeId, begin);
    const insert = (id: string, source: string, fromMs: number) => bench.db.sql`
      insert into usage_intervals (source, node_id, generation, part, snapshot_id, nodes, gpus, started_ms, estimated)
      select ${source}, ${id}, 9, 0, id, 1, 8, ${fromMs}::bigint, false from usage_snapshots limit 1`;
    await expect(insert(nodeId, 'node', begin + 5 * hour)).rejects.toMatchObject({ code: '23P01' });
    await release(cluster, nodeId, begin + 5 * hour);
    await expect(insert(nodeId, 'node', begin + 4 * hour)).rejects.toMatchObject({ code: '23P01' });
    await insert(nodeId, 'node', begin + 5 * hour);
    await insert(nodeId, 'replica', begin);
    await insert(newNode(), 'node', begin);
  });

  it('need no PostgreSQL extension', async () => {
    const rows = await bench.db.sql<{ extname: string }[]>`select extname from pg_extension`;
    expect(rows.map(({ extname }) => extname)).toEqual(['plpgsql']);
  });

  it('give the same intervals in any order', async () => {
    const told = fc.record({
      generation: fc.integer({ min: 1, max: 4 }),
      from: fc.integer({ min: 0, max: 12 }),
      hours: fc.option(fc.integer({ min: 0, max: 6 })),
    });
    const history = fc.record({
      allocations: fc.uniqueArray(told, { selector: ({ generation }) => generation, minLength: 1 }),
      movedAt: fc.option(fc.integer({ min: 0, max: 14 })),
      order: fc.array(fc.nat(), { minLength: 9, maxLength: 9 }),
    });
    await fc.assert(
      fc.asyncProperty(history, async ({ allocations, movedAt, order }) => {
        const to = { id: uuidv7(), name: 'Other' };
        const apply = async (shuffle: boolean): Promise<string[]> => {
          const [cluster, nodeId] = [newCluster(), newNode()];
          const steps = allocations.flatMap(
            ({ generation, from, hours }): ((tx: Transaction) => Promise<unknown>)[] => {
              const [key, startMs] = [{ nodeId, generation }, begin + from * hour];
              const start = (tx: Transaction) =>
                bench.costs.allocate(tx, cluster, [{ ...shape, ...key, atMs: startMs }]);
              if (hours === null) return [start];
              const end = { ...key, atMs: startMs + hours * hour, estimated: false };
              return [start, (tx) => bench.costs.release(tx, cluster.id, [end])];
            },
          );
          if (movedAt !== null) {
            const change = { clusterId: cluster.id, from: cluster.organization, to, atMs: begin + movedAt * hour };
            steps.push((tx) => bench.costs.moveCluster(tx, change));
          }
          const places = steps.map((step, index) => ({ step, place: shuffle ? (order[index] ?? 0) : index }));
          await inTransaction(async (tx) => {
            for (const { step } of places.toSorted((a, b) => a.place - b.place)) await step(tx);
          });
          const rows = await bench.db.sql<{ text: string }[]>`
            select generation || ' ' || part || ' ' || organization_name || ' ' || started_ms || ' ' ||
              coalesce(ended_ms::text, 'open') as text
            from usage_intervals i join usage_snapshots s on s.id = i.snapshot_id
            where node_id = ${nodeId} order by started_ms`;
          return rows.map(({ text }) => text);
        };
        expect(await apply(true)).toEqual(await apply(false));
      }),
      { numRuns: 25 },
    );
  });
});
