import { beforeEach, describe, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { intervalsOf, makeCluster } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

/** A gateway's conclusions about nodes that do not report. */

const silenceMs = 300_000;
const api = useApi({ nodeSilenceMs: silenceMs });

async function useNode() {
  const cluster = await makeCluster(api());
  const path = `/v1/clusters/${cluster.id}/nodes/gpu-1`;
  const nodeId = parseId('node', cluster.nodes[0].id) ?? '';
  return {
    cluster,
    path,
    tell: (kind: string, body?: object): Promise<Answer> =>
      api().ask(`${path}/${kind}`, { method: 'POST', ...(body !== undefined && { body }) }),
    /** It was heard of for the last time so many minutes ago. */
    heard: async (minutesAgo: number): Promise<string> => {
      const seen = new Date(Date.now() - minutesAgo * 60_000);
      await api().db.sql`update cluster_nodes set last_seen_at = ${seen.toISOString()} where id = ${nodeId}`;
      return seen.toISOString();
    },
    intervals: () => intervalsOf(api(), cluster.id),
    node: async () => (await api().ask(`/v1/clusters/${cluster.id}`)).body.nodes[0],
  };
}
const hourAgo = (hours: number): string => new Date(Date.now() - hours * 3_600_000).toISOString();

beforeEach(async () => {
  await api().db.sql`delete from usage_intervals`;
  await api().db.sql`delete from usage_allocations`;
});

describe('an allocated node', () => {
  it('is not ended by a gateway that has just started and received no heartbeats yet', async () => {
    const { tell, heard, intervals } = await useNode();
    const start = hourAgo(3);
    await tell('allocate', { at: start });
    await heard(60);
    expect(await api().clusters.endSilentNodes()).toBe(0);
    expect(await intervals()).toEqual([`${start}– Water Works`]);
    api().turnClock(silenceMs + 1000);
  });

  it('keeps counting when it never sent a heartbeat, or none since its allocation', async () => {
    const [never, before] = [await useNode(), await useNode()];
    await never.tell('allocate', { at: hourAgo(3) });
    await before.heard(120);
    await before.tell('allocate', { at: hourAgo(1) });
    const fresh = await useNode();
    await fresh.tell('allocate', { at: hourAgo(1) });
    await fresh.tell('heartbeat');
    expect(await api().clusters.endSilentNodes()).toBe(0);
    for (const { node } of [never, before, fresh]) expect((await node()).status).toBe('allocated');
  });

  it('is released as of its last heartbeat when it is silent, once, with an audit entry', async () => {
    const { cluster, tell, heard, intervals, node } = await useNode();
    const start = hourAgo(3);
    await tell('allocate', { at: start });
    const seen = await heard(60);
    const ended = await Promise.all([api().clusters.endSilentNodes(), api().clusters.endSilentNodes()]);
    expect(ended.toSorted()).toEqual([0, 1]);
    expect(await intervals()).toEqual([`${start}–${seen}? Water Works`]);
    expect(await node()).toMatchObject({ status: 'released', allocation: { released_at: seen, estimated: true } });
    const rows = await api().db.sql`
      select actor_key_id, after from audit_log
      where target_id = ${cluster.nodes[0].id} and action = 'cluster_node.released'`;
    expect(rows).toMatchObject([{ actor_key_id: null, after: { estimated: true, released_at: seen } }]);
  });

  it('continues without a gap after a new heartbeat', async () => {
    const { tell, heard, intervals, node } = await useNode();
    const start = hourAgo(3);
    await tell('allocate', { at: start });
    await heard(60);
    await api().clusters.endSilentNodes();
    expect((await tell('heartbeat')).status).toBe(204);
    expect(await intervals()).toEqual([`${start}– Water Works`]);
    expect(await node()).toMatchObject({ status: 'allocated', allocation: { generation: 1, estimated: false } });
    expect(await api().clusters.endSilentNodes()).toBe(0);
  });

  it('is released at the reported time when a release arrives later', async () => {
    for (const hours of [2, 0.5]) {
      const { tell, heard, intervals } = await useNode();
      const [start, end] = [hourAgo(3), hourAgo(hours)];
      await tell('allocate', { at: start });
      await heard(60);
      await api().clusters.endSilentNodes();
      expect((await tell('release', { at: end })).body.outcome).toBe('recorded');
      expect((await tell('heartbeat')).status).toBe(204);
      expect(await intervals()).toEqual([`${start}–${end} Water Works`]);
    }
  });

  it('stays allocated after a new allocation and a heartbeat', async () => {
    const { tell, heard, intervals, node } = await useNode();
    await tell('allocate', { at: hourAgo(3) });
    await heard(60);
    await api().clusters.endSilentNodes();
    await tell('allocate');
    await tell('heartbeat');
    expect(await node()).toMatchObject({ status: 'allocated', allocation: { generation: 2 } });
    expect(await intervals()).toHaveLength(2);
  });
});

describe('hours of a deleted node', () => {
  it('end, marked as estimated, when a gateway detects them', async () => {
    const { id } = await api().organization('Gone');
    const organization = { id: parseId('org', id) ?? '', name: 'Gone' };
    const cluster = { id: formatId('cluster', uuidv7()), name: 'gone', organization };
    const nodeId = formatId('node', uuidv7());
    const shape = { nodeName: 'n', hardwareProfile: 'h100-8x', gpus: 8 };
    await api().db.orm.transaction((tx) =>
      api().costs.allocate(tx, cluster, [{ nodeId, generation: 1, ...shape, atMs: Date.now() - 3_600_000 }]),
    );
    expect(await api().clusters.endSilentNodes()).toBe(1);
    expect(await intervalsOf(api(), cluster.id)).toEqual([expect.stringMatching(/Z–.*Z\? Gone$/)]);
  });
});
